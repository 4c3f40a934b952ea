"""Scores in the order of a label table, gathered from blocks of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import BoolMatrix
from satl.errors import TableError, nearest
from satl.labels import LabelTable
from satl.labels.cells import IntArray


class ScoreAlignment:
    """The array (N, C) that blocks of a file are put into; N images and C classes are those of the table.

    Args:
        table: gives the order.
        path: the file, for messages.
        classes: names of its columns.
    """

    def __init__(self, table: LabelTable, path: Path, classes: Sequence[str]) -> None:
        self.table, self.path = table, path
        found = table.index.classes.find(classes).tolist()
        self.columns = [(position, column) for position, column in enumerate(found) if column >= 0]
        """Position in the file and column of the table of every class that both have."""
        if not self.columns:
            hint = nearest(classes[0], table.classes) if classes else ""
            shown = f" (such as {classes[0]!r}{hint})" if classes else ""
            raise TableError(
                f"there are scores for none of the table's classes{shown}",
                where=path,
                remedy="name its columns as the table does",
            )
        self.other_classes = len(classes) - len(self.columns)
        self.values = np.full((table.num_classes, table.num_images), np.nan, dtype=np.float32).T
        self.has_row = np.zeros(table.num_images, dtype=np.bool_)
        self.rows: list[IntArray] = []
        """For each block, the rows of its images in the table, -1 for one that the table lacks."""
        self.read = 0
        self.other_images = 0

    def put(self, images: Sequence[str], block: npt.NDArray[Any]) -> None:
        """Take the scores (n, columns of the file) of the next n images."""
        rows = self.table.index.images.find(images, self.read)
        self.rows.append(rows)
        self.read += len(images)
        kept = rows >= 0
        if not kept.all():
            self.other_images += int(np.count_nonzero(~kept))
            block, rows = block[kept], rows[kept]
        if self.has_row[rows].any() or len(np.unique(rows)) < len(rows):
            found, counts = np.unique(rows, return_counts=True)
            row = int(found[np.argmax((counts > 1) | self.has_row[found])])
            raise TableError(
                f"image {self.table.images[row]!r} has two rows of scores",
                where=self.path,
                remedy="remove one of them",
            )
        self.has_row[rows] = True
        # Consecutive rows, which are the rule, are copied several times faster as a slice.
        consecutive = len(rows) > 0 and bool((np.diff(rows) == 1).all())
        where: Any = slice(int(rows[0]), int(rows[-1]) + 1) if consecutive else rows
        for position, column in self.columns:
            self.values[where, column] = block[:, position]

    def aligned_mask(self, mask: BoolMatrix) -> BoolMatrix:
        """Return a mask (rows, columns) or (rows,) of the whole file as (N, C); False for what it lacks."""
        result = np.zeros((self.table.num_classes, self.table.num_images), dtype=np.bool_).T
        rows = np.concatenate(self.rows)
        kept = rows >= 0
        for position, column in self.columns:
            result[rows[kept], column] = mask[kept] if mask.ndim == 1 else mask[kept, position]
        return result

    def notes(self) -> Iterator[str]:
        """Say what the file or the table lacks.

        Raises:
            TableError: they have no image in common.
        """
        table = self.table
        if not self.has_row.any():
            raise TableError(
                f"there are scores for none of the table's images (such as {table.images[0]!r})",
                where=self.path,
                remedy="use the same image ids in both",
            )
        without = np.flatnonzero(~self.has_row)
        if len(without):
            yield _without_score("images", len(without), table.num_images, table.images[int(without[0])])
        scored = {column for _, column in self.columns}
        missing = [name for column, name in enumerate(table.classes) if column not in scored]
        if missing:
            yield _without_score("classes", len(missing), table.num_classes, missing[0])
        if self.other_images:
            one = self.other_images == 1
            yield (
                f"{self.other_images:,} image{'s' * (not one)} of the scores {'is' if one else 'are'} not in the table "
                f"and {'was' if one else 'were'} ignored."
            )
        if self.other_classes:
            one = self.other_classes == 1
            yield (
                f"{self.other_classes:,} column{'s' * (not one)} of the scores {'is' if one else 'are'} not among the "
                f"classes of the table and {'was' if one else 'were'} ignored."
            )


def _without_score(what: str, count: int, total: int, example: str) -> str:
    noun = what if total != 1 else {"images": "image", "classes": "class"}[what]
    return (
        f"{count:,} of {total:,} {noun} {'has' if count == 1 else 'have'} no score, such as {example!r}: "
        f"{'its' if count == 1 else 'their'} cells stay unknown."
    )
