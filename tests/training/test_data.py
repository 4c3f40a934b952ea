from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from satl.demo.scenes import write_scenes
from satl.errors import ConfigError, ImageError, TableError
from satl.labels import LabelTable, mask_table, read_table, write_table
from satl.training.config import RunConfig, make_config
from satl.training.data import load_data
from training.tiny import tiny_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures")
    write_scenes(path, 24, size=32)
    return path


def config_of(folder: Path, table: LabelTable | None = None, **data: object) -> RunConfig:
    path = folder / "labels.csv"
    if table is not None:
        path = folder / "other.csv"
        write_table(table, path)
    content = {
        "data": {"table": str(path), "images": str(folder), **data},
        "images": {"store_size": 32, "size": 32},
        "training": {"batch_size": 4},
    }
    return make_config(content, "test")


def test_scenes_are_split_by_count_and_only_training_labels_are_masked() -> None:
    data = load_data(tiny_config())
    assert [len(data.rows(split)) for split in ("train", "val", "test")] == [64, 24, 24]
    table = data.table
    assert table.truth is not None
    assert 0.2 < data.proportion < 0.4
    assert (table.cells[data.rows("val")] != 0).all()
    known = table.cells != 0
    assert (table.cells[known] == table.truth[known]).all()


def test_the_mask_follows_its_seed_or_that_of_the_run() -> None:
    one = load_data(tiny_config("training.seed=3")).table.cells
    two = load_data(tiny_config("data.mask_seed=3")).table.cells
    other = load_data(tiny_config()).table.cells
    assert (one == two).all()
    assert (one != other).any()


def test_without_a_split_a_validation_share_is_taken_from_training(folder: Path) -> None:
    data = load_data(config_of(folder, validation=0.25))
    assert len(data.rows("val")) == 6
    assert len(data.rows("train")) == 18
    assert len(data.rows("test")) == 0
    assert len(data.source) == 24


def test_splits_by_other_names_are_understood_and_others_left_out(folder: Path) -> None:
    table = read_table(folder / "labels.csv")
    split = np.array(["Training"] * 12 + ["validation"] * 6 + ["TEST"] * 4 + ["spare"] * 2)
    data = load_data(config_of(folder, table.with_split(split)))
    assert [len(data.rows(name)) for name in ("train", "val", "test")] == [12, 6, 4]
    assert data.table.images == table.images[:22]
    np.testing.assert_array_equal(data.source.image(20), load_data(config_of(folder)).source.image(20))


def test_a_test_split_without_validation_is_not_validated_on(folder: Path) -> None:
    table = read_table(folder / "labels.csv")
    split = np.array(["train"] * 18 + ["test"] * 6)
    data = load_data(config_of(folder, table.with_split(split)))
    assert data.rows("test").tolist() == list(range(18, 24))
    assert 1 <= len(data.rows("val")) < 18


def test_truth_comes_from_its_own_table(folder: Path) -> None:
    full = read_table(folder / "labels.csv")
    masked = mask_table(full, 0.3)
    write_table(masked, folder / "masked.csv", truth=folder / "hidden.csv")
    config = config_of(folder, truth=str(folder / "hidden.csv"))
    content = config.resolved()
    content["data"]["table"] = str(folder / "masked.csv")
    data = load_data(make_config(content, "test"))
    assert data.table.truth is not None
    assert (data.table.truth == full.cells).all()
    assert 0.2 < (data.table.cells != 0).mean() < 0.4


def test_what_cannot_be_trained_on_is_said_at_once(folder: Path, tmp_path: Path) -> None:
    table = read_table(folder / "labels.csv")
    with pytest.raises(TableError, match="no row has the split 'train'"):
        load_data(config_of(folder, table.with_split(np.full(24, "test"))))
    empty = table.with_cells(np.zeros_like(table.cells)).with_split(np.array(["train", "val"] * 12))
    with pytest.raises(TableError, match="no training cell is known"):
        load_data(config_of(folder, empty))
    with pytest.raises(ConfigError, match=r"training\.batch_size: 65 is more than the 64 training images"):
        load_data(tiny_config("training.batch_size=65"))
    with pytest.raises(ImageError, match=r"image folder .* does not exist"):
        load_data(config_of(folder, images=str(tmp_path / "none")))
