"""Label Studio: what satl writes for it, and what people made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest

from satl.errors import TableError
from satl.export import Source, Suggestions, export, read_export
from satl.export.label_studio_tasks import address
from satl.labels import LabelTable

TABLE = LabelTable(
    ("a b&c.jpg", "ü.jpg", "c.jpg"), ("cat", "a <dog>"), np.array([[1, -1], [0, 0], [0, 0]]),
    np.array(["train", "val", "val"]),
)  # fmt: skip


def written(folder: Path, source: Source) -> list[dict[str, Any]]:
    export(source, "label-studio", folder / "tasks.json")
    return json.loads((folder / "tasks.json").read_text(encoding="utf-8"))


def choices(results: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {one["from_name"]: one["value"]["choices"] for one in results}


def annotation(present: list[str] = (), absent: list[str] = (), **more: Any) -> dict[str, Any]:
    """What a person submits: results without satl's ids, and the time it took."""
    results = [
        {
            "id": f"x{i}",
            "from_name": name,
            "to_name": "image",
            "type": "choices",
            "value": {"choices": list(said)},
        }
        for i, (name, said) in enumerate((("present", present), ("absent", absent)))
        if said
    ]
    return {"id": 7, "completed_by": 1, "was_cancelled": False, "lead_time": 3.2, "result": results, **more}


def read(folder: Path, tasks: object) -> Any:
    (folder / "back.json").write_text(json.dumps(tasks), encoding="utf-8")
    return read_export(folder / "back.json", "label-studio")


def test_known_cells_are_annotations_and_suggestions_predictions(tmp_path: Path) -> None:
    source = Source(
        TABLE, Suggestions.of([(0, 0, -1, 0.2, 1), (1, 0, 1, 0.9, 0), (1, 1, -1, 0.3, 1)]), "satl 9"
    )
    first, second, third = written(tmp_path, source)
    assert choices(first["annotations"][0]["result"]) == {"present": ["cat"], "absent": ["a <dog>"]}
    assert first["annotations"][0]["ground_truth"] is False
    assert choices(first["predictions"][0]["result"]) == {"absent": ["cat"]}
    assert first["data"]["image_id"] == "a b&c.jpg"
    assert "annotations" not in second
    [prediction] = second["predictions"]
    assert choices(prediction["result"]) == {"present": ["cat"], "absent": ["a <dog>"]}
    assert (prediction["model_version"], prediction["score"]) == ("satl 9", 0.7)
    assert second["data"]["accepted"] == {"cat": 0.9}
    assert second["data"]["review"] == {"a <dog>": 0.3}
    assert third == {"data": {"image": "/data/local-files/?d=c.jpg", "image_id": "c.jpg", "split": "val"}}


def test_the_config_offers_every_class_twice(tmp_path: Path) -> None:
    written(tmp_path, Source(TABLE))
    view = ElementTree.parse(tmp_path / "tasks.xml").getroot()
    [image] = view.iter("Image")
    assert image.get("value") == "$image"
    controls = {one.get("name"): one for one in view.iter("Choices")}
    assert set(controls) == {"present", "absent"}
    for control in controls.values():
        assert (control.get("toName"), control.get("choice")) == (image.get("name"), "multiple")
        assert [choice.get("value") for choice in control] == list(TABLE.classes)


def test_a_score_on_another_scale_is_left_out(tmp_path: Path) -> None:
    tasks = written(tmp_path, Source(TABLE, Suggestions.of([(0, 1, 1, 3.5, 0), (1, 0, 1, 1.0, 0)])))
    assert "score" not in tasks[0]["predictions"][0]
    assert tasks[1]["predictions"][0]["score"] == 1
    assert tasks[0]["data"]["accepted"] == {"a <dog>": 3.5}


@pytest.mark.parametrize("file", ["a b.jpg", "x/ü&y=1?.jpg", "50%.jpg", "a+b#c.jpg"])
def test_an_address_leads_back_to_the_file(file: str) -> None:
    for prefix, root in ((None, ""), ("photos", "photos/"), ("/photos/", "photos/")):
        query = urlsplit(address(file, prefix)).query
        assert parse_qs(query) == {"d": [root + file]}


@pytest.mark.parametrize("place", ["https://example.org/photos", "s3://bucket", "/data/upload/1"])
def test_a_place_needs_no_slash_at_its_end(place: str) -> None:
    assert address("a.jpg", place) == address("a.jpg", f"{place}/") == f"{place}/a.jpg"
    assert address("a.jpg", "https://example.org/?file=") == "https://example.org/?file=a.jpg"


def test_people_decide_and_boxes_left_alone_say_nothing(tmp_path: Path) -> None:
    tasks = written(tmp_path, Source(TABLE, Suggestions.of([(1, 0, 1, 0.9, 1)])))
    tasks[1]["annotations"] = [annotation(present=["cat"])]
    tasks[2]["annotations"] = [annotation()]
    back = read(tmp_path, tasks)
    cell = {name: i for i, name in enumerate(back.table.classes)}
    assert back.table.cells[:, [cell["cat"], cell["a <dog>"]]].tolist() == [[1, -1], [1, 0], [0, 0]]
    assert back.looked_at == (False, True, True)
    assert len(back.suggestions) == 1
    assert back.skipped == 0


