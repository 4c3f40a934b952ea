"""How many more labels a certificate would take, and where they help most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from satl.completion.statistics.fixed_sequence import FIRST_SHARE
from satl.completion.statistics.threshold_counts import ThresholdCounts
from satl.evaluation.confidence_bounds import BoolArray, FloatArray, IntArray, labels_needed_at
from satl.evaluation.undefined import ratio

# Numbers of errors to plan for: all small ones, then in steps of a tenth, up to some 100,000 labels.
_ERRORS = np.unique(np.floor(np.concatenate((np.arange(20), 20 * 1.1 ** np.arange(60)))))
# Cells that the error rate to plan with starts with: few, so that a plan does not give up early.
_PRIOR = 0.25


@dataclass(frozen=True)
class LabelsNeeded:
    """The cheapest way to a certificate, per class of one direction; (C,) each.

    Attributes:
        point: grid point to aim for; -1 where no number of labels is expected to do.
        zone: its threshold; NaN where there is none. Unknown cells at least as strict form the zone.
        in_zone: labels of cells drawn at random from the zone, as a test of their own; infinite where nothing
            helps.
        at_random: labels of unknown cells of the class drawn at random, whatever their score, in addition to
            those there are; infinite where only labels of the zone are expected to help.
    """

    point: IntArray
    zone: FloatArray
    in_zone: FloatArray
    at_random: FloatArray


def cells_required(error_rate: FloatArray, target: FloatArray, level: FloatArray) -> FloatArray:
    """Smallest number of cells that shows the target with about even odds.

    Args:
        error_rate: (C, M) expected share of errors.
        target, level: (C,) precision to show and error probability.

    Returns:
        (C, M) numbers, infinite where the error rate does not leave room.

    >>> cells_required(np.array([[0.0, 0.02, 0.04, 0.06]]), np.array([0.95]), np.array([0.05]))
    array([[  59.,  124., 1282.,   inf]])
    """
    # Cells with so many errors, to within one: the Poisson number corrected for the binomial.
    several, which = np.unique(level, return_inverse=True)
    means = gammaincinv(_ERRORS + 1, 1 - several[:, np.newaxis])[which]
    slack = (1 - target)[:, np.newaxis]
    numbers = (
        np.divide(means, slack, out=np.full(means.shape, 1e300), where=slack > 0) - (means - _ERRORS) / 2
    )
    required = np.full(error_rate.shape, np.inf)
    for errors, number in zip(_ERRORS[::-1], numbers.T[::-1], strict=True):
        # The median of a Poisson number of errors lies about 2/3 below the mean that still allows it.
        fits = error_rate * number[:, np.newaxis] <= errors + 2 / 3
        np.copyto(required, np.ceil(number)[:, np.newaxis], where=fits)
    return required


def error_rates(counts: ThresholdCounts, prior: float) -> FloatArray:
    """Estimate the share of errors at every grid point, (C, M).

    Three right cells of three do not make a rate of 0: to the cells of a point come ``prior`` cells that
    are wrong as often as the cells of the whole class have the other value.

    >>> from satl.completion.statistics.threshold_counts import count_at_thresholds
    >>> labels = np.array([[1], [1], [-1], [-1], [0], [0]], dtype=np.int8)
    >>> scores = np.array([[0.9], [0.8], [0.2], [0.1], [0.7], [0.0]])
    >>> error_rates(count_at_thresholds(scores, labels, None, guard=0.0)[0], prior=1)
    array([[0.16666667, 0.5       ]])
    """
    tested = counts.same + counts.other
    usual = ratio(counts.other, tested, empty=0.5)
    return np.asarray((counts.errors + prior * usual[:, np.newaxis]) / (counts.cells + prior))


def estimate_labels_needed(
    counts: ThresholdCounts,
    target: FloatArray,
    level: FloatArray,
    guard: float,
    allowed: BoolArray | None = None,
) -> LabelsNeeded:
    """Find the grid point that a certificate would reach with the fewest labels.

    It is an expectation with about even odds, from the error rate seen so far (:func:`error_rates`), and not a
    promise: the labels may say otherwise, and a better model may need fewer. Where there are hardly any tested
    cells nothing can be expected yet; then the numbers are the fewest that could do, and the zone holds the
    strictest cells, twice as many as that.

    Args:
        counts: counts of one direction.
        target, level: (C,) as tested.
        guard: the conformal guard, see :func:`satl.completion.certify`.
        allowed: (C, M) points to choose among; None for all.
    """
    required = cells_required(error_rates(counts, _PRIOR), target, FIRST_SHARE * level)
    more = np.where(np.isfinite(required), np.maximum(required - counts.cells, 0), np.inf)
    # Cells of the other value that the guard needs; at random, they come as often as so far.
    need_other = np.ceil(guard / (1 - guard) - 1e-9) if guard else 1.0
    short = np.maximum(need_other - counts.other, 0)
    for_guard = short * (counts.same + counts.other + 1) / (counts.other + 0.5)

    possible = (required <= counts.accepted) & ~np.isnan(counts.grid)
    if allowed is not None:
        possible &= allowed
    share = counts.accepted / np.maximum(counts.unknown, 1)[:, np.newaxis]
    at_random = np.where(possible, more, np.inf) / np.where(possible, share, 1.0)
    point = at_random.argmin(axis=1)
    rows = np.arange(len(point))
    in_zone, at_random = required[rows, point], at_random[rows, point]
    fewest = labels_needed_at(target, level)
    open_ = (counts.cells.max(axis=1) < fewest) | (counts.same == 0)
    open_ &= ~np.isfinite(at_random) & np.isfinite(fewest) & (counts.unknown > 0)
    enough = counts.accepted >= np.minimum(2 * fewest, counts.unknown)[:, np.newaxis]
    point = np.where(open_, enough.argmax(axis=1), point)
    in_zone = np.where(open_, np.minimum(fewest, counts.unknown), in_zone)
    # Where no tested cell has the value, those of the other value do not help.
    helpful = np.where(counts.same > 0, counts.cells.max(axis=1), 0)
    at_random = np.where(open_, fewest - helpful, at_random)

    none = ~np.isfinite(at_random)
    # Enough cells for a test of this point alone, but the sequence ended at a stricter one, and with more cells at
    # random it may again.
    at_random = np.where((at_random > 0) | (for_guard > 0), at_random, np.inf)
    zone, _, _, _ = counts.at(point)
    return LabelsNeeded(
        point=np.where(none, -1, point),
        zone=np.where(none, np.nan, zone),
        in_zone=np.where(none, np.inf, in_zone),
        at_random=np.where(none, np.inf, np.maximum(np.ceil(np.maximum(at_random, for_guard)), 1)),
    )
