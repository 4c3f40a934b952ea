from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from reference import metrics as reference
from satl.errors import SatlError
from satl.evaluation import paired_test
from satl.evaluation.paired_tests import holm, pair_by_key


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


def test_differences_that_are_only_rounding_are_none():
    # 0.1 + 0.2 and 0.3 differ in the last bit; that is no difference, and it has no ranks.
    result = paired_test([0.1 + 0.2, 0.7, 0.3], [0.3, 0.7, 0.1 + 0.2])
    assert (result.mean_difference, result.t, result.p_value) == (0.0, 0.0, 1.0)
    assert (result.wilcoxon, result.wilcoxon_p_value) == (0.0, 1.0)


def test_equal_gaps_share_a_rank_whatever_their_last_bits():
    # Results as tables print them: the size 0.7 is there twice, as 72.0 - 71.3 and, with other last bits, 70.4 - 71.1.
    difference = np.array([-0.5, 0.7, -2.1, -0.4, -0.7, 0.2, -0.8, 0.0])
    second = np.array([70.5, 71.3, 69.9, 72.2, 71.1, 70.1, 71.7, 70.6])
    first = np.round(second + difference, 1)
    assert len(set(np.abs(first - second))) == 8
    got, signed = paired_test(first, second), stats.wilcoxon(difference)
    assert (got.wilcoxon, got.wilcoxon_p_value) == pytest.approx((signed.statistic, signed.pvalue))
    # A difference of nothing but rounding is none, also among others.
    first[-1] = np.nextafter(first[-1], 80)
    assert paired_test(first, second).wilcoxon_p_value == pytest.approx(signed.pvalue)


def test_pairs_have_the_same_proportion_and_seed():
    first = {(0.2, 1): 72.0, (0.1, 0): 70.0, (0.1, 1): 71.0}
    second = {(0.1, 1): 60.0, (0.2, 1): 62.0, (0.2, 0): 61.0}
    pairs = pair_by_key(first, second)
    assert pairs.keys == ((0.1, 1), (0.2, 1))
    assert (pairs.first, pairs.second) == ((71.0, 72.0), (60.0, 62.0))
    assert pairs.left_out == ((0.1, 0), (0.2, 0))
    assert paired_test(pairs.first, pairs.second).mean_difference == 10.5
    assert pair_by_key(first, {}).keys == ()
    # The order in which runs finished does not matter.
    assert pair_by_key(dict(reversed(first.items())), second) == pairs


def test_holm_equals_the_definition():
    p_values = np.random.default_rng(0).uniform(0, 0.2, 8).tolist()
    # The smallest level at which Holm's procedure, as it is defined, rejects each of them.
    order = np.argsort(p_values)
    expected = [0.0] * 8
    for rank, index in enumerate(order):
        expected[index] = max(min(1.0, (8 - k) * p_values[order[k]]) for k in range(rank + 1))
    assert holm(p_values) == pytest.approx(expected)
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    corrected = holm([0.02, math.nan, 0.03])
    assert corrected[0] == pytest.approx(0.04)
    assert math.isnan(corrected[1])
    assert corrected[2] == pytest.approx(0.04)


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
