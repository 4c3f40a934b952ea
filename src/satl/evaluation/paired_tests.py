"""Does one method beat another? Tests over paired runs (same seed, same data, two methods)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import ArrayError, SatlError
from satl.evaluation.undefined import finite_or_none


@dataclass(frozen=True)
class Pairs:
    """Two lists of results, run by run, from :func:`pair_by_key`.

    Attributes:
        keys: what the runs of a pair have in common, such as (proportion, seed).
        first, second: (n,) results in the order of ``keys``.
        left_out: keys that only one of the two has.
    """

    keys: tuple[Any, ...]
    first: tuple[float, ...]
    second: tuple[float, ...]
    left_out: tuple[Any, ...]


def pair_by_key(first: Mapping[Any, float], second: Mapping[Any, float]) -> Pairs:
    """Pair the runs of two methods that have the same key; a run without a partner is left out and named.

    >>> pairs = pair_by_key({(0.1, 0): 71.0, (0.1, 1): 72.0}, {(0.1, 1): 70.5, (0.1, 2): 70.0})
    >>> pairs.keys, pairs.first, pairs.second, pairs.left_out
    (((0.1, 1),), (72.0,), (70.5,), ((0.1, 0), (0.1, 2)))
    """
    keys = tuple(sorted(first.keys() & second.keys()))
    return Pairs(
        keys=keys,
        first=tuple(float(first[key]) for key in keys),
        second=tuple(float(second[key]) for key in keys),
        left_out=tuple(sorted(first.keys() ^ second.keys())),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests so that one false alarm among all stays as unlikely as in one test.

    Holm's step-down method; tests without a p-value (NaN) do not count and stay NaN.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted((value, index) for index, value in enumerate(p_values) if not math.isnan(value))
    corrected = [math.nan] * len(p_values)
    highest = 0.0
    for rank, (value, index) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * value))
        corrected[index] = highest
    return corrected


@dataclass(frozen=True)
class PairedTest:
    """Result of :func:`paired_test`; differences are first minus second.

    Attributes:
        n: number of pairs.
        mean_difference: mean of the differences.
        standard_deviation: of the differences (n - 1 in the denominator); NaN for one pair.
        t, p_value: paired two-sided t-test with n - 1 degrees of freedom; NaN for one pair.
        effect_size: Cohen's d_z, mean difference / standard deviation.
        confidence: level of the interval.
        interval_low, interval_high: confidence interval of the mean difference.
        wilcoxon, wilcoxon_p_value: Wilcoxon's signed-rank test, two-sided.
    """

    n: int
    mean_difference: float
    standard_deviation: float
    t: float
    p_value: float
    effect_size: float
    confidence: float
    interval_low: float
    interval_high: float
    wilcoxon: float
    wilcoxon_p_value: float

    def significant(self, alpha: float = 0.05) -> bool:
        """Whether the t-test rejects "no difference" at level ``alpha`` (never for one pair)."""
        return self.p_value < alpha

    def as_dict(self) -> dict[str, float | int | None]:
        """All fields, JSON-safe (NaN and infinities become None)."""
        return {
            key: value if isinstance(value, int) else finite_or_none(value)
            for key, value in asdict(self).items()
        }


def paired_test(first: npt.ArrayLike, second: npt.ArrayLike, confidence: float = 0.95) -> PairedTest:
    """Compare two methods over n paired runs.

    If all differences are the same number (up to rounding) the standard deviation is 0: then t and the
    effect size are infinite, p is 0 and the interval is that number; if that number is 0 there is nothing
    to tell apart: t and the effect size are 0 and both p-values are 1. Wilcoxon's test, too, takes differences that
    only rounding distinguishes for equal.

    Args:
        first: (n,) results of one method.
        second: (n,) results of the other, run by run in the same order.
        confidence: level of the interval of the mean difference, in (0, 1).

    >>> result = paired_test([71.2, 72.0, 71.5, 72.3], [70.1, 71.4, 70.2, 71.0])
    >>> round(result.mean_difference, 3), round(result.t, 2), round(result.p_value, 4)
    (1.075, 6.51, 0.0074)
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ArrayError(
            f"A paired test needs two lists of one length, but the shapes are {a.shape} and {b.shape}."
        )
    if a.size == 0:
        raise ArrayError("A paired test needs at least one pair of runs.")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        bad = int(np.flatnonzero(~(np.isfinite(a) & np.isfinite(b)))[0])
        raise ArrayError(f"Pair {bad + 1} of the paired test is not a finite number: leave out that pair.")
    if not 0 < confidence < 1:
        raise SatlError(f"confidence must lie between 0 and 1, not {confidence}.")
    difference = a - b
    n = difference.size
    mean = float(difference.mean())
    if n == 1:
        nan = float("nan")
        return PairedTest(n, mean, nan, nan, nan, nan, confidence, nan, nan, nan, nan)

    # Equal gaps such as 0.3 - 0.2 and 0.4 - 0.3 differ in the last bit, which does not count as spread.
    rounding = 4 * np.finfo(np.float64).eps * float(max(np.abs(a).max(), np.abs(b).max()))
    deviation = float(difference.std(ddof=1))
    if float(np.ptp(difference)) <= rounding:
        deviation = 0.0
        mean = mean if abs(mean) > rounding else 0.0
        t = math.copysign(math.inf, mean) if mean else 0.0
        p_value = 0.0 if mean else 1.0
        effect = t
        half = 0.0
    else:
        from scipy.special import stdtr, stdtrit

        effect = mean / deviation
        t = mean / (deviation / math.sqrt(n))
        p_value = float(2 * stdtr(n - 1, -abs(t)))
        half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * deviation / math.sqrt(n)
    wilcoxon, wilcoxon_p_value = _wilcoxon(_without_rounding(difference, rounding))
    return PairedTest(
        n=n,
        mean_difference=mean,
        standard_deviation=deviation,
        t=t,
        p_value=p_value,
        effect_size=effect,
        confidence=confidence,
        interval_low=mean - half,
        interval_high=mean + half,
        wilcoxon=wilcoxon,
        wilcoxon_p_value=wilcoxon_p_value,
    )


def _without_rounding(difference: npt.NDArray[np.float64], rounding: float) -> npt.NDArray[np.float64]:
    """Return differences (n,) in which sizes that only rounding tells apart are equal, and rounding alone is 0.

    >>> sizes = _without_rounding(np.array([0.3 - 0.2, 0.3 - 0.4, 0.5, 0.1 + 0.2 - 0.3]), 1e-15)
    >>> bool(sizes[0] == -sizes[1]), sizes[2:].tolist()
    (True, [0.5, 0.0])
    """
    size = np.abs(difference)
    order = size.argsort()
    ascending = np.concatenate([[0.0], size[order]])
    opens = np.diff(ascending) > rounding
    first = np.maximum.accumulate(np.where(opens, np.arange(1, len(ascending)), 0))
    size[order] = ascending[first]
    return np.copysign(size, difference)


def _wilcoxon(difference: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Signed-rank statistic and two-sided p-value; no difference at all is (0, 1), not NaN."""
    if not difference.any():
        return 0.0, 1.0
    from scipy.stats import wilcoxon

    with warnings.catch_warnings():  # scipy warns that few runs make the normal approximation coarse
        warnings.simplefilter("ignore")
        result = wilcoxon(difference)
    return float(result.statistic), float(result.pvalue)
