"""Which cells of a class are accepted, proposed for review or left unknown, and a histogram of its scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import BoolMatrix, FloatMatrix, LabelMatrix
from satl.completion.statistics.assessment import MOST_LABEL_ERRORS, Assessment

BINS = 64
"""Bins of the histogram of a class."""
MOST_LISTED_ABSENT = 10_000_000
"""More cells accepted as absent are listed only on request: the file would be too large to open."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClassChanges:
    """What happens to one class; rows of the table, the most confident first where they are to be listed.

    Attributes:
        present, absent: accepted.
        review: proposed as present.
        left: unknown cells with a score that stay as they are.
        errors: known cells that the model contradicts, the most suspicious first.
        without_score: unknown cells that have no score.
        histogram: edges (65,) and counts (64,) of known positives, known negatives and unknown cells.
    """

    present: Rows
    absent: Rows
    review: Rows
    left: Rows
    errors: Rows
    without_score: int
    histogram: dict[str, list[float]]


class ClassCounts(NamedTuple):
    """The changes of one class as numbers of cells: the rows need not be kept, they may be most of a large table.

    Attributes:
        cells: ``present``, ``absent``, ``review``, ``left``, ``errors`` and ``without_score`` of :class:`ClassChanges`.
        histogram: as there.
    """

    cells: dict[str, int]
    histogram: dict[str, list[float]]

    @classmethod
    def of(cls, changes: ClassChanges) -> ClassCounts:
        """Count the rows."""
        lists = ("present", "absent", "review", "left", "errors")
        cells = {name: len(getattr(changes, name)) for name in lists}
        return cls({**cells, "without_score": changes.without_score}, changes.histogram)


class TableChanges:
    """The changes of a whole table, class by class.

    Args:
        scores, labels: (N, C); fast where they are stored class by class.
        assessment: the thresholds and the suspected errors of every class.
        list_all: list every cell; else those that are left are not listed, and those accepted as absent only
            if there are at most ten million of them.
        confirmed: (N, C) known cells that are not proposed as errors, whatever the model says; None: none.
    """

    def __init__(
        self,
        scores: FloatMatrix,
        labels: LabelMatrix,
        assessment: Assessment,
        list_all: bool = False,
        confirmed: BoolMatrix | None = None,
    ) -> None:
        self.scores, self.labels, self.assessment = scores, labels, assessment
        self.present_from, self.absent_to = assessment.present_from, assessment.absent_to
        self.review_from = assessment.review_from
        found = assessment.errors
        # A cell of the evidence may have been corrected or confirmed since; then there is nothing left to ask.
        open_ = labels[found.row, found.column] == found.label
        if confirmed is not None:
            open_ &= ~confirmed[found.row, found.column]
        standing = np.flatnonzero(open_)[:MOST_LABEL_ERRORS]
        self.error_rows, self.error_columns = found.row[standing], found.column[standing]
        self.error_confidence = found.confidence[standing]
        order = np.argsort(self.error_columns, kind="stable")
        bounds = np.searchsorted(self.error_columns[order], np.arange(labels.shape[1] + 1))
        self.errors_of = [order[bounds[c] : bounds[c + 1]] for c in range(labels.shape[1])]
        low, high = _range(scores)
        self.unit_range = low >= 0 and high <= 1
        self.list_left = list_all
        self.list_absent = list_all or self._count_absent() <= MOST_LISTED_ABSENT

    def of_class(self, column: int) -> ClassChanges:
        """Return the changes of one class."""
        scores, labels = self.scores[:, column], self.labels[:, column]
        unknown = labels == 0
        # Comparisons with NaN (no threshold, no score) are false, so nothing happens there.
        present = unknown & (scores >= self.present_from[column])
        absent = unknown & (scores <= self.absent_to[column]) & ~present
        rest = unknown & ~present & ~absent
        review = rest & (scores >= self.review_from[column])
        left = rest & ~review & ~np.isnan(scores)
        return ClassChanges(
            present=ordered(present, scores, descending=True),
            absent=ordered(absent, scores, descending=False) if self.list_absent else np.flatnonzero(absent),
            review=ordered(review, scores, descending=True),
            left=ordered(left, scores, descending=True) if self.list_left else np.flatnonzero(left),
            errors=self.error_rows[self.errors_of[column]],
            without_score=int(np.count_nonzero(unknown & np.isnan(scores))),
            histogram=histogram(scores, labels, (0.0, 1.0) if self.unit_range else _range(scores)),
        )

    def _count_absent(self) -> int:
        if self.labels.size <= MOST_LISTED_ABSENT:
            return 0
        return sum(
            int(np.count_nonzero((self.scores[:, column] <= limit) & (self.labels[:, column] == 0)))
            for column, limit in enumerate(self.absent_to)
            if not np.isnan(limit)
        )


def ordered(which: npt.NDArray[np.bool_], scores: npt.NDArray[np.floating[Any]], descending: bool) -> Rows:
    """Return the rows of ``which`` by score; equal scores in the order of the rows, on every machine.

    Score and row are packed into one whole number, which NumPy sorts several times faster than it sorts rows by
    score.

    >>> ordered(np.array([True, True, False, True]), np.array([0.5, -1.0, 9.0, 0.5]), descending=True)
    array([0, 3, 1])
    """
    rows = np.flatnonzero(which)
    bits = (scores[rows].astype(np.float32) + np.float32(0)).view(np.int32).astype(np.int64)
    # The bits of a positive number rise with it, those of a negative one fall.
    rising = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    key = ((-rising if descending else rising) << 31) + rows
    key.sort()
    return key & 0x7FFFFFFF


def histogram(
    scores: npt.NDArray[np.floating[Any]], labels: npt.NDArray[np.int8], limits: tuple[float, float]
) -> dict[str, list[float]]:
    """Count the scores of a class in 64 bins of equal width.

    >>> counts = histogram(np.array([0.0, 1.0, np.nan]), np.array([-1, 0, 1], dtype=np.int8), (0.0, 1.0))
    >>> counts["negative"][0], counts["unknown"][63], sum(counts["positive"]), len(counts["edges"])
    (1, 1, 0, 65)
    """
    low, high = limits
    if not low < high:
        low, high = (low - 0.5, low + 0.5) if low == high else (0.0, 1.0)
    scored = ~np.isnan(scores)
    place = (scores[scored] - np.float64(low)) * (BINS / (high - low))
    bins = np.clip(place, 0, BINS - 1).astype(np.int64) + BINS * (labels[scored].astype(np.int64) + 1)
    negative, unknown, positive = np.bincount(bins, minlength=3 * BINS).reshape(3, BINS).tolist()
    edges = np.linspace(low, high, BINS + 1).tolist()
    return {"edges": edges, "positive": positive, "negative": negative, "unknown": unknown}


def _range(scores: npt.NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Lowest and highest score; (inf, -inf) without any."""
    low, high = (
        float(part.reduce(scores, axis=None, initial=start))
        for part, start in ((np.fmin, np.inf), (np.fmax, -np.inf))
    )
    return low, high
