"""An experiment: the plan of a grid file, and running what is left of it.

Tables, figures and the report page are written by :func:`satl.reports.experiment_report.report_experiment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from satl.errors import Argument, ConfigError, Sentence, first_of
from satl.experiments.experiment_folder import ExperimentFolder, State
from satl.experiments.grid import Grid, GridRun, choose_runs, read_grid

if TYPE_CHECKING:
    from satl.experiments.progress_listener import ProgressListener
    from satl.runs.config import RunConfig


@dataclass(frozen=True)
class ExperimentState:
    """The state of an experiment.

    Attributes:
        folder: folder of the experiment.
        states: state of every grid run.
        ran: names of the grid runs that this call worked on.
    """

    folder: ExperimentFolder
    states: dict[GridRun, State]
    ran: tuple[str, ...] = ()

    @classmethod
    def read(cls, folder: ExperimentFolder, grid: Grid, ran: tuple[str, ...] = ()) -> ExperimentState:
        """Read the state of every grid run from the folder."""
        return cls(folder, {grid_run: folder.state(grid_run) for grid_run in grid.runs()}, ran)

    def count(self, state: State) -> int:
        """Return the number of grid runs in a state."""
        return sum(one == state for one in self.states.values())

    @property
    def failed(self) -> tuple[GridRun, ...]:
        """The grid runs that failed."""
        return tuple(grid_run for grid_run, state in self.states.items() if state == "failed")


@dataclass(frozen=True)
class ExperimentPlan:
    """A grid that was read and checked; nothing is written yet.

    Attributes:
        folder: folder of the experiment.
        grid: the grid with base and paths written out.
        configs: configuration of every grid run.
        restarts: failed grid runs whose settings have changed, to be run from the start.
    """

    folder: ExperimentFolder
    grid: Grid
    configs: dict[GridRun, RunConfig]
    restarts: tuple[GridRun, ...]


def plan_experiment(grid: Path | None, out: Path, retry_failed: bool = False) -> ExperimentPlan:
    """Read a grid and build the configuration of every grid run.

    Args:
        grid: the grid file; None for the grid that the folder was last run with.
        out: folder of the experiment.
        retry_failed: run failed runs again, with changed settings if the grid has changed.

    Raises:
        SatlError: a key or value is wrong, the folder holds something else, or the settings of a grid run that has
            been run are not those of the grid.
    """
    from satl.experiments.configs import check_paths, resolve_grid, run_configs

    folder = ExperimentFolder(out)
    folder.check()
    if grid is None:
        content, place, origin = folder.read_grid(), folder.path, str(folder.grid)
    else:
        content, place, origin = read_grid(grid), grid.parent, str(grid)
    configs = run_configs(content, place, origin)
    check_paths(configs, origin)
    restarts = _check_unchanged(folder, configs, origin, retry_failed)
    return ExperimentPlan(folder, resolve_grid(content, place, configs), configs, restarts)


def _check_unchanged(
    folder: ExperimentFolder, configs: Mapping[GridRun, RunConfig], origin: str, retry_failed: bool
) -> tuple[GridRun, ...]:
    """Raise ConfigError if settings of a run have changed since it ran; return failed ones to be run from the start."""
    from satl.runs.config import changed_settings
    from satl.runs.run_folder import RunFolder

    restarts: list[GridRun] = []
    changed: dict[GridRun, list[str]] = {}
    for grid_run, config in configs.items():
        run = RunFolder(folder.run_path(grid_run))
        if not run.config.is_file():
            continue
        differences = changed_settings(run.read_config(), config)
        if differences and retry_failed and folder.state(grid_run) == "failed":
            restarts.append(grid_run)
        elif differences:
            changed[grid_run] = differences
    if changed:
        grid_run, differences = next(iter(changed.items()))
        others = f" and of {len(changed) - 1} more" if len(changed) > 1 else ""
        if all(folder.state(one) == "failed" for one in changed):
            remedy = Sentence(
                "restore them, or run failed runs from the start with {retry}",
                retry=Argument("retry_failed", True),
            )
        else:
            remedy = Sentence(
                "restore them, choose another folder with {out}, or remove the run's folder to run it again",
                out=Argument("out"),
            )
        raise ConfigError(
            f"the settings of run {grid_run.name}{others} are not those it was run with: {first_of(differences)}",
            where=origin,
            remedy=remedy,
        )
    return tuple(restarts)


def run_experiment(
    grid: Path | None,
    out: Path,
    jobs: int = 1,
    only: Sequence[str] = (),
    retry_failed: bool = False,
    listener: ProgressListener | None = None,
    seconds: float | None = None,
) -> ExperimentState:
    """Run what is left of an experiment, then write ``results.csv`` and ``results.parquet``.

    Args:
        grid: the grid file; None for the grid that the folder was last run with.
        out: folder of the experiment, new or started before.
        jobs: number of grid runs at a time.
        only: patterns of names of grid runs, run in this order; all if none is given.
        retry_failed: run failed runs again.
        listener: is called with progress.
        seconds: time limit; what would not finish in time is left for later.

    Raises:
        SatlError: the grid is wrong, or another process is running an experiment in the folder.
        Stopped: Ctrl-C; what was trained is saved.
    """
    from satl.experiments.grid_run import keep_models
    from satl.experiments.parallel import run_in_parallel
    from satl.experiments.results import gather_results

    plan = plan_experiment(grid, out, retry_failed)
    chosen = choose_runs(tuple(plan.configs), only)
    folder = plan.folder
    waiting = ("new", "started", "failed") if retry_failed else ("new", "started")
    with folder.locked() as lock:
        # Read under the lock: another process may have finished some of them a moment ago.
        todo = {grid_run: plan.configs[grid_run] for grid_run in chosen if folder.state(grid_run) in waiting}
        folder.write_grid(plan.grid)
        for grid_run in todo:
            if grid_run in plan.restarts:
                folder.remove(grid_run)
            folder.forget_failure(grid_run)
        # The grid may have kept more models when these ended, or their removal may have been interrupted.
        for grid_run in chosen:
            if folder.state(grid_run) == "done":
                keep_models(folder.run_path(grid_run), plan.grid.models)
        try:
            run_in_parallel(folder, todo, lock, jobs, listener, plan.grid.models, seconds)
        finally:
            gather_results(folder, plan.grid).write(folder)
        return ExperimentState.read(folder, plan.grid, tuple(grid_run.name for grid_run in todo))
