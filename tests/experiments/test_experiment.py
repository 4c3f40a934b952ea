"""A whole experiment: real runs in real processes, then everything that may happen to it afterwards."""

from __future__ import annotations

import csv
import json
import re
import shutil

import pytest
import yaml

from experiments.grids import BASE, grid_of, write_grid
from satl.errors import ConfigError, RunError, Stopped
from satl.experiments.experiment import plan_experiment, run_experiment
from satl.experiments.experiment_folder import ExperimentFolder
from satl.experiments.progress_listener import ProgressListener
from satl.reports import experiment_report
from satl.reports.experiment_report import report_experiment
from satl.runs.reading import apply_overrides

BROKEN = {"name": "broken", "set": ["training.lr=1e30"], "methods": ["ignore"], "seeds": [0]}
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><text>a figure</text></svg>'


def draw(folder):
    folder.figures.mkdir(exist_ok=True)
    (folder.figures / "figure-07-pseudo-label-precision.svg").write_text(SVG)


class Notes(ProgressListener):
    def __init__(self):
        self.told = []

    def event(self, grid_run, event):
        self.told.append((grid_run.name, event["event"]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """An experiment of two methods, two seeds and a run that cannot work."""
    place = tmp_path_factory.mktemp("experiment")
    grid = write_grid(place / "grid.yaml", title="Tiny & small", variants=[BROKEN])
    notes = Notes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment_report, "_draw_figures", draw)
        state = run_experiment(grid, place / "out", listener=notes)
        report_experiment(state.folder, draw=True)
    return place, state, notes


@pytest.fixture
def again(finished, tmp_path, monkeypatch):
    """A copy of it to go on with; nothing is trained, and what would be is returned."""
    place, _, _ = finished
    shutil.copytree(place / "out", tmp_path / "out")
    asked = []

    def note(folder, configs, lock, jobs, listener, models, seconds):
        asked.extend(grid_run.name for grid_run in configs)
        assert models == folder.read_grid().models

    monkeypatch.setattr("satl.experiments.parallel.run_in_parallel", note)
    monkeypatch.setattr(experiment_report, "_draw_figures", draw)

    def go(*, retry_failed=False, only=(), **changes):
        asked.clear()
        grid = write_grid(tmp_path / "grid.yaml", **{"variants": [BROKEN], **changes})
        state = run_experiment(grid, tmp_path / "out", only=only, retry_failed=retry_failed)
        report_experiment(state.folder, draw=bool(state.ran))
        return list(asked)

    return go


def test_every_run_ran_and_the_broken_one_lost_no_other(finished):
    _, state, notes = finished
    assert [(grid_run.name, state) for grid_run, state in state.states.items()] == [
        ("ignore-p30-s0", "done"),
        ("sst-p30-s0", "done"),
        ("ignore-p30-s1", "done"),
        ("sst-p30-s1", "done"),
        ("ignore-p30-s0-broken", "failed"),
    ]
    assert [told for told in notes.told if told[1] in ("done", "failed")] == [
        *((grid_run.name, "done") for grid_run in list(state.states)[:4]),
        ("ignore-p30-s0-broken", "failed"),
    ]
    error = state.folder.failure(state.failed[0])["error"]
    assert "no longer a finite number" in error


def test_the_results_are_those_of_the_runs(finished):
    _, state, _ = finished
    with state.folder.csv.open(newline="") as file:
        rows = {(row["run"], row["model"]): row for row in csv.DictReader(file)}
    assert len(rows) == 10
    result = json.loads((state.folder.runs / "sst-p30-s1" / "result.json").read_text())
    for model in ("best", "last"):
        shown = rows["sst-p30-s1", model]
        assert float(shown["mAP"]) == pytest.approx(100 * result["models"][model]["mAP"])
        assert (shown["dataset"], shown["backbone"], shown["method"], shown["seed"]) == (
            "scenes",
            "satl_tiny",
            "sst",
            "1",
        )
    broken = rows["ignore-p30-s0-broken", "best"]
    assert (broken["status"], broken["mAP"], broken["training.lr"]) == ("failed", "", "1e+30")
    configs = {
        name: yaml.safe_load((state.folder.runs / name / "config.yaml").read_text())
        for name in ("ignore-p30-s1", "sst-p30-s1")
    }
    # Two methods of one seed saw the same labels.
    assert configs["ignore-p30-s1"]["data"] == configs["sst-p30-s1"]["data"]


def test_tables_and_report_are_written_and_the_page_needs_nothing_else(finished):
    _, state, _ = finished
    folder = state.folder
    keys = {path.stem for path in folder.tables.iterdir()}
    assert keys == {
        *("table-1-map", "rare-classes", "table-2-f1", "table-3-paired", "differences", "stability"),
        *("variants", "changes", "pseudo-labels", "time"),
    }
    assert all((folder.tables / f"{key}{end}").is_file() for key in keys for end in (".md", ".tex", ".html"))
    page = folder.report.read_text()
    assert "<h1>Tiny &amp; small</h1>" in page
    assert "Not the paper's setting:" in page.replace("&#39;", "'")
    assert "scenes, satl_tiny, from scratch, 32 px" in page
    assert "ResNet-101, ImageNet weights, 448 px" in page
    assert "no longer a finite number" in page
    assert "Figure 7: pseudo label precision" in page
    assert "data:image/svg+xml;base64," in page
    assert not re.search(r'(src|href)="(?!data:|#|tables/)', page)
    assert "satl 0." in page  # versions
    for line in page.splitlines():
        assert str(folder.path.parent) not in line or "scenes" not in line


def test_a_finished_run_is_never_run_again_and_a_failed_one_only_when_asked(again):
    assert again() == []
    assert again(retry_failed=True) == ["ignore-p30-s0-broken"]


def kept_models(folder):
    return {
        run.name: sorted(path.name for path in run.glob("checkpoints/*")) for run in folder.runs.iterdir()
    }


def test_models_of_finished_runs_go_when_a_grid_no_longer_keeps_them(again, tmp_path):
    folder = ExperimentFolder(tmp_path / "out")
    results = folder.csv.read_text()
    both, broken = ["best", "last"], kept_models(folder)["ignore-p30-s0-broken"]
    assert broken == ["last"]
    assert again(models="best", only=["sst-*"]) == []
    assert kept_models(folder) == {
        **{"ignore-p30-s0": both, "ignore-p30-s1": both, "sst-p30-s0": ["best"], "sst-p30-s1": ["best"]},
        "ignore-p30-s0-broken": broken,
    }
    assert again(models="none", retry_failed=True) == ["ignore-p30-s0-broken"]
    left = kept_models(folder)
    assert left.pop("ignore-p30-s0-broken") == broken  # it goes on from there
    assert set(map(tuple, left.values())) == {()}
    folder.write_failure(grid_of(variants=[BROKEN]).runs()[4], "it failed again", "", {})
    # All that is shown is there, and nothing is run again or brought back.
    assert again(models="none", seeds=[0, 1]) == []
    assert again(models="all") == []
    assert folder.csv.read_text().splitlines()[:9] == results.splitlines()[:9]


def test_a_longer_grid_runs_only_what_is_new(again):
    assert again(seeds=[0, 1, 2], methods=["ignore", "sst", "sst+satl"]) == [
        "sst+satl-p30-s0",
        "sst+satl-p30-s1",
        "ignore-p30-s2",
        "sst-p30-s2",
        "sst+satl-p30-s2",
    ]
    assert again(seeds=[0, 1, 2], only=["sst-*"]) == ["sst-p30-s2"]


def test_a_shorter_grid_shows_only_what_it_has(again, tmp_path):
    assert again(methods=["sst"], variants=[]) == []
    folder = ExperimentFolder(tmp_path / "out")
    with folder.csv.open(newline="") as file:
        assert {row["method"] for row in csv.DictReader(file)} == {"sst"}
    assert not (folder.tables / "variants.md").exists()
    assert (folder.runs / "ignore-p30-s0").is_dir()


def test_changed_settings_of_a_run_that_ran_are_refused(again, tmp_path):
    changed = apply_overrides(BASE, ["training.lr=0.01", "training.batch_size=16"])
    before = (tmp_path / "out" / "grid.yaml").read_text()
    with pytest.raises(
        ConfigError,
        match=r"run ignore-p30-s0 and of 4 more are not those it was run with: "
        r"training\.batch_size \(was 8, now 16\), training\.lr \(was 0\.003, now 0\.01\); "
        r"restore them, choose another folder with out, or remove the run's folder",
    ):
        again(base=changed)
    assert (tmp_path / "out" / "grid.yaml").read_text() == before
    # What changes no result may change.
    assert again(base=apply_overrides(BASE, ["images.workers=1"])) == []


def test_a_failed_run_may_be_fixed_and_then_starts_again(again, tmp_path):
    fixed = {**BROKEN, "set": ["training.lr=0.001"]}
    with pytest.raises(
        ConfigError, match=r"ignore-p30-s0-broken are not those.*; .*from the start with retry_failed=True"
    ):
        again(variants=[fixed])
    assert again(variants=[fixed], retry_failed=True) == ["ignore-p30-s0-broken"]
    assert not (tmp_path / "out" / "runs" / "ignore-p30-s0-broken").exists()


def test_the_folder_knows_its_grid(again, tmp_path):
    plan = plan_experiment(None, tmp_path / "out")
    assert len(plan.configs) == 5
    with pytest.raises(ConfigError, match="give a grid file"):
        plan_experiment(None, tmp_path / "nowhere")


def test_a_stopped_experiment_writes_results_of_what_is_there(again, tmp_path, monkeypatch):
    folder = ExperimentFolder(tmp_path / "out")
    before = folder.csv.read_text()
    folder.csv.unlink()

    def stop(*_):
        raise Stopped("stopped")

    monkeypatch.setattr("satl.experiments.parallel.run_in_parallel", stop)
    with pytest.raises(Stopped):
        again(seeds=[0, 1, 2])
    assert folder.csv.read_text() == before


def test_while_one_experiment_is_at_work_another_is_refused(again, tmp_path):
    with (
        ExperimentFolder(tmp_path / "out").locked(),
        pytest.raises(RunError, match="another process is running this experiment"),
    ):
        again()


def test_reports_can_be_made_again_from_what_is_there(again, tmp_path):
    folder = ExperimentFolder(tmp_path / "out")
    before = folder.report.read_text()
    shutil.rmtree(folder.tables)
    folder.csv.unlink()
    state = report_experiment(folder)
    assert (state.count("done"), state.count("failed")) == (4, 1)
    assert folder.csv.is_file()
    assert (folder.tables / "table-1-map.tex").is_file()
    assert folder.report.read_text() == before
