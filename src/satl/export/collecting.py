"""Put together what a file of another tool says, image by image."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import TypeGuard

import numpy as np

from satl.errors import TableError, nearest
from satl.export.registry import Imported
from satl.export.suggestions import Suggestions
from satl.labels import ABSENT, PRESENT, LabelTable
from satl.labels.bands import SUGGESTED_BANDS
from satl.labels.io.wide import complete_splits

_CODES = {band: code for code, band in enumerate(SUGGESTED_BANDS)}
_SIGNS = {PRESENT: PRESENT, ABSENT: ABSENT}


def _is_finite(score: object) -> TypeGuard[float]:
    try:
        return isinstance(score, (int, float)) and isfinite(score)
    except OverflowError:  # a whole number of hundreds of digits
        return False


class Collector:
    """Gathers images, decisions and suggestions of a file, and makes a table of them.

    Args:
        path: the file, for messages.
        classes: the classes and their order where the file fixes them; else they are the names met, sorted.
        unit: what the file calls an entry, for messages, such as ``task``.
    """

    def __init__(
        self, path: Path | str, classes: Iterable[object] | None = None, unit: str = "entry"
    ) -> None:
        self.path = path
        self.unit = unit
        self._fixed = classes is not None
        self._column: dict[str, int] = {}
        for name in classes or ():
            if not isinstance(name, str):
                raise TableError(f"{path}: its classes hold {name!r}, which is not a name: correct it.")
            self._column.setdefault(name, len(self._column))
        self._row: dict[str, int] = {}
        self._splits: list[str | None] = []
        # Typed arrays: a cell takes nine bytes here, and a list of tuples would take a hundred.
        self._rows, self._columns, self._values = array("q"), array("q"), array("b")
        self._proposed = (array("q"), array("q"), array("b"), array("d"), array("B"))

    def image(self, name: object, split: object = None) -> int:
        """Begin the next image and return its row."""
        number = len(self._row) + 1
        if not isinstance(name, str) or not name.strip():
            raise self._fault(number, f" names no image: add it or remove the {self.unit}.")
        row = self._row.setdefault(name, len(self._row))
        if row != number - 1:
            raise self._fault(
                row + 1, f" and {self.unit} {number} are both about image {name!r}: remove one."
            )
        if split is not None and not isinstance(split, str):
            raise self._fault(number, f": its split {split!r} is not text: correct it.")
        self._splits.append(split)
        return row

    def mention(self, row: int, labels: Iterable[object]) -> None:
        """Note classes of which nothing is known."""
        for label in labels:
            self._at(row, label)

    def known(self, row: int, labels: Iterable[object], value: int) -> None:
        """Note that a person said ``value`` of these classes."""
        for label in labels:
            self._rows.append(row)
            self._columns.append(self._at(row, label))
            self._values.append(value)

    def suggested(self, row: int, label: object, value: object, score: object, band: object) -> None:
        """Note what a model proposes."""
        code = _CODES.get(band) if isinstance(band, str) else None
        sign = _SIGNS.get(value) if isinstance(value, int) else None
        if code is None or sign is None or not _is_finite(score):
            raise self._fault(
                row + 1,
                f" suggests value {value!r}, score {score!r} and band {band!r} for class {label!r}: use 1 or -1, a "
                "number, and accepted or review.",
            )
        rows, columns, values, scores, bands = self._proposed
        rows.append(row)
        columns.append(self._at(row, label))
        values.append(sign)
        scores.append(score)
        bands.append(code)

    def finish(self, looked_at: Sequence[bool] | None = None, skipped: int = 0) -> Imported:
        """Return what was gathered; the same said twice is fine, a contradiction is not."""
        images = tuple(self._row)
        if not images:
            raise TableError(f"{self.path} names no image: check that it is the file you mean.")
        classes = list(self._column)
        order = (
            list(range(len(classes))) if self._fixed else sorted(range(len(classes)), key=classes.__getitem__)
        )
        if not classes:
            raise TableError(
                f"{self.path} names no class, so it says nothing: check that it is the file you mean."
            )
        names = tuple(classes[at] for at in order)
        place = np.empty(len(classes), dtype=np.int64)
        place[order] = np.arange(len(classes))
        rows, columns = np.array(self._rows, np.int64), place[np.array(self._columns, np.int64)]
        values = np.array(self._values, np.int8)
        cells = np.zeros((len(images), len(classes)), dtype=np.int8)
        cells[rows, columns] = values
        differs = cells[rows, columns] != values
        if differs.any():
            at = int(np.argmax(differs))
            raise self._fault(
                rows[at] + 1,
                f" (image {images[rows[at]]!r}) says that {names[columns[at]]!r} is both present and absent: "
                "remove one.",
            )
        rows_of, columns_of, *others = self._proposed
        proposed = Suggestions.of_columns((rows_of, place[np.array(columns_of, np.int64)], *others))
        twice = proposed.repeated()
        if twice is not None:
            row, column = twice
            raise self._fault(
                row + 1, f" (image {images[row]!r}) suggests {names[column]!r} twice: remove one."
            )
        try:
            splits = complete_splits(self._splits, images, self.path, self.unit)
            table = LabelTable(images, names, cells, splits, encoding="signed")
        except TableError as error:
            raise error.at(self.path) from None
        return Imported(table, proposed, None if looked_at is None else tuple(looked_at), skipped)

    def _at(self, row: int, label: object) -> int:
        column = self._column.get(label) if isinstance(label, str) else None
        if column is not None:
            return column
        if not isinstance(label, str) or not label.strip():
            raise self._fault(row + 1, f" has a label {label!r}, which is not a class name: correct it.")
        if self._fixed:
            raise self._fault(
                row + 1,
                f" names class {label!r}, which is not among its classes{nearest(label, self._column)}: correct it, "
                "or add the class.",
            )
        return self._column.setdefault(label, len(self._column))

    def _fault(self, number: int, text: str) -> TableError:
        return TableError(f"{self.path}: {self.unit} {number}{text}")
