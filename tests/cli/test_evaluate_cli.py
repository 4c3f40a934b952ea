from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml

from satl.errors import RunError
from satl.evaluation import evaluate_scores
from satl.images import FolderImages
from satl.inference.recogniser import Recogniser
from satl.inference.run_evaluation import MeasuredImages, evaluate_run, score_training_data
from satl.inference.run_record import measure_run
from satl.runs.data import load_data
from satl.runs.reading import apply_overrides, make_config
from satl.runs.run_folder import RunFolder
from satl.runs.settling import settled
from satl.training.checkpoints import load_state, save_state
from training.tiny import TINY, tiny_config, train

Satl = Callable[..., tuple[int, str, str]]
ONE_EPOCH = ("training.epochs=1", "training.stage1_epochs=1")


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """Return a copy of the run that a test may write into."""
    shutil.copytree(tiny_run, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("checkpoint", ["best", "last"])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_evaluate_is_the_metric_of_the_probabilities(
    satl: Satl, run: Path, split: str, checkpoint: str
) -> None:
    code, out, err = satl("evaluate", run, "--split", split, "--checkpoint", checkpoint, "--json")
    assert (code, err) == (0, "")
    recogniser = Recogniser.load(run, checkpoint)
    data = load_data(recogniser.config)
    rows = data.rows(split)
    probabilities = recogniser.probabilities(data.source, rows)
    expected = evaluate_scores(probabilities, data.table.cells[rows], data.table.classes).as_dict()
    about = {"split": split, "checkpoint": checkpoint, "thresholds": "0.5 for every class"}
    assert json.loads(out) == {**about, **expected}
    assert json.loads((run / f"evaluation-{split}.json").read_text()) == {**about, **expected}
    with (run / f"evaluation-{split}.csv").open() as file:
        rows_written = list(csv.DictReader(file))
    assert [row["name"] for row in rows_written] == list(data.table.classes)


def test_every_class_can_have_a_threshold_of_its_own(satl: Satl, run: Path, tmp_path: Path) -> None:
    recogniser = Recogniser.load(run)
    data = load_data(recogniser.config)
    probabilities = recogniser.probabilities(data.source, data.rows("test"))
    limits = np.median(probabilities, axis=0).astype(np.float64)
    cuts = tmp_path / "cuts.csv"
    shown = [f"{name},{limit!r}" for name, limit in zip(recogniser.classes, limits.tolist(), strict=True)]
    cuts.write_text("\n".join(["class,threshold", *shown[:-1], f"{recogniser.classes[-1]},"]) + "\n")
    code, out, err = satl("evaluate", run, "--thresholds", cuts, "--json")
    assert (code, err) == (0, "")
    limits[-1] = np.inf  # none: never present
    cells = data.table.cells[data.rows("test")]
    expected = evaluate_scores(probabilities, cells, recogniser.classes, limits).as_dict()
    assert json.loads(out).items() >= expected.items()
    assert expected["per_class"][-1]["threshold"] is None
    assert expected["OF1"] != evaluate_scores(probabilities, cells, recogniser.classes).summary()["OF1"]
    assert json.loads((run / "evaluation-test.json").read_text())["thresholds"] == "cuts.csv"
    assert "cuts.csv" in satl("evaluate", run, "--thresholds", cuts)[1]
    assert "at 0.3" in satl("evaluate", run, "--threshold", "0.3")[1]
    code, _, err = satl("evaluate", run, "--threshold", "0.3", "--thresholds", cuts)
    assert (code, err.count("\n")) == (2, 1)
    assert "give one of the two" in err


def test_the_split_is_test_where_there_is_one(satl: Satl, run: Path, tmp_path: Path) -> None:
    assert evaluate_run(run)[1] == "test"
    train(tmp_path / "other", tiny_config(*ONE_EPOCH, "data.scenes.test=0"))
    assert evaluate_run(tmp_path / "other")[1] == "val"
    code, out, err = satl("evaluate", tmp_path / "other", "--split", "test")
    assert (code, out) == (2, "")
    assert "the table has no row of split 'test'; use --split val or train" in err


def test_test_images_that_a_run_left_out_are_read_only_where_they_are_asked_for(
    satl: Satl, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(run, tiny_config(*ONE_EPOCH, "data.use_test=false"))
    evaluation, split = evaluate_run(run)
    assert (split, evaluation.num_images) == ("val", 24)
    code, out, err = satl("evaluate", run, "--split", "test", "--json")
    assert (code, err) == (0, "")
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("  use_test: false\n", "  use_test: true\n"))
    tested, split = evaluate_run(run)
    assert (split, tested.num_images) == ("test", 24)
    assert json.loads(out).items() >= tested.as_dict().items()


class TableRun(NamedTuple):
    """A run on a table that names test rows and leaves the choice of those to validate on to satl."""

    path: Path
    table: Path

    def relabel(self) -> None:
        """Turn some labels of training images round, as a person who corrects a table does."""
        lines = self.table.read_text().splitlines()
        swap = {"present": "absent", "absent": "present"}
        for number in range(5, 15):
            fields = lines[number].split(",")
            lines[number] = ",".join([*fields[:3], *(swap[field] for field in fields[3:6]), *fields[6:]])
        self.table.write_text("\n".join(lines) + "\n")


@pytest.fixture
def table_run(pictures: Path, tmp_path: Path) -> TableRun:
    header, *rows = (pictures / "labels.csv").read_text().splitlines()
    table = tmp_path / "labels.csv"
    named = [f"{row},{'train' if number < 44 else 'test'}" for number, row in enumerate(rows)]
    table.write_text("\n".join([f"{header},split", *named]) + "\n")
    content = apply_overrides(TINY, ONE_EPOCH)
    content["data"] = {"table": str(table), "images": str(pictures), "validation": 0.25}
    content["images"] = {**content["images"], "store_size": 32}
    train(tmp_path / "run", make_config(content, "tiny"))
    return TableRun(tmp_path / "run", table)


def test_only_the_images_of_the_split_are_read(table_run: TableRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = table_run
    config = RunFolder.open(run).read_config()
    data = load_data(config)
    expected = {split: evaluate_run(run, split)[0].as_dict() for split in ("val", "test")}
    read: list[int] = []
    decode = FolderImages.image

    def noted(self: FolderImages, i: int) -> np.ndarray:
        read.append(i)
        return decode(self, i)

    monkeypatch.setattr(FolderImages, "image", noted)
    for split, wanted in expected.items():
        read.clear()
        seen: list[tuple[int, int]] = []
        evaluation, _ = evaluate_run(run, split, progress=lambda *now, seen=seen: seen.append(now))
        assert sorted(read) == data.rows(split).tolist()
        assert seen[-1] == (len(read), len(read))
        assert evaluation.as_dict() == wanted
    read.clear()
    score_training_data(run)
    assert sorted(read) == sorted([*data.rows("train"), *data.rows("val")])
    # Where they do not fit into memory they are read one batch after the other, and say the same.
    file = run / "config.yaml"
    content = apply_overrides(config.resolved(), ("images.cache_gb=0",))
    file.write_text(yaml.safe_dump(content))
    read.clear()
    assert evaluate_run(run, "test")[0].as_dict() == expected["test"]
    assert sorted(read) == data.rows("test").tolist()


def test_an_evaluation_can_be_written_elsewhere(satl: Satl, run: Path, tmp_path: Path) -> None:
    before = {file.name for file in run.iterdir()}
    code, out, err = satl("evaluate", run, "--out", tmp_path / "mine")
    assert (code, err) == (0, "")
    assert f"{tmp_path / 'mine' / 'evaluation-test.json'}" in out
    assert {file.name for file in run.iterdir()} == before
    assert {file.name for file in (tmp_path / "mine").iterdir()} == {
        "evaluation-test.json",
        "evaluation-test.csv",
    }


def test_a_folder_that_cannot_be_written_is_told_before_any_image_is_read(
    satl: Satl, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recogniser, "probabilities", None)
    (tmp_path / "file").write_text("")
    code, out, err = satl("evaluate", run, "--out", tmp_path / "file")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is a file, not a folder; give another place" in err

    def refused(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "touch", refused)
    code, out, err = satl("evaluate", run)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"--out {run}: cannot be written (Permission denied); give another place" in err


def test_images_that_may_have_been_trained_on_are_not_validated_on(satl: Satl, table_run: TableRun) -> None:
    run, table = table_run
    measured = {split: evaluate_run(run, split)[0].as_dict() for split in ("train", "val", "test")}
    for file in run.glob("evaluation-*"):
        file.unlink()
    before, config = table.read_text(), RunFolder.open(run).read_config()
    trained = set(load_data(config).rows("train").tolist())
    table_run.relabel()
    assert trained & set(load_data(config).rows("val").tolist())  # what makes it worth a refusal
    for split in ("train", "val"):
        code, out, err = satl("evaluate", run, "--split", split)
        assert (code, out) == (2, "")
        assert f"{run}: the labels or the split are not those the run was started with" in " ".join(
            err.split()
        )
        assert "restore the table, or use --split test" in " ".join(err.split())
        assert "Traceback" not in err
    assert not list(run.glob("evaluation-*"))
    with pytest.raises(RunError, match="labels or the split are not those"):
        measure_run(RunFolder.open(run))
    # The table names the test rows itself, so they are the same ones.
    assert satl("evaluate", run)[0] == 0
    assert json.loads((run / "evaluation-test.json").read_text())["mAP"] == measured["test"]["mAP"]
    table.write_text(before)
    for split, expected in measured.items():
        assert evaluate_run(run, split)[0].as_dict() == expected


def test_a_run_without_its_last_state_still_knows_its_labels(satl: Satl, table_run: TableRun) -> None:
    run = table_run.path
    (run / "checkpoints" / "last" / "training.pt").write_bytes(
        b"damaged"
    )  # no digest is worth reading all of it
    assert evaluate_run(run, "val")[0].num_images == 11
    shutil.rmtree(run / "checkpoints" / "last")  # experiments keep the best model alone, if they are told to
    assert evaluate_run(run, "val")[0].num_images == 11
    table_run.relabel()
    with pytest.raises(RunError, match="labels or the split are not those"):
        evaluate_run(run, "val")
    (run / "data.json").write_text("{}")
    code, out, err = satl("evaluate", run, "--split", "val")
    assert (code, out) == (2, "")
    assert f"error: {run}/data.json: cannot be read; restore it from a copy of the run." in err


def test_a_run_that_does_not_say_what_it_was_trained_on_is_evaluated(table_run: TableRun) -> None:
    table_run.relabel()
    (table_run.path / "data.json").unlink()  # older runs have none
    last = table_run.path / "checkpoints" / "last"
    state = load_state(last / "training.pt")
    with pytest.raises(RunError, match="labels or the split are not those"):
        evaluate_run(table_run.path, "val")
    del state["data"]
    save_state(state, last / "training.pt")
    assert evaluate_run(table_run.path, "val")[0].num_images == 11
    shutil.rmtree(last)
    assert evaluate_run(table_run.path, "val")[0].num_images == 11


def test_the_tables_on_the_screen(satl: Satl, run: Path) -> None:
    code, out, err = satl("evaluate", run, "--per-class")
    assert (code, err) == (0, "")
    evaluation, _ = evaluate_run(run)
    assert f"{100 * evaluation.mAP:.2f}" in out
    assert f"{100 * evaluation.top3.OF1:.2f}" in out
    for row in evaluation.per_class:
        assert row.name in out
    assert "nan" not in out
    assert f"Written: {run}/evaluation-test.json and {run}/evaluation-test.csv" in out


def test_zeros_are_explained(satl: Satl, run: Path, tmp_path: Path) -> None:
    """A run of few epochs gives probabilities below one half, and a completion of few labels no threshold."""
    _, out, _ = satl("evaluate", run, "--threshold", "1")
    assert "No cell that is known to be present is called so, hence the zeros" in out
    assert (
        f"`satl thresholds --scores {run} --rule mat --out decide.csv`, then --thresholds decide.csv" in out
    )
    classes = Recogniser.load(run).classes
    cuts = tmp_path / "cuts.csv"
    cuts.write_text(
        "\n".join(["class,threshold", *(f"{name}," for name in classes[:-1]), f"{classes[-1]},0"])
    )
    _, out, _ = satl("evaluate", run, "--thresholds", cuts)
    assert f"{len(classes) - 1} of {len(classes)} classes have no threshold and are never present" in out
    assert "hence the zeros" not in out
    assert "never present" not in satl("evaluate", run, "--thresholds", cuts, "--json")[1]


def test_a_table_with_other_classes_is_refused(satl: Satl, run: Path) -> None:
    classes = json.loads((run / "classes.json").read_text())
    (run / "classes.json").write_text(json.dumps(classes[::-1]))
    code, _, err = satl("evaluate", run)
    assert code == 2
    assert "classes are not those the run was trained on" in err
    assert not list(run.glob("evaluation-*"))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--split", "tset"), "--split tset: there is no such split (did you mean 'test'?)"),
        (("--checkpoint", "first"), "there is no checkpoint 'first'; use best or last"),
    ],
)
def test_wrong_options(satl: Satl, run: Path, options: tuple[str, ...], part: str) -> None:
    code, _, err = satl("evaluate", run, *options)
    assert code == 2
    assert part in err
    assert not list(run.glob("evaluation-*"))


