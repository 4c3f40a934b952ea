from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.grids import grid_of
from satl.errors import Stopped
from satl.experiments import parallel
from satl.experiments.configs import run_configs
from satl.experiments.experiment_folder import ExperimentFolder
from satl.experiments.parallel import run_in_parallel, worker_environment
from satl.experiments.progress_listener import ProgressListener


class Notes(ProgressListener):
    """Keeps what it is told, and may act on it."""

    def __init__(self, act=None):
        self.told = []
        self.act = act

    def event(self, grid_run, event):
        self.told.append((grid_run.name, event["event"]))
        if self.act is not None:
            self.act(event)

    def stopping(self, expired):
        self.told.append(("", "time is up" if expired else "stopping"))


@pytest.fixture(autouse=True)
def _fake_worker(monkeypatch):
    worker = str(Path(__file__).with_name("fake_worker.py"))
    monkeypatch.setattr(parallel, "_COMMAND", (sys.executable, worker))


def run(folder, kinds, jobs=1, act=None, models="all", seconds=None):
    """Run plain runs of seeds 0 and 1, and one of each kind of misbehaviour."""
    variants = [{"name": kind, "set": ["training.lr=0.1"], "seeds": [0]} for kind in kinds]
    grid = grid_of(methods=["ignore"], variants=variants)
    plain, odd = grid.runs()[:2], grid.runs()[2:]
    order = (*odd, *plain)  # the misbehaving ones first, so that the others come after
    configs = run_configs(grid, folder.path, "grid.yaml")
    notes = Notes(act)
    with folder.locked() as lock:
        try:
            run_in_parallel(
                folder,
                {grid_run: configs[grid_run] for grid_run in order},
                lock,
                jobs,
                notes,
                models,
                seconds,
            )
        finally:
            notes.states = {grid_run.name: folder.state(grid_run) for grid_run in order}
    return notes


def test_one_failed_run_never_loses_the_others(tmp_path):
    folder = ExperimentFolder(tmp_path)
    notes = run(folder, ["crash", "killed", "exits"])
    ended = [told for told in notes.told if told[1] in ("done", "failed")]
    assert ended == [
        ("ignore-p30-s0-crash", "failed"),
        ("ignore-p30-s0-killed", "failed"),
        ("ignore-p30-s0-exits", "failed"),
        ("ignore-p30-s0", "done"),
        ("ignore-p30-s1", "done"),
    ]
    grid_runs = grid_of(
        methods=["ignore"],
        variants=[{"name": kind, "set": ["a.b=1"]} for kind in ("crash", "killed", "exits")],
    ).runs()
    failures = {
        grid_run.variant: folder.failure(grid_run)
        for grid_run in grid_runs
        if folder.state(grid_run) == "failed"
    }
    assert failures["crash"]["error"] == "ValueError: bad"
    assert failures["crash"]["facts"]["backbone"] == "satl_tiny"
    assert "SIGKILL" in failures["killed"]["error"]
    assert "code 3" in failures["exits"]["error"]
    # A worker that did well goes on with the next run; one that failed is replaced.
    pids = [(folder.runs / name / "ran.txt").read_text() for name in ("ignore-p30-s0", "ignore-p30-s1")]
    assert pids[0] == pids[1]
    assert (folder.logs / "worker-1.log").exists()


def test_runs_side_by_side_have_their_own_processes(tmp_path):
    folder = ExperimentFolder(tmp_path)
    run(folder, [], jobs=2)
    pids = {(folder.runs / name / "ran.txt").read_text() for name in ("ignore-p30-s0", "ignore-p30-s1")}
    assert len(pids) == 2


def test_every_run_is_told_which_models_are_kept(tmp_path):
    folder = ExperimentFolder(tmp_path)
    run(folder, [], models="best")
    assert [file.read_text() for file in folder.runs.glob("*/kept.txt")] == ["best", "best"]


