"""Long tests: all methods of the paper, and processes that are really killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from experiments.grids import write_grid
from satl.experiments import parallel
from satl.experiments.experiment import run_experiment
from satl.experiments.progress_listener import ProgressListener
from satl.methods import METHODS
from satl.reports.experiment_report import report_experiment
from training.tiny import assert_same_run

PAPER_METHODS = (
    *("ignore", "assume-negative", "ssgrl", "ml-gcn", "kggr"),
    *("sst", "sst+sate", "sst+drl", "sst+satl", "hst", "hst+sate", "hst+drl", "hst+satl"),
)
TABLES = (
    *("table-1-map", "table-2-f1", "table-3-paired", "table-4-ablation", "pseudo-labels", "time"),
    *("sweep-rate", "sweep-negative_quantile", "sweep-positive_quantile"),
)
PLACES = {"proportions": [0.2, 0.5], "seeds": [0]}


def measured(path: Path) -> dict[str, object]:
    result = json.loads((path / "result.json").read_text())
    return {key: result[key] for key in ("models", "pseudo_labels", "split")}


@pytest.mark.slow
def test_all_methods_of_the_paper_give_every_table_and_every_figure(tmp_path):
    grid = write_grid(
        tmp_path / "grid.yaml",
        title="All methods",
        models="none",  # so that nothing below can rest on a checkpoint
        methods=[name for name in PAPER_METHODS if name in METHODS],
        proportions=[0.2, 0.5],
        sweeps=[
            {"key": "method.thresholds.rate", "values": [0.1, 0.5, 0.9], "methods": ["hst+sate"], **PLACES},
            {
                "key": "method.thresholds.negative_quantile",
                "values": [0.5, 0.999],
                "methods": ["sst+sate"],
                **PLACES,
            },
            {
                "key": "method.thresholds.positive_quantile",
                "values": [0.1, 0.5],
                "methods": ["sst+sate"],
                **PLACES,
            },
        ],
        method_settings={
            # So low that even a network that has learned next to nothing makes pseudo-labels.
            "sst": ["method.thresholds.end=0.3", "method.thresholds.start=0.4"],
            "sst+drl": ["method.thresholds.end=0.3", "method.thresholds.start=0.4"],
        },
    )
    state = run_experiment(grid, tmp_path / "out", jobs=2)
    folder = state.folder
    report_experiment(folder, draw=True)
    assert {grid_run.name: folder.failure(grid_run)["error"] for grid_run in state.failed} == {}
    assert state.count("done") == len(state.states)
    rows = pq.read_table(folder.parquet).to_pylist()
    assert all(row["status"] == "done" and row["mAP"] is not None for row in rows)
    for key in TABLES:
        for end in (".md", ".tex", ".html"):
            assert (folder.tables / f"{key}{end}").is_file(), key
    numbers = {int(path.stem.split("-")[1]) for path in folder.figures.glob("figure-*.svg")}
    assert numbers == set(range(1, 14))
    assert folder.report.read_text().count("data:image/svg+xml") >= 13
    assert set(PAPER_METHODS) <= set(METHODS)
    assert {row["method"] for row in rows} == set(PAPER_METHODS)
    assert not list(folder.runs.glob("*/checkpoints"))
    # All of it can be made again from what was kept.
    drawn = {path.name: path.read_bytes() for path in folder.figures.glob("figure-*.svg")}
    shutil.rmtree(folder.figures)
    shutil.rmtree(folder.tables)
    assert run_experiment(None, folder.path).ran == ()
    report_experiment(folder)
    assert all((folder.tables / f"{key}.md").is_file() for key in TABLES)
    report_experiment(folder, draw=True)
    assert {path.name: path.read_bytes() for path in folder.figures.glob("figure-*.svg")} == drawn


@pytest.mark.slow
def test_a_run_whose_process_was_killed_ends_like_one_left_alone(tmp_path, monkeypatch):
    grid = write_grid(tmp_path / "grid.yaml", methods=["ignore", "sst+satl"], seeds=[0])
    run_experiment(grid, tmp_path / "alone")
    processes = []
    start = subprocess.Popen

    def note(*arguments, **options):
        processes.append(start(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(parallel.subprocess, "Popen", note)

    class Killer(ProgressListener):
        def event(self, grid_run, event):
            if grid_run.method == "sst+satl" and event["event"] == "epoch" and event["epoch"] == 1:
                os.kill(processes[-1].pid, signal.SIGKILL)

    cut = run_experiment(grid, tmp_path / "cut", listener=Killer())
    assert list(cut.states.values()) == ["done", "failed"]
    assert "SIGKILL" in cut.folder.failure(cut.failed[0])["error"]
    again = run_experiment(grid, tmp_path / "cut", retry_failed=True)
    assert again.ran == ("sst+satl-p30-s0",)
    assert again.count("done") == 2
    one, other = (tmp_path / name / "runs" / "sst+satl-p30-s0" for name in ("alone", "cut"))
    assert_same_run(one, other)
    assert measured(one) == measured(other)
    assert not (other / "failure.json").exists()


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path):
    settings = ["training.epochs=40", "training.stage1_epochs=1"]
    grid = write_grid(
        tmp_path / "grid.yaml", methods=["sst"], seeds=[0, 1], method_settings={"sst": settings}
    )
    out = tmp_path / "out"
    command = [sys.executable, "-m", "satl", "experiment", str(grid), "--out", str(out), "--jobs", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    waited_until = time.monotonic() + 600
    while not all((out / "runs" / f"sst-p30-s{seed}" / "checkpoints" / "last").is_dir() for seed in (0, 1)):
        assert time.monotonic() < waited_until
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "continue with `satl experiment --out" in said
    assert "Traceback" not in said
    assert not list(out.glob("runs/*/failure.json"))
    listed = subprocess.run(
        [*command[:-2], "--list"], capture_output=True, text=True, check=True, env=environment
    )
    assert "2 runs: 2 started." in listed.stdout
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    rows = [
        json.loads(line) for line in (out / "runs" / "sst-p30-s0" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [row["epoch"] for row in rows] == list(range(40))


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path):
    settings = ["training.epochs=400", "training.stage1_epochs=1"]
    grid = write_grid(tmp_path / "grid.yaml", methods=["sst"], seeds=[0], method_settings={"sst": settings})
    out = tmp_path / "out"
    command = [sys.executable, "-m", "satl", "experiment", str(grid), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    waited_until = time.monotonic() + 600
    metrics = out / "runs" / "sst-p30-s0" / "metrics.jsonl"  # written when the first epoch is over
    while not metrics.is_file():
        assert time.monotonic() < waited_until
        time.sleep(0.05)
    process.kill()
    process.wait()
    # The worker holds the lock until it has saved and left; then the folder is free.
    from satl.errors import RunError
    from satl.experiments.experiment_folder import ExperimentFolder

    while True:
        assert time.monotonic() < waited_until
        try:
            with ExperimentFolder(out).locked():
                break
        except RunError:
            time.sleep(0.1)
    done = len(metrics.read_text().splitlines())
    assert 0 < done < 400
