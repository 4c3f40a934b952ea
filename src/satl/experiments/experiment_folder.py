"""The folder of an experiment: its files, the state of its grid runs, and a lock. Does not import torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

from satl.errors import Argument, ConfigError, RunError, Sentence
from satl.experiments.grid import Grid, GridRun, read_grid
from satl.files import atomic_path, remove_folder, try_lock
from satl.parsing import parse_json

State = Literal["new", "started", "failed", "done"]
"""``started``: interrupted; it resumes from its last checkpoint if there is one."""

RESULT = "result.json"
FAILURE = "failure.json"
_ANOTHER_FOLDER = Sentence("choose another folder with {out}", out=Argument("out"))
_RUN_AGAIN = "remove it, and the run is run again"
_MARK = "# Written by `satl experiment`: the grid of this folder, with all paths written out.\n"


class ExperimentFolder:
    """The files of an experiment.

    ``grid.yaml``, ``runs/RUN`` (ordinary run folders, each with ``result.json`` once it is done or ``failure.json``
    if it failed), ``results.parquet``, ``results.csv``, ``tables/``, ``figures/``, ``report.html`` and ``logs/``.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.grid = self.path / "grid.yaml"
        self.runs = self.path / "runs"
        self.logs = self.path / "logs"
        self.tables = self.path / "tables"
        self.figures = self.path / "figures"
        self.report = self.path / "report.html"
        self.parquet = self.path / "results.parquet"
        self.csv = self.path / "results.csv"

    def run_path(self, grid_run: GridRun) -> Path:
        """Return the path of the run folder of a grid run."""
        return self.runs / grid_run.name

    def check(self) -> None:
        """Raise RunError if the path is a file or a folder with something else in it; nothing is written."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError("is a file, not a folder", where=self.path, remedy=_ANOTHER_FOLDER)
        if self.path.is_dir() and not self._is_ours():
            foreign = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith("."))
            if foreign:
                raise RunError(
                    f"holds '{foreign[0]}' and no experiment", where=self.path, remedy=_ANOTHER_FOLDER
                )

    def _is_ours(self) -> bool:
        """Whether an experiment was run here; a grid.yaml that the user wrote does not count and is not replaced."""
        return self.grid.is_file() and self.grid.read_text("utf-8", "replace").startswith(_MARK)

    def read_grid(self) -> Grid:
        """Return the grid that the folder was last run with."""
        if not self._is_ours():
            raise ConfigError("holds no experiment to continue", where=self.path, remedy="give a grid file")
        return read_grid(self.grid)

    def write_grid(self, grid: Grid) -> None:
        """Write the resolved grid."""
        with atomic_path(self.grid) as temporary:
            text = yaml.safe_dump(grid.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
            temporary.write_text(_MARK + text, encoding="utf-8")

    def state(self, grid_run: GridRun) -> State:
        """Return the state of a grid run."""
        run = self.run_path(grid_run)
        if (run / RESULT).is_file():
            return "done"
        if (run / FAILURE).is_file():
            return "failed"
        return "started" if (run / "config.yaml").is_file() else "new"

    def result(self, grid_run: GridRun) -> dict[str, Any]:
        """Return ``result.json`` of a finished grid run."""
        return _read_json(self.run_path(grid_run) / RESULT)

    def failure(self, grid_run: GridRun) -> dict[str, Any]:
        """Return ``failure.json`` of a failed grid run: ``error`` (a sentence), ``traceback`` and ``facts``."""
        return _read_json(self.run_path(grid_run) / FAILURE)

    def write_failure(self, grid_run: GridRun, error: str, traceback: str, facts: Mapping[str, Any]) -> None:
        """Write ``failure.json``: the grid run failed."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(
            self.run_path(grid_run) / FAILURE,
            {"error": error, "traceback": traceback, "time": when, "facts": dict(facts)},
        )

    def forget_failure(self, grid_run: GridRun) -> None:
        """Remove ``failure.json``, so that the grid run can be resumed."""
        (self.run_path(grid_run) / FAILURE).unlink(missing_ok=True)

    def remove(self, grid_run: GridRun) -> None:
        """Remove the run folder of a grid run."""
        with suppress(OSError):
            remove_folder(self.run_path(grid_run))

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Lock the folder against a second experiment; yield the open file that holds the lock.

        The lock belongs to the open file, so it ends with the last process that has it open, even if that is killed.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunError(
                f"cannot be written to ({error.strerror})", where=self.path, remedy=_ANOTHER_FOLDER
            ) from error
        try:
            if not try_lock(handle):
                raise RunError(
                    "another process is running this experiment",
                    where=self.path,
                    remedy="wait for it, or stop it with Ctrl-C",
                )
            yield handle
        finally:
            os.close(handle)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain data, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError("cannot be read", where=path, remedy=_RUN_AGAIN) from error
    if not isinstance(content, dict):
        raise RunError("does not hold a result", where=path, remedy=_RUN_AGAIN)
    return content
