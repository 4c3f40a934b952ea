"""The command line called as a user calls it, in this process, and runs to use it on."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from satl.cli import main
from satl.scenes import write_scenes
from training.tiny import TINY, tiny_config, train


class Outcome(NamedTuple):
    """What a user sees of a command."""

    code: int
    out: str
    err: str


def call(*arguments: object) -> Outcome:
    """Run ``satl`` with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["satl", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
    return Outcome(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def satl() -> Callable[..., Outcome]:
    """Return a function that runs the command line."""
    return call


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run; do not change it."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(folder, tiny_config("training.epochs=3", "training.stage1_epochs=1"))
    return folder


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 60 pictures and ``labels.csv``; do not change it."""
    folder = tmp_path_factory.mktemp("pictures")
    write_scenes(folder, 60, size=32)
    return folder


@pytest.fixture
def tiny_yaml(tmp_path: Path) -> Path:
    """Return the file of the tiny configuration."""
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY))
    return path
