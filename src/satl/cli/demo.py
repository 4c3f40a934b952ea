"""``satl demo``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from satl.cli.json_output import JsonOption, print_json
from satl.cli.wording import percent
from satl.errors import in_shell

if TYPE_CHECKING:
    from rich.table import Table

    from satl.reports.comparison import Comparison


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and report.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of images, hidden labels and weights.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key: section.key=value; repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train three methods on drawn scenes with 90 % of the labels hidden, compare them, write a report."""
    from rich.console import Console

    from satl.cli.progress import RichDisplay, bar_for_each_part
    from satl.demo.demo_run import run_demo

    messages = Console(stderr=True, highlight=False)
    with bar_for_each_part(messages) as progress:
        result = run_demo(
            out,
            seed,
            settings or (),
            display=RichDisplay,
            announce=lambda text: messages.print(f"[bold]{text}[/]", soft_wrap=True),
            progress=progress,
        )
    if as_json:
        files = {"report": result.report, "completion": result.completion.folder.path}
        print_json({**json.loads(result.results.read_text(encoding="utf-8")), **{"files": files}})
        return
    console = Console(highlight=False)
    console.print(results_table(result.comparison))
    console.print(result.sentence, result.comparison.beginning, soft_wrap=True)
    completion = result.completion
    console.print(f"A completed table: {completion.report['statement']}", soft_wrap=True, markup=False)
    console.print(f"Report:      {result.report}", soft_wrap=True, markup=False)
    console.print(f"Completion:  {completion.folder.page}", soft_wrap=True, markup=False)
    console.print(
        f"Review it:   satl review {in_shell(completion.folder.path)}", soft_wrap=True, markup=False
    )


def results_table(comparison: Comparison) -> Table:
    """Return the table of a comparison: a row for each method."""
    from rich.table import Table

    known = f"{100 * comparison.proportion:.0f} % of the training labels known"
    table = Table(
        title=f"{comparison.counts['test']:,} test images, {known}",
        caption="Pseudo-labels: precision and recall on the unknown cells in the last epoch.",
    )
    table.add_column("method")
    for column in ("mAP", "OF1", "CF1", "precision", "recall", "seconds"):
        table.add_column(column, justify="right")
    for method in comparison.methods:
        union = method.last_union()
        numbers = [method.summary.get(key) for key in ("mAP", "OF1", "CF1")]
        numbers += [union.get(key) for key in ("micro_precision", "micro_recall")]
        table.add_row(method.name, *map(percent, numbers), f"{method.seconds:.0f}")
    return table
