from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import completion as reference
from satl.completion.statistics import fixed_sequence
from satl.completion.statistics.fixed_sequence import starting_points, threshold_grid
from satl.evaluation.confidence_bounds import errors_at_most


@given(st.lists(st.sampled_from([-2.0, 0.0, 0.25, 0.5, 1.0, 3.0, np.inf, -np.inf]), max_size=60))
def test_grid_with_ties_equals_the_reference(scores):
    assert threshold_grid(np.sort(np.array(scores))).tolist() == reference.grid(scores)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 201, 999, 5000])
def test_grid_of_distinct_scores(count):
    scores = np.random.default_rng(count).random(count)
    grid = threshold_grid(np.sort(scores))
    assert grid.tolist() == reference.grid(scores.tolist())
    assert grid[0] == scores.max()
    assert grid[-1] == scores.min()  # so that everything can be accepted


def test_grid_of_a_large_class_stays_small():
    grid = threshold_grid(np.sort(np.random.default_rng(0).random(300_000, dtype=np.float32)))
    assert len(grid) < 400
    assert grid.dtype == np.float32


@pytest.mark.parametrize("target", [0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("tested", [0, 1, 58, 59, 188, 189, 190, 5000, 1_000_000])
def test_starts_equal_the_reference_and_share_the_level(target, tested):
    counts, levels = starting_points([tested], np.array([target]), np.array([0.05]))
    got = [(int(c), level) for c, level in zip(counts[0], levels[0], strict=True) if np.isfinite(c)]
    expected = reference.starts(tested, target, 0.05)
    assert [count for count, _ in got] == [count for count, _ in expected]
    assert [level for _, level in got] == pytest.approx([level for _, level in expected])
    assert levels.sum() == pytest.approx(0.05)


def test_a_target_of_one_has_no_start():
    counts, _ = starting_points([500, 500], np.array([1.0, 0.95]), np.full(2, 0.05))
    assert np.isinf(counts[0]).all()
    assert counts[1, 0] == 63


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.sampled_from([0.8, 0.9, 0.95]))
def test_sequence_equals_the_reference(seed, points, target):
    random = np.random.default_rng(seed)
    steps = random.integers(0, 120, (4, points))
    cells = np.cumsum(steps, axis=1)
    errors = np.cumsum(random.binomial(steps, 0.7 * (1 - target)), axis=1)
    counts, levels = starting_points(cells[:, -1], np.full(4, target), np.full(4, 0.05))
    passed = fixed_sequence.passing_thresholds(cells, errors_at_most(errors, cells, target), counts, levels)
    for row in range(4):
        expected = reference.passing(
            cells[row].tolist(),
            errors[row].tolist(),
            target,
            reference.starts(int(cells[row, -1]), target, 0.05),
        )
        assert passed[row].tolist() == expected


def test_empty_and_small_first_points_do_not_end_the_sequence():
    cells, errors = np.array([[0, 3, 40, 59, 60]]), np.array([[0, 1, 0, 0, 0]])
    passed = fixed_sequence.passing_thresholds(
        cells, errors_at_most(errors, cells, 0.95), np.array([[59.0]]), np.array([[0.05]])
    )
    assert passed.tolist() == [[False, False, False, True, True]]


def test_a_failure_ends_it_although_later_points_look_good():
    cells, errors = np.array([[59, 80, 300, 600]]), np.array([[0, 3, 0, 0]])
    p_values = errors_at_most(errors, cells, 0.95)
    alone = fixed_sequence.passing_thresholds(cells, p_values, np.array([[59.0]]), np.array([[0.05]]))
    assert alone.tolist() == [[True, False, False, False]]
    again = fixed_sequence.passing_thresholds(
        cells, p_values, np.array([[59.0, 250.0]]), np.array([[0.049, 0.001]])
    )
    assert again.tolist() == [[True, False, True, True]]


def test_error_probability_in_hand_adds_up():
    # Two errors in 124 cells have a p-value of 0.0494: enough for both levels together only.
    cells, errors = np.array([[100, 124]]), np.array([[0, 2]])
    p_values = errors_at_most(errors, cells, 0.95)
    both = fixed_sequence.passing_thresholds(
        cells, p_values, np.array([[100.0, 124.0]]), np.array([[0.03, 0.02]])
    )
    later = fixed_sequence.passing_thresholds(
        cells, p_values, np.array([[np.inf, 124.0]]), np.array([[0.0, 0.02]])
    )
    assert both.tolist() == [[True, True]]
    assert later.tolist() == [[False, False]]
