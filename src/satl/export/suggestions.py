"""Cells that a model proposes and nobody has confirmed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Entry = tuple[int, int, int, float, int]
"""Row, column, value +1 or -1, score, position in :data:`satl.labels.bands.SUGGESTED_BANDS`."""


@dataclass(frozen=True, eq=False)
class Suggestions:
    """K proposed cells of a table, by image and then by class; every array is (K,).

    Attributes:
        rows, columns: int64, positions in the table; every cell at most once.
        values: int8, +1 present, -1 absent.
        scores: float64, of the class being present, on the scale of the model.
        bands: uint8, positions in :data:`satl.labels.bands.SUGGESTED_BANDS`.
    """

    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    values: npt.NDArray[np.int8]
    scores: npt.NDArray[np.float64]
    bands: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Suggestions:
        """Return suggestions in order.

        >>> Suggestions.of([(1, 0, 1, 0.9, 0), (0, 2, -1, 0.1, 1)]).rows.tolist()
        [0, 1]
        """
        return cls.of_columns(list(zip(*entries, strict=True)) or [()] * 5)

    @classmethod
    def of_columns(cls, columns: Iterable[Any]) -> Suggestions:
        """Return suggestions in order, from a sequence of numbers for each attribute."""
        kinds = (np.int64, np.int64, np.int8, np.float64, np.uint8)
        return cls(*(np.array(part, kind) for part, kind in zip(columns, kinds, strict=True))).ordered()

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays, in the order of the attributes."""
        return self.rows, self.columns, self.values, self.scores, self.bands

    def ordered(self) -> Suggestions:
        """Return the same by image and then by class."""
        return self.select(np.lexsort((self.columns, self.rows)))

    def select(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Suggestions:
        """Return some of them: a mask (K,), or positions."""
        return Suggestions(*(array[which] for array in self.arrays))

    def repeated(self) -> tuple[int, int] | None:
        """Return row and column of a cell that comes twice, or None; they must be in order."""
        again = (np.diff(self.rows) == 0) & (np.diff(self.columns) == 0)
        at = int(np.argmax(again)) if again.any() else -1
        return None if at < 0 else (int(self.rows[at]), int(self.columns[at]))

    def entries(self) -> list[Entry]:
        """Return one tuple for each."""
        return list(zip(*(array.tolist() for array in self.arrays), strict=True))

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        """Compare by content."""
        return self.entries() == other.entries() if isinstance(other, Suggestions) else NotImplemented

    __hash__ = None  # type: ignore[assignment]
