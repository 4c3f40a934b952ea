"""Exact bounds for a share that was counted on a few cells.

All functions broadcast their arguments like a NumPy operation: one call serves every class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrin, betainc, betaincinv, gammaln

from satl.errors import ArrayError
from satl.evaluation.undefined import ratio

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# A probability that equals its limit on paper must not miss it by the last bit.
ROUNDING = 1e-9
# Probabilities in the largest table of a finite population: many sets at a time, within some megabytes.
_TABLE = 2_000_000


def clopper_pearson_lower(
    correct: npt.ArrayLike, total: npt.ArrayLike, confidence: npt.ArrayLike = 0.95
) -> FloatArray:
    """Lower bound of a share of which ``correct`` out of ``total`` cells were seen.

    Assumption: the cells are independent draws, and which cells are counted was decided without looking at
    their labels. Guarantee: the bound exceeds the true share with probability at most 1 - ``confidence``,
    for every ``total``. Reference: C. J. Clopper and E. S. Pearson, Biometrika 26, 1934.

    Args:
        correct: cells that are right.
        total: cells in the sample; 0 gives the bound 0.
        confidence: one-sided, in (0, 1).

    >>> clopper_pearson_lower([59, 58, 0], [59, 58, 0]).round(4)
    array([0.9505, 0.9497, 0.    ])
    """
    right, cells, level = _counts(correct, total, confidence)
    bound = np.zeros(right.shape)
    some = right > 0
    bound[some] = betaincinv(right[some], cells[some] - right[some] + 1, level[some])
    return bound


def clopper_pearson_upper(
    correct: npt.ArrayLike, total: npt.ArrayLike, confidence: npt.ArrayLike = 0.95
) -> FloatArray:
    """Upper bound of a share: the mirror image of :func:`clopper_pearson_lower`.

    >>> clopper_pearson_upper([0, 0], [59, 0]).round(4)
    array([0.0495, 1.    ])
    """
    right, cells, level = _counts(correct, total, confidence)
    bound = np.ones(right.shape)
    some = right < cells
    bound[some] = betaincinv(right[some] + 1, cells[some] - right[some], 1 - level[some])
    return bound


def clopper_pearson_interval(
    correct: npt.ArrayLike, total: npt.ArrayLike, confidence: npt.ArrayLike = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Two-sided interval: both bounds, each at half of the error probability.

    >>> [bound.round(3).tolist() for bound in clopper_pearson_interval([8], [10])]
    [[0.444], [0.975]]
    """
    each = 0.5 + np.asarray(confidence, dtype=np.float64) / 2
    return clopper_pearson_lower(correct, total, each), clopper_pearson_upper(correct, total, each)


def labels_needed(
    precision: npt.ArrayLike, confidence: npt.ArrayLike = 0.95, errors: npt.ArrayLike = 0
) -> IntArray:
    """Smallest number of labels that shows ``precision`` although ``errors`` of them are wrong.

    The number n is the smallest one for which ``clopper_pearson_lower(n - errors, n, confidence)`` is at least
    ``precision``. Fewer labels than that can never show it, whatever they say.

    >>> labels_needed([0.80, 0.90, 0.95, 0.99])
    array([ 14,  29,  59, 299])
    >>> labels_needed(0.95, errors=[0, 1, 2])
    array([ 59,  93, 124])
    """
    wrong = np.asarray(errors)
    if not (wrong == np.floor(wrong)).all() or (wrong < 0).any():
        raise ArrayError("errors must be whole numbers of at least 0.")
    share = as_share(precision, "precision")
    level = 1 - as_share(confidence, "confidence")
    result = np.ceil(labels_needed_at(share, level, wrong.astype(np.float64)))
    return np.asarray(result.astype(np.int64))


