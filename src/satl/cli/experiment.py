"""``satl experiment``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from satl.cli.json_output import JsonOption, print_json
from satl.errors import ConfigError, Stopped
from satl.experiments.progress_listener import ProgressListener

if TYPE_CHECKING:
    from satl.experiments.experiment import ExperimentState
    from satl.experiments.experiment_folder import ExperimentFolder
    from satl.experiments.grid import GridRun


def experiment(
    grid: Annotated[
        Path | None, typer.Argument(help="YAML file; see docs/experiments.md. By default that of --out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the experiment, new or started before.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of runs at a time.")] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only runs of this name, in this order; * stands for anything."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes", min=0.0, help="Time limit; no run is started that would not finish in time."
        ),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed runs again.")] = False,
    list_runs: Annotated[bool, typer.Option("--list", help="Only list the runs and their states.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Run nothing; write tables and report of what is there.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No live progress.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run methods x proportions x seeds, or what is left of them; write tables, tests, figures, a report."""
    if out is None:
        raise ConfigError("satl experiment needs --out DIR, the folder of the experiment.")
    if report and (grid is not None or only or list_runs or retry_failed or minutes is not None):
        raise ConfigError("satl experiment --report takes only --out DIR, an experiment that has been run.")
    if list_runs:
        _list(grid, out, only or [], retry_failed, as_json)
        return
    from satl.experiments.experiment_folder import ExperimentFolder
    from satl.reports.experiment_report import report_experiment

    folder = ExperimentFolder(out)
    if report:
        _print_state(report_experiment(folder), as_json)
        return
    from satl.experiments.experiment import run_experiment

    seconds = None if minutes is None else 60.0 * minutes
    try:
        state = run_experiment(
            grid, out, jobs, only or (), retry_failed, None if quiet else _listener(), seconds
        )
    except Stopped:
        report_experiment(folder)
        raise
    report_experiment(folder, draw=bool(state.ran))
    _print_state(state, as_json)
    if state.failed:
        first = state.failed[0]
        typer.echo(
            f"{len(state.failed)} of {len(state.states)} runs failed, first {first.name}: "
            f"{folder.failure(first)['error'].rstrip('.')}; run them again with --retry-failed.",
            err=True,
        )
        raise typer.Exit(1)


def _print_state(state: ExperimentState, as_json: bool) -> None:
    if as_json:
        rows = [_facts(state.folder, grid_run, found) for grid_run, found in state.states.items()]
        print_json({"runs": rows, "report": state.folder.report})
        return
    total, done = len(state.states), state.count("done")
    left = total - done - state.count("failed")
    parts = [f"{done} of {total} runs are done"]
    if state.count("failed"):
        parts.append(f"{state.count('failed')} failed")
    if left:
        parts.append(f"{left} are still to be run")
    typer.echo(f"{', '.join(parts)}. Report: {state.folder.report}")


