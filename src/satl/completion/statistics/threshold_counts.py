"""Tested cells that each threshold accepts, and the wrong ones among them; both directions, all classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import BoolMatrix, FloatMatrix, LabelMatrix
from satl.completion.statistics.class_cells import ClassCells, class_cells
from satl.completion.statistics.fixed_sequence import threshold_grid
from satl.evaluation.confidence_bounds import BoolArray, FloatArray, IntArray, conformal_rank
from satl.labels.table import ABSENT, PRESENT


@dataclass(frozen=True)
class ThresholdCounts:
    """Counts at the grid points of one direction; a row per class, points from the strictest to the loosest.

    Attributes:
        value: +1 if a cell is accepted as present for a score of at least the threshold, -1 if it is
            accepted as absent for a score of at most the threshold.
        grid: (C, M) thresholds; NaN after the end of a shorter grid. Where cells were picked by their score for this
            direction, the end of the zone that they were drawn from is one of them.
        cells: (C, M) tested cells accepted at the threshold. Where cells were picked by their score for this
            direction, only those are tested.
        errors: (C, M) those among them that have the other value.
        accepted: (C, M) unknown cells accepted at the threshold.
        same, other: (C,) tested cells with this value and with the other, without those picked by their score.
        found, leaked: (C, M) those of ``same`` and those of ``other`` that are accepted at the threshold.
        planned: (C,) cells that were picked by their score for this direction.
        unknown: (C,) unknown cells that have a score.
        limit: (C,) the conformal guard: the threshold must be stricter than this score (infinitely loose
            where there is no guard, NaN where the guard abstains).
    """

    value: int
    grid: FloatArray
    cells: IntArray
    errors: IntArray
    accepted: IntArray
    same: IntArray
    other: IntArray
    found: IntArray
    leaked: IntArray
    planned: IntArray
    unknown: IntArray
    limit: FloatArray

    @property
    def tested(self) -> IntArray:
        """(C,) tested cells of either value."""
        return np.where(self.planned > 0, self.planned, self.same + self.other)

    @property
    def within_guard(self) -> BoolArray:
        """(C, M) grid points that the conformal guard allows."""
        return np.asarray(self.value * self.grid > self.value * self.limit[:, np.newaxis])

    def within(self, zone: FloatArray) -> BoolArray:
        """(C, M) grid points at least as strict as a threshold (C,); all of them where it is NaN."""
        limit = np.where(np.isnan(zone), -np.inf, self.value * zone)[:, np.newaxis]
        return np.asarray(self.value * self.grid >= limit)

    def at(self, point: IntArray) -> tuple[FloatArray, IntArray, IntArray, IntArray]:
        """Return grid, cells, errors and accepted at one point (C,) of each class."""
        rows = np.arange(len(point))
        return (
            self.grid[rows, point],
            self.cells[rows, point],
            self.errors[rows, point],
            self.accepted[rows, point],
        )


def count_at_thresholds(
    scores: FloatMatrix,
    labels: LabelMatrix,
    held_out: BoolMatrix | None,
    guard: float,
    planned: LabelMatrix | None = None,
    zones: tuple[FloatArray, FloatArray] | None = None,
) -> tuple[ThresholdCounts, ThresholdCounts]:
    """Count for every class, threshold and direction; returns the counts for present and those for absent.

    Args:
        scores, labels, held_out: (N, C) as checked by ``as_cells``.
        guard: share of the other value that the threshold must keep out; 0 for no guard.
        planned: (N, C) +1 or -1 for cells picked by their score for that direction, 0 for all others; None: none.
        zones: (C,) for present and for absent, the score up to which the planned cells were drawn; NaN: no limit.

    >>> labels = np.array([[1], [-1], [0], [0]], dtype=np.int8)
    >>> present, absent = count_at_thresholds(np.array([[0.8], [0.3], [0.7], [0.2]]), labels, None, guard=0.0)
    >>> present.grid, present.cells, present.errors, present.accepted
    (array([[0.7, 0.2]]), array([[1, 2]]), array([[0, 1]]), array([[1, 2]]))
    >>> absent.grid, absent.cells, absent.errors, absent.accepted
    (array([[0.2, 0.7]]), array([[0, 1]]), array([[0, 0]]), array([[1, 2]]))
    """
    ends = np.full((2, scores.shape[1]), np.nan) if zones is None else np.array(zones, dtype=np.float64)
    both = [
        _of_class(cells, guard, *end)
        for cells, end in zip(
            class_cells(scores, labels, held_out, planned), ends.T.astype(scores.dtype), strict=True
        )
    ]

    present, absent = zip(*both, strict=True) if both else ((), ())
    return _stacked(present, PRESENT), _stacked(absent, ABSENT)


_Counts = dict[str, Any]
"""Counts of one class in one direction, from the strictest grid point to the loosest: arrays (M,) and numbers."""


def _stacked(classes: Sequence[_Counts], value: int) -> ThresholdCounts:
    """Put the counts of all classes into one table, a row per class."""
    length = np.array([len(one["grid"]) for one in classes], dtype=np.int64)
    inside = np.arange(max(length.max(initial=0), 1)) < length[:, np.newaxis]

    def column(name: str, dtype: Any = np.int64) -> npt.NDArray[Any]:
        return np.array([one[name] for one in classes], dtype=dtype)

    def padded(name: str, empty: Any = 0, dtype: Any = np.int64) -> npt.NDArray[Any]:
        table = np.full(inside.shape, empty, dtype=dtype)
        if classes:
            table[inside] = np.concatenate([one[name] for one in classes])
        return table

    totals = {name: column(name) for name in ("same", "other", "planned", "unknown")}
    found, leaked = padded("found"), padded("leaked")
    # The zone of planned cells was chosen by looking at the other labels, which may therefore not be counted again.
    instead = (totals["planned"] > 0)[:, np.newaxis]
    errors = np.where(instead, padded("planned_errors"), leaked)
    return ThresholdCounts(
        value=value,
        grid=padded("grid", np.nan, np.float64),
        cells=np.where(instead, padded("planned_right"), found) + errors,
        errors=errors,
        accepted=padded("accepted"),
        found=found,
        leaked=leaked,
        limit=column("limit", np.float64),
        **totals,
    )


def _of_class(
    cells: ClassCells, guard: float, present_zone: float, absent_zone: float
) -> tuple[_Counts, _Counts]:
    positive, negative, unknown = (np.sort(part) for part in cells[:3])
    planned = [np.sort(part) for part in cells.planned]
    highest_first = threshold_grid(unknown)

    def direction(value: int, parts: Sequence[npt.NDArray[Any]], zone: float, limit: float) -> _Counts:
        same, other, planned_right, planned_errors = parts
        grid = highest_first[::value]
        if len(planned_right) + len(planned_errors) and np.isfinite(zone):
            # It was fixed before the planned cells were labelled, and it is the only point with all of them beyond.
            grid = np.unique(np.append(grid, zone))[::-value]

        def count(part: npt.NDArray[Any]) -> IntArray:
            if value == PRESENT:
                return len(part) - np.searchsorted(part, grid, side="left")
            return np.searchsorted(part, grid, side="right")

        return {
            "grid": grid,
            "found": count(same),
            "leaked": count(other),
            "planned_right": count(planned_right),
            "planned_errors": count(planned_errors),
            "accepted": count(unknown),
            "same": len(same),
            "other": len(other),
            "planned": len(planned_right) + len(planned_errors),
            "unknown": len(unknown),
            "limit": limit,
        }

    return (
        direction(
            PRESENT, (positive, negative, planned[0], planned[1]), present_zone, _limit(negative, guard)
        ),
        direction(
            ABSENT, (negative, positive, planned[3], planned[2]), absent_zone, -_limit(-positive[::-1], guard)
        ),
    )


def _limit(other: npt.NDArray[Any], guard: float) -> float:
    """Score that cells of the other value, in rising order, exceed with probability at most 1 - guard."""
    if guard == 0:
        return -np.inf
    rank = int(conformal_rank(len(other), guard))
    return float(other[rank - 1]) if rank else np.nan
