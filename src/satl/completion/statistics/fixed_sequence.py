"""Thresholds in a fixed order, tested from the strictest to the loosest: what may be tested, when, and at
which level.

The rule, its assumption and its proof are in :func:`passing_thresholds`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.evaluation.confidence_bounds import (
    ROUNDING,
    BoolArray,
    FloatArray,
    IntArray,
    labels_needed_at,
)

# The first start gets most of the error probability: there, with the fewest cells, it buys most.
FIRST_SHARE = 0.8
# Cells of one start over those of the start before.
START_FACTOR = 3
# Accepted unknown cells of one grid point over those of the point before, from either end.
GRID_FACTOR = 1.2
# Even steps between: half a per cent of the unknown cells each.
GRID_STEPS = 200


def threshold_grid(unknown: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Thresholds worth testing: scores of unknown cells, from the highest to the lowest.

    Only these scores matter, because a threshold acts on unknown cells only; and because no tested cell has
    a part in them, the grid is as good as fixed in advance. Their ranks take even steps, and geometric ones
    from both ends, so that the grid is finest where few cells are accepted and where few are left.

    Args:
        unknown: (U,) scores of the unknown cells, in rising order.

    >>> threshold_grid(np.array([0.1, 0.2, 0.2, 0.9]))
    array([0.9, 0.2, 0.1])
    >>> len(threshold_grid(np.linspace(0, 1, 1_000_000)))
    341
    """
    if not len(unknown):
        return unknown[:0]
    values = unknown[_ranks(len(unknown))]
    return np.asarray(values[np.append(values[1:] != values[:-1], True)][::-1])


@lru_cache(maxsize=4096)
def _ranks(count: int) -> IntArray:
    steps = np.arange(np.ceil(np.log(count) / np.log(GRID_FACTOR)) + 1)
    ranks = np.minimum(np.floor(GRID_FACTOR**steps), count).astype(np.int64) - 1
    even = np.linspace(0, count - 1, GRID_STEPS + 1).astype(np.int64)
    return np.unique(np.concatenate((ranks, count - 1 - ranks, even)))


def starting_points(
    tested: npt.ArrayLike, target: FloatArray, level: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return where the sequences of each class start: after how many cells, with which error probability.

    The first start waits until an error-free set could pass at all. Its test forgives no error, so one bad
    cell at the strict end would end everything: classes with many tested cells get further starts at 3, 9,
    27, ... times as many cells, which share a fifth of the error probability.

    Args:
        tested: (C,) tested cells of each class, whatever their labels.
        target, level: (C,) precision to show and the error probability allowed for it.

    Returns:
        (C, S) counts of cells, infinite where a class has fewer starts, and (C, S) error probabilities.

    >>> counts, levels = starting_points([100, 2000], np.full(2, 0.95), np.full(2, 0.05))
    >>> counts
    array([[  59.,   inf,   inf,   inf],
           [  63.,  189.,  567., 1701.]])
    >>> levels[1].round(4)
    array([0.04  , 0.0033, 0.0033, 0.0033])
    """
    cells = np.asarray(tested, dtype=np.float64)
    alone = labels_needed_at(target, level)
    first = labels_needed_at(target, FIRST_SHARE * level)
    possible = np.isfinite(first)
    ratio = np.divide(cells, first, out=np.zeros(len(cells)), where=possible)
    number = 1 + np.floor(np.log(np.maximum(ratio, 1)) / np.log(START_FACTOR) + ROUNDING)
    order = np.arange(int(number.max(initial=1)))[np.newaxis]
    used = order < number[:, np.newaxis]
    single = number == 1
    counts = np.where(
        used, np.where(single, alone, first)[:, np.newaxis] * float(START_FACTOR) ** order, np.inf
    )
    later = (1 - FIRST_SHARE) * level / np.maximum(number - 1, 1)
    levels = np.where(
        order == 0, np.where(single, level, FIRST_SHARE * level)[:, np.newaxis], later[:, np.newaxis]
    )
    return counts, np.where(used, levels, 0.0)


def passing_thresholds(
    cells: IntArray, p_values: FloatArray, counts: FloatArray, levels: FloatArray
) -> BoolArray:
    """Tell which thresholds pass, all classes at once.

    Grid points are visited from the strictest to the loosest. A start adds its error probability at the
    first grid point with at least its number of cells. At every point the probability available is a; the point
    passes if the binomial p-value of "the precision is below the target" is at most a. A point that passes
    passes a on to the next; at one that does not, a is lost, and only a later start adds some again.

    Assumption (single crossing): below the strictest grid threshold whose precision misses the target, no
    interval between grid points holds cells that are right more often than the target. Scores that rank
    sensibly have it, since precision then falls as the threshold falls. The tested cells are independent draws,
    and the grid does not depend on them.

    Guarantee: the probability that any point passes whose precision misses the target is at most the sum of
    ``levels``. So it holds for all passing points at once, and one may choose among them freely.

    Proof: let t* be the strictest threshold that misses the target, m the number of tested cells at or above
    it. Fix m and the number of tested cells in every interval between the grid points below t*. Given these
    numbers, the m cells are independent and each is right with the precision at t*, below the target; a cell
    of an interval below t* is right at most as often as the target. So at t* and at every looser point the
    number of errors is stochastically at least a binomial one at the target, and the p-value there is at most a
    with probability at most a. What is fixed also decides which starts begin at or before t* (those with counts
    up to m) and where the others begin. A wrong point can pass only in two ways: t* itself passes, with at most
    the sum of the levels of the starts before it; or the first test of a later start passes, with its
    own level. These probabilities add up to at most the sum of all levels. Average over what was fixed.

    References: B. L. Wiens, Pharmaceutical Statistics 2, 2003 (the fallback procedure); A. N. Angelopoulos et
    al., Learn then Test, arXiv 2110.01052 (testing thresholds in sequence).

    Args:
        cells: (C, M) tested cells accepted at each grid point; they never become fewer along a row, but points
            after the end of a shorter grid have none.
        p_values: (C, M) from :func:`satl.evaluation.confidence_bounds.errors_at_most` with the target.
        counts, levels: (C, S) from :func:`starting_points`.

    Returns:
        (C, M) booleans.

    >>> from satl.evaluation.confidence_bounds import errors_at_most
    >>> cells = np.array([[10, 59, 70, 90, 95]])
    >>> p_values = errors_at_most([[0, 0, 0, 1, 1]], cells, 0.95)
    >>> passing_thresholds(cells, p_values, np.array([[59.0]]), np.array([[0.05]]))
    array([[False,  True,  True, False, False]])
    """
    fresh = np.zeros(cells.shape)
    every = np.arange(len(cells))
    for start in range(counts.shape[1]):
        reached = cells >= counts[:, start, np.newaxis]
        here = reached.any(axis=1)
        fresh[every[here], reached.argmax(axis=1)[here]] += levels[here, start]
    passed = np.zeros(cells.shape, dtype=np.bool_)
    available = np.zeros(len(cells))
    for point in range(cells.shape[1]):
        available += fresh[:, point]
        passed[:, point] = (available > 0) & (p_values[:, point] <= available * (1 + ROUNDING))
        available *= passed[:, point]
    return passed
