"""One table of scores: what a model says about every image and class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from satl.checks.array_checks import BoolMatrix, FloatMatrix
from satl.errors import TableError, nearest
from satl.labels import LabelTable, TableFile
from satl.scores.alignment import ScoreAlignment


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of N images and C classes.

    Attributes:
        path: the file they were read from, or the run that made them.
        images: N image ids; their row numbers, from 1, where the file names none.
        classes: C class names; "class 1", "class 2", ... where the file names none.
        values: float32 (N, C), any scale, higher means rather present; NaN where there is none. Files are read into
            column-major memory, because a completion goes through one class at a time.
        held_out: bool (N, C), the cells whose score comes from a model that has not seen their label; None: the file
            does not say.
        folds: number of models that shared the work in cross-fitting; 0 for a single model.
        labels: the labels that the file holds itself, in the same order; None: it holds none.
        uncertainty: float32 (N, C), or None.
        notes: what a user should know about the file, a sentence each.
        images_named, classes_named: whether the file names them.
    """

    path: Path
    images: tuple[str, ...]
    classes: tuple[str, ...]
    values: FloatMatrix
    held_out: BoolMatrix | None = None
    folds: int = 0
    labels: TableFile | None = None
    uncertainty: FloatMatrix | None = None
    notes: tuple[str, ...] = ()
    images_named: bool = True
    classes_named: bool = True

    def require_probabilities(self) -> None:
        """Refuse scores that are missing or lie outside [0, 1].

        Raises:
            TableError: names the first such score.
        """
        wrong = ~((self.values >= 0) & (self.values <= 1))
        if not wrong.any():
            return
        row, column = divmod(int(np.argmax(wrong)), len(self.classes))  # the first by rows
        value = self.values[row, column]
        where = f"{self.path}: row {row + 1} (image {self.images[row]!r}), class {self.classes[column]!r}"
        if np.isnan(value):
            raise TableError(
                "the score is missing (NaN)", where=where, remedy="give every image a score of every class"
            )
        raise TableError(
            f"the score {value:g} lies outside [0, 1]",
            where=where,
            remedy="write probabilities (the sigmoid of logits)",
        )

    def in_order_of(self, table: LabelTable) -> ScoreTable:
        """Return the scores of the images and classes of a table; see :func:`satl.scores.read_scores`."""
        alignment = ScoreAlignment(table, self.path, self.classes)
        alignment.put(self.images, self.values)
        notes = tuple(alignment.notes())
        return ScoreTable(self.path, table.images, table.classes, alignment.values, notes=notes)

    def match_labels(self, table: LabelTable, path: Path) -> LabelTable:
        """Return the labels of a table in the order of these scores.

        Images of the table that have no score are left out; every other image and every class must be in both. Where
        the scores name no images (or classes), the table must have as many, and its order is taken.

        Args:
            table: the labels.
            path: where they were read from, for messages.
        """
        images = self.images if self.images_named else self._of_table("images", table.images, path)
        classes = self.classes if self.classes_named else self._of_table("classes", table.classes, path)
        for name in classes:
            if name not in table.index.classes:
                raise TableError(
                    f"there is no class {name!r}{nearest(name, table.classes)}, which {self.path} scores",
                    where=path,
                    remedy="add that column, or remove it from the scores",
                )
        for name in table.classes:
            if name not in classes:
                raise TableError(
                    f"there are no scores of class {name!r}{nearest(name, classes)}, which {path} knows",
                    where=self.path,
                    remedy="add that column, or remove it from the labels",
                )
        rows = table.index.images.find(images)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            example = images[int(missing[0])]
            raise TableError(
                f"there is no row for {len(missing):,} of the {len(images):,} images of {self.path}, such as "
                f"{example!r}{nearest(example, table.images[:1000])}",
                where=path,
                remedy="use the same image ids in both",
            )
        if len(np.unique(rows)) < len(rows):
            twice = table.images[int(np.argmax(np.bincount(rows) > 1))]
            raise TableError(
                f"several of its images are {twice!r} of {path}",
                where=self.path,
                remedy="write the ids there with their extensions",
            )
        cells = np.ix_(rows, table.index.classes.find(classes))
        truth = None if table.truth is None else table.truth[cells]
        return LabelTable(images, classes, table.cells[cells], None, truth, "signed")

    def _of_table(self, what: str, names: tuple[str, ...], path: Path) -> tuple[str, ...]:
        count = len(self.images if what == "images" else self.classes)
        if len(names) != count:
            raise unnamed(self.path, what, count, f"{path} has {len(names):,}")
        return names


def unnamed(path: Path, what: str, count: int, other: str) -> TableError:
    """Return the error of a file that names no images (or classes) and has another number of them than a table."""
    return TableError(
        f"it names no {what} and has {count:,} of them, but {other}",
        where=path,
        remedy=f"add an array '{what}' with their names",
    )
