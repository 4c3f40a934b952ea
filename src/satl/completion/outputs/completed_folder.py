"""The folder that a completion writes; nothing else knows the names and columns of its files.

``completed.*`` the completed table; ``labels.npz`` the table before; ``changes.csv`` what was filled or is proposed;
``thresholds.csv``; ``report.json`` and ``report.html``; ``evidence.npz`` the tested cells, where they are not all
known ones; ``scores.npz`` the scores, where a run made them; ``checksums.json`` of all of these. ``review.sqlite``
belongs to the person who reviews: it is never touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.plain_files import refuse_endless_files
from satl.completion.outputs.changes import COMPLETE_AGAIN, ChangeBlock, read_changes
from satl.completion.outputs.exchange import finish_exchange, new_folder, require_one_completion
from satl.errors import Argument, RunError, Sentence, Task
from satl.files import file_ending
from satl.labels import LabelTable, TableFile, open_table
from satl.labels.bands import BANDS, REVIEW, Band
from satl.labels.io import FORMATS
from satl.parsing import parse_json

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
_NAME_IT = Sentence("name the folder that {complete} wrote", complete=Task("complete"))
_ANOTHER = Sentence("give another folder with {out}", out=Argument("out"))


class CompletedFolder:
    """The files of a completion, their names and how they are read.

    Args:
        path: the folder; :meth:`open` checks that it is one.
    """

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
        self.required = (self.report, self.labels, self.changes)
        """The files that every completion has and that a review reads."""

    @classmethod
    def open(cls, path: str | Path) -> CompletedFolder:
        """Return the folder of a completion.

        Raises:
            RunError: it lacks a file that every completion has, or one that is not of this completion.
        """
        folder = cls(path)
        if not folder.path.is_dir():
            raise RunError("is not a folder", where=folder.path, remedy=_NAME_IT)
        refuse_endless_files(folder.path, RunError, COMPLETE_AGAIN, levels=2)
        finish_exchange(folder.path)
        for file in folder.required:
            if not file.is_file():
                raise RunError(
                    f"has no {file.name}, so it is not the folder of a completion",
                    where=folder.path,
                    remedy=_NAME_IT,
                )
        require_one_completion(folder.path)
        return folder

    @classmethod
    def check_free(cls, path: str | Path, force: bool = False) -> CompletedFolder:
        """Return the folder if a completion may be written there, before any work is done.

        A folder of an earlier completion is written over only with ``force``; any other folder with files, never.
        """
        folder = cls(path)
        out = folder.path
        if out.exists() and not out.is_dir():
            raise RunError("is a file", where=out, remedy=_ANOTHER)
        try:
            taken = out.is_dir() and any(out.iterdir())
        except OSError as error:
            raise RunError(f"cannot be listed ({error.strerror})", where=out, remedy=_ANOTHER) from None
        if not taken:
            return folder
        if not folder.report.is_file() or not folder.changes.is_file():
            raise RunError(
                "holds files that no completion wrote",
                where=out,
                remedy=Sentence("give an empty or a new folder with {out}", out=Argument("out")),
            )
        if not force:
            kept = " (decisions in its review.sqlite are kept)" if folder.review.exists() else ""
            raise RunError(
                "holds a completion already",
                where=out,
                remedy=Sentence(
                    f"give another folder with {{out}}, or pass {{force}} to replace it{kept}",
                    out=Argument("out"),
                    force=Argument("force", True),
                ),
            )
        return folder

    @classmethod
    @contextmanager
    def write(cls, path: str | Path, force: bool = False) -> Iterator[CompletedFolder]:
        """Yield a temporary folder beside ``path``; on success its files take their place, on error it is removed.

        The folder changes as one, also if the process is killed (:mod:`satl.completion.outputs.exchange`). What a
        completion did not write (decisions of a review, an audit) stays.

        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp()) / "out"
        >>> with CompletedFolder.write(out) as temporary:
        ...     _ = temporary.report.write_text("{}")
        >>> [file.name for file in out.parent.iterdir()], sorted(file.name for file in out.iterdir())
        (['out'], ['checksums.json', 'report.json'])
        """
        out = cls.check_free(path, force).path
        try:
            with new_folder(out, _own_files) as temporary:
                yield cls(temporary)
        except OSError as error:
            raise RunError(
                f"cannot be written ({error.strerror or error})", where=out, remedy=_ANOTHER
            ) from None

    @property
    def completed(self) -> Path:
        """The completed table."""
        found = sorted(self.path.glob("completed.*"))
        if not found:
            raise RunError("has no completed table", where=self.path, remedy=COMPLETE_AGAIN)
        return found[0]

    def new_completed(self, source: TableFile) -> Path:
        """Return where the completed table goes, in the format of the table that is completed."""
        extensions = FORMATS[source.format].extensions
        own = file_ending(source.path)
        return self.path / f"completed{own if own in extensions else extensions[0]}"

    def read_report(self) -> dict[str, Any]:
        """Return ``report.json``; its ``classes`` is a list of objects with a ``name``."""
        try:
            text = self.report.read_text(encoding="utf-8")
            # NaN is not JSON and would stop the page of a review; a number that is not there is null.
            report = parse_json(text, parse_constant=lambda _: None, parse_float=_finite_number)
        except (OSError, ValueError) as error:
            raise RunError(
                f"cannot be read as JSON ({error})", where=self.report, remedy=COMPLETE_AGAIN
            ) from None
        if not isinstance(report, dict) or report.get("format") != FORMAT:
            raise RunError("was written by another version of satl", where=self.report, remedy=COMPLETE_AGAIN)
        classes = report.get("classes")
        if not isinstance(classes, list) or not all(isinstance(c, dict) and "name" in c for c in classes):
            raise RunError("lists no classes", where=self.report, remedy=COMPLETE_AGAIN)
        source = report.get("source")
        if not isinstance(source, dict) or not isinstance(source.get("encoding"), str | None):
            raise RunError("does not say what was completed", where=self.report, remedy=COMPLETE_AGAIN)
        return report

    def require_all_listed(self) -> None:
        """Refuse a ``changes.csv`` that leaves out what was accepted as absent."""
        if not self.read_report()["source"].get("lists_absent", True):
            raise RunError(
                "leaves out the cells accepted as absent, because they are more than ten million",
                where=self.changes,
                remedy=Sentence(
                    f"take them from {self.completed.name}, or complete again with {{list_all}}",
                    list_all=Argument("list_all", True),
                ),
            )

    def read_completed(self) -> LabelTable:
        """Return the completed table."""
        encoding = self.read_report()["source"].get("encoding")
        # Text files and spreadsheets need the encoding; Parquet, Arrow and .npz files state their own.
        silent = file_ending(self.completed) in (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".xlsx")
        return open_table(self.completed, encoding if silent else None).table

    def read_labels(self) -> LabelTable:
        """Return the table before completion."""
        return open_table(self.labels).table

    def read_changes(self, table: LabelTable) -> Iterator[ChangeBlock]:
        """Yield what was filled or is proposed, in blocks of rows; ``table`` is the one before completion."""
        return read_changes(self.changes, table)

    def read_tested(self, table: LabelTable) -> npt.NDArray[np.bool_] | None:
        """Return the tested cells (N, C) among the known ones of ``table``, or None: all of them."""
        if not self.evidence.is_file():
            return None
        evidence = open_table(self.evidence).table
        if (evidence.images, evidence.classes) != (table.images, table.classes):
            raise RunError(
                f"is about other cells than {self.labels.name}", where=self.evidence, remedy=COMPLETE_AGAIN
            )
        return evidence.known & (table.cells != 0)

    def read_bands(self, table: LabelTable) -> npt.NDArray[np.int8]:
        """Return the :class:`Band` of every cell of ``table``, int8 (N, C); label errors are known cells.

        What was accepted stands in the completed table, what is proposed in ``changes.csv``.
        """
        accepted = self.read_completed().cells
        if accepted.shape != table.cells.shape:
            raise RunError(
                f"is about other cells than {self.labels.name}", where=self.completed, remedy=COMPLETE_AGAIN
            )
        bands = np.where(table.cells == 0, np.int8(Band.LEFT), np.int8(Band.KNOWN))
        bands[(table.cells == 0) & (accepted == 1)] = Band.PRESENT
        bands[(table.cells == 0) & (accepted == -1)] = Band.ABSENT
        review = BANDS.index(REVIEW)
        for block in self.read_changes(table):
            proposed = (bands[block.row, block.column] == Band.LEFT) & (block.band == review)
            bands[block.row[proposed], block.column[proposed]] = Band.REVIEW
        return bands


def _finite_number(text: str) -> float | None:
    """Read a number of the report; 1e999 is none."""
    number = float(text)
    return number if math.isfinite(number) else None


def _own_files(folder: Path) -> list[Path]:
    """Return the files in a folder that a completion wrote."""
    return [*(folder / name for name in _OWN), *folder.glob("completed.*")]
