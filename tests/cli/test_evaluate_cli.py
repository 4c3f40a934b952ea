from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from satl.evaluation import evaluate_scores
from satl.training.data import load_data
from satl.training.recogniser import Recogniser, evaluate_run

Satl = Callable[..., tuple[int, str, str]]


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
    assert json.loads(out) == expected
    written = json.loads((run / f"evaluation-{split}.json").read_text())
    assert (written.pop("split"), written.pop("checkpoint")) == (split, checkpoint)
    assert written == expected
    with (run / f"evaluation-{split}.csv").open() as file:
        rows_written = list(csv.DictReader(file))
    assert [row["name"] for row in rows_written] == list(data.table.classes)


def test_the_split_is_test_where_there_is_one(satl: Satl, run: Path) -> None:
    assert evaluate_run(run)[1] == "test"
    config = run / "config.yaml"
    assert "    test: 24\n" in config.read_text()
    config.write_text(config.read_text().replace("    test: 24\n", "    test: 0\n"))
    assert evaluate_run(run)[1] == "val"
    code, out, err = satl("evaluate", run, "--split", "test")
    assert (code, out) == (2, "")
    assert "the table has no row of split 'test'; use --split val or train" in err


def test_test_images_that_a_run_left_out_are_read_only_where_they_are_asked_for(
    satl: Satl, run: Path
) -> None:
    tested, _ = evaluate_run(run, "test")
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("  use_test: true\n", "  use_test: false\n"))
    evaluation, split = evaluate_run(run)
    assert (split, evaluation.num_images) == ("val", 24)
    code, out, err = satl("evaluate", run, "--split", "test", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == tested.as_dict()


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
