from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from labels.trees import coco2014, coco_content, picture, write_json
from satl.errors import ConfigError, ImageError, TableError
from satl.images import ArrayImages, FolderImages, PackedImages, pack_images
from satl.labels import LabelTable, mask_table, read_dataset, read_table, split_table, write_table
from satl.runs.config import RunConfig
from satl.runs.data import load_data
from satl.runs.reading import make_config, read_config
from satl.runs.run_folder import RunFolder
from satl.scenes import write_scenes
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


def test_scenes_are_split_by_count_and_test_labels_are_not_masked() -> None:
    data = load_data(tiny_config())
    assert [len(data.rows(split)) for split in ("train", "val", "test")] == [64, 24, 24]
    table = data.table
    assert table.truth is not None
    assert 0.2 < data.proportion < 0.4
    assert (table.cells[data.rows("test")] != 0).all()
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


def test_settings_can_be_chosen_without_the_test_images(folder: Path) -> None:
    table = read_table(folder / "labels.csv").with_split(["test"] * 8 + ["train"] * 16)
    settings = {"validation": 0.25, "proportion": 0.5}
    whole = load_data(config_of(folder, table, **settings))
    data = load_data(config_of(folder, table, **settings, use_test=False))
    assert set(data.table.images).isdisjoint(table.images[:8])
    assert data.table.cells.tolist() == whole.table.cells[8:].tolist()
    assert data.table.split.tolist() == whole.table.split[8:].tolist()
    assert (data.source.image(0) == whole.source.image(8)).all()


def test_scenes_can_do_without_those_to_test_on() -> None:
    whole, data = load_data(tiny_config()), load_data(tiny_config("data.use_test=false"))
    assert [len(data.rows(split)) for split in ("train", "val", "test")] == [64, 24, 0]
    assert len(data.source) == 88
    assert data.table.cells.tolist() == whole.table.cells[:88].tolist()


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
    empty = table.with_cells(np.zeros_like(table.cells), encoding="signed").with_split(
        np.array(["train", "val"] * 12)
    )
    with pytest.raises(TableError, match="no training cell is known"):
        load_data(config_of(folder, empty))
    with pytest.raises(ConfigError, match=r"training\.batch_size: 65 is more than the 64 training images"):
        load_data(tiny_config("training.batch_size=65"))
    with pytest.raises(ImageError, match=r"image folder .* does not exist"):
        load_data(config_of(folder, images=str(tmp_path / "none")))


# ---------------------------------------------------------------------------------------------- packed stores


def pack(folder: Path, store: Path, size: int = 32, kind: Any = "raw") -> Path:
    images = read_table(folder / "labels.csv").images
    pack_images(FolderImages(folder, images, size), images, store, kind=kind)
    return store


@pytest.mark.parametrize("kind", ["raw", "jpeg"])
def test_a_packed_store_can_stand_in_place_of_the_folder(folder: Path, tmp_path: Path, kind: str) -> None:
    store = pack(folder, tmp_path / "store", kind=kind)
    table = read_table(folder / "labels.csv")
    split = np.array(["train"] * 12 + ["val"] * 6 + ["spare"] * 6)
    turned = table.select(np.arange(24)[::-1]).with_split(split)
    packed, plain = (load_data(config_of(folder, turned, images=str(path))) for path in (store, folder))
    assert packed.table.images == plain.table.images == turned.images[:18]
    assert len(packed.source) == len(plain.source) == 18
    # One that fits is decoded into memory, like the files; a raw one is memory already.
    assert isinstance(packed.source, PackedImages if kind == "raw" else ArrayImages)
    for i in range(18):
        difference = packed.source.image(i).astype(int) - plain.source.image(i)
        assert np.abs(difference).max() <= (0 if kind == "raw" else 60)
        assert np.abs(difference).mean() <= (0 if kind == "raw" else 3)


def test_a_store_of_another_size_or_without_an_image_is_told(folder: Path, tmp_path: Path) -> None:
    store = pack(folder, tmp_path / "store", size=48)
    with pytest.raises(ConfigError) as caught:
        load_data(config_of(folder, images=str(store)))
    assert str(caught.value) == (
        f"images.store_size: is 32, but packed store '{store}' holds images of 48 pixels; set images.store_size "
        "to 48, or pack the images again with size=32."
    )
    table = read_table(folder / "labels.csv")
    names = list(table.images)
    names[7] = "new.png"
    renamed = LabelTable(tuple(names), table.classes, table.cells, encoding="signed")
    with pytest.raises(ImageError, match=r"image 'new\.png' of row 8 is not in packed store"):
        load_data(config_of(folder, renamed, images=str(store)))
    (store / "store.json").rename(store / "journal.jsonl")
    with pytest.raises(ImageError, match="is not finished; pack the same table again to resume"):
        load_data(config_of(folder, images=str(store)))


