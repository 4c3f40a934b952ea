"""``satl convert`` between all readers and writers, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from labels.trees import (
    chexpert,
    coco2014,
    coco_content,
    lvis_content,
    openimages,
    vg200,
    voc2007,
    write_json,
)
from satl.labels import LabelTable, mask_table, read_dataset, read_table, truth_path, write_table
from satl.labels.datasets.voc import CLASSES
from training.tiny import TINY

Satl = Callable[..., tuple[int, str, str]]
TARGETS = (
    ("wide.csv", ()),
    ("wide.tsv", ()),
    ("wide.parquet", ()),
    ("long.csv", ("--format", "long")),
    ("long.parquet", ("--format", "long")),
    ("lines.jsonl", ()),
    ("arrays.npz", ()),
    ("lvis.json", ("--format", "lvis")),
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATL_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def table() -> LabelTable:
    cells = np.array([[1, 0, -1], [0, 0, 0], [-1, 1, 1], [1, -1, 0]])
    return LabelTable(
        ("a/1.jpg", "a/2.jpg", "b,3.jpg", "é.jpg"),
        ("cat", "dog", "hen"),
        cells,
        np.array([*"ttvv"]),
        encoding="signed",
    )


def good(satl: Satl, *arguments: object) -> str:
    code, out, err = satl(*arguments)
    assert (code, err) == (0, "")
    return out


def refused(satl: Satl, *arguments: object) -> str:
    code, out, err = satl(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(("source", "written"), TARGETS)
def test_from_every_format_to_every_format(
    satl: Satl, tmp_path: Path, table: LabelTable, source: str, written: tuple[str, ...]
) -> None:
    write_table(table, tmp_path / source, format=written[1] if written else None)
    for target, options in TARGETS:
        out = tmp_path / "out" / target
        text = good(satl, "convert", tmp_path / source, out, *options)
        assert f"Wrote  {out}: " in text
        assert "4 images, 3 classes (t 2, v 2)" in text
        assert read_table(out) == table


@pytest.mark.parametrize(("target", "options"), TARGETS)
def test_the_truth_comes_along(satl: Satl, tmp_path: Path, target: str, options: tuple[str, ...]) -> None:
    cells = np.where(np.random.RandomState(0).random_sample((30, 4)) < 0.3, 1, -1)
    masked = mask_table(
        LabelTable(tuple(f"{i}.jpg" for i in range(30)), tuple("abcd"), cells, encoding="signed"), 0.3
    )
    write_table(masked, tmp_path / "m.npz")
    out = tmp_path / "out" / target
    text = good(satl, "convert", tmp_path / "m.npz", out, *options)
    truth = None if target.endswith(".npz") else truth_path(out)
    assert f"Truth  {truth or out}" in text
    assert read_table(out, truth=truth) == masked
    if truth is not None:
        good(satl, "convert", out, tmp_path / "back.npz", "--truth", truth)
        assert read_table(tmp_path / "back.npz") == masked


def test_data_sets_become_tables(satl: Satl, tmp_path: Path) -> None:
    roots = {
        "coco2014": (coco2014(tmp_path / "coco"), {}),
        "voc2007": (voc2007(tmp_path / "VOC2007", CLASSES), {"difficult": "ignore", "labels": "txt"}),
        "vg200": (vg200(tmp_path / "vg"), {}),
        "chexpert": (chexpert(tmp_path / "chexpert"), {"uncertain": "present"}),
        "openimages": (openimages(tmp_path / "oi"), {"splits": "train,test"}),
        "lvis": (tmp_path / "lvis", {"splits": "train"}),
    }
    write_json(
        tmp_path / "lvis" / "lvis_v1_train.json", lvis_content({1: ("train2017/1.jpg", [2], [])}, [(1, 1)])
    )
    for name, (root, options) in roots.items():
        out = tmp_path / f"{name}.jsonl"
        given = [part for key, value in options.items() for part in ("--option", f"{key}={value}")]
        text = good(satl, "convert", root, out, "--dataset", name, *given)
        assert f"Read   {root}: {name}" in text
        assert read_table(out) == read_dataset(name, root, **options)
    text = good(satl, "inspect", roots["coco2014"][0], "--dataset", "coco2014")
    assert "6 images, 3 classes (train 4, test 2)" in text


def test_json_comes_out_as_other_programs_expect_it(satl: Satl, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,cat,dog\na.jpg,yes,no\nb.jpg,yes,yes\n")
    good(satl, "convert", tmp_path / "t.csv", tmp_path / "t.json", "--format", "coco")
    content = json.loads((tmp_path / "t.json").read_text())
    assert content["categories"] == [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    assert content["images"] == [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}]
    assert [(a["id"], a["image_id"], a["category_id"]) for a in content["annotations"]] == [
        (1, 1, 1),
        (2, 2, 1),
        (3, 2, 2),
    ]


def test_encodings_in_and_out(satl: Satl, tmp_path: Path) -> None:
    source, target = tmp_path / "t.csv", tmp_path / "u.csv"
    source.write_text("image,Age,cat,dog\na,70,1,0\nb,31,-1,0\n")
    assert "--encoding signed" in refused(satl, "convert", source, target, "--ignore-column", "Age")
    arguments = ("convert", source, target, "--ignore-column", "Age", "--encoding", "csl")
    good(satl, *arguments, "--to-encoding", "signed")
    assert target.read_text() == "image,cat,dog\na,1,-1\nb,0,-1\n"


def test_nothing_is_overwritten_without_being_told(satl: Satl, tmp_path: Path, table: LabelTable) -> None:
    source, target = tmp_path / "t.csv", tmp_path / "u.csv"
    write_table(table, source)
    target.write_text("precious")
    assert "u.csv: exists already; choose another name, or pass --force" in refused(
        satl, "convert", source, target
    )
    assert target.read_text() == "precious"
    good(satl, "convert", source, target, "--force")
    assert read_table(target) == table
    assert "t.csv belongs to the inputs of this command" in refused(
        satl, "convert", source, source, "--force"
    )
    masked = mask_table(table.with_split(None), 0.5)
    write_table(masked, tmp_path / "m.npz")
    truth_path(tmp_path / "m.csv").write_text("precious")
    assert "m.truth.csv: exists already" in refused(satl, "convert", tmp_path / "m.npz", tmp_path / "m.csv")
    assert not (tmp_path / "m.csv").exists()
    write_table(
        table.with_truth(table.cells, encoding="signed"), tmp_path / "x.csv", truth=tmp_path / "y.truth.csv"
    )
    said = refused(
        satl,
        "convert",
        tmp_path / "x.csv",
        tmp_path / "y.csv",
        "--truth",
        tmp_path / "y.truth.csv",
        "--force",
    )
    assert "y.truth.csv belongs to the inputs of this command" in said


def test_what_a_format_cannot_say_is_refused(satl: Satl, tmp_path: Path, table: LabelTable) -> None:
    source = tmp_path / "t.csv"
    write_table(table, source)
    before = sorted(tmp_path.iterdir())
    for target, options, part in (
        ("u.csv", ("--format", "positives"), "a list of positives cannot say absent, and 3 cells are absent"),
        (
            "u.json",
            ("--format", "coco"),
            "COCO json cannot say unknown, and 5 cells are unknown; pass --format lvis",
        ),
        ("u.json", (), "could be any of coco, lvis"),
        ("u.csv", ("--format", "lvis"), "format 'lvis' is for .json files"),
        ("u.csv", ("--format", "lnog"), "did you mean 'long'?"),
        ("u.csv", ("--to-encoding", "complete"), "5 cells are unknown; choose encoding 'blank'"),
        ("u.jsonl", ("--to-encoding", "signed"), "leave out --to-encoding"),
        (
            "u.csv",
            ("--to-encoding", "singed"),
            "--to-encoding singed: is not an encoding (did you mean 'signed'?)",
        ),
        ("u.ods", (), "satl writes .arrow, .csv"),
    ):
        assert part in refused(satl, "convert", source, tmp_path / target, *options)
    assert sorted(tmp_path.iterdir()) == before


def test_a_data_set_is_trained_and_evaluated(satl: Satl, tmp_path: Path, pictures: Path) -> None:
    table = read_table(pictures / "labels.csv")
    names = {row + 1: name for row, name in enumerate(table.images)}
    classes = [(column + 1, name) for column, name in enumerate(table.classes)]
    root = tmp_path / "coco"
    for part, rows in (("train", range(48)), ("val", range(48, 60))):
        labels = [
            (row + 1, column + 1) for row in rows for column in np.flatnonzero(table.cells[row] == 1).tolist()
        ]
        content = coco_content({row + 1: names[row + 1] for row in rows}, labels, classes)
        write_json(root / "annotations" / f"instances_{part}2014.json", content)
        (root / f"{part}2014").symlink_to(pictures)
    content = {
        **TINY,
        "data": {"dataset": "coco2014", "root": "coco", "proportion": 0.5},
        "images": {**TINY["images"], "store_size": 32},
        "training": {**TINY["training"], "epochs": 1, "stage1_epochs": 1},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(content))
    good(satl, "train", tmp_path / "run.yaml", "--out", tmp_path / "run", "--quiet")
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["data"]
    assert (saved["dataset"], saved["root"], saved["splits"]) == ("coco2014", str(root), ["train", "test"])
    assert "12" in good(satl, "evaluate", tmp_path / "run", "--split", "test")
    code, _, err = satl(
        "train", tmp_path / "run.yaml", "--set", "data.root=elsewhere", "--out", tmp_path / "other"
    )
    assert code == 2
    assert "elsewhere does not exist: pass the folder that holds annotations/instances_train2014.json" in err


def test_wrong_sources(satl: Satl, tmp_path: Path) -> None:
    root = coco2014(tmp_path / "coco")
    out = tmp_path / "out.csv"
    for arguments, part in (
        ((root, out), "is a folder: name the table in it, or pass --dataset with one of"),
        ((root, out, "--dataset", "coco2041"), "there is no data set 'coco2041'"),
        ((root, out, "--dataset", "voc2007"), "has no ImageSets/Main"),
        ((root, out, "--dataset", "coco2014", "--option", "drop"), "--option drop: write it as key=value"),
        ((root, out, "--dataset", "coco2014", "--option", "dorp=1"), "has no option 'dorp'"),
        (
            (root, out, "--dataset", "coco2014", "--encoding", "csl"),
            "belong to a table, not to data set 'coco2014'",
        ),
        ((tmp_path / "no.csv", out), "no.csv does not exist"),
        ((tmp_path / "no.csv", out, "--option", "a=b"), "--option belongs to a data set"),
        ((tmp_path / "no", out, "--dataset", "coco2014"), "does not exist: pass the folder that holds"),
    ):
        assert part in refused(satl, "convert", *arguments)
    assert not out.exists()
