"""Scores in the order of a table, gathered from blocks of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError, nearest
from satl.labels import LabelTable
from satl.labels.cells import without_extension

FloatMatrix = npt.NDArray[np.float32]
BoolMatrix = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores in the order of a table.

    Attributes:
        values: (N, C) single precision, any scale, higher means rather present; NaN where there is none. Stored
            class by class (column-major), because everything that follows goes through one class at a time.
        out_of_sample: (N, C) cells whose score comes from a model that has not seen their label, or None: all.
        folds: models that shared the work in cross-fitting; 0 for a single model.
        notes: what a user should know about the file, a sentence each.
    """

    values: FloatMatrix
    out_of_sample: BoolMatrix | None = None
    folds: int = 0
    notes: tuple[str, ...] = field(default=())


class ScoreTarget:
    """The array that blocks of a file are put into."""

    def __init__(self, table: LabelTable, file: Path, classes: Sequence[str]) -> None:
        self.table, self.file = table, file
        names = [name.strip() for name in classes]
        column_of = {name: column for column, name in enumerate(table.classes)}
        self.columns = [(p, column_of[name]) for p, name in enumerate(names) if name in column_of]
        """Position in the file and column of the table of every class that both have."""
        if len({column for _, column in self.columns}) < len(self.columns):
            twice = next(name for name in names if names.count(name) > 1)
            raise TableError(f"{file}: two of its columns are called {twice!r}: rename or remove one.")
        if not self.columns:
            hint = nearest(names[0], table.classes) if names else ""
            shown = f" (such as {names[0]!r}{hint})" if names else ""
            raise TableError(
                f"{file} has scores for none of the table's classes{shown}: call its columns as the table does."
            )
        self.other_classes = len(names) - len(self.columns)
        self.values = np.full((table.num_classes, table.num_images), np.nan, dtype=np.float32).T
        self.seen = np.zeros(table.num_images, dtype=np.bool_)
        self.read = 0
        self.other_images = 0
        self._row_of: dict[str, int] | None = None

    def rows_of(self, images: Sequence[str], first: int = 0) -> IntArray:
        """Return the rows of images in the table, -1 for one that it lacks; ``first`` is where they may begin."""
        here = self.table.images[first : first + len(images)]
        if len(here) == len(images) and all(map(str.__eq__, here, images)):
            return np.arange(first, first + len(images))
        if self._row_of is None:
            self._row_of = {name: row for row, name in enumerate(self.table.images)}
        row_of = self._row_of
        # A table may leave the extensions out, which `satl predict` writes; training finds the files all the same.
        found = (row_of.get(name, row_of.get(without_extension(name), -1)) for name in images)
        return np.fromiter(found, dtype=np.int64, count=len(images))

    def put(self, images: Sequence[str], block: npt.NDArray[Any]) -> None:
        """Take scores (n, columns of the file) of the next n images."""
        rows = self.rows_of(images, self.read)
        kept = rows >= 0
        if not kept.all():
            self.other_images += int(np.count_nonzero(~kept))
            block, rows = block[kept], rows[kept]
        if self.seen[rows].any() or len(np.unique(rows)) < len(rows):
            names, counts = np.unique(rows, return_counts=True)
            row = int(names[np.argmax((counts > 1) | self.seen[names])])
            raise TableError(
                f"{self.file}: image {self.table.images[row]!r} has two rows of scores: remove one of them."
            )
        self.seen[rows] = True
        self.read += len(images)
        where: Any = slice(int(rows[0]), int(rows[-1]) + 1) if _consecutive(rows) else rows
        for position, column in self.columns:
            self.values[where, column] = block[:, position]

    def finished(self) -> Scores:
        """Return the scores, or refuse what cannot be right."""
        table, file = self.table, self.file
        if not self.seen.any():
            raise TableError(
                f"{file} has scores for none of the table's images (such as {table.images[0]!r}): "
                "use the same image ids in both."
            )
        for column in range(table.num_classes):
            endless = np.isinf(self.values[:, column])
            if endless.any():
                row = int(np.argmax(endless))
                raise TableError(
                    f"{file}: the score of image {table.images[row]!r}, class {table.classes[column]!r} is "
                    f"{self.values[row, column]}: write a finite number in single precision, or nothing."
                )
        return Scores(self.values, notes=tuple(self._notes()))

    def _notes(self) -> Iterator[str]:
        table = self.table
        without = np.flatnonzero(~self.seen)
        if len(without):
            yield (
                f"{_many(len(without), table.num_images, 'image')} no score, such as "
                f"{table.images[int(without[0])]!r}: {'its' if len(without) == 1 else 'their'} cells stay unknown."
            )
        scored = {column for _, column in self.columns}
        missing = [name for column, name in enumerate(table.classes) if column not in scored]
        if missing:
            yield (
                f"{_many(len(missing), table.num_classes, 'class')} no score, such as {missing[0]!r}: "
                f"{'its' if len(missing) == 1 else 'their'} cells stay unknown."
            )
        if self.other_images:
            yield (
                f"{self.other_images:,} image{'s' * (self.other_images != 1)} of the scores "
                f"{'is' if self.other_images == 1 else 'are'} not in the table and passed over."
            )
        if self.other_classes:
            yield (
                f"{self.other_classes:,} column{'s' * (self.other_classes != 1)} of the scores "
                f"{'is no class' if self.other_classes == 1 else 'are no classes'} of the table and passed over."
            )
        gaps = sum(
            int(np.count_nonzero(np.isnan(self.values[:, column]) & self.seen)) for column in sorted(scored)
        )
        if gaps:
            yield f"{gaps:,} score{'s are' if gaps != 1 else ' is'} NaN or blank: such cells stay unknown."


def _consecutive(rows: IntArray) -> bool:
    return len(rows) > 0 and bool((np.diff(rows) == 1).all())


def _many(count: int, total: int, noun: str) -> str:
    plural = {"image": "images", "class": "classes"}[noun]
    return f"{count:,} of {total:,} {plural if total != 1 else noun} {'has' if count == 1 else 'have'}"
