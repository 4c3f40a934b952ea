"""Tables of training: time, and quality of the pseudo-labels."""

from __future__ import annotations

from itertools import product

from satl.experiments.results import Estimate, Results
from satl.experiments.tables.difference_tables import QUALITIES, QUALITY_NOTE, quality_text
from satl.experiments.tables.number_text import MISSING, TIMES, share, spread, title_of
from satl.experiments.tables.table_data import Block, Column, Entry, Row, Table, estimate_rows
from satl.experiments.tables.table_source import TableSource


def time_table(source: TableSource) -> Table:
    """Return the training time of every method, and its ratio to that of its base where it extends another method."""
    grid, results = source.grid, source.results
    rows = []
    for method in grid.methods:
        own = results.paired("train_seconds", method, grid.proportions)
        base = results.bases.get(method)
        entries = [Entry(spread(Estimate.of(own.values()), 0, 1)), Entry(str(len(own)))]
        if base in grid.methods:
            other = results.paired("train_seconds", base, grid.proportions)
            ratio = Estimate.of(
                own[place] / other[place] for place in own.keys() & other.keys() if other[place]
            )
            entries += [Entry(title_of(base)), Entry(spread(ratio, 0, 2))]
        else:
            entries += [Entry(), Entry()]
        rows.append(Row(title_of(method), tuple(entries)))
    return Table(
        key="time",
        heading="Training time",
        title=f"Training time on {source.label}",
        stub="method",
        columns=(Column("seconds"), Column("runs"), Column("base"), Column(f"{TIMES} base")),
        blocks=(Block(source.ours, tuple(rows)),),
        notes=(
            "Seconds of the training steps of a whole run, validation and test not counted: mean ± standard deviation "
            f"over proportions and seeds. {TIMES} base: mean ratio of runs with the same proportion and seed.",
            _machine(results),
            *_prose(source, "time"),
        ),
    )


def _machine(results: Results) -> str:
    """Return a note: on what the times were measured."""
    found = sorted(
        {
            (str(row["device"]), int(row["threads"]), int(row["jobs"]))
            for row in results.rows
            if row["status"] == "done"
        }
    )
    text = "; ".join(
        f"{device} with {threads} thread{'s' if threads > 1 else ''}, "
        f"{f'{jobs} runs side by side' if jobs > 1 else 'one run at a time'}"
        for device, threads, jobs in found
    )
    if len(found) > 1:
        return f"Not all runs were timed alike ({text}): compare with care."
    return f"Timed on {text}." if text else "Nothing has been timed yet."


def pseudo_table(source: TableSource) -> Table | None:
    """Return precision and recall of pseudo-labels by proportion; None where no run has any with truth to compare."""
    grid = source.grid
    methods = _with_pseudo_labels(source)
    if not methods:
        return None
    kinds = ("pseudo_precision", "pseudo_recall")
    blocks = []
    for title, suffix in (("mean over classes", ""), ("all cells together", "_micro")):
        lines = [
            [
                source.estimate(method, one, column=kind + suffix)
                for one, kind in product(grid.proportions, kinds)
            ]
            for method in methods
        ]
        rows = estimate_rows([title_of(method) for method in methods], lines, len(grid.seeds))
        blocks.append(Block(f"{source.ours}, {title}", rows))
    return Table(
        key="pseudo-labels",
        heading="Pseudo-labels",
        title=f"Precision and recall of pseudo-labels on {source.label}",
        stub="method",
        columns=tuple(
            Column(label, share(one)) for one, label in product(grid.proportions, ("precision", "recall"))
        ),
        blocks=tuple(blocks),
        notes=(
            f"In per cent, over the unknown training cells in the last epoch, all generators together; "
            f"{source.seeds_note()}.",
            MISSING,
            *_prose(source, "rarest"),
        ),
    )


def pseudo_overview_table(source: TableSource) -> Table:
    """Return precision / recall of pseudo-labels by proportion, over all cells and as means over the classes."""
    rows = [
        Row(
            title_of(method),
            (
                Entry(kind),
                *(Entry(quality_text(source, method, one, "", kind)) for one in source.grid.proportions),
            ),
        )
        for method in _with_pseudo_labels(source)
        for kind in QUALITIES
    ]
    return Table(
        key="pseudo-labels-overview",
        heading="Pseudo-labels: precision / recall",
        title=f"Precision / recall of pseudo-labels on {source.label}",
        stub="pseudo-labels: precision / recall",
        columns=(Column("over"), *(Column(share(one)) for one in source.grid.proportions)),
        blocks=(Block("", tuple(rows)),),
        notes=(QUALITY_NOTE, MISSING),
    )


def _with_pseudo_labels(source: TableSource) -> list[str]:
    grid, results = source.grid, source.results
    return [
        method
        for method in grid.methods
        if any(
            results.paired(kind, method, grid.proportions, model=source.model)
            for kind in ("pseudo_precision", "pseudo_recall")
        )
    ]


def _prose(source: TableSource, key: str) -> tuple[str, ...]:
    return (source.paper.prose(key),) if source.paper else ()
