from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from reference import metrics as reference
from satl.errors import ArrayError
from satl.evaluation import average_precision, average_precision_pair

DTYPES = (np.float16, np.float32, np.float64)


def random_case(seed, n=200, c=7, proportion=0.6, levels=20, dtype=np.float64):
    """Scores with many ties and partially known labels."""
    rng = np.random.default_rng(seed)
    scores = (rng.integers(0, levels, (n, c)) / levels).astype(dtype)
    labels = np.where(rng.random((n, c)) < 0.3, 1, -1).astype(np.int8)
    labels[rng.random((n, c)) >= proportion] = 0
    return scores, labels


@st.composite
def cases(draw):
    n = draw(st.integers(1, 12))
    c = draw(st.integers(1, 4))
    # few distinct values on purpose: ties are the hard part
    values = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 0.25, 0.5, 3.0, np.inf])
    scores = draw(st.lists(st.lists(values, min_size=c, max_size=c), min_size=n, max_size=n))
    cells = st.sampled_from([-1, 0, 1])
    labels = draw(st.lists(st.lists(cells, min_size=c, max_size=c), min_size=n, max_size=n))
    return np.array(scores, dtype=draw(st.sampled_from(DTYPES))), np.array(labels, dtype=np.int8)


@settings(max_examples=150, deadline=None)
@given(cases(), st.booleans())
def test_equals_the_reference(case, interpolated):
    scores, labels = case
    expected = [
        reference.average_precision(scores[:, c].tolist(), labels[:, c].tolist(), interpolated)
        for c in range(scores.shape[1])
    ]
    np.testing.assert_allclose(
        average_precision(scores, labels, interpolated=interpolated, encoding="signed"),
        expected,
        rtol=1e-12,
        atol=0,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("levels", [2, 20, 10_000])
@pytest.mark.parametrize("proportion", [0.1, 0.6, 1.0])
def test_plain_equals_scikit_learn_with_ties_and_masks(dtype, levels, proportion):
    scores, labels = random_case(levels, proportion=proportion, levels=levels, dtype=dtype)
    got = average_precision(scores, labels, interpolated=False)
    for c in range(scores.shape[1]):
        known = labels[:, c] != 0
        expected = average_precision_score(labels[known, c] == 1, scores[known, c])
        assert got[c] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 2**32 - 1), st.booleans())
def test_the_order_of_rows_does_not_matter(case, seed, interpolated):
    scores, labels = case
    order = np.random.default_rng(seed).permutation(len(scores))
    np.testing.assert_allclose(
        average_precision(scores, labels, interpolated=interpolated, encoding="signed"),
        average_precision(scores[order], labels[order], interpolated=interpolated, encoding="signed"),
        rtol=1e-13,
    )


@settings(max_examples=60, deadline=None)
@given(cases(), st.booleans())
def test_only_the_order_of_scores_matters(case, interpolated):
    scores, labels = case
    monotone = 5.0 * np.arctan(scores.astype(np.float64)) - 3.0
    np.testing.assert_array_equal(
        average_precision(scores, labels, interpolated=interpolated, encoding="signed"),
        average_precision(monotone, labels, interpolated=interpolated, encoding="signed"),
    )


@settings(max_examples=60, deadline=None)
@given(cases())
def test_interpolated_is_at_least_plain_and_both_are_proportions(case):
    interpolated, plain = average_precision_pair(*case, encoding="signed")
    measurable = (case[1] == 1).any(axis=0)
    np.testing.assert_array_equal(np.isnan(interpolated), ~measurable)
    np.testing.assert_array_equal(np.isnan(plain), ~measurable)
    assert (interpolated[measurable] >= plain[measurable] - 1e-15).all()
    assert (plain[measurable] > 0).all()
    assert (interpolated[measurable] <= 1).all()


@settings(max_examples=60, deadline=None)
@given(cases())
def test_unknown_cells_may_score_anything(case):
    scores, labels = case
    other = np.where(labels == 0, np.random.default_rng(0).normal(size=scores.shape), scores)
    np.testing.assert_array_equal(
        average_precision(scores, labels, encoding="signed"),
        average_precision(other, labels, encoding="signed"),
    )


