"""Choose the thresholds: per class and direction, the loosest one that keeps the promised precision."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import as_labels
from satl.completion.statistics.certificates import Certificate, Certification
from satl.completion.statistics.class_cells import as_cells
from satl.completion.statistics.fixed_sequence import passing_thresholds, starting_points
from satl.completion.statistics.labels_needed import error_rates, estimate_labels_needed
from satl.completion.statistics.prevalence import prevalence_bounds, target_at_prevalence
from satl.completion.statistics.reasons import Reason
from satl.completion.statistics.threshold_counts import ThresholdCounts, count_at_thresholds
from satl.errors import SatlError, nearest
from satl.evaluation.confidence_bounds import (
    BoolArray,
    FloatArray,
    IntArray,
    as_share,
    errors_at_most,
    labels_needed_at,
)
from satl.evaluation.undefined import ratio

Family = Literal["class", "table"]
Transfer = Literal["same", "prevalence"]

# Share of the error probability that the bound of the prevalence may use, where there is one.
_PREVALENCE_SHARE = 0.2


def certify(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    held_out: npt.ArrayLike | None = None,
    *,
    precision: float = 0.95,
    confidence: float = 0.95,
    guard: float = 0.9,
    family: Family = "class",
    transfer: Transfer = "same",
    planned: npt.ArrayLike | None = None,
    zones: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    encoding: str | None = None,
) -> Certification:
    """Choose for every class a threshold for *present* and one for *absent* that keep a promised precision.

    Assumptions: the model has not seen the tested labels; the images are independent draws; the tested cells are
    like the unknown ones (``transfer="same"``: a random choice decided what is known), or they are like them
    among the positives and among the negatives, only mixed in another proportion (``"prevalence"``); precision
    does not recover below the threshold where it first misses the target (single crossing, see
    :func:`satl.completion.statistics.fixed_sequence.passing_thresholds`, with the proof).

    Guarantee: for each class and direction, the probability that a threshold is given whose precision is
    below ``precision`` is at most 1 - ``confidence``. With ``family="table"`` that is the probability that
    any of them is. Precision is the probability that an accepted unknown cell is right, so the share of right
    cells among few accepted ones still varies around it. The guarantee is exact for ``"same"``; for
    ``"prevalence"`` it rests on an approximate bound of the prevalence.

    The guard is a second condition against thresholds that only the mix of labels makes precise (if 98 % of the
    cells of a class are absent, calling all of them absent is 98 % precise and loses every positive): of the cells
    of the other value, at most 1 - ``guard`` may pass, by the conformal rank of their tested scores, and
    where they are too few to say so there is no threshold.

    References: Clopper and Pearson 1934 (the test); Wiens 2003 and Angelopoulos et al. 2021 (the sequence);
    Vovk et al. 2005 (the guard); Saerens et al. 2002 (the prevalence).

    Args:
        scores: (N, C), any scale, higher means rather present; NaN: this cell has no score, so it is neither
            tested nor accepted.
        labels: (N, C) in {+1 present, -1 absent, 0 unknown}.
        held_out: (N, C) known cells that the model was not trained on; None: all known cells.
        precision: to be kept, in (0, 1).
        confidence: in (0, 1).
        guard: in [0, 1); 0.9 lets at most a tenth of the other value through and needs 9 of its cells.
        family: "class": every statement holds on its own; "table": all of them at once (Bonferroni over the
            classes with enough tested cells, and both directions).
        transfer: what the tested cells share with the unknown ones, see above.
        planned: (N, C) tested cells that were picked by their score, as :func:`satl.completion.plan_labels`
            does: +1 for the zone of present, -1 for that of absent, 0 for all other cells; None: none. A class
            and direction with such cells is tested on them alone, because the other labels had a part in
            choosing the zone; the guard looks at the other cells.
        zones: the loosest thresholds that planned cells can test, present and absent, (C,) each, NaN for
            no limit; needed with ``planned``.
        encoding: how ``labels`` are written, if not +1, -1, 0 (``"blank"`` for 1, 0 and NaN). Labels with 0 and without
            -1 are refused unless one is named.

    >>> rng = np.random.default_rng(0)
    >>> truth = np.where(rng.random((4000, 2)) < 0.4, 1, -1)
    >>> scores = rng.normal(size=truth.shape) + [4, 1] * (truth > 0)   # the second class is hard to see
    >>> labels = np.where(rng.random(truth.shape) < 0.2, truth, 0)
    >>> result = certify(scores, labels)
    >>> result.present.certified, result.absent.certified
    (array([ True, False]), array([ True, False]))
    >>> accepted = result.decide(scores, labels)
    >>> round(float((truth[accepted == 1] == 1).mean()), 3)
    0.993
    >>> Reason(result.present.reason[1]).name
    'TOO_LOW'
    """
    as_share(precision, "precision")
    as_share(confidence, "confidence")
    if not 0 <= guard < 1:
        raise SatlError(f"guard must be at least 0 and below 1, not {guard}.")
    for option, choices in ((family, ("class", "table")), (transfer, ("same", "prevalence"))):
        if option not in choices:
            raise SatlError(f"{option!r} is none of {', '.join(choices)}{nearest(str(option), choices)}.")
    array, known, tested = as_cells(scores, labels, held_out, encoding)
    purpose = None if planned is None else as_labels(planned, array.shape, "planned", "signed")
    if (planned is None) != (zones is None):
        raise SatlError("planned and zones belong together: give both, from the same plan.")
    if planned is not None and transfer == "prevalence":
        raise SatlError(
            "Cells picked by their score do not show a prevalence: leave out planned and its cells."
        )
    count = array.shape[1]
    present_zone, absent_zone = (np.nan, np.nan) if zones is None else zones
    limits = (
        np.broadcast_to(np.asarray(present_zone, dtype=np.float64), (count,)),
        np.broadcast_to(np.asarray(absent_zone, dtype=np.float64), (count,)),
    )
    directions = count_at_thresholds(array, known, tested, guard, purpose, limits)
    level = 1 - confidence
    if family == "table":
        level /= _statements(directions[0], precision, level)
    targets = (np.full(count, precision), np.full(count, precision))
    estimable = np.ones(count, dtype=np.bool_)
    if transfer == "prevalence":
        low, high, estimable = prevalence_bounds(array, known, tested, 1 - _PREVALENCE_SHARE * level)
        targets = (
            target_at_prevalence(precision, directions[0].same, directions[0].other, low),
            target_at_prevalence(precision, directions[1].same, directions[1].other, 1 - high),
        )
        level *= 1 - _PREVALENCE_SHARE
    levels = np.full(count, level)
    passed, choice, closest, reason = [], [], [], []
    for counts, target, zone in zip(directions, targets, limits, strict=True):
        starts = starting_points(counts.tested, target, levels)
        p_value = errors_at_most(counts.errors, counts.cells, target[:, np.newaxis])
        passing = passing_thresholds(counts.cells, p_value, *starts)
        # Tests beyond the zone come later in the sequence, so they cannot harm those within.
        passing &= counts.within(zone)
        allowed = passing & counts.within_guard & (counts.other > 0)[:, np.newaxis] & estimable[:, np.newaxis]
        passed.append(allowed)
        choice.append(_loosest(allowed))
        closest.append(p_value.argmin(axis=1))
        seen = error_rates(counts, prior=1)[np.arange(count), closest[-1]] <= 1 - target
        few = (counts.cells.max(axis=1) < starts[0][:, 0]) | seen
        reason.append(_reasons(counts, passing, allowed, estimable, few))
    _separate(directions, passed, choice, reason)
    present, absent = (
        _certificate(directions[i], choice[i], closest[i], reason[i], targets[i], levels, guard)
        for i in range(2)
    )
    return Certification(present, absent, *directions, precision, confidence, guard, family, transfer)


def _statements(counts: ThresholdCounts, precision: float, level: float) -> int:
    """Number of statements that could be made at all; it looks at no label, so it may depend on the data."""
    enough = counts.tested >= labels_needed_at(precision, level)
    return max(1, 2 * int(np.count_nonzero(enough & (counts.unknown > 0))))


def _loosest(allowed: BoolArray) -> IntArray:
    """(C,) last allowed point of each row, -1 without one."""
    last = allowed.shape[1] - 1 - allowed[:, ::-1].argmax(axis=1)
    return np.asarray(np.where(allowed.any(axis=1), last, -1))


def _reasons(
    counts: ThresholdCounts, passing: BoolArray, allowed: BoolArray, estimable: BoolArray, few: BoolArray
) -> IntArray:
    """First condition that fails, in the order in which a person would look."""
    conditions = (
        (counts.unknown == 0, Reason.NOTHING_UNKNOWN),
        ((counts.same == 0) & (counts.planned == 0), Reason.NONE_OF_VALUE),
        (counts.other == 0, Reason.NONE_OF_OTHER),
        (np.isnan(counts.limit), Reason.TOO_FEW_OF_OTHER),
        (~estimable, Reason.PREVALENCE_OPEN),
        (~passing.any(axis=1) & few, Reason.TOO_FEW),
        (~passing.any(axis=1), Reason.TOO_LOW),
        (~allowed.any(axis=1), Reason.LETS_TOO_MUCH_THROUGH),
    )
    names = [reason for _, reason in conditions]
    return np.select([fails for fails, _ in conditions], names, Reason.CERTIFIED).astype(np.int64)


def _separate(
    directions: tuple[ThresholdCounts, ThresholdCounts],
    passed: list[BoolArray],
    choice: list[IntArray],
    reason: list[IntArray],
) -> None:
    """Where both directions would accept the same cells, cut between them, in place.

    All passing points hold at once, so any stricter passing pair keeps the promise: the one that makes the
    fewest errors on the tested cells. Only low targets or lopsided classes come here.
    """
    present, absent = directions
    both = (choice[0] >= 0) & (choice[1] >= 0)
    thresholds = [side.at(point)[0] for side, point in zip(directions, choice, strict=True)]
    for row in np.flatnonzero(both & (thresholds[0] <= thresholds[1])):
        best: tuple[int, int, int, int] | None = None
        lower = np.flatnonzero(passed[1][row])
        for point in np.flatnonzero(passed[0][row]):
            below = lower[absent.grid[row, lower] < present.grid[row, point]]
            if len(below):
                partner = int(below[-1])
                errors = int(present.errors[row, point] + absent.errors[row, partner])
                accepted = int(present.accepted[row, point] + absent.accepted[row, partner])
                pair = (errors, -accepted, int(point), partner)
                best = min(best or pair, pair)
        if best is None:  # keep the direction that accepts more
            more = int(present.at(choice[0])[3][row] < absent.at(choice[1])[3][row])
            choice[1 - more][row], reason[1 - more][row] = -1, Reason.OVERLAP
        else:
            choice[0][row], choice[1][row] = best[2], best[3]


def _certificate(
    counts: ThresholdCounts,
    choice: IntArray,
    closest: IntArray,
    reason: IntArray,
    target: FloatArray,
    level: FloatArray,
    guard: float,
) -> Certificate:
    certified = choice >= 0
    # Without a threshold, show the point that comes closest to one.
    threshold, cells, errors, accepted = counts.at(np.where(certified, choice, closest))

    def share(part: IntArray, whole: IntArray) -> FloatArray:
        accepted = part[np.arange(len(choice)), choice]
        return np.where(certified, ratio(accepted, whole, empty=np.nan), np.nan)

    return Certificate(
        value=counts.value,
        threshold=np.where(certified, threshold, np.nan),
        reason=reason,
        target=target,
        level=level,
        cells=cells,
        errors=errors,
        accepted=np.where(certified, accepted, 0),
        tested=counts.tested,
        same=counts.same,
        found=share(counts.found, counts.same),
        leaked=share(counts.leaked, counts.other),
        needed=estimate_labels_needed(counts, target, level, guard),
    )
