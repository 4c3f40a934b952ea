from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from reference import completion as reference
from satl.completion import (
    clopper_pearson_interval,
    clopper_pearson_lower,
    clopper_pearson_upper,
    conformal_rank,
    finite_population_lower,
    finite_population_upper,
    labels_needed,
)
from satl.errors import SatlError
from satl.evaluation import confidence_bounds
from satl.evaluation.confidence_bounds import errors_at_most, labels_needed_at


@settings(max_examples=40)
@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_interval_equals_scipy(correct, wrong, confidence):
    low, high = clopper_pearson_interval([correct], [correct + wrong], confidence)
    if correct + wrong == 0:
        assert (low[0], high[0]) == (0, 1)
        return
    expected = binomtest(correct, correct + wrong).proportion_ci(confidence, method="exact")
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_bounds_broadcast_over_classes_and_mirror_each_other():
    correct, total = np.array([[3], [5]]), np.array([7, 9])
    lower, upper = clopper_pearson_lower(correct, total), clopper_pearson_upper(total - correct, total)
    assert lower.shape == (2, 2)
    np.testing.assert_allclose(lower, 1 - upper, atol=1e-12)


@pytest.mark.parametrize(("precision", "expected"), [("0.8", 14), ("0.9", 29), ("0.95", 59), ("0.99", 299)])
def test_the_published_numbers_of_error_free_labels(precision, expected):
    assert reference.labels_needed(precision, "0.95") == expected
    assert labels_needed(float(precision)) == expected


@pytest.mark.parametrize("precision", ["0.5", "0.75", "0.9", "0.95"])
@pytest.mark.parametrize("confidence", ["0.5", "0.75", "0.9", "0.99"])
def test_labels_needed_equals_counting_up(precision, confidence):
    expected = [reference.labels_needed(precision, confidence, errors) for errors in range(6)]
    got = labels_needed(float(precision), float(confidence), np.arange(6))
    assert got.tolist() == expected


@given(st.integers(0, 30), st.floats(0.5, 0.995), st.floats(0.5, 0.999))
def test_labels_needed_is_where_the_bound_reaches_the_precision(errors, precision, confidence):
    n = int(labels_needed(precision, confidence, errors))
    assert clopper_pearson_lower(n - errors, n, confidence) >= precision - 1e-9
    if n > errors + 1:
        assert clopper_pearson_lower(n - 1 - errors, n - 1, confidence) < precision + 1e-9


def test_a_precision_of_one_needs_infinitely_many_labels():
    assert np.isinf(labels_needed_at(1.0, 0.05))


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from(["0.6", "0.9", "0.95"]))
def test_p_value_equals_the_exact_sum(errors, right, share):
    expected = reference.binomial_at_most(errors, errors + right, 1 - Fraction(share))
    assert errors_at_most(errors, errors + right, float(share)) == pytest.approx(float(expected), abs=1e-12)


@given(st.integers(0, 2000), st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.999]))
def test_conformal_rank_abstains_or_keeps_its_level(count, level):
    rank = int(conformal_rank(count, level))
    exact = max(1, -(-((count + 1) * int(level * 1000)) // 1000))  # ceil((n + 1) * level) in integers
    assert rank == (exact if exact <= count else 0)
    if rank:
        assert rank / (count + 1) >= level - 1e-12  # chance that a new score is not above that one


@pytest.mark.parametrize("size", [1, 2, 7, 12])
def test_finite_population_equals_the_enumeration(size):
    for drawn in range(size + 1):
        for correct in range(drawn + 1):
            for confidence in ("0.9", "0.975"):
                expected = reference.finite_population_lower(correct, drawn, size, confidence)
                got = finite_population_lower(correct, drawn, size, float(confidence))
                assert got == pytest.approx(expected)
                mirrored = finite_population_upper(drawn - correct, drawn, size, float(confidence))
                assert mirrored == pytest.approx(1 - expected)


def test_finite_population_tends_to_clopper_pearson_and_is_never_worse():
    correct, drawn = np.array([0, 5, 45, 50]), 50
    plain = clopper_pearson_lower(correct, drawn)
    np.testing.assert_allclose(finite_population_lower(correct, drawn, 10_000_000), plain, atol=1e-5)
    assert (finite_population_lower(correct, drawn, 80) >= plain - 1 / 80).all()


def test_sets_are_worked_through_in_parts(monkeypatch):
    random = np.random.default_rng(0)
    size = random.integers(1, 60, (50, 3))
    drawn = random.integers(0, size + 1)
    correct = random.integers(0, drawn + 1)
    whole = finite_population_lower(correct, drawn, size)
    monkeypatch.setattr(confidence_bounds, "_TABLE", 500)
    np.testing.assert_array_equal(finite_population_lower(correct, drawn, size), whole)


def test_an_empty_set_says_nothing():
    assert (finite_population_lower(0, 0, 0), finite_population_upper(0, 0, 0)) == (0, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clopper_pearson_lower(3, 2), "0 <= correct <= total"),
        (lambda: clopper_pearson_lower(-1, 2), "0 <= correct <= total"),
        (lambda: clopper_pearson_upper(1, 2, 1.0), "confidence must lie between"),
        (lambda: labels_needed(1.0), "precision must lie between"),
        (lambda: labels_needed(0.9, errors=0.5), "whole numbers"),
        (lambda: conformal_rank(5, 1.0), "below 1"),
        (lambda: finite_population_lower(2, 3, 2), "larger than the set"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(SatlError, match=message):
        call()
