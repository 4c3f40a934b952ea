"""An experiment from its file to its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from satl.errors import ConfigError, Stopped
from satl.experiments.experiment_folder import ExperimentFolder, State
from satl.experiments.grid import Cell, Grid, choose_cells, read_grid

if TYPE_CHECKING:
    from satl.experiments.pool import Listener
    from satl.runs.config import RunConfig


@dataclass(frozen=True)
class Outcome:
    """What an experiment has come to.

    Attributes:
        folder: of the experiment.
        states: of all cells of the grid.
        ran: names of the cells that this call worked on.
    """

    folder: ExperimentFolder
    states: dict[Cell, State]
    ran: tuple[str, ...]

    def count(self, state: State) -> int:
        """Return the number of cells in a state."""
        return sum(one == state for one in self.states.values())

    @property
    def failed(self) -> tuple[Cell, ...]:
        """The cells that failed."""
        return tuple(cell for cell, state in self.states.items() if state == "failed")


@dataclass(frozen=True)
class Plan:
    """A grid, checked: nothing is written yet.

    Attributes:
        folder: where it is to run.
        grid: with base and paths written out.
        configs: of all cells.
        anew: failed cells whose settings have changed, to be run from the start.
    """

    folder: ExperimentFolder
    grid: Grid
    configs: dict[Cell, RunConfig]
    anew: tuple[Cell, ...]


def plan_experiment(grid: Path | None, out: Path, retry_failed: bool = False) -> Plan:
    """Read a grid and build every cell's configuration.

    Args:
        grid: the file; the one the folder was last run with if not given.
        out: the folder of the experiment.
        retry_failed: whether failed cells are to be run again, with other settings if they have changed.

    Raises:
        SatlError: a key or value is wrong, the folder holds something else, or the settings of a cell that has
            been run are not those of the grid.
    """
    from satl.experiments.configs import cell_configs, check_paths, resolve_grid

    folder = ExperimentFolder(out)
    folder.check()
    if grid is None:
        read, place, origin = folder.read_grid(), folder.path, str(folder.grid)
    else:
        read, place, origin = read_grid(grid), grid.parent, str(grid)
    configs = cell_configs(read, place, origin)
    check_paths(configs, origin)
    anew = _compare(folder, configs, origin, retry_failed)
    return Plan(folder, resolve_grid(read, place, configs), configs, anew)


def _compare(
    folder: ExperimentFolder, configs: Mapping[Cell, RunConfig], origin: str, retry_failed: bool
) -> tuple[Cell, ...]:
    """Refuse a grid that says something else about a cell than what was run; return failed ones to run anew."""
    from satl.runs.config import changed_settings
    from satl.runs.run_folder import RunFolder

    anew: list[Cell] = []
    changed: dict[Cell, list[str]] = {}
    for cell, config in configs.items():
        run = RunFolder(folder.run(cell))
        if not run.config.is_file():
            continue
        differences = changed_settings(run.read_config(), config)
        if differences and retry_failed and folder.state(cell) == "failed":
            anew.append(cell)
        elif differences:
            changed[cell] = differences
    if changed:
        cell, differences = next(iter(changed.items()))
        further = f" and of {len(changed) - 1} more" if len(changed) > 1 else ""
        shown = ", ".join(differences[:3]) + (
            f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        )
        if all(folder.state(one) == "failed" for one in changed):
            remedy = "--retry-failed starts failed cells anew with them; or restore them"
        else:
            remedy = f"restore them, give another --out, or remove {folder.run(cell)} to run it anew"
        raise ConfigError(
            f"{origin}: the settings of cell {cell.name}{further} are not those it was run with: {shown}; {remedy}."
        )
    return tuple(anew)


def run_experiment(
    grid: Path | None,
    out: Path,
    jobs: int = 1,
    only: Sequence[str] = (),
    retry_failed: bool = False,
    listener: Listener | None = None,
    seconds: float | None = None,
) -> Outcome:
    """Run what is left of an experiment, then write results, tables, figures and the report.

    Args:
        grid: the file; the one the folder was last run with if not given.
        out: the folder of the experiment, new or begun before.
        jobs: cells side by side.
        only: patterns of cell names, those of the first one first; all if none is given.
        retry_failed: run failed cells again.
        listener: is told what happens.
        seconds: time for the cells; what would not fit is left for later.

    Raises:
        SatlError: the grid is wrong, or another experiment is at work in the folder.
        Stopped: Ctrl-C; what was trained is saved, and results and report are up to date.
    """
    from satl.experiments.grid_run import keep_models
    from satl.experiments.pool import run_cells

    plan = plan_experiment(grid, out, retry_failed)
    chosen = choose_cells(tuple(plan.configs), only)
    folder = plan.folder
    wanted = ("new", "started", "failed") if retry_failed else ("new", "started")
    with folder.locked() as lock:
        # Looked at under the lock: another experiment may have finished some of them just now.
        todo = {cell: plan.configs[cell] for cell in chosen if folder.state(cell) in wanted}
        folder.write_grid(plan.grid)
        for cell in todo:
            if cell in plan.anew:
                folder.remove(cell)
            folder.forget_failure(cell)
        # Cells may have ended under a grid that kept more, or while their models were being removed.
        for cell in chosen:
            if folder.state(cell) == "done":
                keep_models(folder.run(cell), plan.grid.models)
        try:
            run_cells(folder, todo, lock, jobs, listener, plan.grid.models, seconds)
        except Stopped:
            report_experiment(folder, plan.grid)
            raise
        return report_experiment(folder, plan.grid, tuple(cell.name for cell in todo), draw=bool(todo))


def report_experiment(
    folder: ExperimentFolder, grid: Grid | None = None, ran: tuple[str, ...] = (), draw: bool = False
) -> Outcome:
    """Write results, tables and report of what has been run so far; nothing is trained.

    Args:
        folder: of the experiment.
        grid: of the folder, if it has been read already.
        ran: cells that were worked on just now.
        draw: also draw the figures; otherwise the report shows those that are there.
    """
    from satl.experiments.results import gather_results
    from satl.reports.experiment_page import write_report

    folder.check()
    grid = grid or folder.read_grid()
    results = gather_results(folder, grid)
    results.write(folder)
    write_report(folder, grid, results)
    if draw and results.done:
        _draw(folder)  # after the tables: should a figure fail, they are there
        write_report(folder, grid, results)
    return Outcome(folder, {cell: folder.state(cell) for cell in grid.cells()}, ran)


def _draw(folder: ExperimentFolder) -> None:
    """Draw every figure that the finished cells give; those of an older grid go."""
    from satl.reports.paper_figures import draw_figures

    drawn = {file.name for file in draw_figures(folder.path, folder.figures)}
    for old in folder.figures.glob("figure-*"):
        if old.name not in drawn:
            old.unlink()
