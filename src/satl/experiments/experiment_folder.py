"""The folder of an experiment: its names, the state of its cells, and a lock. Nothing here needs torch."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

from satl.errors import ConfigError, RunError
from satl.experiments.grid import Cell, Grid, read_grid
from satl.files import atomic_path

State = Literal["new", "started", "failed", "done"]
"""``started``: cut off, and goes on from its last checkpoint if there is one."""

RESULT = "result.json"
FAILURE = "failure.json"
_MARK = "# Written by `satl experiment`: the grid of this folder, with all paths written out.\n"


class ExperimentFolder:
    """Where an experiment keeps its runs and what comes of them.

    ``grid.yaml``, ``runs/CELL`` (ordinary run folders, each with ``result.json`` once it is done or ``failure.json``
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

    def run(self, cell: Cell) -> Path:
        """Return the run folder of a cell."""
        return self.runs / cell.name

    def check(self) -> None:
        """Refuse a place that cannot hold an experiment, or that holds something else; nothing is written."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file, not a folder; give another --out.")
        if self.path.is_dir() and not self._is_ours():
            foreign = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith("."))
            if foreign:
                raise RunError(
                    f"{self.path}: holds '{foreign[0]}' and no experiment; give another --out or an empty folder."
                )

    def _is_ours(self) -> bool:
        """Whether an experiment has been run here; a grid that somebody wrote is not one, and is not replaced."""
        return self.grid.is_file() and self.grid.read_text("utf-8", "replace").startswith(_MARK)

    def read_grid(self) -> Grid:
        """Return the grid that the folder was last run with."""
        if not self._is_ours():
            raise ConfigError(f"{self.path}: holds no experiment to go on with; give a GRID file.")
        return read_grid(self.grid)

    def write_grid(self, grid: Grid) -> None:
        """Write the resolved grid."""
        with atomic_path(self.grid) as temporary:
            text = yaml.safe_dump(grid.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
            temporary.write_text(_MARK + text, encoding="utf-8")

    def state(self, cell: Cell) -> State:
        """Say how far a cell is."""
        run = self.run(cell)
        if (run / RESULT).is_file():
            return "done"
        if (run / FAILURE).is_file():
            return "failed"
        return "started" if (run / "config.yaml").is_file() else "new"

    def result(self, cell: Cell) -> dict[str, Any]:
        """Return what a finished cell measured."""
        return _read_json(self.run(cell) / RESULT)

    def failure(self, cell: Cell) -> dict[str, Any]:
        """Return why a cell failed: ``error`` (a sentence), ``traceback`` and ``facts``."""
        return _read_json(self.run(cell) / FAILURE)

    def write_failure(self, cell: Cell, error: str, traceback: str, facts: Mapping[str, Any]) -> None:
        """Note that a cell failed."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(
            self.run(cell) / FAILURE,
            {"error": error, "traceback": traceback, "time": when, "facts": dict(facts)},
        )

    def forget_failure(self, cell: Cell) -> None:
        """Let a failed cell go on where it stopped."""
        (self.run(cell) / FAILURE).unlink(missing_ok=True)

    def remove(self, cell: Cell) -> None:
        """Remove a cell's run."""
        shutil.rmtree(self.run(cell), ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Keep a second experiment out of the folder; yield the file that holds the lock.

        The lock belongs to the open file, so it goes when the last process that has it open is gone, however it
        ended.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot be written to ({error.strerror}); give another --out."
            ) from error
        try:
            if not _take(handle):
                raise RunError(
                    f"{self.path}: another `satl experiment` is at work here; wait for it, or stop it with Ctrl-C."
                )
            yield handle
        finally:
            os.close(handle)


def _take(handle: int) -> bool:
    """Lock an open file without waiting; say whether that worked."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        windows: Any = msvcrt
        try:
            windows.locking(handle, windows.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain data, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read; remove it, and the cell is run again.") from error
    if not isinstance(content, dict):
        raise RunError(f"{path}: does not hold a result; remove it, and the cell is run again.")
    return content
