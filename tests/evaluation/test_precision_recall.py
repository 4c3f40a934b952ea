from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

from reference import metrics as reference
from satl.errors import SatlError
from satl.evaluation import count_metrics, counts_of_decisions, decide


@st.composite
def cases(draw):
    n, c = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    rows = lambda values: st.lists(st.lists(values, min_size=c, max_size=c), min_size=n, max_size=n)  # noqa: E731
    scores = draw(rows(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])))
    labels = draw(rows(st.sampled_from([-1, 0, 1])))
    thresholds = draw(st.lists(st.sampled_from([0.25, 0.5, 0.6]), min_size=c, max_size=c))
    return scores, labels, thresholds, draw(st.sampled_from([None, 1, 3]))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_equals_the_reference(case):
    scores, labels, thresholds, top = case
    got = count_metrics(scores, labels, thresholds=thresholds, top=top, encoding="signed").summary()
    expected = reference.count_metrics(scores, labels, thresholds, top)
    assert got == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_equals_scikit_learn_on_complete_labels():
    rng = np.random.default_rng(0)
    scores = rng.random((300, 12))
    truth = rng.random((300, 12)) < 0.2
    got = count_metrics(scores, np.where(truth, 1, -1))
    predicted = scores >= 0.5
    assert pytest.approx(precision_score(truth, predicted, average="micro")) == got.OP
    assert pytest.approx(recall_score(truth, predicted, average="micro")) == got.OR
    assert pytest.approx(f1_score(truth, predicted, average="micro")) == got.OF1
    assert pytest.approx(precision_score(truth, predicted, average="macro")) == got.CP
    assert pytest.approx(recall_score(truth, predicted, average="macro")) == got.CR
    np.testing.assert_allclose(got.f1, f1_score(truth, predicted, average=None))
    # CF1 is built from the averaged CP and CR; it is not the mean of the per-class F1.
    assert pytest.approx(2 * got.CP * got.CR / (got.CP + got.CR)) == got.CF1
    assert pytest.approx(got.f1.mean(), abs=1e-6) != got.CF1


def test_class_precision_is_the_mean_of_ratios_not_the_misprint_of_the_paper():
    # class 0: 1 of 1 predictions right; class 1: 1 of 3. Misprint: (2 / 4) / 2 = 0.25.
    scores = [[0.9, 0.9], [0.1, 0.9], [0.1, 0.9]]
    labels = [[1, 1], [-1, -1], [-1, -1]]
    assert pytest.approx((1 + 1 / 3) / 2) == count_metrics(scores, labels).CP


def test_nothing_predicted_is_zero_not_an_error():
    metrics = count_metrics([[0.1, 0.2]], [[1, 1]])
    assert metrics.summary() == dict.fromkeys(("OP", "OR", "OF1", "CP", "CR", "CF1"), 0.0)


def test_class_without_known_positives_is_left_out_of_the_means_but_lowers_op():
    labels = np.array([[1, -1], [-1, -1]])
    metrics = count_metrics([[0.9, 0.9], [0.1, 0.1]], labels)
    assert (metrics.CP, metrics.CR, metrics.OP, metrics.OR) == (1.0, 1.0, 0.5, 1.0)
    assert np.isnan([metrics.precision[1], metrics.recall[1], metrics.f1[1]]).all()


@pytest.mark.parametrize("labels", [[[0, 0]], [[-1, -1]]])
def test_nothing_measurable(labels):
    assert np.isnan(list(count_metrics([[0.9, 0.1]], labels, encoding="signed").summary().values())).all()


def test_unknown_cells_do_not_count():
    base = count_metrics([[0.9, 0.2], [0.8, 0.7]], [[1, 1], [-1, 1]])
    more = count_metrics([[0.9, 0.2], [0.8, 0.7], [0.9, 0.9]], [[1, 1], [-1, 1], [0, 0]])
    assert base.summary() == more.summary()


def test_top_is_chosen_among_all_classes_known_or_not():
    scores = np.array([[0.9, 0.8, 0.7, 0.6]])
    assert decide(scores, top=3).tolist() == [[True, True, True, False]]
    # classes 0 to 2 are unknown: the fourth is still not among the top three
    assert count_metrics(scores, [[0, 0, 0, 1]], top=3, encoding="signed").OR == 0.0
    assert count_metrics(scores, [[0, 0, 0, 1]], encoding="signed").OR == 1.0


def test_top_must_also_reach_the_threshold_and_ties_go_to_the_first_class():
    assert decide([[0.4, 0.3, 0.9, 0.2]], top=3).tolist() == [[False, False, True, False]]
    assert decide([[0.7, 0.7, 0.7, 0.7]], top=3).tolist() == [[True, True, True, False]]
    assert decide([[0.7, 0.7]], top=3).tolist() == [[True, True]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_score_equal_to_its_threshold_is_predicted_in_every_precision(dtype):
    assert decide(np.array([[0.5, 0.25]], dtype=dtype), [0.5, 0.25]).all()
    if dtype is not np.float16:  # half precision is compared in single precision
        assert decide(np.array([[0.7, 0.1]], dtype=dtype), [0.7, 0.1]).all()


def test_decisions_made_elsewhere():
    assert pytest.approx(2 / 3) == counts_of_decisions([[True, False], [True, True]], [[1, 1], [-1, 1]]).OP


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"thresholds": [0.5, 0.5, 0.5]}, "one per class"),
        ({"thresholds": [0.5, np.nan]}, "NaN"),
        ({"top": 0}, "at least 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(SatlError, match=message):
        count_metrics([[0.1, 0.2]], [[1, 1]], **arguments)