def test_a_person_who_submits_the_known_cells_again_has_looked(tmp_path: Path) -> None:
    tasks = written(tmp_path, Source(TABLE))
    assert read(tmp_path, tasks).looked_at == (False, False, False)
    tasks[0]["annotations"][0]["lead_time"] = 2.0
    assert read(tmp_path, tasks).looked_at == (True, False, False)


def test_skipped_tasks_say_nothing(tmp_path: Path) -> None:
    tasks = written(tmp_path, Source(TABLE))
    tasks[1]["annotations"] = [annotation(present=["cat"], was_cancelled=True)]
    tasks[2]["annotations"] = [
        annotation(present=["cat"], was_cancelled=True),
        annotation(absent=["cat"]),
    ]
    back = read(tmp_path, tasks)
    at = back.table.classes.index("cat")
    assert back.table.cells[:, at].tolist() == [1, 0, -1]
    assert back.skipped == 1
    assert back.looked_at == (False, False, True)


def test_a_person_overrules_what_satl_wrote_and_ground_truth_overrules_persons(tmp_path: Path) -> None:
    tasks = written(tmp_path, Source(TABLE))
    tasks[0]["annotations"].append(annotation(absent=["cat"]))
    tasks[0]["annotations"][0]["ground_truth"] = (
        True  # as Label Studio marks what it imports, if not told otherwise
    )
    tasks[1]["annotations"] = [annotation(present=["cat"]), annotation(absent=["cat"], ground_truth=True)]
    back = read(tmp_path, tasks)
    assert back.table.cells[:, back.table.classes.index("cat")].tolist() == [-1, -1, 0]
    tasks[1]["annotations"][1]["ground_truth"] = False
    back = read(tmp_path, tasks)  # one person, twice: the second counts
    assert back.table.cells[:, back.table.classes.index("cat")].tolist() == [-1, -1, 0]
    tasks[1]["annotations"][1] |= {"completed_by": 2}
    back = read(tmp_path, tasks)
    assert back.table.cells[:, back.table.classes.index("cat")].tolist() == [-1, 0, 0]
    assert [(vote.image, vote.label, vote.value) for vote in back.disagreements] == [
        ("ü.jpg", "cat", 1), ("ü.jpg", "cat", -1),
    ]  # fmt: skip


def test_tasks_of_another_origin(tmp_path: Path) -> None:
    def task(place: str, *said: dict[str, Any]) -> dict[str, Any]:
        return {"id": 1, "data": {"photo": place}, "annotations": list(said)}

    one = annotation(present=["b", "a"])
    one["result"][0]["from_name"] = "what"
    other = {"id": "r", "from_name": "note", "to_name": "image", "type": "textarea", "value": {"text": ["x"]}}
    one["result"].append(other)
    back = read(
        tmp_path,
        [
            task("/data/local-files/?d=photos/a%20b.jpg", one),
            task("s3://bucket/50%.jpg"),
            task("https://example.org/%C3%BC.jpg"),
        ],
    )
    assert back.table.images == ("photos/a b.jpg", "s3://bucket/50%.jpg", "https://example.org/ü.jpg")
    assert back.table.classes == ("a", "b")
    assert back.table.cells.tolist() == [[1, 1], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({}, "is not a JSON list"),
        ([], "names no image"),
        ([3], "task 1 is not a JSON object"),
        ([{"image": "a.jpg", "present": "cat"}], "task 1 has no 'data': export from Label Studio as JSON, not"),
        ([{"data": {"x": "1", "y": "2"}}], "task 1 names no image"),
        ([{"data": {"image": "a"}}], "names no class"),
        ([{"data": {"image": "a"}, "annotations": 5}], "task 1: its 'annotations' is not a list"),
        ([{"data": {"image": "a"}, "annotations": [{"result": 5}]}], "task 1: its 'result' is not a list"),
        ([{"data": {"image": "a"}, "annotations": [annotation(["x"], ["x"])]}], "'x' is ticked as present and"),
        ([{"data": {"image": "a"}, "annotations": [annotation([5])]}], "choice 5 is not text"),
        ([{"data": {"image": "a"}}, {"data": {"image": "a"}}], "task 1 and task 2 are both about image 'a'"),
        ([{"data": {"image": "a", "split": 4}}], "its split 4 is not text"),
        ([{"data": {"image": "a", "split": "t"}}, {"data": {"image": "b"}, "annotations": [annotation(["x"])]}],
         "task 2 .image 'b'. has no split, but others have"),
    ],
)  # fmt: skip
def test_files_that_are_something_else(tasks: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=message):
        read(tmp_path, tasks)


def test_a_config_beside_the_file_fixes_the_classes(tmp_path: Path) -> None:
    tasks = written(tmp_path, Source(TABLE))
    tasks[0]["annotations"][0]["result"][0]["value"]["choices"] = ["catt"]
    (tmp_path / "tasks.json").write_text(json.dumps(tasks), encoding="utf-8")
    with pytest.raises(
        TableError, match=r"task 1 names class 'catt', which is not among .*did you mean 'cat'"
    ):
        read_export(tmp_path / "tasks.json", "label-studio")
    (tmp_path / "tasks.xml").write_text("<View>")
    with pytest.raises(TableError, match=r"tasks\.xml is not a labelling config"):
        read_export(tmp_path / "tasks.json", "label-studio")
