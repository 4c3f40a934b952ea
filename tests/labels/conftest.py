"""Keep what the tests read out of the cache of the person who runs them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty cache folder of this test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SATL_CACHE", str(folder))
    return folder / "labels"
