"""Per-class thresholds with a promise, as data: what was promised, on which evidence, or why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import LabelMatrix
from satl.completion.statistics.class_cells import as_cells, class_names
from satl.completion.statistics.labels_needed import LabelsNeeded
from satl.completion.statistics.reasons import Reason, explain_certificate
from satl.completion.statistics.threshold_counts import ThresholdCounts
from satl.evaluation.confidence_bounds import BoolArray, FloatArray, IntArray, clopper_pearson_lower
from satl.evaluation.undefined import ratio

# Rows of a large table that are decided at a time.
_ROWS = 65_536


@dataclass(frozen=True)
class Certificate:
    """The thresholds of one direction and what they rest on; arrays (C,).

    Attributes:
        value: +1: a score of at least the threshold is accepted as present; -1: a score of at most the threshold
            is accepted as absent.
        threshold: NaN where there is none.
        reason: a :class:`Reason` each.
        target: precision that was tested on the tested cells: the promised one, or the one that amounts to it
            at the prevalence of the unknown cells.
        level: error probability of the test.
        cells, errors: tested cells at least as strict as the threshold, and the wrong ones among them. Without
            a threshold they belong to the grid point with the strongest evidence.
        accepted: unknown cells that the threshold accepts.
        tested: tested cells of the class, whatever their score.
        same: those of them that are of this value.
        found: share of the tested cells of this value that the threshold accepts; NaN where there is none.
        leaked: share of the tested cells of the other value that it accepts.
        needed: how many more labels are expected to bring a certificate, and where.
    """

    value: int
    threshold: FloatArray
    reason: IntArray
    target: FloatArray
    level: FloatArray
    cells: IntArray
    errors: IntArray
    accepted: IntArray
    tested: IntArray
    same: IntArray
    found: FloatArray
    leaked: FloatArray
    needed: LabelsNeeded

    @property
    def certified(self) -> BoolArray:
        """(C,) whether there is a threshold."""
        return np.asarray(self.reason == Reason.CERTIFIED)

    @property
    def precision(self) -> FloatArray:
        """(C,) share of the cells counted that are right; an estimate, NaN without cells."""
        return ratio(self.cells - self.errors, self.cells, empty=np.nan)

    @property
    def lower_bound(self) -> FloatArray:
        """(C,) Clopper-Pearson bound at this one threshold, as if it had not been chosen among several.

        It describes the evidence. What is promised is the target, not this number.
        """
        return clopper_pearson_lower(self.cells - self.errors, self.cells, 1 - self.level)

    def explain(self, names: Any = None) -> list[str]:
        """One sentence per class: the threshold and its evidence, or why there is none and what would help."""
        return explain_certificate(self, class_names(names, len(self.reason)))


@dataclass(frozen=True)
class Certification:
    """What :func:`satl.completion.certify` returns.

    Attributes:
        present, absent: thresholds of the two directions.
        present_counts, absent_counts: the counts at all grid points.
        precision, confidence, guard, family, transfer: as asked for.
    """

    present: Certificate
    absent: Certificate
    present_counts: ThresholdCounts
    absent_counts: ThresholdCounts
    precision: float
    confidence: float
    guard: float
    family: str
    transfer: str

    def decide(
        self, scores: npt.ArrayLike, labels: npt.ArrayLike, *, encoding: str | None = None
    ) -> LabelMatrix:
        """Return the accepted value of every unknown cell, int8 (N, C): +1, -1, or 0 where nothing is promised.

        Known cells are 0 as well: nothing is decided about them. ``encoding`` says what the labels mean, as in
        :func:`satl.completion.certify`.
        """
        array, known, _ = as_cells(scores, labels, None, encoding)
        decision = np.zeros(array.shape, dtype=np.int8)
        for first in range(0, len(array), _ROWS):
            rows = slice(first, first + _ROWS)
            unknown = known[rows] == 0
            # Comparisons with NaN (no threshold, no score) are false, so nothing is accepted there.
            decision[rows] += (array[rows] >= self.present.threshold) & unknown
            decision[rows] -= (array[rows] <= self.absent.threshold) & unknown
        return decision
