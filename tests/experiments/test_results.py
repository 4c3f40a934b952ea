from __future__ import annotations

import csv

import pyarrow.parquet as pq
import pytest

from experiments.grids import FACTS, grid_of, results_of, row
from satl.errors import RunError
from satl.experiments.experiment_folder import RESULT, ExperimentFolder, write_json
from satl.experiments.results import COLUMNS, Estimate, gather_results, read_results

MEASURED = {"epoch": 2, "mAP": 0.5, "OF1": 0.4, "CF1": 0.3, "OP": 0.2, "OR": 0.1, "CP": 0.6, "CR": None}


@pytest.fixture
def gathered(tmp_path):
    folder = ExperimentFolder(tmp_path)
    grid = grid_of(
        dataset="scenes",
        methods=["ignore", "sst"],
        seeds=[0],
        sweeps=[
            {"key": "method.thresholds.rate", "values": [0.1], "methods": ["sst+sate"]},
            {"key": "training.schedule", "values": ["cosine"], "methods": ["ignore"]},
        ],
    )
    ignore, sst, rate, schedule = grid.runs()
    result = {
        "facts": FACTS,
        "split": "test",
        "models": {"last": {**MEASURED, "epoch": 3, "mAP": 0.45, "mAP_rare": 0.25}, "best": MEASURED},
        "pseudo_labels": None,
        "train_seconds": 2.5,
        "jobs": 1,
        "threads": 1,
        "device": "cpu",
    }
    write_json(folder.run_path(ignore) / RESULT, result)
    quality = {"macro_precision": None, "macro_recall": 0.25, "micro_precision": 0.75, "micro_recall": 0.5}
    write_json(
        folder.run_path(rate) / RESULT,
        {**result, "pseudo_labels": {"emitted": 3, "classes_with_precision": 2, **quality}},
    )
    write_json(folder.run_path(schedule) / RESULT, result)
    folder.write_failure(sst, "no memory", "", FACTS)
    results = gather_results(folder, grid)
    results.write(folder)
    return folder, results


def test_a_row_for_each_run_and_model_in_per_cent(gathered):
    folder, _ = gathered
    table = pq.read_table(folder.parquet)
    assert tuple(table.column_names) == (*COLUMNS, "method.thresholds.rate", "training.schedule")
    rows = table.to_pylist()
    assert [(r["run"], r["model"], r["status"]) for r in rows[:4]] == [
        ("ignore-p30-s0", "last", "done"),
        ("ignore-p30-s0", "best", "done"),
        ("sst-p30-s0", "last", "failed"),
        ("sst-p30-s0", "best", "failed"),
    ]
    last, best, failed, *_ = rows
    assert (last["mAP"], last["epoch"], best["mAP"], best["epoch"]) == (45.0, 3, 50.0, 2)
    assert (best["dataset"], best["backbone"], best["proportion"], best["seed"]) == (
        "scenes",
        "satl_tiny",
        0.3,
        0,
    )
    assert best["CR"] is None
    assert best["pseudo_recall"] is None
    assert (failed["mAP"], failed["error"], failed["backbone"]) == (None, "no memory", "satl_tiny")
    rate, schedule = rows[5], rows[7]
    assert (rate["variant"], rate["method.thresholds.rate"], rate["training.schedule"]) == (
        "rate=0.1",
        0.1,
        None,
    )
    assert (rate["pseudo_precision"], rate["pseudo_recall"]) == (None, 25.0)
    assert (rate["pseudo_precision_micro"], rate["pseudo_recall_micro"]) == (75.0, 50.0)
    assert schedule["training.schedule"] == "cosine"


def test_the_csv_says_the_same(gathered):
    folder, _ = gathered
    with folder.csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert float(rows[1]["mAP"]) == 50.0
    assert (rows[2]["mAP"], rows[2]["status"], rows[4]["method.thresholds.rate"]) == ("", "failed", "0.1")


