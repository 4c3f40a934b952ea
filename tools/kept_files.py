"""Files of kept results, ``experiments/*/results/*.csv``, and what is read from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from satl.experiments.configs import run_configs
from satl.experiments.grid import Grid, GridRun, read_grid
from satl.experiments.results import Row, read_results
from satl.experiments.tables.both_epochs import BEST, LAST
from satl.runs.config import RunConfig

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
PROBE = "probe"


def folder_of(experiment: str) -> Path:
    """Return the folder of an experiment."""
    return EXPERIMENTS / experiment


def csv_of(experiment: str, grid: str) -> Path:
    """Return where the results of a grid are kept."""
    return EXPERIMENTS / experiment / "results" / f"{grid}.csv"


def has(experiment: str, grid: str) -> bool:
    """Whether there are results of a grid."""
    return csv_of(experiment, grid).is_file()


@cache
def configs_of(folder: Path, grid: str) -> dict[GridRun, RunConfig]:
    """Return the configurations of the runs of a grid."""
    return dict(run_configs(read_grid(folder / f"{grid}.yaml"), folder, grid))


def measured_grid(planned: Grid, rows: Sequence[Row]) -> Grid:
    """Return the grid with the methods and proportions alone that plain runs have been run at."""
    plain = [row for row in rows if not row["variant"]] or list(rows)
    methods = dict.fromkeys((*planned.methods, *(row["method"] for row in plain)))
    there = {row["method"] for row in plain}
    proportions = sorted({row["proportion"] for row in plain})
    return planned.model_copy(
        update={
            "methods": tuple(method for method in methods if method in there),
            "proportions": tuple(proportions),
        }
    )


def probe_rows(experiment: str) -> list[Row]:
    """Return the results of the linear probe, which has no epochs, for either model."""
    rows = {row["run"]: row for row in read_results(csv_of(experiment, PROBE)).rows}
    return [{**row, "model": model} for row in rows.values() for model in (LAST, BEST)]
