"""Hugging Face's metadata.jsonl, COCO-style json and tables: what other readers find, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

from satl.errors import TableError
from satl.export import Source, Suggestions, export, read_export, read_source
from satl.labels import LabelTable, read_table, write_table

TABLE = LabelTable(
    ("a.jpg", "sub/b, c.jpg"), ("cat", "猫, x", "unseen"), np.array([[1, -1, 0], [0, 1, 0]]),
    np.array(["train", "val"]),
)  # fmt: skip
PROPOSED = Suggestions.of([(1, 0, -1, 0.25, 0), (0, 2, 1, 0.5, 1)])
SOURCE = Source(TABLE, PROPOSED)


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_hugging_face_lines(tmp_path: Path) -> None:
    export(SOURCE, "huggingface", tmp_path / "metadata.jsonl")
    lines = (tmp_path / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "file_name": "a.jpg", "split": "train", "positive": ["cat"], "negative": ["猫, x"],
            "predictions": [{"label": "unseen", "value": 1, "score": 0.5, "band": "review"}],
        },
        {
            "file_name": "sub/b, c.jpg", "split": "val", "positive": ["猫, x"], "negative": [],
            "predictions": [{"label": "cat", "value": -1, "score": 0.25, "band": "accepted"}],
        },
    ]  # fmt: skip
    assert load(tmp_path / "metadata.classes.json") == {"classes": ["cat", "猫, x", "unseen"]}
    export(Source(TABLE), "huggingface", tmp_path / "plain.jsonl")
    assert "predictions" not in (tmp_path / "plain.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"file_name": "a", "positive": ["x"]}\n{"file_name": "a"}\n', "line 1 and line 2 are both about"),
        ('{"positive": ["x"]}\n', "line 1 names no image"),
        ('{"file_name": "a", "positive": "x"}\n', "line 1: its 'positive' is not a list"),
        ('{"file_name": "a", "positive": ["x"], "negative": ["x"]}\n', "'x' is both present and absent"),
        ('{"file_name": "a"', "line 1 is not JSON"),
        ('{"file_name": "a", "positive": [" x"]}\n', "begins or ends with white space"),
        ("[1]\n", "line 1 is not a JSON object"),
        ('{"file_name": "a", "predictions": [{"label": "x", "value": 0, "score": 1, "band": "review"}]}\n',
         "suggests value 0, score 1 and band 'review' for class 'x'"),
        ('{"file_name": "a", "predictions": [{"label": "x", "value": [], "score": null, "band": []}]}\n',
         "suggests value .., score None and band .. for class 'x'"),
        ('{"file_name": "a", "predictions": [' + ", ".join(
            2 * ['{"label": "x", "value": 1, "score": 1, "band": "review"}']) + "]}\n", "suggests 'x' twice"),
    ],
)  # fmt: skip
def test_hugging_face_lines_that_are_something_else(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(TableError, match=message):
        read_export(tmp_path / "metadata.jsonl", "huggingface")


def test_hugging_face_classes_that_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a", "positive": ["x"]}\n', encoding="utf-8")
    for classes in ('["x", 5]', '["x", ["y"]]'):
        (tmp_path / "metadata.classes.json").write_text(f'{{"classes": {classes}}}', encoding="utf-8")
        with pytest.raises(TableError, match=r"its classes hold .*, which is not a name: correct it"):
            read_export(tmp_path / "metadata.jsonl", "huggingface")


def test_coco_is_read_by_satl_itself_and_results_are_scores(tmp_path: Path) -> None:
    export(SOURCE, "coco", tmp_path / "labels.json")
    assert read_table(tmp_path / "labels.json") == TABLE
    content = load(tmp_path / "labels.json")
    assert [one["file_name"] for one in content["images"]] == list(TABLE.images)
    pairs = [(one["image_id"], one["category_id"]) for one in content["annotations"]]
    assert pairs == [(1, 1), (2, 2)]
    assert all("score" not in one for one in content["annotations"])
    assert load(tmp_path / "predictions.labels.json") == [
        {"image_id": 1, "category_id": 3, "score": 0.5, "value": 1, "band": "review"},
        {"image_id": 2, "category_id": 1, "score": 0.25, "value": -1, "band": "accepted"},
    ]


def test_coco_sizes(tmp_path: Path) -> None:
    table = TABLE.select([0])
    write_table(table, tmp_path / "t.csv")
    Image.new("RGB", (7, 5)).save(tmp_path / "a.jpg")
    export(read_source(tmp_path / "t.csv", images=tmp_path), "coco", tmp_path / "l.json")
    [image] = load(tmp_path / "l.json")["images"]
    assert (image["width"], image["height"]) == (7, 5)
    assert read_export(tmp_path / "l.json", "coco").table == table


def test_a_complete_coco_file_of_another_origin(tmp_path: Path) -> None:
    content = {
        "images": [{"id": 5, "file_name": "a.jpg"}, {"id": 9, "file_name": "b.jpg"}],
        "annotations": [{"id": 1, "image_id": 9, "category_id": 3, "bbox": [0, 0, 1, 1]}],
        "categories": [{"id": 3, "name": "cat"}, {"id": 1, "name": "dog"}],
    }
    (tmp_path / "l.json").write_text(json.dumps(content))
    assert read_export(tmp_path / "l.json", "coco").table.cells.tolist() == [[-1, -1], [-1, 1]]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([{"image_id": 3, "category_id": 1, "score": 0.5}], "entry 1 is about image 3 and category 1, which"),
        (
            [{"image_id": 1, "category_id": "1", "score": 0.5}],
            "entry 1 is about image 1 and category '1', which",
        ),
        ([{"image_id": 1, "category_id": 1, "score": 0.5}], "suggests value None, score 0.5 and band None"),
        ([7], "entry 1 is not a JSON object"),
    ],
)
def test_results_of_another_origin(results: object, message: str, tmp_path: Path) -> None:
    export(SOURCE, "coco", tmp_path / "labels.json")
    (tmp_path / "predictions.labels.json").write_text(json.dumps(results))
    with pytest.raises(TableError, match=message):
        read_export(tmp_path / "labels.json", "coco")


def test_tables_and_their_suggestions(tmp_path: Path) -> None:
    for format, name in (("wide", "w.csv"), ("long", "l.csv"), ("wide", "w.parquet"), ("long", "l.parquet")):
        export(SOURCE, format, tmp_path / name)
    assert (tmp_path / "w.csv").read_text(encoding="utf-8").splitlines()[
        0
    ] == 'image,split,cat,"猫, x",unseen'
    assert (tmp_path / "l.csv").read_text(encoding="utf-8").splitlines()[0] == "image,label,value,split"
    rows = [
        ["a.jpg", "unseen", "1", "0.500000", "review"],
        ["sub/b, c.jpg", "cat", "-1", "0.250000", "accepted"],
    ]
    for name in ("w", "l"):
        with (tmp_path / f"{name}.suggestions.csv").open(encoding="utf-8", newline="") as stream:
            assert list(csv.reader(stream)) == [["image", "label", "value", "score", "band"], *rows]
        arrow = pyarrow.parquet.read_table(tmp_path / f"{name}.suggestions.parquet").to_pylist()
        assert [[str(value) for value in row.values()][:3] for row in arrow] == [row[:3] for row in rows]
        assert [row["score"] for row in arrow] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,label,value\na.jpg,cat,1\n", "its columns are not 'image,label,value,score,band'"),
        ("image,label,value,score,band\nz.jpg,cat,1,0.5,review\n", r"row 1 is about image 'z\.jpg', which"),
        (
            "image,label,value,score,band\na.jpg,cat,1,,review\n",
            "row 1 .image 'a.jpg'. has no value or score",
        ),
        ("image,label,value,score,band\na.jpg,cat,1,0.5,left\n", "and band 'left' for class 'cat'"),
    ],
)
def test_suggestions_that_do_not_belong_to_the_table(text: str, message: str, tmp_path: Path) -> None:
    export(Source(TABLE), "wide", tmp_path / "t.csv")
    (tmp_path / "t.suggestions.csv").write_text(text, encoding="utf-8")
    with pytest.raises(TableError, match=message):
        read_export(tmp_path / "t.csv", "wide")