def test_fiftyone_is_asked_for_before_anything_is_measured(
    satl: Satl, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = satl("evaluate", run, "--key", "x")
    assert (code, out) == (2, "")
    assert "--key and --images belong to --fiftyone DATASET" in err
    monkeypatch.setitem(sys.modules, "fiftyone", None)
    code, out, err = satl("evaluate", run, "--fiftyone", "birds", "--json")
    assert (code, out) == (2, "")
    assert "--fiftyone birds: needs the package fiftyone; run `pip install 'satl[fiftyone]'`" in err
    assert not list(run.glob("evaluation-*"))


def test_who_wants_to_see_the_measured_images_is_given_them(run: Path) -> None:
    seen: list[MeasuredImages] = []
    evaluation, split = evaluate_run(run, see=seen.append)
    (measured,) = seen
    again = evaluate_scores(
        measured.probabilities, measured.cells, measured.classes, measured.limits, encoding="signed"
    )
    assert again.as_dict() == evaluation.as_dict()
    assert measured.facts == json.loads((run / f"evaluation-{split}.json").read_text())
    assert len(measured.images) == evaluation.num_images
    assert measured.files is None  # drawn scenes are no files


def test_pictures_from_a_folder_are_named_where_they_are(pictures: Path, tmp_path: Path) -> None:
    data = {"table": str(pictures / "labels.csv"), "images": str(pictures)}
    config = settled(make_config(apply_overrides({**TINY, "data": data}, ONE_EPOCH), "tiny"))
    train(tmp_path / "run", config)
    seen: list[MeasuredImages] = []
    evaluate_run(tmp_path / "run", "val", see=seen.append)
    files = seen[0].files
    assert files is not None
    assert [Path(file).name for file in files] == list(seen[0].images)
