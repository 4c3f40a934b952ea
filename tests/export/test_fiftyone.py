"""FiftyOne's image classification format, as it is documented and as FiftyOne writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from satl.errors import TableError
from satl.export import Source, Suggestions, export, read_export
from satl.labels import LabelTable

TABLE = LabelTable(("sub/a.jpg", "b.tar.png", "c.jpg"), ("cat", "dog"), np.array([[1, 1], [-1, 0], [0, 0]]))


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def read(folder: Path, content: object) -> Any:
    (folder / "x.json").write_text(json.dumps(content), encoding="utf-8")
    return read_export(folder / "x.json", "fiftyone")


def test_one_file_for_each_field(tmp_path: Path) -> None:
    source = Source(TABLE, Suggestions.of([(2, 0, 1, 0.9, 0), (2, 1, -1, 0.25, 1), (0, 1, -1, 0.1, 1)]))
    files = export(source, "fiftyone", tmp_path / "labels.json")
    assert {file.name for file in files} == {
        "labels.json", "labels.absent.json", "labels.predictions.json", "labels.predicted-absent.json",
    }  # fmt: skip
    assert load(files[0])["classes"] == ["cat", "dog"]
    assert load(files[0])["labels"] == {"sub/a": [0, 1], "b.tar": [], "c": None}
    assert load(tmp_path / "labels.absent.json")["labels"] == {"sub/a": [], "b.tar": [0]}
    assert load(tmp_path / "labels.predictions.json") == {
        "classes": ["cat", "dog"],
        "labels": {"c": [{"label": 0, "confidence": 0.9, "attributes": {"band": "accepted"}}]},
    }
    assert list(load(tmp_path / "labels.predicted-absent.json")["labels"]) == ["sub/a", "c"]


def test_what_fiftyone_itself_writes(tmp_path: Path) -> None:
    labels = {"sub/a": ["dog", {"label": "cat", "confidence": None}], "b": None, "c": "owl"}
    back = read(tmp_path, {"classes": None, "labels": labels})
    assert back.table.images == ("sub/a", "b", "c")
    assert back.table.classes == ("cat", "dog", "owl")
    assert back.table.cells.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_images_that_differ_by_extension_only_are_refused(tmp_path: Path) -> None:
    table = LabelTable(("a.jpg", "a.png"), ("x",), np.array([[1], [1]]), encoding="signed")
    with pytest.raises(TableError, match=r"images 'a\.jpg' and 'a\.png' differ only by extension"):
        export(Source(table), "fiftyone", tmp_path / "l.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "is not a JSON object"),
        ({"classes": ["a"]}, "has no 'labels': export from FiftyOne as"),
        ({"classes": ["a"], "labels": {"x": [1]}}, "image 'x' has label 1, which 'classes' lacks"),
        ({"classes": ["a"], "labels": {"x": [-1]}}, "image 'x' has label -1, which 'classes' lacks"),
        ({"labels": {"x": [3]}}, "image 1 has a label 3, which is not a class name"),
        ({"labels": {"x": ["a"]}, "satl": {"images": []}}, "its list of images does not fit its labels"),
        (
            {"labels": {"x": ["a"]}, "satl": {"split": ["t", "u"]}},
            "its list of splits does not fit its labels",
        ),
        ({"labels": {"x": ["a"]}, "satl": {"split": 5}}, "its list of splits does not fit its labels"),
        ({"labels": {"x": ["a"]}, "satl": 5}, "its 'satl' is not a JSON object"),
        ({"classes": [["a"]], "labels": {"x": [0]}}, "its classes hold .'a'., which is not a name"),
    ],
)
def test_files_that_are_something_else(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=message):
        read(tmp_path, content)


def test_attributes_that_are_something_else(tmp_path: Path) -> None:
    label = {"label": "a", "confidence": 0.5, "attributes": ["review"]}
    (tmp_path / "labels.predictions.json").write_text(json.dumps({"labels": {"x": [label]}}))
    (tmp_path / "labels.json").write_text(json.dumps({"labels": {"x": ["a"]}}))
    with pytest.raises(
        TableError, match=r"labels\.predictions\.json: image 1: the attributes .* not a JSON object"
    ):
        read_export(tmp_path / "labels.json", "fiftyone")


def test_a_number_behind_a_dot_is_no_extension(tmp_path: Path) -> None:
    table = LabelTable(("v1.5", "v1.6", "v2.0.jpg"), ("x",), np.array([[1], [-1], [0]]))
    export(Source(table), "fiftyone", tmp_path / "l.json")
    # The files are v1.5.jpg and so on, and FiftyOne takes only that extension off.
    assert list(json.loads((tmp_path / "l.json").read_text())["labels"]) == ["v1.5", "v1.6", "v2.0"]
    assert read_export(tmp_path / "l.json", "fiftyone").table == table


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    export(Source(TABLE), "fiftyone", tmp_path / "labels.json")
    (tmp_path / "labels.absent.json").write_text('{"classes": ["cat"], "labels": {"z": [0]}}')
    with pytest.raises(TableError, match=r"labels\.absent\.json: image 'z' is not in the file beside"):
        read_export(tmp_path / "labels.json", "fiftyone")
