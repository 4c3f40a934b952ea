from __future__ import annotations

import numpy as np
import pytest

from satl.completion import find_label_errors
from satl.errors import SatlError


def case(flips=30, seed=0, rows=2000, separation=5.0, prevalence=0.3):
    """Scores, labels with some of them flipped, and where."""
    random = np.random.default_rng(seed)
    truth = np.where(random.random((rows, 3)) < prevalence, 1, -1).astype(np.int8)
    scores = random.normal(size=truth.shape) + separation * (truth > 0)
    wrong = np.zeros(truth.shape, dtype=bool)
    wrong.ravel()[random.choice(truth.size, flips, replace=False)] = True
    return scores, np.where(wrong, -truth, truth).astype(np.int8), wrong


def test_flipped_labels_come_first():
    scores, labels, wrong = case()
    found = find_label_errors(scores, labels)
    assert wrong[found.row, found.column][:30].mean() > 0.85
    assert (np.diff(found.confidence) >= 0).all()
    assert (found.confidence < 0.2).all()
    np.testing.assert_array_equal(found.label, labels[found.row, found.column])
    np.testing.assert_array_equal(found.score, scores[found.row, found.column])
    assert found.checked == labels.size


def test_nothing_is_changed():
    scores, labels, _ = case()
    before = labels.copy()
    find_label_errors(scores, labels)
    np.testing.assert_array_equal(labels, before)


def test_unknown_cells_and_cells_seen_in_training_are_not_looked_at():
    scores, labels, wrong = case()
    held_out = np.zeros(labels.shape, dtype=bool)
    held_out[:1000] = True
    labels[500:800] = 0
    held_out &= labels != 0
    found = find_label_errors(scores, labels, held_out)
    assert held_out[found.row, found.column].all()
    assert found.checked == held_out.sum()
    assert wrong[found.row, found.column].any()


def test_scores_of_any_scale_and_badly_calibrated_classes_compare():
    scores, labels, wrong = case()
    found = find_label_errors(scores, labels)
    bent = scores.copy()
    bent[:, 1] = np.exp(bent[:, 1]) / 1e6  # all of this class's scores are tiny
    other = find_label_errors(bent, labels)
    np.testing.assert_array_equal(found.confidence, other.confidence)
    assert wrong[other.row, other.column][:30].mean() > 0.85


def test_positives_of_a_rare_class_are_not_suspicious_for_being_rare():
    random = np.random.default_rng(0)
    labels = np.where(np.arange(1000) < 6, 1, -1)[:, None]
    scores = random.normal(size=labels.shape) + 8 * (labels > 0)
    assert len(find_label_errors(scores, labels)) == 0
    labels[500], scores[500] = -1, 8.0  # looks like them
    assert find_label_errors(scores, labels, below=0.4).row[0] == 500


def test_ties_do_not_depend_on_the_order_of_rows():
    scores, labels, _ = case()
    scores = np.round(scores)
    rows = np.random.default_rng(1).permutation(len(scores))
    one, other = find_label_errors(scores, labels), find_label_errors(scores[rows], labels[rows])
    assert sorted(zip(one.row, one.column, strict=True)) == sorted(
        zip(rows[other.row], other.column, strict=True)
    )


def test_constant_scores_contradict_nothing():
    labels = np.where(np.arange(200) % 3 == 0, 1, -1)[:, None]
    assert len(find_label_errors(np.full(labels.shape, 0.5), labels)) == 0


def test_too_few_cells_of_a_sign_are_not_checked():
    scores = np.random.default_rng(0).random((100, 3))
    labels = np.ones((100, 3), dtype=np.int8)
    labels[:4, 1] = -1
    labels[:5, 2] = -1
    found = find_label_errors(scores, labels)
    assert found.not_checked.tolist() == [True, True, False]
    assert found.checked == 100
    nothing = find_label_errors(scores, np.zeros((100, 3)), encoding="signed")
    assert (len(nothing), nothing.checked) == (0, 0)


def test_cells_without_a_score_are_not_looked_at():
    scores, labels, _ = case()
    scores[:1500] = np.nan
    found = find_label_errors(scores, labels)
    assert (found.row >= 1500).all()
    assert found.checked == 500 * 3


@pytest.mark.parametrize("below", [0.0, 1.0])
def test_bad_input(below):
    with pytest.raises(SatlError, match="below must lie"):
        find_label_errors(np.zeros((2, 1)), np.array([[1], [-1]]), below=below)
