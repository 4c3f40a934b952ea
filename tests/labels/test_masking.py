from __future__ import annotations

import itertools

import numpy as np
import pytest

from satl.errors import SatlError, TableError
from satl.labels import LabelTable, mask_table


def complete(num_images: int = 200, num_classes: int = 12, seed: int = 3) -> LabelTable:
    cells = np.where(np.random.RandomState(seed).random_sample((num_images, num_classes)) < 0.2, 1, -1)
    return LabelTable(
        tuple(f"{i}.jpg" for i in range(num_images)),
        tuple(map(str, range(num_classes))),
        cells,
        encoding="signed",
    )


def test_is_the_published_recipe_to_the_bit() -> None:
    table = complete()
    for seed in (0, 7):
        keep = np.random.RandomState(seed).random_sample((200, 12)) < 0.1
        assert np.array_equal(mask_table(table, 0.1, seed).cells, np.where(keep, table.cells, 0))


def test_numbers_known_by_heart() -> None:
    # The first draws of RandomState(0): 0.549, 0.715, 0.603, 0.545.
    table = LabelTable(("a", "b"), ("x", "y"), np.array([[1, -1], [-1, 1]]))
    assert mask_table(table, 0.55).cells.tolist() == [[1, 0], [0, 1]]
    assert mask_table(table, 0.61).cells.tolist() == [[1, 0], [-1, 1]]


def test_blocks_do_not_change_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mask_table(complete(), 0.3)
    monkeypatch.setattr("satl.labels.masking._ROWS_AT_ONCE", 7)
    assert mask_table(complete(), 0.3) == whole


def test_nested_and_truth_kept() -> None:
    table = complete()
    known = [mask_table(table, p).known for p in (0.05, 0.1, 0.2, 0.5, 1.0)]
    for small, large in itertools.pairwise(known):
        assert not (small & ~large).any()
    masked = mask_table(table, 0.05)
    assert masked.truth is not None
    assert np.array_equal(masked.truth, table.cells)
    assert abs(known[1].mean() - 0.1) < 0.02


def test_the_global_generator_is_left_alone() -> None:
    np.random.seed(5)
    expected = np.random.random_sample()
    np.random.seed(5)
    mask_table(complete(), 0.1)
    assert np.random.random_sample() == expected


def test_proportion_one_hides_nothing() -> None:
    table = complete()
    masked = mask_table(table, 1)
    assert masked.with_truth(None) == table
    assert masked.truth is not None


def test_only_train_rows_are_masked_and_drawn_for() -> None:
    table = complete(50)
    split = np.array(["test", "train"] * 25)
    masked = mask_table(table.with_split(split.tolist()), 0.2)
    alone = mask_table(table.select(split == "train"), 0.2)
    assert np.array_equal(masked.cells[split == "train"], alone.cells)
    assert np.array_equal(masked.cells[split == "test"], table.cells[split == "test"])
    spelled = table.with_split(["Test", "Training"] * 25)
    assert np.array_equal(mask_table(spelled, 0.2).cells, masked.cells)
    with pytest.raises(TableError, match="no image belongs to split 'train'"):
        mask_table(table.with_split(["a", "b"] * 25), 0.2)


def test_unknown_cells_stay_unknown_and_old_truth_wins() -> None:
    cells = np.array([[1, 0, -1], [0, 0, 1]])
    truth = np.array([[1, 1, 0], [-1, 0, 0]])
    table = LabelTable(("a", "b"), ("x", "y", "z"), cells, truth=truth, encoding="signed")
    masked = mask_table(table, 0.9999)
    assert masked.truth is not None
    assert masked.truth.tolist() == [[1, 1, -1], [-1, 0, 1]]
    assert masked.cells.tolist() == cells.tolist()


def test_masking_twice_keeps_the_first_truth() -> None:
    table = complete()
    twice = mask_table(mask_table(table, 0.5, seed=1), 0.5, seed=2)
    assert twice.truth is not None
    assert np.array_equal(twice.truth, table.cells)


@pytest.mark.parametrize("proportion", [0, -0.1, 1.01, 10, float("nan"), float("inf")])
def test_bad_proportions(proportion: float) -> None:
    with pytest.raises(SatlError, match=f"proportion={proportion}: must be above 0 and at most 1"):
        mask_table(complete(3), proportion)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_bad_seed(seed: int) -> None:
    with pytest.raises(SatlError, match=f"seed={seed}: must lie"):
        mask_table(complete(3), 0.5, seed)


def test_a_split_without_train_rows() -> None:
    with pytest.raises(TableError, match=r"no image belongs to split 'train'.*'test'"):
        mask_table(complete(3).with_split(["test"] * 3), 0.5)
