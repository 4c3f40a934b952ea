"""The tables of docs/results.md say what was measured."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from programs import ROOT, load_program
from satl.experiments.configs import run_configs
from satl.experiments.grid import read_grid
from satl.experiments.results import read_results
from satl.experiments.tables.number_text import spread

KEPT = sorted((ROOT / "experiments").glob("*/results/*.csv"))


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    return load_program("tools/write_results_page.py")


def test_the_page_is_up_to_date(writer: ModuleType) -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert text == writer.page(), "run `python tools/write_results_page.py`"


def test_a_figure_that_was_not_measured_does_not_stay(writer: ModuleType, tmp_path: Path) -> None:
    text = writer.PAGE.read_text(encoding="utf-8")
    measured = spread(writer.source("coco18", "main").estimate("satl+", 0.1), 5)
    assert measured in text
    writer.PAGE = tmp_path / "results.md"
    writer.PAGE.write_text(text.replace(measured, "99.9 ± 0.1"), encoding="utf-8")
    assert writer.page() == text
    writer.PAGE.write_text(text.replace("begin coco18 mAP:", "begin coco18:"), encoding="utf-8")
    with pytest.raises(SystemExit, match="coco18 mAP"):
        writer.page()


@pytest.mark.parametrize("file", KEPT, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_kept_results_are_of_runs_of_the_grid(file: Path) -> None:
    folder = file.parents[1]
    grid = folder / f"{file.stem}.yaml"
    grid_runs = {grid_run.name for grid_run in run_configs(read_grid(grid), folder, str(grid))}
    rows = read_results(file).rows
    assert {row["run"] for row in rows} <= grid_runs
    assert {row["status"] for row in rows} == {"done"}
    # What settings were chosen by has seen no test image.
    assert {row["split"] for row in rows} == {"val" if file.stem == "tuning" else "test"}


def test_values_that_change_nothing_are_the_plain_runs(writer: ModuleType) -> None:
    same = writer.equal_to_plain("coco18", "sweeps", "others")
    assert {grid_run.variant for grid_run in same} == {
        "rate=0.9",
        "negative_quantile=0.999",
        "positive_quantile=0.1",
    }
    assert all(grid_run.name == f"{name}-{grid_run.variant}" for grid_run, name in same.items())
    sweeps, others = (writer.source("coco18", name) for name in ("sweeps", "others"))
    found = writer.source("coco18", "sweeps", writer.sweep_results("coco18"))
    borrowed = found.values("hst+sate", 0.2, "rate=0.9")
    assert borrowed == others.values("hst+sate", 0.2)
    assert len(borrowed) == 3
    # Another value is never taken from there, and what the sweep itself ran is what counts.
    assert not found.values("hst+sate", 0.5, "rate=0.7")
    assert found.values("hst+sate", 0.2, "rate=0.7") == sweeps.values("hst+sate", 0.2, "rate=0.7")


def test_a_sweep_shows_only_proportions_it_was_run_at(writer: ModuleType) -> None:
    head = writer.sweep_table("coco18").splitlines()[0]
    assert "20 %" in head
    assert "50 %" not in head
    assert "50 %" in writer.sweep_table("scenes").splitlines()[0]


def test_there_are_kept_results() -> None:
    assert len(KEPT) == 10
