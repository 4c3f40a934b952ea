"""The report of an experiment: results, tables beside those of the paper, figures, one page with all of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from statistics import fmean
from typing import Any

import yaml

from satl.drawing.html import render
from satl.experiments.experiment import ExperimentState
from satl.experiments.experiment_folder import ExperimentFolder
from satl.experiments.grid import Grid
from satl.experiments.paper_numbers import paper
from satl.experiments.results import Results, gather_results
from satl.experiments.tables.both_epochs import both_epochs
from satl.experiments.tables.difference_tables import (
    changes_table,
    differences_table,
    paired_table,
    sweep_table,
)
from satl.experiments.tables.number_text import number, share, title_of
from satl.experiments.tables.recognition_tables import (
    ablation_table,
    f1_table,
    map_table,
    rare_table,
    stability_table,
    variants_table,
)
from satl.experiments.tables.table_data import Block, Column, Entry, Row, Table
from satl.experiments.tables.table_formats import html, write_table
from satl.experiments.tables.table_source import TableSource, make_source
from satl.experiments.tables.training_tables import pseudo_table, time_table
from satl.files import atomic_path

_TEST_TABLES: tuple[Callable[[TableSource], Table | None], ...] = (
    *(map_table, rare_table, f1_table, paired_table, differences_table, stability_table),
    *(ablation_table, variants_table, changes_table),
)
"""Tables of test results, in which both models stand side by side."""


def make_tables(source: TableSource) -> list[Table]:
    """Return every table that the grid gives."""
    tested = [both_epochs(make, source) for make in _TEST_TABLES]
    found = [*tested, pseudo_table(source), *_sweep_tables(source), time_table(source)]
    return [table for table in found if table is not None]


def _sweep_tables(source: TableSource) -> Iterator[Table]:
    keys: set[str] = set()
    for sweep in source.grid.sweeps:
        key, count = f"sweep-{sweep.title}", 1
        while key in keys:
            count += 1
            key = f"sweep-{sweep.title}-{count}"
        keys.add(key)
        yield both_epochs(partial(sweep_table, sweep=sweep, key=key), source)


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
    for table in tables:
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
        silent=silent_sentence(results),
        validated=results.facts.get("validated", True),
        differences=source.differences,
        reference=paper().reference,
        paper_label=paper().label,
        tables=[{"key": table.key, "heading": table.heading, "body": html(table)} for table in tables],
        figures=_figures(folder),
        progress=html(progress_table(folder, grid)),
        failures=_failures(folder, grid),
        environments=_environments(folder, grid),
        grid=yaml.safe_dump(grid.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
    )
    with atomic_path(folder.report) as temporary:
        temporary.write_text(page, encoding="utf-8")


def lead_sentence(source: TableSource) -> str:
    """Return sentences: which method is best on average, with the best validated and with the last epoch.

    Methods that lack a seed are left out, as from the bold numbers of Table 1: seeds differ by more than methods do.
    """
    grid = source.grid
    means, last = (_averages(source, model) for model in ("best", "last"))
    if not means:
        return "No method has been run at all proportions with all seeds yet, so there is nothing to compare."
    over = f"{len(grid.proportions)} proportion{'s' if len(grid.proportions) > 1 else ''} of known labels"
    seeds = f"{len(grid.seeds)} seed{'s' if len(grid.seeds) > 1 else ''}"
    leaders, top = _leaders(means)
    first = leaders[0]
    if len(means) == 1:
        text = (
            f"{title_of(first)} reaches a mAP on average over {over} of {top} ({seeds}, best validated epoch"
        )
        return f"{text}; {number(last[first])} with the last one)."
    names = [title_of(method) for method in leaders]
    if len(leaders) > 1:
        text = f"{_listed(names)} have the highest mAP on average over {over}: {top} ({seeds}, best validated epoch)."
    else:
        second = max((method for method in means if method != first), key=lambda method: means[method])
        gap = number(means[first] - means[second])
        text = (
            f"{names[0]} has the highest mAP on average over {over}: {top} ({seeds}, best validated epoch), "
            f"{gap} above {title_of(second)}."
        )
    of_last, top = _leaders(last)
    if of_last == leaders:
        text += f" So it is with the last epoch: {top}."
    else:
        text += f" With the last epoch it is {_listed([title_of(method) for method in of_last])}: {top}."
    if len(grid.seeds) < 3:
        text += " Too few seeds to tell a difference from chance."
    return text


def _averages(source: TableSource, model: str) -> dict[str, float]:
    """Return the mean mAP over proportions and seeds of the methods that have all of them."""
    grid = source.grid
    return {
        method: fmean(values.values())
        for method in grid.methods
        if len(values := source.results.averages("mAP", method, grid.proportions, model)) == len(grid.seeds)
    }


def _leaders(means: dict[str, float]) -> tuple[list[str], str]:
    """Return the methods with the highest mean as it is printed, and that mean."""
    top = number(max(means.values()))
    return [method for method in means if number(means[method]) == top], top


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def silent_sentence(results: Results) -> str:
    """Return a sentence: which runs made next to no pseudo-labels in their last epoch; "" where all made some."""
    of_method: dict[str, list[str]] = {}
    for method, variant, proportion, few, runs in results.silent():
        name = f"{title_of(method)}{f', {variant}' if variant else ''}"
        of_method.setdefault(name, []).append(f"{share(proportion)} ({few} of {runs} runs)")
    return "; ".join(f"{name} at {', '.join(places)}" for name, places in of_method.items())


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
