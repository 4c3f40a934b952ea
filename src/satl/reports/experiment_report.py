"""The report of an experiment: results, tables beside those of the paper, figures, one page with all of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

import yaml

from satl.drawing.html import render
from satl.experiments.experiment import ExperimentState
from satl.experiments.experiment_folder import ExperimentFolder
from satl.experiments.grid import Grid
from satl.experiments.paper_numbers import paper
from satl.experiments.results import Results, gather_results
from satl.experiments.tables.difference_tables import (
    changes_table,
    differences_table,
    paired_table,
    sweep_table,
)
from satl.experiments.tables.number_text import number, share, title_of
from satl.experiments.tables.recognition_tables import ablation_table, f1_table, map_table, variants_table
from satl.experiments.tables.table_data import Block, Column, Entry, Row, Table
from satl.experiments.tables.table_formats import html, write_table
from satl.experiments.tables.table_source import TableSource, make_source
from satl.experiments.tables.training_tables import pseudo_table, time_table
from satl.files import atomic_path

_TEST_TABLES: tuple[Callable[[TableSource], Table | None], ...] = (
    *(map_table, f1_table, paired_table, differences_table, ablation_table, variants_table, changes_table),
)
"""Tables of test results, made for both models."""


def make_tables(source: TableSource) -> list[tuple[Table, Table | None]]:
    """Return every table that the grid gives; those of test results with the same table of the last epoch's model."""
    last = source.of_model("last")
    tables: list[tuple[Table, Table | None]] = []
    for make in _TEST_TABLES:
        table = make(source)
        if table is not None:
            tables.append((table, make(last)))
    for further in (pseudo_table(source), *_sweep_tables(source), time_table(source)):
        if further is not None:
            tables.append((further, None))
    return tables


def _sweep_tables(source: TableSource) -> Iterator[Table]:
    keys: set[str] = set()
    for sweep in source.grid.sweeps:
        key, count = f"sweep-{sweep.title}", 1
        while key in keys:
            count += 1
            key = f"sweep-{sweep.title}-{count}"
        keys.add(key)
        yield sweep_table(source, sweep, key)


def report_experiment(folder: ExperimentFolder, draw: bool = False) -> ExperimentState:
    """Write results, tables, figures and ``report.html`` of what has been run so far; nothing is trained.

    Args:
        folder: folder of the experiment.
        draw: draw the figures again; otherwise the page shows those that are there.

    Returns:
        The state of the experiment.
    """
    folder.check()
    grid = folder.read_grid()
    results = gather_results(folder, grid)
    results.write(folder)
    write_report(folder, grid, results)
    if draw and results.done:
        _draw_figures(folder)  # after the tables, so that they are there if a figure fails
        write_report(folder, grid, results)
    return ExperimentState.read(folder, grid)


def _draw_figures(folder: ExperimentFolder) -> None:
    """Draw every figure that the finished grid runs have the data for; remove those of an older grid."""
    from satl.reports.paper_figures.figure_files import draw_figures

    drawn = {file.name for file in draw_figures(folder.path, folder.figures)}
    for old in folder.figures.glob("figure-*"):
        if old.name not in drawn:
            old.unlink()