def test_a_run_that_did_not_run_has_no_row_and_no_value(gathered):
    _, results = gathered
    assert results.by_seed("mAP", "ignore", 0.3) == {0: 50.0}
    assert results.by_seed("mAP", "ignore", 0.3, model="last") == {0: 45.0}
    assert results.by_seed("mAP", "sst", 0.3) == {}
    assert results.by_seed("CR", "ignore", 0.3) == {}
    assert results.by_seed("mAP", "hst", 0.3) == {}


def test_averages_need_every_proportion_of_a_seed():
    results = results_of(
        row("sst", 0.1, 0, 60.0), row("sst", 0.2, 0, 70.0), row("sst", 0.1, 1, 50.0), row("sst", 0.2, 2, 55.0)
    )
    assert results.averages("mAP", "sst", (0.1, 0.2)) == {0: 65.0}
    assert results.averages("mAP", "sst", (0.1,)) == {0: 60.0, 1: 50.0}
    assert results.averages("mAP", "sst", ()) == {}
    assert results.paired("mAP", "sst", (0.1, 0.2)) == {
        (0.1, 0): 60.0,
        (0.1, 1): 50.0,
        (0.2, 0): 70.0,
        (0.2, 2): 55.0,
    }


def test_an_estimate_of_one_has_no_spread():
    assert Estimate.of([4.0]) == Estimate(4.0, None, 1)
    assert Estimate.of([1.0, 3.0]).deviation == pytest.approx(2**0.5)


def test_results_are_read_back_as_they_were(gathered, tmp_path):
    folder, results = gathered
    again = read_results(folder.path)
    assert again.columns == results.columns
    settings = ("method.thresholds.rate", "training.schedule")
    for mine, read in zip(results.rows, again.rows, strict=True):
        assert {name: read[name] for name in COLUMNS} == {
            name: "" if name in ("split", "device") and mine[name] is None else mine[name] for name in COLUMNS
        }
        assert [read[name] for name in settings] == [mine.get(name) and str(mine[name]) for name in settings]
    assert again.places("last") == results.places("last")
    assert [place[1:] for place in again.places("last")] == [
        ("ignore", ""),
        ("sst+sate", "rate=0.1"),
        ("ignore", "schedule=cosine"),
    ]
    copy = tmp_path / "kept.csv"
    copy.write_bytes(folder.csv.read_bytes())
    assert read_results(copy).rows == again.rows


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read; give the folder of an experiment"),
        ("a,b\n1,2\n", "has no column 'dataset'"),
        ("", "has no column 'dataset'"),
        (
            ",".join(COLUMNS) + "\n" + ",".join("x" for _ in COLUMNS) + "\n",
            "row 2: .*write it again with experiment",
        ),
    ],
)
def test_what_is_no_results_table_is_refused_in_a_sentence(tmp_path, content, words):
    if content is not None:
        (tmp_path / "results.csv").write_text(content)
    with pytest.raises(RunError, match=f"results.csv: {words}"):
        read_results(tmp_path)


def test_results_of_earlier_versions_lack_what_is_measured_since(gathered, tmp_path):
    folder, _ = gathered
    with folder.csv.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {"mAP_rare", "pseudo_classes"} <= set(rows[0])
    old = tmp_path / "old.csv"
    names = [name for name in rows[0] if name not in ("mAP_rare", "pseudo_classes")]
    with old.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    again = read_results(old)
    assert again.columns == read_results(folder.path).columns
    assert not again.by_seed("mAP_rare", "ignore", 0.3, model="last")
    assert again.by_seed("mAP", "ignore", 0.3) == read_results(folder.path).by_seed("mAP", "ignore", 0.3)


def test_rare_classes_and_classes_with_pseudo_labels_are_columns(gathered):
    _, results = gathered
    assert results.by_seed("mAP_rare", "ignore", 0.3, model="last") == {0: 25.0}
    assert results.by_seed("mAP_rare", "ignore", 0.3, model="best") == {}  # a result of an earlier version
    assert results.by_seed("pseudo_classes", "sst+sate", 0.3, "rate=0.1") == {0: 2}
