from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satl.errors import SatlError, TableError
from satl.labels import LabelTable, mask_table, split_table


def long_tailed(num_images: int = 2000, num_classes: int = 30, seed: int = 0) -> LabelTable:
    prevalence = 0.4 / np.arange(1, num_classes + 1) ** 1.2
    cells = np.where(np.random.RandomState(seed).random_sample((num_images, num_classes)) < prevalence, 1, -1)
    return LabelTable(
        tuple(f"{i}.jpg" for i in range(num_images)),
        tuple(map(str, range(num_classes))),
        cells,
        encoding="signed",
    )


def test_size_is_exact_and_every_class_keeps_its_share() -> None:
    table = long_tailed()
    split = split_table(table, 0.2, seed=1)
    assert split.splits["val"] == 400
    assert split.with_split(None) == table
    total = (table.cells == 1).sum(axis=0)
    held = (split.where_split("val").cells == 1).sum(axis=0)
    assert np.abs(held - 0.2 * total).max() <= 2


def test_better_than_a_random_split() -> None:
    table = long_tailed()
    total = (table.cells == 1).sum(axis=0)

    def imbalance(rows: np.ndarray) -> float:
        return float((((table.cells[rows] == 1).sum(axis=0) - 0.2 * total) ** 2 / np.maximum(total, 1)).sum())

    chosen = split_table(table, 0.2).split
    assert chosen is not None
    randoms = [imbalance(np.random.RandomState(s).permutation(2000)[:400]) for s in range(5)]
    assert imbalance(np.flatnonzero(chosen == "val")) < 0.1 * min(randoms)


def test_stratifies_on_known_positives_only() -> None:
    masked = mask_table(long_tailed(), 0.1)
    total = (masked.cells == 1).sum(axis=0)
    held = (split_table(masked, 0.25).where_split("val").cells == 1).sum(axis=0)
    assert np.abs(held - 0.25 * total).max() <= 2


def test_deterministic_in_the_seed() -> None:
    table = long_tailed(300)
    assert split_table(table, 0.3, seed=4) == split_table(table, 0.3, seed=4)
    assert split_table(table, 0.3, seed=4) != split_table(table, 0.3, seed=5)


def test_only_the_source_split_is_divided() -> None:
    table = long_tailed(100).with_split(["train"] * 60 + ["test"] * 40)
    twice = split_table(table, 0.5, name="val")
    assert twice.splits == {"train": 30, "val": 30, "test": 40}
    assert twice.split is not None
    assert (twice.split[60:] == "test").all()
    assert split_table(table, 0.25, source="test", name="calibration").splits["calibration"] == 10


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(2, 40),
    st.integers(1, 6),
    st.floats(0.05, 0.95),
    st.floats(0, 1),
    st.integers(0, 1000),
)
def test_size_is_always_exact(rows: int, classes: int, fraction: float, density: float, seed: int) -> None:
    cells = (np.random.RandomState(seed).random_sample((rows, classes)) < density).astype(int)
    table = LabelTable(
        tuple(map(str, range(rows))), tuple(map(str, range(classes))), cells, encoding="signed"
    )
    wanted = round(fraction * rows)
    if wanted in (0, rows):
        with pytest.raises(TableError, match="without any"):
            split_table(table, fraction, seed)
    else:
        assert split_table(table, fraction, seed).splits["val"] == wanted


@pytest.mark.parametrize("fraction", [0, 1, -1, 1.5, float("nan")])
def test_bad_fraction(fraction: float) -> None:
    with pytest.raises(SatlError, match=f"set aside is {fraction}"):
        split_table(long_tailed(10), fraction)


def test_source_without_rows() -> None:
    with pytest.raises(TableError, match="no image belongs to split 'train'"):
        split_table(long_tailed(10).with_split(["all"] * 10), 0.5)
