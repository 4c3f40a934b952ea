from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import metrics as reference
from satl.errors import SatlError
from satl.evaluation import PseudoLabelQuality, pseudo_label_quality, pseudo_label_table


def random_case(seed, n=40, c=4):
    rng = np.random.default_rng(seed)
    return (
        rng.random((n, c)) < 0.3,
        rng.integers(-1, 2, (n, c)).astype(np.int8),
        rng.integers(-1, 2, (n, c)).astype(np.int8),
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(1, 5))
def test_equals_the_reference(seed, n, c):
    pseudo, labels, truth = random_case(seed, n, c)
    quality = pseudo_label_quality(pseudo, labels, truth, encoding="signed")
    expected = reference.pseudo_label_counts(pseudo.tolist(), labels.tolist(), truth.tolist())
    assert [quality.tp.tolist(), quality.fp.tolist(), quality.fn.tolist()] == list(expected)


def test_by_hand():
    pseudo = [[True, False, True], [True, True, False], [False, False, False]]
    labels = [[0, 0, 1], [0, -1, 0], [0, 0, 0]]  # known cells: (0, 2) and (1, 1)
    truth = [[1, 1, 1], [-1, -1, 1], [1, -1, -1]]
    quality = pseudo_label_quality(pseudo, labels, truth)
    assert (quality.tp.tolist(), quality.fp.tolist(), quality.fn.tolist()) == (
        [1, 0, 0],
        [1, 0, 0],
        [1, 1, 1],
    )
    np.testing.assert_array_equal(quality.precision, [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(quality.recall, [0.5, 0.0, 0.0])
    assert quality.macro_precision == 0.5
    assert quality.macro_recall == pytest.approx(0.5 / 3)
    assert (quality.micro_precision, quality.micro_recall) == (0.5, 0.25)
    assert quality.emitted.tolist() == [2, 0, 0]
    assert quality.summary()["classes_with_precision"] == 1


def test_completed_labels_may_stand_for_pseudo_labels():
    pseudo, labels, truth = random_case(2)
    completed = np.where((labels == 0) & pseudo, 1, labels)
    assert (
        pseudo_label_quality(completed, labels, truth).as_dict()
        == pseudo_label_quality(pseudo, labels, truth).as_dict()
    )


def test_nothing_unknown_is_undefined_and_json_safe():
    quality = pseudo_label_quality([[True, True]], [[1, -1]], [[1, -1]])
    assert np.isnan(quality.macro_precision)
    assert np.isnan(quality.micro_recall)
    assert json.loads(json.dumps(quality.as_dict(), allow_nan=False))["precision"] == [None, None]


def test_counts_of_batches_add_up_to_the_whole():
    pseudo, labels, truth = random_case(3)
    whole = pseudo_label_quality(pseudo, labels, truth)
    parts = [
        pseudo_label_quality(pseudo[rows], labels[rows], truth[rows])
        for rows in (slice(0, 15), slice(15, 40))
    ]
    assert (parts[0] + parts[1]).as_dict() == whole.as_dict()
    assert PseudoLabelQuality.from_counts(whole.tp, whole.fp, whole.fn).as_dict() == whole.as_dict()


def test_counts_may_be_tensors():
    counts = [torch.tensor([1, 2]), torch.tensor([1.0, 0.0]), torch.tensor([0, 0], dtype=torch.int32)]
    assert PseudoLabelQuality.from_counts(*counts).precision.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("bad", [[1.5, 2], [-1, 2], [np.nan, 1.0], 3])
def test_bad_counts(bad):
    with pytest.raises(SatlError, match="tp must be a vector of counts"):
        PseudoLabelQuality.from_counts(bad, [1, 1], [1, 1])


def test_counts_of_different_length():
    with pytest.raises(SatlError, match="one length"):
        PseudoLabelQuality.from_counts([1, 1], [1], [1, 1])


def test_union_is_either_generator():
    one, labels, truth = random_case(4)
    other = random_case(5)[0]
    table = pseudo_label_table({"intra": one, "cross": other}, labels, truth)
    assert list(table) == ["intra", "cross", "union"]
    assert table["intra"].as_dict() == pseudo_label_quality(one, labels, truth).as_dict()
    assert table["union"].as_dict() == pseudo_label_quality(one | other, labels, truth).as_dict()
    assert table["union"].micro_recall >= max(table["intra"].micro_recall, table["cross"].micro_recall)


def test_table_refuses_no_generator_and_the_reserved_name():
    pseudo, labels, truth = random_case(6)
    with pytest.raises(SatlError, match="no generator"):
        pseudo_label_table({}, labels, truth)
    with pytest.raises(SatlError, match="must not be called 'union'"):
        pseudo_label_table({"union": pseudo}, labels, truth)


def test_shapes_must_agree():
    with pytest.raises(SatlError, match="shape of truth is"):
        pseudo_label_quality([[True]], [[0]], [[1, 1]], encoding="signed")
    with pytest.raises(SatlError, match="images, classes"):
        pseudo_label_quality([True], [0], [1])
