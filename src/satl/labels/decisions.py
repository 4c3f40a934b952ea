"""Apply decisions about single cells to a table: one rule for reviews, imports, plans and audits."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from satl.errors import Argument, Sentence, TableError
from satl.labels.cells import IntArray
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, Cells, LabelTable

VALUE_NAMES = {PRESENT: "present", ABSENT: "absent", UNKNOWN: "unknown"}
_OVERWRITE = Sentence(
    "pass {replace_known} to overwrite what is known", replace_known=Argument("replace_known", True)
)


@dataclass(frozen=True, eq=False)
class Decisions:
    """K decided cells of a table.

    Attributes:
        rows, columns: int64 (K,), where they are in the table.
        values: int8 (K,), +1 present, -1 absent.
        elsewhere: number of decisions about cells that the table does not have; they are left out.
        first_elsewhere: image and class of the first of these, or None.
    """

    rows: IntArray
    columns: IntArray
    values: Cells
    elsewhere: int = 0
    first_elsewhere: tuple[str, str] | None = None

    @classmethod
    def by_name(
        cls, table: LabelTable, images: list[str], classes: list[str], values: npt.ArrayLike
    ) -> Decisions:
        """Find cells that are named by image and class in ``table``; images, classes and values are (K,)."""
        rows, columns = table.index.find(images, classes)
        numbers = np.asarray(values, dtype=np.int8)
        return cls._among(rows, columns, numbers, lambda at: (images[at], classes[at]))

    @classmethod
    def of_table(cls, table: LabelTable, other: LabelTable) -> Decisions:
        """Find the known cells of ``other`` in ``table``."""
        of_image = table.index.images.find_distinct(other.images)
        of_class = table.index.classes.find(other.classes)
        rows, columns = np.nonzero(other.cells)
        values = other.cells[rows, columns]
        return cls._among(
            of_image[rows],
            of_class[columns],
            values,
            lambda at: (other.images[rows[at]], other.classes[columns[at]]),
        )

    @classmethod
    def _among(
        cls, rows: IntArray, columns: IntArray, values: Cells, names: Callable[[int], tuple[str, str]]
    ) -> Decisions:
        """Leave out cells whose row or column is -1; ``names`` returns image and class of the cell at a position."""
        found = (rows >= 0) & (columns >= 0)
        lost = np.flatnonzero(~found)
        first = names(int(lost[0])) if len(lost) else None
        return cls(rows[found], columns[found], values[found], len(lost), first)

    def __len__(self) -> int:
        return len(self.rows)

    def require_some(
        self, table: str | os.PathLike[str], origin: str | os.PathLike[str], remedy: str | Sentence
    ) -> None:
        """Refuse a table that none of the decisions is about: it is certainly the wrong one.

        Args:
            table: what to call the table.
            origin: where the decisions come from.
            remedy: what helps.
        """
        if self.first_elsewhere is not None and not len(self):
            image, label = self.first_elsewhere
            raise TableError(
                f"has none of the cells decided in {os.fspath(origin)} (such as image {image!r}, class {label!r})",
                where=table,
                remedy=remedy,
            )


@dataclass(frozen=True)
class DecisionCounts:
    """What decisions did to a table, counted in cells.

    Attributes:
        present, absent: written into cells that were unknown.
        confirmed: say what the table said already.
        overwritten: changed a known cell.
        kept: contradicted a known cell, which was kept.
        elsewhere: are about images or classes that the table does not have.
        first_elsewhere: image and class of the first of these, or None.
    """

    present: int
    absent: int
    confirmed: int
    overwritten: int
    kept: int
    elsewhere: int
    first_elsewhere: tuple[str, str] | None


def apply_decisions(
    table: LabelTable,
    decisions: Decisions,
    *,
    conflicts: Literal["refuse", "replace", "keep"] = "refuse",
    origin: str | os.PathLike[str] = "the decision",
    where: str | os.PathLike[str] | None = None,
    remedy: str | Sentence = _OVERWRITE,
) -> tuple[LabelTable, DecisionCounts]:
    """Return the table with the decisions written into it, and what they did.

    Args:
        table: stays as it is.
        decisions: cells of this table.
        conflicts: what happens where a decision says the opposite of a known cell: refuse all decisions, replace the
            cell, or keep it.
        origin: where the decisions come from, for the message.
        where: the file of the table, for the message.
        remedy: what helps against a conflict.

    Raises:
        TableError: a decision contradicts a known cell and ``conflicts`` is "refuse", or two decisions contradict each
            other.

    >>> table = LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), np.array([[1, 0], [0, 0]]), encoding="signed")
    >>> decisions = Decisions.by_name(table, ["a.jpg", "b.jpg"], ["cat", "dog"], [-1, 1])
    >>> new, counts = apply_decisions(table, decisions, conflicts="replace")
    >>> new.cells.tolist(), counts.present, counts.overwritten
    ([[-1, 0], [0, 1]], 1, 1)
    >>> apply_decisions(table, decisions, origin="the review", where="t.csv", remedy="correct one of them")
    Traceback (most recent call last):
    satl.errors.TableError: t.csv: image 'a.jpg' (row 1), class 'cat' is known to be present, but the review says \
absent; correct one of them.
    """
    rows, columns, values = decisions.rows, decisions.columns, decisions.values
    before = table.cells[rows, columns]
    new = before == UNKNOWN
    clash = ~new & (before != values)
    if conflicts == "refuse" and clash.any():
        at = int(np.argmax(clash))
        more = int(clash.sum()) - 1
        others = f" (and {more:,} more cell{'s' * (more != 1)})" if more else ""
        raise TableError(
            f"{_cell(table, decisions, at)} is known to be {VALUE_NAMES[int(before[at])]}, but {os.fspath(origin)} "
            f"says {VALUE_NAMES[int(values[at])]}{others}",
            where=where,
            remedy=remedy,
        )
    written = new if conflicts == "keep" else slice(None)
    cells = np.array(table.cells)
    cells[rows[written], columns[written]] = values[written]
    twice = cells[rows[written], columns[written]] != values[written]
    if twice.any():
        at = int(np.arange(len(rows))[written][np.argmax(twice)])
        raise TableError(
            f"{_cell(table, decisions, at)} is both present and absent in {os.fspath(origin)}",
            remedy="remove one",
        )
    return table.with_cells(cells, "signed"), DecisionCounts(
        present=int((new & (values == PRESENT)).sum()),
        absent=int((new & (values == ABSENT)).sum()),
        confirmed=int((before == values).sum()),
        overwritten=int(clash.sum()) if conflicts == "replace" else 0,
        kept=int(clash.sum()) if conflicts == "keep" else 0,
        elsewhere=decisions.elsewhere,
        first_elsewhere=decisions.first_elsewhere,
    )


def _cell(table: LabelTable, decisions: Decisions, at: int) -> str:
    row, column = int(decisions.rows[at]), int(decisions.columns[at])
    return f"image {table.images[row]!r} (row {row + 1}), class {table.classes[column]!r}"
