from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.grids import BASE, FACTS, grid_of, write_grid
from satl.cli.experiment import ProgressBars, ProgressLines
from satl.errors import Stopped
from satl.experiments.experiment_folder import RESULT, ExperimentFolder, write_json

Satl = Callable[..., tuple[int, str, str]]
MEASURED = {"epoch": 1, "mAP": 0.5, "OF1": 0.4, "CF1": 0.3, "OP": 0.2, "OR": 0.1, "CP": 0.6, "CR": 0.7}
DONE = {
    "facts": FACTS,
    "split": "test",
    "models": {"last": MEASURED, "best": MEASURED},
    "pseudo_labels": None,
    "train_seconds": 1.5,
    "jobs": 1,
    "threads": 1,
    "device": "cpu",
}


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Return the folder of an experiment with a run that is done and one that failed."""
    grid = grid_of(dataset="scenes")
    folder = ExperimentFolder(tmp_path / "out")
    folder.write_grid(grid)
    done, failed, *_ = grid.runs()
    write_json(folder.run_path(done) / RESULT, DONE)
    folder.write_failure(failed, "no memory [cuda]", "", FACTS)
    return folder.path


def test_runs_and_their_states_are_listed_and_nothing_is_written(satl: Satl, begun: Path) -> None:
    before = sorted(begun.rglob("*"))
    code, out, err = satl("experiment", "--out", begun, "--list")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[1:5] == [
        ["ignore-p30-s0", "done", "mAP", "50.0"],
        ["sst-p30-s0", "failed", "no", "memory", "[cuda]"],
        ["ignore-p30-s1", "new"],
        ["sst-p30-s1", "new"],
    ]
    assert out.splitlines()[-1] == "4 runs: 1 done, 1 failed, 2 new."
    assert satl("experiment", "--out", begun, "--list", "--only", "sst-*")[1].count("sst-p30") == 2
    assert sorted(begun.rglob("*")) == before


def test_the_report_is_made_without_torch(begun: Path) -> None:
    code = (
        "import sys; from satl.cli import main\n"
        f"sys.argv = ['satl', 'experiment', '--out', {str(begun)!r}, '--report']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, heavy = done.stdout.splitlines()
    assert said.startswith("1 of 4 runs are done, 1 failed, 2 are still to be run. Report: ")
    assert heavy == "False False"
    assert (begun / "report.html").is_file()
    assert "no memory [cuda]" in (begun / "report.html").read_text()


def test_a_failed_run_ends_in_a_sentence_and_code_1(
    satl: Satl, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satl.experiments.parallel.run_in_parallel", lambda *_: None)
    monkeypatch.setattr("satl.reports.experiment_report._draw_figures", lambda _: None)
    code, out, err = satl("experiment", "--out", begun)
    assert code == 1
    assert "1 of 4 runs are done" in out
    assert (
        "1 of 4 runs failed, first sst-p30-s0: no memory [cuda]; run them again with --retry-failed." in err
    )


def test_a_stopped_experiment_shows_what_is_there(
    satl: Satl, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Stopped("stopped", where="here")

    monkeypatch.setattr("satl.experiments.parallel.run_in_parallel", stop)
    code, _, err = satl("experiment", "--out", begun)
    assert code == 130
    assert "here: stopped" in err
    assert "1 of 2" in (begun / "report.html").read_text()


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"method": 3}, ("no key 'method'", "did you mean 'methods'")),
        ({"methods": ["sts"]}, ("no method 'sts'", "did you mean 'sst'")),
        (
            {"base": {**BASE, "training": {"epochz": 3}}},
            ("run ignore-p30-s0", "'training.epochz'", "'epochs'"),
        ),
        ({"base": "none.yaml"}, ("none.yaml", "cannot be read")),
    ],
)
def test_a_wrong_grid_is_refused_before_anything_is_written(
    satl: Satl, tmp_path: Path, changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    grid = write_grid(tmp_path / "grid.yaml", **changes)
    for further in ((), ("--list",)):
        code, out, err = satl("experiment", grid, "--out", tmp_path / "out", *further)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert all(part in err for part in parts)
    assert not (tmp_path / "out").exists()


def test_a_run_whose_models_were_not_kept_says_so_and_can_be_trained_again(
    satl: Satl, tiny_run: Path, pictures: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run, ignore=shutil.ignore_patterns("checkpoints"))
    write_json(run / RESULT, DONE)
    for arguments in (
        ("evaluate", run),
        ("predict", run, pictures, "--out", tmp_path / "scores.csv"),
        ("complete", run, "--review-only", "--out", tmp_path / "completed"),
        ("train", "--resume", run),
    ):
        code, out, err = satl(*arguments)
        assert (code, out) == (2, "")
        assert f"{run}: holds no checkpoint" in err
        assert "its experiment did not keep it (`models` of the grid), train it again" in err
        assert err.count("\n") == 1
    assert "did not keep it" in satl("figures", run, "--only", "1")[1]  # it has no record.npz either
    remedy = re.search(r"`satl (train .*) --out NEW`", err)
    assert remedy is not None
    assert satl(*remedy[1].split(), "--out", tmp_path / "new", "--quiet")[0] == 0
    assert satl("evaluate", tmp_path / "new")[0] == 0


def test_options_that_do_not_go_together(satl: Satl, tmp_path: Path, begun: Path) -> None:
    grid = write_grid(tmp_path / "grid.yaml")
    for arguments, part in (
        ((grid,), "needs --out"),
        ((grid, "--out", begun, "--report"), "takes only --out"),
        (("--out", begun, "--only", "hst-*"), "--only 'hst-*': matches no run"),
        (("--out", tmp_path / "none", "--report"), "give a grid file"),
        (("--out", tmp_path), "holds 'grid.yaml' and no experiment"),
    ):
        code, _, err = satl("experiment", *arguments)
        assert code == 2
        assert part in err


def events() -> list[dict[str, Any]]:
    return [
        {"event": "loading"},
        {"event": "begin", "epochs": 2, "steps": 4},
        {"event": "step", "epoch": 0, "stage": 1, "step": 2},
        {"event": "epoch", "epoch": 0, "mAP": 0.25},
        {"event": "testing"},
        {"event": "done", "result": json.loads(json.dumps(DONE))},
    ]


@pytest.mark.parametrize("kind", [ProgressLines, ProgressBars])
def test_what_a_person_sees(kind: type[ProgressLines]) -> None:
    import io

    from rich.console import Console

    file = io.StringIO()
    display = kind(Console(file=file, force_terminal=kind is ProgressBars, width=120, highlight=False))
    one, two = grid_of().runs()[:2]
    display.begin(2)
    for event in events():
        display.event(one, event)
    display.event(two, {"event": "loading"})
    display.stopping(expired=True)
    assert "The time is up" in file.getvalue()
    assert "Ctrl-C" not in file.getvalue()
    display.stopping(expired=False)
    display.event(two, {"event": "failed", "error": "no [memory]"})
    display.end()
    text = file.getvalue()
    assert "[1/2] ignore-p30-s0: test mAP 50.0, 1.5 s of training" in text
    assert "[2/2] sst-p30-s0: FAILED: no [memory]" in text
    assert "Ctrl-C again ends at once" in text
