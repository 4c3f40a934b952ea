"""``satl export`` and ``satl import`` as a user calls them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from review.synthetic import Completed, small_folder
from satl.export import TOOLS
from satl.labels import read_table, write_table
from satl.review.database import DecisionRequest, ReviewStore

Satl = Callable[..., tuple[int, str, str]]
FILES = {
    "label-studio": "tasks.json",
    "fiftyone": "labels.json",
    "cvat": "annotations.xml",
    "huggingface": "metadata.jsonl",
    "coco": "labels.json",
    "wide": "t.csv",
    "long": "t.parquet",
}


@pytest.fixture
def completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Completed:
    monkeypatch.setenv("SATL_CACHE", "off")
    done = small_folder(tmp_path / "out")
    write_table(done.table, tmp_path / "labels.csv")
    return done


def refused(satl: Satl, *arguments: object, parts: tuple[str, ...]) -> None:
    code, out, err = satl(*arguments)
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


@pytest.mark.parametrize("format", list(TOOLS))
def test_there_and_back(satl: Satl, completed: Completed, tmp_path: Path, format: str) -> None:
    file = tmp_path / format / FILES[format]
    code, out, err = satl("export", completed.out, "-f", format, "-o", file)
    assert (code, err) == (0, "")
    counts = [sum(row[5] == band for row in completed.rows) for band in ("accepted", "review")]
    assert f"Suggestions: {counts[0]} accepted, {counts[1]} review\n" in out
    assert f"Wrote  {file}\n" in out
    code, out, err = satl(
        "import", file, "-f", format, "-o", tmp_path / "new.csv", "--onto", tmp_path / "labels.csv"
    )
    assert (code, err) == (0, "")
    known = int(completed.table.known.sum())
    assert f"0 present, 0 absent ({known} more were known already, 0 overwritten)\n" in out
    assert f"Predictions, which decide nothing: {sum(counts)}\n" in out
    assert f"Known: {known} of {completed.table.cells.size} cells\n" in out
    assert read_table(tmp_path / "new.csv") == completed.table


def test_options_of_export(satl: Satl, completed: Completed, tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    code, _, err = satl(
        *(
            "export",
            completed.out,
            "-f",
            "label-studio",
            "-o",
            file,
            "--band",
            "review",
            "--suggestions-only",
        ),
        *("--address", "https://example.org/"),
    )
    assert (code, err) == (0, "")
    tasks = json.loads(file.read_text(encoding="utf-8"))
    assert len(tasks) == len({row[0] for row in completed.rows if row[5] == "review"})
    assert all("annotations" not in task and "accepted" not in task["data"] for task in tasks)
    assert all(task["data"]["image"].startswith("https://example.org/") for task in tasks)
    code, out, _ = satl("export", tmp_path / "labels.csv", "-f", "coco", "-o", tmp_path / "l.json")
    assert code == 0
    assert "Suggestions" not in out


def test_a_review_that_is_not_merged_yet_is_mentioned(
    satl: Satl, completed: Completed, tmp_path: Path
) -> None:
    with ReviewStore(completed.out) as store:
        store.refresh()
        # The page was opened, and closed again before anything was decided.
        assert satl("export", completed.out, "-f", "wide", "-o", tmp_path / "s.csv")[2] == ""
        store.decide("tab", "request", [DecisionRequest(*completed.rows[0][:2], 1, None)])
    code, _, err = satl("export", completed.out, "-f", "wide", "-o", tmp_path / "t.csv")
    assert code == 0
    assert err.startswith("Note: ")
    assert f"satl merge {completed.out} TABLE -o NEW" in err
    arguments = ("export", completed.out, "-f", "wide", "-o", tmp_path / "u.csv")
    assert satl(*arguments, "--labels", tmp_path / "labels.csv")[2] == ""


def test_decisions_of_people(satl: Satl, completed: Completed, tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    satl("export", completed.out, "-f", "label-studio", "-o", file, "--suggestions-only")
    tasks = json.loads(file.read_text(encoding="utf-8"))
    # An image with one suggestion, about which nothing else is known.
    said_of = [row[0] for row in completed.rows if row[5] != "left"]
    unknown = [
        name for name, row in zip(completed.table.images, completed.table.known, strict=True) if not row.any()
    ]
    quiet = next(name for name in unknown if said_of.count(name) == 1)
    first = next(task for task in tasks if task["data"]["image_id"] == quiet)
    second = next(task for task in tasks if task is not first)
    [result] = first["predictions"][0]["result"]
    # One person takes over the prediction as it is, one skips the task.
    first["annotations"] = [{"result": [result], "lead_time": 2.0}]
    second["annotations"] = [{"result": [], "was_cancelled": True, "lead_time": 1.0}]
    back = tmp_path / "back.json"
    back.write_text(json.dumps(tasks), encoding="utf-8")
    said = dict.fromkeys(result["value"]["choices"], 1 if result["from_name"] == "present" else -1)
    table, new = tmp_path / "labels.csv", tmp_path / "new.csv"
    arguments = ("import", back, "-f", "label-studio", "-o", new, "--onto", table, "--replace-known")
    code, out, err = satl(*arguments)
    assert (code, err) == (0, "")
    assert "Skipped tasks: 1\n" in out
    merged = read_table(new)
    row = merged.images.index(first["data"]["image_id"])
    for column, name in enumerate(merged.classes):
        assert merged.cells[row, column] == said.get(name, completed.table.cells[row, column])
    code, out, err = satl(*arguments, "--unticked", "absent", "--force")
    rest = int((merged.cells[row] == 0).sum())
    assert f"Absent because not ticked: {rest}\n" in out
    assert rest
    assert (read_table(new).cells[row] == np.where(merged.cells[row] == 0, -1, merged.cells[row])).all()


def test_left_out_cells_are_named(satl: Satl, completed: Completed, tmp_path: Path) -> None:
    known = completed.table.known.sum(axis=1)
    row = int(np.argmax(known))
    write_table(completed.table.select(np.arange(len(known)) != row), tmp_path / "less.csv")
    satl("export", tmp_path / "labels.csv", "-f", "cvat", "-o", tmp_path / "a.xml")
    code, _, err = satl(
        "import", tmp_path / "a.xml", "-f", "cvat", "-o", tmp_path / "n.csv", "--onto", tmp_path / "less.csv"
    )
    assert code == 0
    assert err.startswith(f"Left out: {known[row]} about cells that {tmp_path / 'less.csv'} does not have")
    assert completed.table.images[row] in err


def test_wrong_uses_end_in_one_sentence(satl: Satl, completed: Completed, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    export = ("export", completed.out, "-o", file, "-f")
    refused(
        satl,
        *export,
        "labelstudio",
        parts=("--format labelstudio: is not", "did you mean 'label-studio'"),
    )
    refused(satl, *export, "cvat", parts=("x.json", "'cvat' is for .xml files"))
    refused(
        satl, *export, "coco", "--address", "s3://b/", parts=("--address: format 'coco' writes no address",)
    )
    refused(satl, *export, "coco", "--band", "left", parts=("--band left", "neither accepted nor review"))
    refused(satl, *export, "coco", "--images", tmp_path / "no", parts=("no' does not exist",))
    refused(satl, "export", tmp_path, "-f", "coco", "-o", file, parts=("has no report.json", "satl complete"))
    inside = ("export", completed.out, "-f", "coco", "-o", completed.out / "report.json", "--force")
    refused(satl, *inside, parts=("report.json", "lies in the folder that is exported", "-o"))
    assert not file.exists()
    assert satl(*export, "coco")[0] == 0
    refused(satl, *export, "coco", parts=("x.json: exists already", "--force"))
    assert satl(*export, "coco", "--force")[0] == 0
    table = tmp_path / "labels.csv"
    before = table.read_bytes()
    for given, more in ((table, ()), (completed.out, ("--labels", table))):
        over = ("export", given, *more, "-f", "long", "-o", table, "--force")
        refused(satl, *over, parts=("labels.csv belongs to the inputs", "choose another name"))
    assert table.read_bytes() == before
    refused(satl, "import", file, "-f", "coco", "-o", file, parts=("x.json belongs to the inputs",))
    refused(satl, "import", file, "-f", "fiftyone", "-o", tmp_path / "n.csv", parts=("has no 'labels'",))
    refused(
        satl, "import", file, "-f", "label-studio", "-o", tmp_path / "n.csv", parts=("is not a JSON list",)
    )


def test_names_like_formulas_are_told_in_one_line(satl, tmp_path):
    (tmp_path / "table.csv").write_text("image,=cmd()|x,dog\na.jpg,1,\nb.jpg,0,1\n")
    code, _, err = satl("export", tmp_path / "table.csv", "--format", "long", "-o", tmp_path / "out.csv")
    assert code == 0, err
    assert err.startswith("warning: out.csv: 1 name(s), such as '=cmd()|x', begin like a formula")
    assert err.count("\n") == 1
    assert "=cmd()|x" in (tmp_path / "out.csv").read_text()