def test_ctrl_c_lets_runs_save_and_starts_no_other(tmp_path):
    folder = ExperimentFolder(tmp_path)

    def press(event):
        if event["event"] == "step":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Stopped, match=r"stopped; continue with experiment\(out=") as caught:
        run(folder, ["endless"], act=press)
    assert caught.value.exit_code == 130
    # Nothing failed, and the other runs were not begun.
    assert sorted(entry.name for entry in folder.runs.iterdir()) == ["ignore-p30-s0-endless"]
    assert not list(folder.runs.glob("*/failure.json"))


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    folder = ExperimentFolder(tmp_path)

    def press_twice(event):
        if event["event"] == "step":
            for delay in (0.0, 0.5):
                threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()

    begun = time.monotonic()
    with pytest.raises(Stopped):
        run(folder, ["deaf"], act=press_twice)
    assert time.monotonic() - begun < 300  # half as long as the worker would sleep
    assert not list(folder.runs.glob("*/failure.json"))
    pid = int((folder.runs / "ignore-p30-s0-deaf" / "ran.txt").read_text().split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_threads_are_shared_fairly_and_a_wish_for_fewer_is_kept(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert worker_environment(1, 2, ())["OMP_NUM_THREADS"] == "4"
    assert worker_environment(1, 20, ())["MKL_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert worker_environment(1, 2, ())["OMP_NUM_THREADS"] == "3"


def test_of_several_gpus_each_worker_gets_one(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 5")
    devices = parallel.visible_devices()
    assert devices == ("2", "5")
    assert [worker_environment(n, 3, devices)["CUDA_VISIBLE_DEVICES"] for n in (1, 2, 3)] == ["2", "5", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert worker_environment(2, 2, parallel.visible_devices())["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.fixture
def clock(monkeypatch):
    """The time, in a list: it passes only when a test says so."""
    now = [100.0]
    monkeypatch.setattr(parallel, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_no_run_is_begun_that_would_not_be_finished(tmp_path, clock):
    def pass_ten_seconds(event):
        if event["event"] == "begin":
            clock[0] += 10.0

    folder = ExperimentFolder(tmp_path)
    kinds = ["first", "second"]
    notes = run(folder, kinds, act=pass_ten_seconds, seconds=35.0)
    # Four runs of ten seconds do not fit into 35.
    ended = [name for name, kind in notes.told if kind == "done"]
    assert ended == ["ignore-p30-s0-first", "ignore-p30-s0-second", "ignore-p30-s0"]
    begun = [name for name, kind in notes.told if kind == "begin"]
    assert begun == ended
    assert not [told for told in notes.told if told[0] == ""]


def test_a_method_without_a_run_is_expected_to_take_as_long_as_the_quickest(tmp_path, clock):
    def pass_ten_seconds(event):
        if event["event"] == "begin":
            clock[0] += 10.0

    folder = ExperimentFolder(tmp_path)
    grid = grid_of(methods=["ignore", "sst"])
    configs = run_configs(grid, folder.path, "grid.yaml")
    notes = Notes(pass_ten_seconds)
    with folder.locked() as lock:
        run_in_parallel(folder, configs, lock, 1, notes, seconds=15.0)
    begun = [name for name, kind in notes.told if kind == "begin"]
    assert begun == [grid.runs()[0].name]
    assert {grid_run.method for grid_run in grid.runs()} == {"ignore", "sst"}


def test_the_start_of_a_worker_is_not_the_time_of_a_run(tmp_path, clock, monkeypatch):
    give, given = parallel._Worker.assign, []

    def start_slowly(worker, grid_run, task):
        give(worker, grid_run, task)
        clock[0] += 0.0 if given else 12.0
        given.append(grid_run)

    monkeypatch.setattr(parallel._Worker, "assign", start_slowly)
    notes = run(ExperimentFolder(tmp_path), ["first", "second"], seconds=20.0)
    assert len([kind for _, kind in notes.told if kind == "done"]) == 4


def test_no_time_begins_nothing(tmp_path):
    notes = run(ExperimentFolder(tmp_path), [], seconds=0.0)
    assert notes.told == []
    assert set(notes.states.values()) == {"new"}


def test_a_run_that_still_runs_in_the_end_is_asked_to_save(tmp_path, clock):
    def run_out(event):
        if event["event"] == "step":
            clock[0] += 100.0

    notes = run(ExperimentFolder(tmp_path), ["endless"], act=run_out, seconds=60.0)
    assert [told for told in notes.told if told[1] not in ("begin", "step")] == [
        ("", "time is up"),
        ("ignore-p30-s0-endless", "stopped"),
    ]
    assert notes.states["ignore-p30-s1"] == "new"