# ------------------------------------------------------------------------------------------------- data sets


@pytest.fixture
def coco(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A COCO of 40 training and 2 test images, in the published layout."""
    monkeypatch.setenv("SATL_CACHE", str(tmp_path / "cache"))
    root = coco2014(tmp_path / "coco", pictures=True)
    random = np.random.RandomState(5)
    names = {int(number): f"COCO_train2014_{number:012d}.jpg" for number in random.permutation(900)[:40]}
    labels = [(number, kind) for number in names for kind in (1, 2, 90) if random.random_sample() < 0.4]
    write_json(root / "annotations" / "instances_train2014.json", coco_content(names, labels))
    for name in names.values():
        picture(root / "train2014" / name)
    return root


def dataset_config(**data: object) -> RunConfig:
    content = {
        "data": data,
        "images": {"store_size": 16, "size": 16},
        "training": {"batch_size": 4},
    }
    return make_config(content, "test")


def test_a_data_set_is_trained_on_as_it_was_unpacked(coco: Path) -> None:
    data = load_data(dataset_config(dataset="coco2014", root=str(coco), validation=0.25))
    assert [len(data.rows(name)) for name in ("train", "val", "test")] == [30, 10, 2]
    assert len(data.source) == 42
    assert data.table.classes == ("person", "bicycle", "toothbrush")
    full = read_dataset("coco2014", coco)
    assert data.table.images == full.images
    assert (data.table.cells == full.cells).all()
    dropped = load_data(dataset_config(dataset="coco2014", root=str(coco), drop_unlabelled=True))
    assert dropped.table.num_images == read_dataset("coco2014", coco, drop_unlabelled=True).num_images < 42


def test_the_images_of_a_data_set_may_be_packed(coco: Path, tmp_path: Path) -> None:
    images = read_dataset("coco2014", coco).images
    pack_images(FolderImages(coco, images, 16), images, tmp_path / "store", kind="raw")
    plain = load_data(dataset_config(dataset="coco2014", root=str(coco)))
    packed = load_data(dataset_config(dataset="coco2014", root=str(coco), images=str(tmp_path / "store")))
    assert isinstance(packed.source, PackedImages)
    assert packed.table.images == plain.table.images
    for i in (0, 7, 41):
        assert np.array_equal(packed.source.image(i), plain.source.image(i))


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("proportion", [0.2, 0.6])
@pytest.mark.parametrize("seen", ["known", "complete"])
def test_the_mask_is_the_published_one_whatever_is_set_aside(
    coco: Path, share: float, proportion: float, seen: str
) -> None:
    config = dataset_config(
        dataset="coco2014",
        root=str(coco),
        validation=share,
        proportion=proportion,
        mask_seed=0,
        validation_labels=seen,
    )
    table = load_data(config).table
    full = read_dataset("coco2014", coco)
    drawn = np.random.RandomState(0).random_sample((40, 3)) < proportion
    assert table.split is not None
    assert full.split is not None
    masked = np.flatnonzero(table.split == "train")
    if seen == "known":
        masked = np.arange(40)  # those to validate on as well
    assert (table.cells[masked] == (full.cells[:40] * drawn)[masked]).all()
    # What is tested on is complete, and does not depend on the proportion.
    others = np.setdiff1d(np.arange(len(table.cells)), masked)
    assert (table.cells[others] == full.cells[others]).all()
    assert table.truth is not None
    assert (table.truth == full.cells).all()
    expected = split_table(full, share, seed=0, name="val").split
    assert expected is not None
    assert (table.split == expected).all()


def test_a_table_is_masked_and_split_in_the_same_way(folder: Path) -> None:
    full = read_table(folder / "labels.csv")
    one, other = (
        load_data(
            config_of(folder, validation=0.25, proportion=proportion, validation_labels="complete")
        ).table
        for proportion in (0.2, 0.5)
    )
    assert one.split is not None
    assert other.split is not None
    assert (one.split == other.split).all()
    drawn = np.random.RandomState(0).random_sample(full.cells.shape) < 0.2
    train = one.split == "train"
    assert (one.cells[train] == (full.cells * drawn)[train]).all()
    assert (one.cells[~train] == full.cells[~train]).all()


def test_validation_sees_the_same_share_of_known_cells_and_training_the_same_cells() -> None:
    partly = load_data(tiny_config())
    whole = load_data(tiny_config("data.validation_labels=complete"))
    for split in ("train", "test"):
        rows = partly.rows(split)
        assert (partly.table.cells[rows] == whole.table.cells[rows]).all()
    rows = partly.rows("val")
    cells, complete = partly.table.cells[rows], whole.table.cells[rows]
    assert 0.2 < (cells != 0).mean() < 0.4
    assert (complete != 0).all()
    assert (cells[cells != 0] == complete[cells != 0]).all()
    assert partly.table.truth is not None
    assert (partly.table.truth[rows] == complete).all()


def test_a_run_of_a_time_before_the_choice_validates_on_complete_labels(tmp_path: Path) -> None:
    config = tiny_config("data.validation_labels=known").resolved()
    assert config["data"].pop("validation_labels") == "known"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    assert RunFolder.open(tmp_path).read_config().data.validation_labels == "complete"


def test_no_images_need_be_set_aside(folder: Path) -> None:
    data = load_data(config_of(folder, validation=0))
    assert len(data.rows("train")) == 24
    assert len(data.rows("val")) == 0
    table = read_table(folder / "labels.csv").with_split(["val"] * 8 + ["train"] * 16)
    assert len(load_data(config_of(folder, table, validation=0)).rows("val")) == 8  # the table says so


def test_columns_that_are_no_classes_can_be_left_out(folder: Path) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    extra = [f"{line},{'camera' if number == 0 else 'Nikon'}" for number, line in enumerate(lines)]
    (folder / "extra.csv").write_text("\n".join(extra))
    content = config_of(folder).resolved()
    content["data"]["table"] = str(folder / "extra.csv")
    with pytest.raises(TableError, match=r"column 'camera'.*ignore_columns"):
        load_data(make_config(content, "test"))
    content["data"]["ignore_columns"] = ["camera"]
    assert load_data(make_config(content, "test")).table.classes == read_table(folder / "labels.csv").classes


def test_the_options_of_a_data_set_are_part_of_the_configuration(coco: Path) -> None:
    config = dataset_config(dataset="coco2014", root=str(coco), splits=["train"])
    assert config.data.options == {"splits": ["train"], "drop_unlabelled": False}
    resolved = config.resolved()
    assert resolved["data"]["drop_unlabelled"] is False
    assert make_config(resolved, "again").resolved() == resolved
    (coco.parent / "run.yaml").write_text("data: {dataset: coco2014, root: coco}")
    assert read_config(coco.parent / "run.yaml").data.root == coco


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"dataset": "coco2014"}, "dataset and root, the folder in which it was unpacked, go together"),
        ({"root": "x", "scenes": {}}, "dataset and root, .* go together"),
        ({"dataset": "vg20", "root": "x"}, r"no data set 'vg20' \(did you mean 'vg200'\?\)"),
        (
            {"dataset": "coco2014", "root": "x", "drop_unlabeled": True},
            r"data: there is no key 'drop_unlabeled' \(did you mean 'drop_unlabelled'\?\)",
        ),
        (
            {"dataset": "coco2014", "root": "x", "zzz": 1},
            "no key 'zzz'; options of coco2014: splits, drop_unl",
        ),
        (
            {"dataset": "coco2014", "root": "x", "proprtion": 1},
            r"'proprtion' \(did you mean 'proportion'\?\)",
        ),
        (
            {"dataset": "voc2007", "root": "x", "difficult": "skip"},
            "option difficult of data set 'voc2007' must be one of negative, ignore, not 'skip'",
        ),
        ({"dataset": "voc2007", "root": "x", "table": "t.csv", "images": "x"}, "give either table"),
        ({"scenes": {}, "images": "y"}, "images belongs to a table or a dataset, so leave it out"),
        (
            {"scenes": {}, "drop_unlabelled": True},
            "there is no key 'data.drop_unlabelled'; valid keys: table",
        ),
        ({"scenes": {}, "datset": "x"}, r"there is no key 'data.datset' \(did you mean 'dataset'\?\)"),
        ({"dataset": 3, "root": "x"}, "data.dataset"),
    ],
)
def test_a_wrong_source_is_one_sentence(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        dataset_config(**data)
    assert str(caught.value).startswith("test: ")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_missing_image_of_a_data_set_is_told(coco: Path) -> None:
    next((coco / "val2014").iterdir()).unlink()
    with pytest.raises(ImageError, match=r"val2014/COCO_val2014_\d+\.jpg' of row 4\d is missing"):
        load_data(dataset_config(dataset="coco2014", root=str(coco)))