def test_by_hand():
    # ranks:       +1    -1    +1    +1    -1 : precision at the hits 1, 2/3, 3/4
    scores = np.array([[5.0], [4.0], [3.0], [2.0], [1.0]])
    labels = np.array([[1], [-1], [1], [1], [-1]])
    assert average_precision(scores, labels)[0] == pytest.approx((1 + 3 / 4 + 3 / 4) / 3)
    assert average_precision(scores, labels, interpolated=False)[0] == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)


def test_a_tie_is_one_threshold():
    # All scores equal: the only threshold accepts everything, so AP is the share of positives.
    labels = np.array([[1], [1], [-1], [-1], [-1]])
    for order in (slice(None), slice(None, None, -1)):
        assert average_precision(np.zeros((5, 1)), labels[order], encoding="signed")[0] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([[1]], 1.0), ([[-1]], np.nan), ([[0]], np.nan)],
)
def test_single_row(labels, expected):
    np.testing.assert_array_equal(average_precision([[0.3]], labels, encoding="signed"), [expected])


def test_all_positive_all_unknown_and_empty():
    scores = np.random.default_rng(0).random((6, 3))
    np.testing.assert_array_equal(average_precision(scores, np.ones((6, 3))), [1, 1, 1])
    assert np.isnan(average_precision(scores, np.zeros((6, 3)), encoding="signed")).all()
    assert np.isnan(average_precision(np.empty((0, 3)), np.empty((0, 3)))).all()
    assert average_precision(np.empty((4, 0)), np.empty((4, 0))).shape == (0,)


def test_blocks_and_threads_change_nothing(monkeypatch):
    module = import_module("satl.evaluation.average_precision")
    scores, labels = random_case(3, n=300, c=23)
    whole = average_precision_pair(scores, labels)
    monkeypatch.setattr(module, "_CELLS_PER_BLOCK", 700)
    monkeypatch.setattr(module, "_usable_cores", lambda: 4)
    for one, other in zip(whole, average_precision_pair(scores, labels), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("order", ["C", "F"])
def test_input_is_left_alone_whatever_its_layout(order):
    scores, labels = random_case(1)
    scores, labels = np.array(scores, order=order), np.array(labels, order=order)
    before = scores.copy(), labels.copy()
    scores.flags.writeable = labels.flags.writeable = False
    average_precision(scores, labels)
    average_precision(scores.T, labels.T)
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(labels, before[1])


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([[0.1, np.nan], [0.2, 0.3]], [[1, 1], [1, 1]], "row 1, class 2"),
        ([[0.1, 0.2]], [[1, 2]], "hold 2 at row 1, class 2"),
        ([[0.1, 0.2]], [[1, 0.5]], r"hold 0\.5 at row 1, class 2"),
        ([[0.1, 0.2]], [[1, np.inf]], "hold inf at row 1, class 2"),
        ([[0.1, 0.2]], [[True, False]], "labels: can be read in 2 ways"),
        ([[0.1, 0.2]], np.array([[1, 0]], dtype=np.uint8), "labels: can be read in 2 ways"),
        ([[0.1, 0.2]], [["1", "-1"]], "labels must be numbers"),
        ([[0.1, 0.2]], [[1], [1]], "shape of labels is"),
        ([0.1, 0.2], [1, 1], "images, classes"),
        ([["a", "b"]], [[1, 1]], "real numbers"),
    ],
)
def test_bad_input_is_refused_in_words(scores, labels, message):
    with pytest.raises(ArrayError, match=message):
        average_precision(scores, labels)


def test_wrong_int8_label_is_refused():
    with pytest.raises(ArrayError, match="hold -2 at row 1, class 1"):
        average_precision([[0.1]], np.array([[-2]], dtype=np.int8))


def test_the_numpy_metrics_do_not_import_torch_nor_scipy():
    code = "import sys, satl.evaluation; sys.exit(bool({'torch', 'scipy', 'pyarrow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