def labels_needed_at(share: npt.ArrayLike, level: npt.ArrayLike, errors: npt.ArrayLike = 0.0) -> FloatArray:
    """:func:`labels_needed` for an error probability ``level``, unchecked; a share of 1 needs infinitely many.

    >>> labels_needed_at([0.95, 1.0], 0.05)
    array([59., inf])
    """
    p, a, e = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (share, level, errors)))
    result = np.full(p.shape, np.inf)
    possible = (p < 1) & (a > 0)
    p, a, e = p[possible], a[possible], e[possible]
    number = np.ceil(bdtrin(e, a, 1 - p))  # the inverse is good to many digits, but not to the last integer
    number = np.maximum(np.where(np.isfinite(number), number, e + 1), e + 1)
    for _ in range(3):
        enough_with_one_less = (number > e + 1) & (errors_at_most(e, number - 1, p) <= a * (1 + ROUNDING))
        number = np.where(enough_with_one_less, number - 1, number)
        number = np.where(errors_at_most(e, number, p) > a * (1 + ROUNDING), number + 1, number)
    result[possible] = number
    return result


def errors_at_most(errors: npt.ArrayLike, total: npt.ArrayLike, share: npt.ArrayLike) -> FloatArray:
    """Probability of at most ``errors`` wrong cells among ``total`` when each is right with ``share``.

    This is the p-value of "the share is below ``share``": it is at most a exactly when the Clopper-Pearson
    lower bound at confidence 1 - a reaches ``share``. Without any cell it is 1.

    >>> errors_at_most([0, 0, 1, 0], [59, 58, 93, 0], 0.95).round(4)
    array([0.0485, 0.051 , 0.05  , 1.    ])
    """
    e, n, p = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (errors, total, share)))
    # The cumulative binomial as an incomplete beta function, which takes arrays of any real type.
    return np.asarray(np.where(e < n, betainc(np.maximum(n - e, 1), e + 1, p), 1.0))


def conformal_rank(count: npt.ArrayLike, level: npt.ArrayLike) -> IntArray:
    """Rank of the order statistic that a new draw exceeds with probability at most 1 - ``level``.

    Assumption: the ``count`` scores and the new one are exchangeable. Guarantee: with
    r = ceil((count + 1) * level), a new score lies above the r-th smallest one with probability at most
    1 - ``level``, whatever the distribution. Where r > ``count`` no score can promise that: the rank is 0,
    which means "abstain", instead of quietly taking the largest score. Reference: V. Vovk, A. Gammerman and
    G. Shafer, Algorithmic Learning in a Random World, 2005.

    >>> conformal_rank([8, 9, 50, 998, 999], [0.9, 0.9, 0.999, 0.999, 0.999])
    array([  0,   9,   0,   0, 999])
    """
    n = np.asarray(count, dtype=np.int64)
    kappa = np.asarray(level, dtype=np.float64)
    if not ((kappa >= 0) & (kappa < 1)).all():
        raise ArrayError(f"The level of a conformal rank must be at least 0 and below 1, not {level!r}.")
    rank = np.maximum(np.ceil((n + 1) * kappa - ROUNDING), 1).astype(np.int64)
    return np.asarray(np.where(rank <= n, rank, 0))


def finite_population_lower(
    correct: npt.ArrayLike, drawn: npt.ArrayLike, population: npt.ArrayLike, confidence: npt.ArrayLike = 0.95
) -> FloatArray:
    """Lower bound of the share in a finite set, from a random sample drawn without replacement.

    Assumption: the sample is a simple random one; nothing else. Guarantee: the bound exceeds the true share with
    probability at most 1 - ``confidence``. It inverts the hypergeometric distribution, so it is never below
    Clopper and Pearson's bound, and a complete count leaves no doubt.

    Args:
        correct: cells of the sample that are right.
        drawn: size of the sample; 0 gives the bound 0.
        population: size of the set the sample was drawn from.
        confidence: one-sided, in (0, 1).

    >>> finite_population_lower([9, 9, 9], [10, 10, 10], [10, 20, 100000]).round(3)
    array([0.9  , 0.7  , 0.606])
    """
    right, cells, size, level = _sample(correct, drawn, population, confidence)
    return ratio(_smallest_count(right, cells, size, level), size, empty=0.0)