def _list(grid: Path | None, out: Path, only: list[str], retry_failed: bool, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from satl.experiments.experiment import plan_experiment
    from satl.experiments.grid import choose_runs

    plan = plan_experiment(grid, out, retry_failed)
    grid_runs = choose_runs(tuple(plan.configs), only)
    if as_json:
        rows = [_facts(plan.folder, grid_run, plan.folder.state(grid_run)) for grid_run in grid_runs]
        print_json({"runs": rows, "report": plan.folder.report if plan.folder.report.is_file() else None})
        return
    table = Table(box=None, pad_edge=False)
    for column in ("run", "state", ""):
        table.add_column(column)
    counts: dict[str, int] = {}
    for grid_run in grid_runs:
        state = plan.folder.state(grid_run)
        counts[state] = counts.get(state, 0) + 1
        table.add_row(grid_run.name, state, _details(_facts(plan.folder, grid_run, state)))
    console = Console(highlight=False)
    console.print(table, soft_wrap=True)
    console.print(
        f"{len(grid_runs)} runs: {', '.join(f'{number} {state}' for state, number in counts.items())}."
    )


def _facts(folder: ExperimentFolder, grid_run: GridRun, state: str) -> dict[str, Any]:
    """Return the name and state of a grid run, the mAP of its best epoch, its error, and how far it is."""
    facts: dict[str, Any] = {
        "name": grid_run.name,
        "state": state,
        "mAP": None,
        "error": None,
        "epochs": None,
    }
    if state == "done":
        facts["mAP"] = folder.result(grid_run)["models"]["best"]["mAP"]
    elif state == "failed":
        facts["error"] = folder.failure(grid_run)["error"]
    elif state == "started":
        from satl.runs.run_folder import RunFolder

        run = RunFolder(folder.run_path(grid_run))
        facts["epochs"] = {"done": len(run.read_metrics()), "asked": run.read_config().training.epochs}
    return facts


def _details(facts: dict[str, Any]) -> str:
    from rich.markup import escape

    if facts["error"] is not None:
        return escape(facts["error"])
    if facts["epochs"] is not None:
        return f"{facts['epochs']['done']} of {facts['epochs']['asked']} epochs"
    return "" if facts["mAP"] is None else f"mAP {100 * facts['mAP']:.1f}"


def _listener() -> ProgressListener:
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    return ProgressBars(console) if console.is_terminal else ProgressLines(console)


class ProgressLines(ProgressListener):
    """Prints a line for every run that starts, ends or fails: for a log, not for a terminal."""

    def __init__(self, console: Any) -> None:
        self.console = console
        self.total = 0
        self.finished = 0

    def begin(self, total: int) -> None:
        """Print how many runs there are."""
        self.total = total
        self._print(f"{total} run{'s' if total > 1 else ''} to run")

    def event(self, grid_run: GridRun, event: dict[str, Any]) -> None:
        """Print the start and the end of a run."""
        kind = event["event"]
        if kind == "begin":
            self._print(f"{grid_run.name}: training, {event['epochs']} epochs")
        elif kind in ("done", "failed"):
            self.finished += 1
            self._print(f"[{self.finished}/{self.total}] {grid_run.name}: {ending_words(event)}")
        elif kind == "stopped":
            self._print(
                f"{grid_run.name}: stopped; it resumes from its last checkpoint, or starts again if there is none"
            )

    def stopping(self, expired: bool) -> None:
        """Print that runs are asked to save and stop."""
        if expired:
            self._print("The time is up: running ones save their state after the current step")
        else:
            self._print("Stopping after the current step; Ctrl-C again ends at once")

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)


class ProgressBars(ProgressLines):
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
        self.tasks: dict[GridRun, Any] = {}
        self.steps: dict[GridRun, int] = {}

    def begin(self, total: int) -> None:
        """Show the bar of all runs."""
        self.total = total
        self.progress.start()
        self.overall = self.progress.add_task("all runs", total=total, words="")

    def event(self, grid_run: GridRun, event: dict[str, Any]) -> None:
        """Move the bar of a run."""
        kind = event["event"]
        if grid_run not in self.tasks:
            self.tasks[grid_run] = self.progress.add_task(grid_run.name, total=None, words="loading")
        task = self.tasks[grid_run]
        if kind == "begin":
            self.steps[grid_run] = event["steps"]
            self.progress.update(task, total=event["epochs"] * event["steps"], words="training")
        elif kind == "step":
            steps = self.steps[grid_run]
            place = event["epoch"] * steps + event["step"] + 1
            self.progress.update(
                task, completed=place, words=f"epoch {event['epoch'] + 1}, stage {event['stage']}"
            )
        elif kind == "epoch":
            score = "" if event["mAP"] is None else f"val mAP {100 * event['mAP']:.1f}"
            self.progress.update(task, completed=(event["epoch"] + 1) * self.steps[grid_run], words=score)
        elif kind == "testing":
            self.progress.update(task, words="testing")
        elif kind in ("done", "failed", "stopped"):
            self.progress.remove_task(self.tasks.pop(grid_run))
            super().event(grid_run, event)
            self.progress.update(self.overall, completed=self.finished)

    def end(self) -> None:
        """Remove the bars."""
        self.progress.stop()


def ending_words(event: dict[str, Any]) -> str:
    """Return how a run ended, in words.

    >>> ending_words({"event": "failed", "error": "no memory"})
    'FAILED: no memory'
    """
    if event["event"] == "failed":
        return f"FAILED: {event['error']}"
    result = event["result"]
    score = result["models"]["best"]["mAP"]
    shown = "not measurable" if score is None else f"{100 * score:.1f}"
    return f"{result['split']} mAP {shown}, {result['train_seconds']:.1f} s of training"