def write_report(folder: ExperimentFolder, grid: Grid, results: Results) -> None:
    """Write ``tables/`` and ``report.html``; figures that are there are written into the page."""
    source = make_source(grid, results)
    tables = make_tables(source)
    written = set()
    for table in (table for pair in tables for table in pair if table is not None):
        page = render(
            "satl.reports",
            "table.html.j2",
            title=table.title,
            table=html(table),
            differences=source.differences,
        )
        write_table(table, folder.tables, page)
        written.add(table.key)
    for old in folder.tables.glob("*.*"):
        if old.stem not in written and old.suffix in (".md", ".tex", ".html"):
            old.unlink()  # of a grid that has changed since
    page = render(
        "satl.reports",
        "experiment.html.j2",
        title=grid.title,
        label=source.label,
        lead=lead_sentence(source),
        differences=source.differences,
        reference=paper().reference,
        paper_label=paper().label,
        tables=[
            {
                "key": table.key,
                "heading": table.heading,
                "body": html(table),
                "last": None if twin is None else html(twin),
            }
            for table, twin in tables
        ],
        figures=_figures(folder),
        progress=html(progress_table(folder, grid)),
        failures=_failures(folder, grid),
        environments=_environments(folder, grid),
        grid=yaml.safe_dump(grid.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
    )
    with atomic_path(folder.report) as temporary:
        temporary.write_text(page, encoding="utf-8")


def lead_sentence(source: TableSource) -> str:
    """Return a sentence: which method is best on average.

    Methods that lack a seed are left out, as from the bold numbers of Table 1: seeds differ by more than methods do.
    """
    grid, results = source.grid, source.results
    means = {
        method: fmean(values.values())
        for method in grid.methods
        if len(values := results.averages("mAP", method, grid.proportions)) == len(grid.seeds)
    }
    if not means:
        return "No method has been run at all proportions with all seeds yet, so there is nothing to compare."
    order = sorted(means, key=lambda method: -means[method])
    top = number(means[order[0]])
    over = f"{len(grid.proportions)} proportion{'s' if len(grid.proportions) > 1 else ''} of known labels"
    seeds = f"{len(grid.seeds)} seed{'s' if len(grid.seeds) > 1 else ''}"
    if len(order) == 1:
        return f"{title_of(order[0])} reaches a mAP on average over {over} of {top} ({seeds})."
    best = [title_of(method) for method in order if number(means[method]) == top]
    if len(best) > 1:
        names = f"{', '.join(best[:-1])} and {best[-1]} have"
        text = f"{names} the highest mAP on average over {over}: {top} ({seeds})."
    else:
        gap = number(means[order[0]] - means[order[1]])
        text = (
            f"{best[0]} has the highest mAP on average over {over}: {top} ({seeds}), "
            f"{gap} above {title_of(order[1])}."
        )
    if len(grid.seeds) < 3:
        text += " Too few seeds to tell a difference from chance."
    return text


def progress_table(folder: ExperimentFolder, grid: Grid) -> Table:
    """Return how many runs of each method and proportion are done."""
    grid_runs = grid.runs()
    proportions = sorted({grid_run.proportion for grid_run in grid_runs})
    rows = []
    kinds = dict.fromkeys((grid_run.method, grid_run.variant) for grid_run in grid_runs)
    for method, variant in kinds:
        entries = []
        for proportion in proportions:
            states = [
                folder.state(grid_run)
                for grid_run in grid_runs
                if (grid_run.method, grid_run.variant, grid_run.proportion) == (method, variant, proportion)
            ]
            failed = states.count("failed")
            text = f"{states.count('done')} of {len(states)}" + (f", {failed} failed" if failed else "")
            entries.append(Entry(text) if states else Entry())
        rows.append(Row(f"{title_of(method)}{f', {variant}' if variant else ''}", tuple(entries)))
    return Table(
        key="progress",
        heading="Runs done",
        title="Runs done",
        stub="method",
        columns=tuple(Column(share(one)) for one in proportions),
        blocks=(Block("", tuple(rows)),),
    )


def _failures(folder: ExperimentFolder, grid: Grid) -> list[dict[str, str]]:
    failed = [grid_run for grid_run in grid.runs() if folder.state(grid_run) == "failed"]
    return [{"run": grid_run.name, **folder.failure(grid_run)} for grid_run in failed]


def _environments(folder: ExperimentFolder, grid: Grid) -> list[dict[str, Any]]:
    """Return every set of versions and devices that runs ran with, and how many did."""
    counts: dict[str, int] = {}
    for grid_run in grid.runs():
        file = folder.run_path(grid_run) / "environment.json"
        if folder.state(grid_run) == "done" and file.is_file():
            facts = json.loads(file.read_text(encoding="utf-8"))
            kept = {key: facts[key] for key in ("python", "system", "device", "threads", "packages")}
            text = json.dumps(kept, sort_keys=True)
            counts[text] = counts.get(text, 0) + 1
    return [{"runs": count, **json.loads(text)} for text, count in counts.items()]


def _figures(folder: ExperimentFolder) -> list[dict[str, str]]:
    """Return the figures that have been drawn, as images of the page."""
    found = []
    for file in sorted(folder.figures.glob("figure-*.svg")):
        _, figure, *words = file.stem.split("-")
        data = base64.b64encode(file.read_bytes()).decode("ascii")
        title = f"Figure {int(figure) if figure.isdigit() else figure}: {' '.join(words)}"
        found.append({"title": title, "uri": f"data:image/svg+xml;base64,{data}"})
    return found
