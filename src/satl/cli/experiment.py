"""``satl experiment``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from satl.errors import ConfigError

if TYPE_CHECKING:
    from satl.experiments.experiment import Outcome
    from satl.experiments.grid import Cell


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(experiment)


def experiment(
    grid: Annotated[
        Path | None, typer.Argument(help="YAML file; see docs/experiments.md. By default that of --out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the experiment, new or begun before.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Cells side by side.")] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only cells of this name; * stands for anything. In this order."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0.0, help="Time for the cells; begin none that would not be finished."),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed cells again.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Only list the cells and how far they are.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Run nothing; write tables and report of what is there.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No live progress.")] = False,
) -> None:
    """Run methods x proportions x seeds, or what is left of them; write tables, tests, figures, a report."""
    if out is None:
        raise ConfigError("satl experiment needs --out DIR, the folder of the experiment.")
    if report and (grid is not None or only or show or retry_failed or minutes is not None):
        raise ConfigError("satl experiment --report takes only --out DIR, an experiment that has been run.")
    if report:
        from satl.experiments.experiment import report_experiment
        from satl.experiments.experiment_folder import ExperimentFolder

        _say(report_experiment(ExperimentFolder(out)))
        return
    if show:
        _list(grid, out, only or [], retry_failed)
        return
    from satl.experiments.experiment import run_experiment

    listener = None if quiet else _listener()
    seconds = None if minutes is None else 60.0 * minutes
    outcome = run_experiment(grid, out, jobs, only or (), retry_failed, listener, seconds)
    _say(outcome)
    if outcome.failed:
        first = outcome.failed[0]
        typer.echo(
            f"{len(outcome.failed)} of {len(outcome.states)} cells failed, first {first.name}: "
            f"{outcome.folder.failure(first)['error'].rstrip('.')}; run them again with --retry-failed.",
            err=True,
        )
        raise typer.Exit(1)


def _say(outcome: Outcome) -> None:
    total, done = len(outcome.states), outcome.count("done")
    left = total - done - outcome.count("failed")
    parts = [f"{done} of {total} cells are done"]
    if outcome.count("failed"):
        parts.append(f"{outcome.count('failed')} failed")
    if left:
        parts.append(f"{left} are still to be run")
    typer.echo(f"{', '.join(parts)}. Report: {outcome.folder.report}")


def _list(grid: Path | None, out: Path, only: list[str], retry_failed: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from satl.experiments.experiment import plan_experiment
    from satl.experiments.grid import choose_cells

    plan = plan_experiment(grid, out, retry_failed)
    cells = choose_cells(tuple(plan.configs), only)
    table = Table(box=None, pad_edge=False)
    for column in ("cell", "state", ""):
        table.add_column(column)
    counts: dict[str, int] = {}
    for cell in cells:
        state = plan.folder.state(cell)
        counts[state] = counts.get(state, 0) + 1
        table.add_row(cell.name, state, _particulars(plan.folder, cell, state))
    console = Console(highlight=False)
    console.print(table, soft_wrap=True)
    console.print(
        f"{len(cells)} cells: {', '.join(f'{number} {state}' for state, number in counts.items())}."
    )


def _particulars(folder: Any, cell: Cell, state: str) -> str:
    from rich.markup import escape

    if state == "done":
        score = folder.result(cell)["models"]["best"]["mAP"]
        return "" if score is None else f"mAP {100 * score:.1f}"
    if state == "failed":
        return escape(folder.failure(cell)["error"])
    if state == "started":
        from satl.runs.run_folder import RunFolder

        run = RunFolder(folder.run(cell))
        return f"{len(run.read_metrics())} of {run.read_config().training.epochs} epochs"
    return ""


def _listener() -> Any:
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    return Bars(console) if console.is_terminal else Lines(console)


class Lines:
    """A line for every cell that begins, ends or fails: for a log, not for a terminal."""

    def __init__(self, console: Any) -> None:
        self.console = console
        self.total = 0
        self.finished = 0

    def begin(self, total: int) -> None:
        """Begin."""
        self.total = total
        self._print(f"{total} cell{'s' if total > 1 else ''} to run")

    def event(self, cell: Cell, event: dict[str, Any]) -> None:
        """Print what matters."""
        kind = event["event"]
        if kind == "begin":
            self._print(f"{cell.name}: training, {event['epochs']} epochs")
        elif kind in ("done", "failed"):
            self.finished += 1
            self._print(f"[{self.finished}/{self.total}] {cell.name}: {outcome_words(event)}")
        elif kind == "stopped":
            self._print(
                f"{cell.name}: stopped; it goes on from its last checkpoint, or begins anew without one"
            )

    def stopping(self, expired: bool) -> None:
        """Say that the time is up, or that Ctrl-C was heard."""
        if expired:
            self._print("The time is up: cells that still run save their state after the current step")
        else:
            self._print("Stopping after the current step; Ctrl-C again ends at once")

    def end(self) -> None:
        """End."""

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)


class Bars(Lines):
    """A bar for all cells together and one for each that is running; a line for each that ended."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        super().__init__(console)
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[words]}", style="dim", markup=False),
            console=console,
            transient=True,
        )
        self.tasks: dict[Cell, Any] = {}
        self.steps: dict[Cell, int] = {}

    def begin(self, total: int) -> None:
        """Show the bar of all cells."""
        self.total = total
        self.progress.start()
        self.overall = self.progress.add_task("all cells", total=total, words="")

    def event(self, cell: Cell, event: dict[str, Any]) -> None:
        """Move the bar of a cell."""
        kind = event["event"]
        if cell not in self.tasks:
            self.tasks[cell] = self.progress.add_task(cell.name, total=None, words="loading")
        task = self.tasks[cell]
        if kind == "begin":
            self.steps[cell] = event["steps"]
            self.progress.update(task, total=event["epochs"] * event["steps"], words="training")
        elif kind == "step":
            steps = self.steps[cell]
            place = event["epoch"] * steps + event["step"] + 1
            self.progress.update(
                task, completed=place, words=f"epoch {event['epoch'] + 1}, stage {event['stage']}"
            )
        elif kind == "epoch":
            score = "" if event["mAP"] is None else f"val mAP {100 * event['mAP']:.1f}"
            self.progress.update(task, completed=(event["epoch"] + 1) * self.steps[cell], words=score)
        elif kind == "testing":
            self.progress.update(task, words="testing")
        elif kind in ("done", "failed", "stopped"):
            self.progress.remove_task(self.tasks.pop(cell))
            super().event(cell, event)
            self.progress.update(self.overall, completed=self.finished)

    def end(self) -> None:
        """Remove the bars."""
        self.progress.stop()


def outcome_words(event: dict[str, Any]) -> str:
    """Say how a cell ended.

    >>> outcome_words({"event": "failed", "error": "no memory"})
    'FAILED: no memory'
    """
    if event["event"] == "failed":
        return f"FAILED: {event['error']}"
    result = event["result"]
    score = result["models"]["best"]["mAP"]
    shown = "not measurable" if score is None else f"{100 * score:.1f}"
    return f"{result['split']} mAP {shown}, {result['train_seconds']:.1f} s of training"