def finite_population_upper(
    correct: npt.ArrayLike, drawn: npt.ArrayLike, population: npt.ArrayLike, confidence: npt.ArrayLike = 0.95
) -> FloatArray:
    """Upper bound: the mirror image of :func:`finite_population_lower`.

    >>> finite_population_upper([9, 9, 0], [10, 10, 0], [10, 20, 5]).round(3)
    array([0.9 , 0.95, 1.  ])
    """
    right, cells, size, level = _sample(correct, drawn, population, confidence)
    count = size - _smallest_count(cells - right, cells, size, level)
    return ratio(count, size, empty=1.0)


def _smallest_count(
    right: npt.NDArray[Any], drawn: npt.NDArray[Any], size: npt.NDArray[Any], tail: npt.NDArray[Any]
) -> FloatArray:
    """Smallest number of right cells in the set under which ``right`` or more in the sample is no surprise.

    The probability of seeing at least that many rises with the number in the set: bisection, all sets at once.
    """
    block = max(1, _TABLE // (int(drawn.max(initial=0)) + 1))
    if right.size > block:
        parts = [np.array_split(x.ravel(), -(-right.size // block)) for x in (right, drawn, size, tail)]
        counts = [_smallest_count(*part) for part in zip(*parts, strict=True)]
        return np.concatenate(counts).reshape(right.shape)
    # With ``low`` right cells the sample is impossible, with ``high`` it is certain to have so many.
    low, high = right - 1.0, size - (drawn - right)
    while (open_ := high - low > 1).any():
        middle = np.where(open_, np.floor((low + high) / 2), high)
        surprise = _hypergeometric_at_least(right, drawn, middle, size) <= tail * (1 + ROUNDING)
        low, high = np.where(open_ & surprise, middle, low), np.where(open_ & ~surprise, middle, high)
    return np.asarray(high)


def _hypergeometric_at_least(
    seen: npt.NDArray[Any], drawn: npt.NDArray[Any], right: FloatArray, size: npt.NDArray[Any]
) -> FloatArray:
    """P(at least ``seen`` right cells in ``drawn`` of ``size`` cells of which ``right`` are right)."""
    k = np.arange(int(drawn.max(initial=0)) + 1.0)
    n, r, d, s = (x[..., np.newaxis] for x in (size, right, drawn, seen))
    possible = (k >= s) & (k <= d) & (k <= r) & (d - k <= n - r)
    k = np.where(possible, k, np.minimum(d, r))  # any number that keeps the logarithms finite
    log = _log_choose(r, k) + _log_choose(n - r, np.minimum(d - k, n - r)) - _log_choose(n, d)
    return np.asarray(np.where(possible, np.exp(np.minimum(log, 0.0)), 0.0).sum(axis=-1))


def _log_choose(n: npt.NDArray[Any], k: Any) -> FloatArray:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def _sample(
    correct: npt.ArrayLike, drawn: npt.ArrayLike, population: npt.ArrayLike, confidence: npt.ArrayLike
) -> tuple[npt.NDArray[Any], ...]:
    right, cells, level = _counts(correct, drawn, confidence)
    arrays = np.broadcast_arrays(right, cells, np.asarray(population, dtype=np.float64), level)
    if (arrays[2] < arrays[1]).any():
        raise ArrayError("A sample cannot be larger than the set it was drawn from.")
    return tuple(arrays)


def as_share(value: npt.ArrayLike, name: str) -> FloatArray:
    """Check that shares lie between 0 and 1, both excluded.

    >>> as_share(1.5, "confidence")
    Traceback (most recent call last):
    satl.errors.ArrayError: confidence must lie between 0 and 1, both excluded, not 1.5.
    """
    array = np.asarray(value, dtype=np.float64)
    if not ((array > 0) & (array < 1)).all():
        raise ArrayError(f"{name} must lie between 0 and 1, both excluded, not {value!r}.")
    return array


def _counts(
    correct: npt.ArrayLike, total: npt.ArrayLike, confidence: npt.ArrayLike
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return right cells, all cells and the error probability as float arrays of one shape."""
    right, cells, level = np.broadcast_arrays(
        np.asarray(correct, dtype=np.float64),
        np.asarray(total, dtype=np.float64),
        1 - as_share(confidence, "confidence"),
    )
    if not ((right >= 0) & (right <= cells)).all():
        raise ArrayError("Counts must satisfy 0 <= correct <= total.")
    return right, cells, level
