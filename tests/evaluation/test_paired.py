from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from reference import metrics as reference
from satl.errors import SatlError
from satl.evaluation import paired_test


@pytest.mark.parametrize("n", [2, 3, 5, 30, 80])
@pytest.mark.parametrize("shift", [0.0, 0.4, -3.0])
def test_equals_scipy(n, shift):
    rng = np.random.default_rng(n)
    a, b = rng.normal(70 + shift, 2, n), rng.normal(70, 2, n)
    got, expected = paired_test(a, b, confidence=0.9), stats.ttest_rel(a, b)
    assert got.t == pytest.approx(expected.statistic, rel=1e-10)
    assert got.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    interval = expected.confidence_interval(0.9)
    assert (got.interval_low, got.interval_high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert got.mean_difference == pytest.approx((a - b).mean())
    assert got.effect_size == pytest.approx((a - b).mean() / (a - b).std(ddof=1))
    assert got.t == pytest.approx(got.effect_size * math.sqrt(n))
    signed = stats.wilcoxon(a - b)
    assert (got.wilcoxon, got.wilcoxon_p_value) == pytest.approx((signed.statistic, signed.pvalue))


@pytest.mark.parametrize("seed", range(5))
def test_wilcoxon_equals_the_enumeration_of_signs(seed):
    difference = np.random.default_rng(seed).normal(0.5, 1, 7)
    got = paired_test(difference, np.zeros(7))
    assert got.wilcoxon_p_value == pytest.approx(reference.wilcoxon_exact_p(difference.tolist()))


def test_constant_difference():
    # 0.3 - 0.2 and 0.4 - 0.3 differ in the last bit; that is rounding, not spread.
    result = paired_test([0.3, 0.4, 0.5], [0.2, 0.3, 0.4])
    assert (result.t, result.p_value, result.standard_deviation) == (math.inf, 0.0, 0.0)
    assert result.interval_low == result.interval_high == pytest.approx(0.1)
    opposite = paired_test([1.0, 2.0], [2.0, 3.0])
    assert (opposite.t, opposite.effect_size) == (-math.inf, -math.inf)
    assert json.loads(json.dumps(opposite.as_dict(), allow_nan=False))["t"] is None


def test_no_difference_at_all():
    result = paired_test([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (result.t, result.p_value, result.effect_size, result.wilcoxon_p_value) == (0.0, 1.0, 0.0, 1.0)
    assert not result.significant()


def test_one_pair_has_a_difference_and_nothing_else():
    result = paired_test([2.0], [1.0])
    assert (result.n, result.mean_difference) == (1, 1.0)
    rest = (result.t, result.p_value, result.effect_size, result.interval_low, result.wilcoxon_p_value)
    assert np.isnan(rest).all()
    assert not result.significant()


def test_order_of_the_methods_only_turns_the_sign():
    a, b = [3.0, 4.0, 6.0, 5.0], [1.0, 3.5, 4.0, 5.2]
    one, other = paired_test(a, b), paired_test(b, a)
    assert one.t == pytest.approx(-other.t)
    assert one.p_value == pytest.approx(other.p_value)
    assert (one.interval_low, one.interval_high) == pytest.approx((-other.interval_high, -other.interval_low))


def test_significant_follows_alpha():
    result = paired_test([71.2, 72.0, 71.5, 72.3], [70.1, 71.4, 70.2, 71.0])
    assert result.significant()
    assert not result.significant(alpha=0.001)


@pytest.mark.parametrize(
    ("first", "second", "confidence", "message"),
    [
        ([1.0, 2.0], [1.0], 0.95, "one length"),
        ([], [], 0.95, "at least one pair"),
        ([1.0, np.nan], [1.0, 2.0], 0.95, "Pair 2"),
        ([1.0, 2.0], [1.0, 2.5], 1.0, "between 0 and 1"),
    ],
)
def test_bad_input(first, second, confidence, message):
    with pytest.raises(SatlError, match=message):
        paired_test(first, second, confidence)
