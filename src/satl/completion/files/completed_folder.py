"""The folder that ``satl complete`` writes; nothing else knows how its files come and go.

``completed.*`` the completed table; ``labels.npz`` the table before; ``changes.csv`` what was filled or is proposed;
``thresholds.csv``; ``report.json`` and ``report.html``; ``evidence.npz`` the tested cells, where they are not all
known ones; ``scores.npz`` the scores, where a run made them. ``review.sqlite`` belongs to the person who reviews:
it is never touched.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.completion.files.changes import read_change_blocks
from satl.completion.statistics.audit import Band
from satl.errors import RunError, TableError
from satl.labels import LabelTable, read_table

FORMAT = 1
_OWN = (
    "labels.npz",
    "changes.csv",
    "thresholds.csv",
    "report.json",
    "report.html",
    "evidence.npz",
    "scores.npz",
)
_AGAIN = "write the folder again with `satl complete`"


class CompletionFolder:
    """Reads what ``satl complete`` wrote."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.labels = self.path / "labels.npz"
        self.changes = self.path / "changes.csv"
        self.thresholds = self.path / "thresholds.csv"
        self.report = self.path / "report.json"
        self.page = self.path / "report.html"
        self.evidence = self.path / "evidence.npz"
        self.scores = self.path / "scores.npz"
        self.review = self.path / "review.sqlite"

    @classmethod
    def open(cls, path: str | Path) -> CompletionFolder:
        """Return the folder, or say what it lacks."""
        folder = cls(path)
        if not folder.path.is_dir():
            raise RunError(f"{folder.path} is not a folder: name the folder that `satl complete -o` wrote.")
        for file in (folder.report, folder.labels, folder.changes):
            if not file.is_file():
                raise RunError(
                    f"{folder.path} has no {file.name}, so it is no folder of `satl complete`: "
                    "name the folder that its -o was given."
                )
        return folder

    @property
    def completed(self) -> Path:
        """The completed table."""
        found = sorted(self.path.glob("completed.*"))
        if not found:
            raise RunError(f"{self.path} has no completed table: {_AGAIN}.")
        return found[0]

    def read_report(self) -> dict[str, Any]:
        """Return ``report.json``."""
        try:
            report = json.loads(self.report.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{self.report} cannot be read as JSON ({error}): {_AGAIN}.") from None
        if not isinstance(report, dict) or report.get("format") != FORMAT:
            raise RunError(f"{self.report} was written by another version of satl: {_AGAIN}.")
        return report

    def require_all_listed(self) -> None:
        """Refuse a ``changes.csv`` that leaves out what was accepted as absent."""
        if not self.read_report()["source"].get("lists_absent", True):
            raise RunError(
                f"{self.changes} leaves out the cells accepted as absent, because they are more than ten million: take "
                f"them from {self.completed.name}, or complete again with --list-all."
            )

    def read_completed(self) -> LabelTable:
        """Return the completed table."""
        encoding = self.read_report()["source"]["encoding"]
        # Text has to be told how it is to be read; Parquet and .npz files say so themselves.
        return _read(self.completed, encoding if self.completed.suffix in (".csv", ".tsv") else None)

    def read_labels(self) -> LabelTable:
        """Return the table before completion."""
        return _read(self.labels)

    def read_tested(self, table: LabelTable) -> npt.NDArray[np.bool_] | None:
        """Return the tested cells (N, C) among the known ones of ``table``, or None: all of them."""
        if not self.evidence.is_file():
            return None
        evidence = _read(self.evidence)
        if (evidence.images, evidence.classes) != (table.images, table.classes):
            raise RunError(f"{self.evidence} and {self.labels} are about different cells: {_AGAIN}.")
        return evidence.known & (table.cells != 0)

    def read_bands(self, table: LabelTable) -> npt.NDArray[np.int8]:
        """Return the :class:`Band` of every cell of ``table``, int8 (N, C); label errors are known cells.

        What was accepted stands in the completed table, what is proposed in ``changes.csv``.
        """
        accepted = self.read_completed().cells
        if accepted.shape != table.cells.shape:
            raise RunError(f"{self.completed} and {self.labels} are about different cells: {_AGAIN}.")
        bands = np.where(table.cells == 0, np.int8(Band.LEFT), np.int8(Band.KNOWN))
        bands[(table.cells == 0) & (accepted == 1)] = Band.PRESENT
        bands[(table.cells == 0) & (accepted == -1)] = Band.ABSENT
        row_of = {name: row for row, name in enumerate(table.images)}
        column_of = {name: column for column, name in enumerate(table.classes)}
        for block in read_change_blocks(self.changes):
            try:
                rows = np.fromiter((row_of[name] for name in block.image), np.int64, len(block.image))
                columns = np.fromiter((column_of[name] for name in block.label), np.int64, len(block.label))
            except KeyError as error:
                raise RunError(
                    f"{self.changes} names {error.args[0]!r}, {self.labels} does not: {_AGAIN}."
                ) from None
            which = (bands[rows, columns] == Band.LEFT) & (block.band == "review")
            bands[rows[which], columns[which]] = Band.REVIEW
        return bands


def _read(path: Path, encoding: str | None = None) -> LabelTable:
    try:
        return read_table(path, encoding)
    except TableError as error:
        raise RunError(str(error)) from None


def check_free(path: str | Path, force: bool = False) -> Path:
    """Return ``path`` if a completion may be written there, before any work is done.

    A folder of an earlier completion is written over only with ``force``; any other folder with files, never.
    """
    out = Path(path)
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file: give the folder to write with -o.")
    try:
        taken = out.is_dir() and any(out.iterdir())
    except OSError as error:
        raise RunError(
            f"{out} cannot be looked into ({error.strerror}): give another folder with -o."
        ) from None
    if not taken:
        return out
    if not (out / "report.json").is_file() or not (out / "changes.csv").is_file():
        raise RunError(
            f"{out} holds files that `satl complete` did not write: give an empty or a new folder with -o."
        )
    if not force:
        kept = " (decisions in its review.sqlite are kept)" if (out / "review.sqlite").exists() else ""
        raise RunError(
            f"{out} holds a completion already: give another folder with -o, or pass --force to replace it{kept}."
        )
    return out


@contextmanager
def new_folder(path: str | Path, force: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; on success its files take their place there, on error it is removed.

    A new folder appears at once. In one that is replaced, files are exchanged one by one, and what ``satl
    complete`` did not write (decisions of a review, an audit) stays.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "out"
    >>> with new_folder(out) as temporary:
    ...     _ = (temporary / "report.json").write_text("{}")
    >>> [file.name for file in out.parent.iterdir()], [file.name for file in out.iterdir()]
    (['out'], ['report.json'])
    """
    out = check_free(path, force)
    place = out.resolve()  # "." has no name of its own
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.partial")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"{out} cannot be made ({error.strerror}): give another folder with -o.") from None
    try:
        yield temporary
        if out.is_dir():
            _exchange(temporary, out)
        else:
            temporary.replace(out)
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror or error}): give another folder.") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _exchange(temporary: Path, out: Path) -> None:
    fresh = {file.name for file in temporary.iterdir()}
    stale = [out / name for name in _OWN if name not in fresh]
    stale += [file for file in out.glob("completed.*") if file.name not in fresh]
    # The report comes last: with the new report in place, all that it speaks of is new.
    for name in sorted(fresh, key=lambda name: (name == "report.json", name)):
        (temporary / name).replace(out / name)
    for file in stale:
        file.unlink(missing_ok=True)
