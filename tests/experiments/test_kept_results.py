"""tools/kept_results.py: results of several machines and days grow into one file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from experiments.grids import results_of, row, write_grid
from programs import ROOT, load_program
from satl.experiments.results import read_results

Kept = Callable[..., tuple[object, str, str]]
RATE = {"key": "method.thresholds.rate", "values": [0.1, 0.3], "methods": ["sst"], "seeds": [0]}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_program("tools/kept_results.py")


@pytest.fixture
def kept(script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kept:
    """Return a function that runs the script and returns its exit code, output and errors."""

    def run(*arguments: object) -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", ["kept_results.py", *map(str, arguments)])
        code: object = 0
        try:
            script.main()
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def measured(folder: Path, *runs: tuple[str, float], status: str = "done") -> Path:
    """Write results.csv of an experiment's folder: names of runs and their mAP."""
    results_of(*(row("sst", 0.3, 0, mAP, run=run, status=status) for run, mAP in runs)).write_csv(
        folder / "results.csv"
    )
    return folder


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    return write_grid(tmp_path / "some.yaml", methods=["sst"], sweeps=[RATE])


def test_what_is_missing_gets_less(kept: Kept, grid: Path, tmp_path: Path) -> None:
    grid_runs = ["sst-p30-s0", "sst-p30-s1", "sst-p30-s0-rate=0.1", "sst-p30-s0-rate=0.3"]
    assert kept("missing", grid)[1].split() == [f"--only={name}" for name in grid_runs]
    folder = measured(tmp_path / "day1", (grid_runs[2], 40.0), (grid_runs[0], 30.0))
    assert kept("add", folder, grid)[1].endswith("some.csv: 2 new runs, 0 replaced.\n")
    assert kept("missing", grid)[1].split() == [f"--only={grid_runs[1]}", f"--only={grid_runs[3]}"]
    # Of several patterns the first one's come first, and none twice.
    assert kept("missing", grid, "*=*", "*")[1].split() == [
        f"--only={grid_runs[3]}",
        f"--only={grid_runs[1]}",
    ]
    folder = measured(tmp_path / "day2", (grid_runs[3], 41.0), (grid_runs[1], 31.0), (grid_runs[0], 32.0))
    assert "2 new runs, 1 replaced" in kept("add", folder, grid)[1]
    assert kept("missing", grid)[1] == "--only=nothing-is-missing\n"
    found = read_results(tmp_path / "results" / "some.csv")
    assert found.columns[-1] == "method.thresholds.rate"
    assert [(one["run"], one["mAP"]) for one in found.rows if one["model"] == "last"] == list(
        zip(grid_runs, (32.0, 31.0, 40.0, 41.0), strict=True)
    )


def test_failed_runs_are_not_kept(kept: Kept, grid: Path, tmp_path: Path) -> None:
    folder = measured(tmp_path / "runs", ("sst-p30-s0", 1.0), status="failed")
    assert "0 new runs" in kept("add", folder, grid)[1]
    assert "--only=sst-p30-s0\n" in kept("missing", grid)[1]


def test_results_of_another_grid_are_refused(kept: Kept, grid: Path, tmp_path: Path) -> None:
    folder = measured(tmp_path / "runs", ("hst-p30-s0", 1.0))
    code, _, _ = kept("add", folder, grid)
    assert "has a run hst-p30-s0, which" in str(code)
    assert not (tmp_path / "results").exists()
    code, _, err = kept("add", tmp_path / "nowhere", grid)
    assert code == 2
    assert "cannot be read; give the folder of an experiment" in err


@pytest.mark.parametrize("file", ["coco18/main", "scenes/ablation"])
def test_adding_what_is_kept_changes_no_byte(kept: Kept, file: str, tmp_path: Path) -> None:
    grid = ROOT / "experiments" / f"{file}.yaml"
    copy = tmp_path / grid.name
    shutil.copy(grid, copy)
    results = grid.parent / "results" / f"{grid.stem}.csv"
    (tmp_path / "results").mkdir()
    shutil.copy(results, tmp_path / "results")
    assert "0 new runs" in kept("add", results, copy)[1]
    assert (tmp_path / "results" / results.name).read_bytes() == results.read_bytes()
