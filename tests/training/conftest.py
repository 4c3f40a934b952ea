"""One trained run that many tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.tiny import tiny_config, train


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run of the default method; do not change it."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(folder, tiny_config())
    return folder
