from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satl.completion import HeldOut, assign_folds, hold_out, hold_out_fraction
from satl.errors import RunError, SatlError
from satl.labels.holdout import as_held_out

IMAGES, CLASSES = ("a", "b", "c"), ("x", "y")


def labels_of(seed=0, rows=2000, shares=(0.5, 0.1, 0.01), known=0.8):
    random = np.random.default_rng(seed)
    truth = np.where(random.random((rows, len(shares))) < shares, 1, -1)
    return np.where(random.random(truth.shape) < known, truth, 0).astype(np.int8)


def test_only_known_cells_are_held_out_at_one_rate_for_both_signs():
    labels = labels_of()
    chosen = hold_out(labels)
    assert not (chosen.mask & (labels == 0)).any()
    for column in range(2):
        for sign in (1, -1):
            cells = labels[:, column] == sign
            exact = chosen.fraction[column] * cells.sum()
            assert abs(chosen.mask[cells, column].sum() - exact) < 1
    assert chosen.fraction[0] == pytest.approx(
        118 / min((labels[:, 0] == 1).sum(), (labels[:, 0] == -1).sum())
    )
    assert chosen.fraction[1] == 0.3


def test_a_class_that_cannot_be_certified_keeps_its_cells():
    labels = labels_of()
    assert (labels[:, 2] == 1).sum() < 30
    chosen = hold_out(labels)
    assert chosen.fraction[2] == 0
    assert not chosen.mask[:, 2].any()


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0.8, 0.95, 0.99]))
def test_rule_never_starves_training_and_never_wastes_cells(positives, negatives, precision):
    fraction = float(hold_out_fraction(positives, negatives, precision))
    assert fraction == 0 or 0.1 <= fraction <= 0.3
    needed = {0.8: 14, 0.95: 59, 0.99: 299}[precision]
    # At the largest rate one direction must be within reach, with nine cells of the other sign for the guard.
    reach = max(
        min(0.3 * a / needed, 0.3 * b / 9) for a, b in ((positives, negatives), (negatives, positives))
    )
    assert (fraction > 0) == (reach >= 1)


def test_every_known_cell_has_the_same_chance():
    labels = np.repeat([1, -1], [3, 9])[:, None]
    counts = np.zeros(12)
    for seed in range(3000):
        counts += hold_out(labels, seed, fraction=0.3).mask[:, 0]
    assert np.abs(counts / 3000 - 0.3).max() < 0.03


def test_the_draw_depends_on_seed_and_column_only():
    labels = labels_of()
    one = hold_out(labels)
    np.testing.assert_array_equal(one.mask, hold_out(labels).mask)
    assert (one.mask != hold_out(labels, seed=1).mask).any()
    np.testing.assert_array_equal(one.mask[:, :1], hold_out(labels[:, :1]).mask)


def test_only_known_cells_can_be_held_out():
    labels = labels_of()
    chosen = hold_out(labels)
    np.testing.assert_array_equal(as_held_out(chosen.mask, labels), chosen.mask)
    with pytest.raises(SatlError, match="held_out marks the unknown cell"):
        as_held_out(chosen.mask, np.zeros_like(labels))
    with pytest.raises(ValueError, match="read-only"):
        chosen.mask[0] = True


def test_file_is_the_same_each_time_and_read_back_equal(tmp_path):
    chosen = hold_out(np.array([[1, 1], [-1, 0], [1, -1]]), seed=5, fraction=[0.5, 0.9])
    chosen.save(tmp_path / "one.npz", IMAGES, CLASSES)
    chosen.save(tmp_path / "two.npz", IMAGES, CLASSES)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    read = HeldOut.load(tmp_path / "one.npz", IMAGES, CLASSES)
    np.testing.assert_array_equal(read.mask, chosen.mask)
    np.testing.assert_array_equal(read.fraction, chosen.fraction)
    assert read.seed == 5


def test_file_of_another_table_or_no_such_file_is_refused(tmp_path):
    file = tmp_path / "held_out.npz"
    hold_out(np.array([[1, 1], [-1, 0], [1, -1]]), fraction=0.5).save(file, IMAGES, CLASSES)
    with pytest.raises(RunError, match="made for other images or classes"):
        HeldOut.load(file, IMAGES[::-1], CLASSES)
    with pytest.raises(RunError, match="made for other images or classes"):
        HeldOut.load(file, IMAGES, ("x", "z"))
    with pytest.raises(RunError, match="not a file of held-out cells"):
        HeldOut.load(tmp_path / "missing.npz", IMAGES, CLASSES)
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(RunError, match="not a file of held-out cells"):
        HeldOut.load(file, IMAGES, CLASSES)
    np.savez(tmp_path / "other.npz", scores=np.zeros(3))
    with pytest.raises(RunError, match="not a file of held-out cells"):
        HeldOut.load(tmp_path / "other.npz", IMAGES, CLASSES)


@pytest.mark.parametrize("folds", [2, 5])
def test_folds_are_balanced_within_class_and_sign(folds):
    labels = labels_of(rows=500)
    assigned = assign_folds(labels, folds)
    assert assigned.dtype == np.int8
    for column in range(3):
        for sign in (1, -1, 0):
            sizes = np.bincount(assigned[labels[:, column] == sign, column], minlength=folds)
            assert len(sizes) == folds
            assert np.ptp(sizes) <= 1
    np.testing.assert_array_equal(assigned, assign_folds(labels, folds))


def test_left_over_cells_do_not_all_go_to_the_first_fold():
    assigned = assign_folds(np.ones((1, 400), dtype=np.int8), folds=4)
    assert (np.bincount(assigned[0], minlength=4) > 60).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hold_out(np.zeros(3)), "images, classes"),
        (lambda: hold_out(np.ones((3, 1)), fraction=1.0), "below 1"),
        (lambda: assign_folds(np.ones((3, 1)), folds=1), "2 to 100 folds"),
        (lambda: assign_folds(np.ones(3)), "images, classes"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(SatlError, match=message):
        call()
