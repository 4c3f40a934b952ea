"""COCO and LVIS json: as a table, and as published data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labels.trees import CATEGORIES, coco2014, coco_content, lvis_content, write_json
from satl.errors import ConfigError, EncodingError, TableError
from satl.labels import LabelTable, mask_table, open_table, read_dataset, read_table, write_table
from satl.labels.io.instances import read_instances

NAMES = {7: "b/x.jpg", 3: "a.jpg"}


def coco_file(path: Path, **changes: Any) -> Path:
    content = coco_content(NAMES, [(7, 2), (3, 1), (3, 90), (3, 1)])
    return write_json(
        path, {key: value for key, value in {**content, **changes}.items() if value is not None}
    )


# ---------------------------------------------------------------------------------------------------- as a table


def test_a_coco_file_is_a_complete_table(tmp_path: Path) -> None:
    opened = open_table(coco_file(tmp_path / "t.json"))
    assert opened.format == "coco"
    assert opened.encoding is None
    assert opened.table == LabelTable(
        ("b/x.jpg", "a.jpg"), ("person", "bicycle", "toothbrush"), np.array([[-1, 1, -1], [1, -1, 1]])
    )


@pytest.mark.parametrize(
    "order", [("annotations", "categories", "images"), ("categories", "images", "annotations")]
)
def test_the_order_of_the_parts_does_not_matter(tmp_path: Path, order: tuple[str, ...]) -> None:
    plain = read_table(coco_file(tmp_path / "t.json"))
    content = coco_content(NAMES, [(7, 2), (3, 1), (3, 90), (3, 1)])
    assert read_table(write_json(tmp_path / "u.json", {key: content[key] for key in order})) == plain


def test_an_lvis_file_also_says_unknown(tmp_path: Path) -> None:
    images = {
        391895: ("train2017/000000391895.jpg", [90], []),
        522418: ("val2017/000000522418.jpg", [], [2]),
        8: ("train2017/000000000008.jpg", [1, 2, 90], []),
    }
    path = write_json(tmp_path / "t.json", lvis_content(images, [(391895, 1), (391895, 1)]))
    opened = open_table(path)
    assert opened.format == "lvis"
    assert opened.table.images[1] == "val2017/000000522418.jpg"
    assert opened.table.cells.tolist() == [[1, 0, -1], [0, 1, 0], [-1, -1, -1]]


def test_ids_may_be_text_and_a_class_may_have_no_positive(tmp_path: Path) -> None:
    content = coco_content({}, [])
    content["images"] = [{"id": "one", "file_name": "1.jpg"}, {"id": "two", "file_name": "2.jpg"}]
    content["annotations"] = [{"image_id": "two", "category_id": 2}]
    table = read_table(write_json(tmp_path / "t.json", content))
    assert table.cells.tolist() == [[-1, -1, -1], [-1, 1, -1]]
    content["annotations"] = []
    assert (read_table(write_json(tmp_path / "t.json", content)).cells == -1).all()


def test_a_split_in_the_images_is_read(tmp_path: Path) -> None:
    images = [
        {"id": 7, "file_name": "x.jpg", "split": "train"},
        {"id": 3, "file_name": "a.jpg", "split": "val"},
    ]
    assert read_table(coco_file(tmp_path / "t.json", images=images)).splits == {"train": 1, "val": 1}
    del images[1]["split"]
    with pytest.raises(TableError, match=r"entry 2 \(image 'a\.jpg'\) has no split, but others have"):
        read_table(coco_file(tmp_path / "t.json", images=images))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": None}, "lists no 'images': use a file of object instances"),
        ({"images": []}, "lists no 'images'"),
        ({"categories": []}, "lists no 'categories'"),
        ({"annotations": None}, "has no 'annotations', only a list of images"),
        (
            {"annotations": [{"image_id": 7, "caption": "a dog"}]},
            "entry 1 of 'annotations' needs.*but has 'image_id'",
        ),
        ({"annotations": [[1]]}, "entry 1 of 'annotations' needs .* but has list"),
        (
            {"annotations": [{"image_id": 7, "category_id": 1}, {"image_id": 7, "category_id": 4}]},
            "entry 2 of 'annotations' has category_id 4, which 'categories' lacks: download",
        ),
        (
            {"annotations": [{"image_id": 8, "category_id": 1}]},
            "entry 1 of 'annotations' has image_id 8, which 'images' lacks",
        ),
        ({"annotations": [{"image_id": [8], "category_id": 1}]}, r"image_id \[8\], which 'images' lacks"),
        ({"images": [{"id": 7}]}, "entry 1 of 'images' needs 'id' and 'file_name' but has 'id'"),
        ({"images": [{"id": 7, "file_name": 5}]}, "entry 1 of 'images' needs"),
        ({"images": [{"id": [7], "file_name": "x"}]}, "entry 1 of 'images' needs"),
        (
            {
                "images": [
                    {"id": 7, "file_name": "x"},
                    {"id": 3, "file_name": "y"},
                    {"id": 7, "file_name": "z"},
                ]
            },
            "entries 1 and 3 of 'images' have the same id 7",
        ),
        (
            {"images": [{"id": 7, "file_name": "x"}, {"id": 3, "file_name": "x"}]},
            "rows 1 and 2 are both about image 'x'",
        ),
        ({"categories": [{"id": 1, "name": "x"}, {"id": 1, "name": "y"}]}, "two 'categories' have the id 1"),
        ({"categories": [{"id": "1", "name": "x"}]}, "entry 1 of 'categories' needs a whole number 'id'"),
        (
            {
                "categories": [{"id": 1, "name": "x"}, {"id": 2, "name": "x"}],
                "annotations": [{"image_id": 7, "category_id": 1}],
            },
            "two 'categories' are called 'x': rename one",
        ),
        (
            {"images": [{"id": 7, "file_name": "x", "neg_category_ids": [2]}, {"id": 3, "file_name": "y"}]},
            "image 'x' has 'bicycle' both annotated and in its 'neg_category_ids'",
        ),
        (
            {"images": [{"id": 7, "file_name": "x", "neg_category_ids": [5]}, {"id": 3, "file_name": "y"}]},
            "entry 1 of 'images' has 5 in its 'neg_category_ids', which 'categories' lacks",
        ),
        (
            {"images": [{"id": 7, "file_name": "x", "neg_category_ids": [[2]]}, {"id": 3, "file_name": "y"}]},
            r"entry 1 of 'images' has \[2\] in its 'neg_category_ids', which 'categories' lacks",
        ),
        (
            {"images": [{"id": 7, "file_name": "x", "neg_category_ids": 2}, {"id": 3, "file_name": "y"}]},
            "entry 1 of 'images' has 2 as 'neg_category_ids': make it a list of ids",
        ),
        (
            {"images": [{"id": 7, "file_name": "x", "not_exhaustive_category_ids": 2}]},
            "entry 1 of 'images' has 2 as 'not_exhaustive_category_ids': make it a list of ids",
        ),
    ],
)
def test_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = coco_file(tmp_path / "bad.json", **changes)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_half_downloaded_file_is_refused_and_not_remembered(tmp_path: Path, cache: Path) -> None:
    path = coco_file(tmp_path / "t.json")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TableError, match=r"t\.json ends in the middle.*download it again"):
        read_table(path)
    assert not cache.exists()
    path.write_bytes(whole)
    assert read_table(path).num_images == 2
    path.write_text('["a", "list"]')
    with pytest.raises(TableError, match="is not a JSON object"):
        read_table(path)


def test_json_takes_no_encoding(tmp_path: Path) -> None:
    path = coco_file(tmp_path / "t.json")
    with pytest.raises(EncodingError, match="leave out encoding"):
        read_table(path, "signed")
    with pytest.raises(EncodingError, match="leave out encoding"):
        write_table(read_table(path), tmp_path / "u.json", "signed", format="coco")


# ---------------------------------------------------------------------------------------------------- data sets


def test_coco2014(tmp_path: Path) -> None:
    table = read_dataset("coco2014", coco2014(tmp_path))
    assert table.classes == ("person", "bicycle", "toothbrush")
    assert table.images == (
        "train2014/COCO_train2014_000000000057.jpg",
        "train2014/COCO_train2014_000000000009.jpg",
        "train2014/COCO_train2014_000000000025.jpg",
        "train2014/COCO_train2014_000000000034.jpg",
        "val2014/COCO_val2014_000000000042.jpg",
        "val2014/COCO_val2014_000000000073.jpg",
    )
    assert table.splits == {"train": 4, "test": 2}
    assert table.cells.tolist() == [[1, -1, 1], [-1] * 3, [-1, 1, -1], [-1, -1, 1], [-1] * 3, [1, 1, -1]]


def test_coco_masks_are_the_published_ones(tmp_path: Path) -> None:
    table = read_dataset("coco2014", coco2014(tmp_path))
    masked = mask_table(table, 0.4, seed=0)
    drawn = np.random.RandomState(0).random_sample((4, 3))
    assert (masked.cells[:4] == table.cells[:4] * (drawn < 0.4)).all()
    assert (masked.cells[4:] == table.cells[4:]).all()


def test_coco_without_unlabelled_images_or_without_a_part(tmp_path: Path) -> None:
    root = coco2014(tmp_path)
    full = read_dataset("coco2014", root)
    dropped = read_dataset("coco2014", root, drop_unlabelled=True)
    assert dropped == full.select([0, 2, 3, 5])
    (root / "annotations" / "instances_val2014.json").unlink()
    assert read_dataset("coco2014", root, splits="train") == full.select(range(4))
    with pytest.raises(
        TableError, match=r"instances_val2014\.json is missing .*or leave the part out with the option"
    ):
        read_dataset("coco2014", root)


def test_own_coco_files(tmp_path: Path) -> None:
    coco_file(tmp_path / "json" / "mine.json")
    write_json(tmp_path / "other.json", coco_content({1: "t.png"}, [(1, 1)]))
    table = read_dataset("coco", tmp_path, train="json/mine.json", train_images="photos", test="other.json")
    assert table.images == ("photos/b/x.jpg", "photos/a.jpg", "t.png")
    assert table.splits == {"train": 2, "test": 1}
    with pytest.raises(ConfigError, match="needs the option train"):
        read_dataset("coco", tmp_path)
    with pytest.raises(ConfigError, match="val_images of data set 'coco' needs option val"):
        read_dataset("coco", tmp_path, train="other.json", val_images="x")
    with pytest.raises(
        TableError, match=r"oter\.json is missing \(did you mean 'other\.json'\?\): correct the option"
    ):
        read_dataset("coco", tmp_path, train="oter.json")
    categories = [*CATEGORIES, (3, "car")]
    write_json(tmp_path / "more.json", coco_content({1: "u.png"}, [(1, 3)], categories))
    with pytest.raises(TableError, match=r"other\.json lacks category 3 \('car'\), which .*more\.json has"):
        read_dataset("coco", tmp_path, train="other.json", test="more.json")
    with pytest.raises(TableError, match=r"image 't\.png' is in 'train' and 'test'"):
        read_dataset("coco", tmp_path, train="other.json", test="other.json")


def test_lvis(tmp_path: Path) -> None:
    for place, part in ((tmp_path / "annotations", "train"), (tmp_path, "val")):
        images = {1: (f"{part}2017/1.jpg", [2], []), 2: (f"{part}2017/2.jpg", [], [])}
        write_json(place / f"lvis_v1_{part}.json", lvis_content(images, [(1, 1)]))
    table = read_dataset("lvis", tmp_path)
    assert table.images == ("train2017/1.jpg", "train2017/2.jpg", "val2017/1.jpg", "val2017/2.jpg")
    assert table.cells.tolist() == [[1, -1, 0], [0, 0, 0]] * 2
    assert read_dataset("lvis", tmp_path, drop_unlabelled=True).num_images == 2
    with pytest.raises(
        TableError, match="has 'neg_category_ids', so it is an LVIS file: use the data set lvis"
    ):
        read_dataset("coco", tmp_path, train="lvis_v1_val.json")
    coco_file(tmp_path / "lvis_v1_val.json")
    with pytest.raises(TableError, match="has no 'neg_category_ids', so it is not an LVIS file"):
        read_dataset("lvis", tmp_path)


def test_wrong_roots(tmp_path: Path) -> None:
    with pytest.raises(
        TableError, match=r"nowhere does not exist: pass the folder that holds annotations/instances"
    ):
        read_dataset("coco2014", tmp_path / "nowhere")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(TableError, match="is not a folder: pass the folder that holds"):
        read_dataset("coco2014", file)
    root = coco2014(tmp_path / "coco")
    with pytest.raises(TableError, match=r"instances_train2014\.json is missing: give the folder with annot"):
        read_dataset("coco2014", root / "annotations")
    (root / "annotations" / "instances_train2014.json").rename(
        root / "annotations" / "instances_train2014.jsn"
    )
    with pytest.raises(TableError, match=r"is missing \(did you mean 'instances_train2014\.jsn'\?\)"):
        read_dataset("coco2014", root)


def test_the_cache_gives_the_same_labels_and_sees_changes(tmp_path: Path, cache: Path) -> None:
    root = coco2014(tmp_path)
    path = root / "annotations" / "instances_train2014.json"
    first = read_instances(path)
    from satl.labels.io import instances

    instances._read_state.cache_clear()
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(instances, "_parse", lambda path: pytest.fail("was read again"))
        again = read_instances(path)
    assert again.images == first.images
    assert again.categories == first.categories
    assert (again.cells() == first.cells()).all()
    assert len(list(cache.iterdir())) == 1
    write_json(path, coco_content({57: "x.jpg"}, [(57, 2)]))
    assert read_instances(path).images == ("x.jpg",)


def test_a_folder_that_cannot_be_written_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = coco2014(tmp_path / "coco")
    expected = read_dataset("coco2014", root)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SATL_CACHE", str(tmp_path / "file"))
    before = sorted(root.rglob("*"))
    assert read_dataset("coco2014", root) == expected
    assert sorted(root.rglob("*")) == before
