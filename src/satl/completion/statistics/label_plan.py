"""Which unknown cells to label next: those that bring certificates, classes with too few tested cells first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import LabelMatrix
from satl.completion.statistics.certificates import Certificate, Certification
from satl.completion.statistics.class_cells import as_cells
from satl.completion.statistics.labels_needed import estimate_labels_needed
from satl.completion.statistics.reasons import Reason
from satl.completion.statistics.threshold_counts import ThresholdCounts
from satl.errors import ArrayError, SatlError
from satl.evaluation.confidence_bounds import FloatArray, IntArray

# Directions without any tested cell of their value come first, then those with too few, then those whose
# precision is not shown yet, then those whose threshold could be looser.
_ORDER = {
    Reason.NONE_OF_VALUE: 0,
    Reason.PREVALENCE_OPEN: 1,
    Reason.TOO_FEW: 1,
    Reason.TOO_LOW: 2,
    Reason.CERTIFIED: 3,
}


@dataclass(frozen=True)
class LabelPlan:
    """Cells to label, in the order of their use.

    Attributes:
        row, column: (K,) where they are.
        score: (K,) their scores.
        aim: (K,) number of the aim, counted from 0, that the cell serves.
        column_of_aim, value_of_aim: (A,) class and direction (+1 present, -1 absent) of each aim.
        stage: (A,) 0 no tested cell has this value, 1 too few cells, 2 precision not shown, 3 looser threshold.
        zone: (A,) cells are drawn at random among the unknown ones at least as strict as this threshold.
        labels: (A,) labels expected to be needed.
        drawn: (A,) cells of the plan for it; fewer where the budget ends.
        gain: (A,) unknown cells that the certificate would accept in addition.
    """

    row: IntArray
    column: IntArray
    score: FloatArray
    aim: IntArray
    column_of_aim: IntArray
    value_of_aim: IntArray
    stage: IntArray
    zone: FloatArray
    labels: IntArray
    drawn: IntArray
    gain: IntArray

    def __len__(self) -> int:
        return len(self.row)

    def planned(self, shape: tuple[int, int]) -> LabelMatrix:
        """Return the mask for :func:`satl.completion.certify` once the cells are labelled, int8 (N, C)."""
        result = np.zeros(shape, dtype=np.int8)
        result[self.row, self.column] = self.value_of_aim[self.aim]
        return result

    def zones(self, num_classes: int) -> tuple[FloatArray, FloatArray]:
        """Return the limits for :func:`satl.completion.certify` that go with :meth:`planned`, (C,) each."""
        result = np.full((2, num_classes), np.nan)
        result[np.where(self.value_of_aim > 0, 0, 1), self.column_of_aim] = self.zone
        return result[0], result[1]


def plan_labels(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    certification: Certification,
    budget: int = 500,
    seed: int = 0,
    *,
    encoding: str | None = None,
) -> LabelPlan:
    """Choose up to ``budget`` unknown cells whose labels are expected to bring most.

    Each class and direction without a threshold, and each whose threshold could be looser, is an aim with a
    price (labels needed, with about even odds) and a gain (unknown cells accepted in addition). Aims with too
    few tested cells come first, then those that gain most per label. For an aim, cells are drawn at random among
    all unknown cells of its zone, the scores at least as strict as the threshold aimed for. Cells picked any other
    way, say only those nearest the threshold, would distort the precision counted later. For the same reason a
    class has two aims at a time only where their zones do not meet.

    The new labels are a test of their own in ``certify(..., planned=plan.planned(shape), zones=plan.zones(C))``.
    They do not look like the whole class, so they must not be held out in :func:`satl.completion.check_shift`,
    nor be tested by ``certify`` without these two arguments; and as tested cells they must stay out of training.

    Args:
        scores, labels: (N, C) as given to :func:`satl.completion.certify`.
        certification: its result.
        budget: cells to label at most.
        seed: of the draw.
        encoding: what the values of ``labels`` mean, as in :func:`satl.completion.certify`.

    >>> from satl.completion import certify
    >>> rng = np.random.default_rng(0)
    >>> truth = np.where(rng.random((3000, 1)) < 0.3, 1, -1)
    >>> scores = rng.normal(size=truth.shape) + 4 * (truth > 0)
    >>> labels = np.where(np.arange(3000)[:, None] < 100, truth, 0)           # 100 known cells are too few
    >>> plan = plan_labels(scores, labels, certify(scores, labels))
    >>> plan.value_of_aim, plan.drawn, bool((scores[plan.row[plan.aim == 0], 0] >= plan.zone[0]).all())
    (array([1]), array([63]), True)
    """
    if budget < 1:
        raise SatlError(f"The budget of a plan must be at least 1 cell, not {budget}.")
    array, known, _ = as_cells(scores, labels, None, encoding)
    if array.shape[1] != len(certification.present.reason):
        raise ArrayError(
            f"The certification is about {len(certification.present.reason)} classes, "
            f"but the scores are about {array.shape[1]}."
        )
    sides = (
        (certification.present, certification.present_counts),
        (certification.absent, certification.absent_counts),
    )
    aims = np.concatenate([_aims(certificate, counts, certification.guard) for certificate, counts in sides])
    # By stage, then by gain per label; then by class and direction, so that the order is fixed.
    order = np.lexsort((-aims["value"], aims["column"], -aims["gain"] / aims["labels"], aims["stage"]))
    aims = aims[order]
    random = np.random.default_rng(seed)
    rows, columns, of_aim = [], [], []
    busy: dict[int, float] = {}
    drawn = np.zeros(len(aims), dtype=np.int64)
    left = budget
    for index, aim in enumerate(aims):
        column, value = int(aim["column"]), int(aim["value"])
        # The zone of the other direction begins beyond this one's end, or it has to wait for the next plan.
        if left == 0 or (column in busy and value * aim["zone"] <= value * busy[column]):
            continue
        busy[column] = float(aim["zone"])
        inside = (value * array[:, column] >= value * aim["zone"]) & (known[:, column] == 0)
        chosen = random.permutation(np.flatnonzero(inside))[: min(left, int(aim["labels"]))]
        drawn[index] = len(chosen)
        left -= len(chosen)
        rows.append(chosen)
        columns.append(np.full(len(chosen), column))
        of_aim.append(np.full(len(chosen), index))
    used = drawn > 0
    row, column_of_cell, aim_of_cell = (
        np.concatenate(part).astype(np.int64) if part else np.empty(0, dtype=np.int64)
        for part in (rows, columns, of_aim)
    )
    return LabelPlan(
        row=row,
        column=column_of_cell,
        score=array[row, column_of_cell].astype(np.float64),
        aim=(np.cumsum(used) - 1)[aim_of_cell],
        column_of_aim=aims["column"][used],
        value_of_aim=aims["value"][used],
        stage=aims["stage"][used],
        zone=aims["zone"][used],
        labels=aims["labels"][used],
        drawn=drawn[used],
        gain=aims["gain"][used],
    )


_AIM = np.dtype(
    [(name, np.int64) for name in ("column", "value", "stage", "labels", "gain")] + [("zone", np.float64)]
)


def _aims(certificate: Certificate, counts: ThresholdCounts, guard: float) -> npt.NDArray[Any]:
    """The aims of one direction as records."""
    certified = certificate.certified
    strict_enough = counts.within(certificate.threshold) & certified[:, np.newaxis]
    needed = estimate_labels_needed(counts, certificate.target, certificate.level, guard, ~strict_enough)
    stage = np.array([_ORDER.get(Reason(int(reason)), -1) for reason in certificate.reason], dtype=np.int64)
    # Planned cells are no random sample for the guard, so where it has too few others they bring no certificate.
    stage[(counts.other == 0) | np.isnan(counts.limit)] = -1
    _, _, _, accepted = counts.at(np.maximum(needed.point, 0))
    gain = np.where(needed.point >= 0, accepted, 0) - certificate.accepted
    columns = np.flatnonzero((stage >= 0) & (needed.point >= 0) & (gain > 0))
    aims = np.zeros(len(columns), dtype=_AIM)
    aims["column"], aims["value"], aims["stage"] = columns, certificate.value, stage[columns]
    aims["labels"], aims["gain"], aims["zone"] = needed.in_zone[columns], gain[columns], needed.zone[columns]
    return aims
