"""Places of results as templates write them, their names, and tables as the results page prints them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from satl.experiments.tables.difference_tables import Place
from satl.experiments.tables.number_text import DASH, share, title_of
from satl.experiments.tables.table_data import Block, Column, Table, estimate_rows
from satl.experiments.tables.table_formats import markdown_block
from satl.experiments.tables.table_source import TableSource


def place(text: str) -> Place:
    """Read a place: ``sst+satl``, or ``sst+satl:alike`` for a variant."""
    method, _, variant = text.partition(":")
    return method, variant


def written(method: str, variant: str) -> str:
    """Write a place as :func:`place` reads it."""
    return f"{method}:{variant}" if variant else method


def rule_name(where: str) -> str:
    """Return how a rule is called: by its variant, or, of a method without one, by its title."""
    method, variant = place(where)
    return f"`{variant}`" if variant else title_of(method)


def called(where: Place) -> str:
    """Return how a place is called."""
    method, variant = where
    return f"{title_of(method)}, {variant}" if variant else title_of(method)


def at_proportion(where: str, proportion: float) -> tuple[str, float, str]:
    """Return method, proportion and variant."""
    method, variant = place(where)
    return method, proportion, variant


def places(pairs: Iterable[tuple[str, str]]) -> list[tuple[Place, Place]]:
    """Read pairs of places."""
    return [(place(one), place(other)) for one, other in pairs]


def place_table(source: TableSource, places: Sequence[str], proportions: Sequence[float]) -> Table:
    """Return mAP by proportion, a row for each place."""
    lines = [
        [source.estimate(*at_proportion(one, proportion)) for proportion in proportions] for one in places
    ]
    titles = [called(place(one)) for one in places]
    return Table(
        key="places",
        heading="mAP",
        title=f"mAP on {source.label}",
        stub="mAP",
        columns=tuple(Column(share(one)) for one in proportions),
        blocks=(Block("", estimate_rows(titles, lines, len(source.grid.seeds))),),
    )


def table(made: Table | None, stub: str | None = None) -> str:
    """Return the only block of a table as Markdown, without rows and columns that hold nothing; empty without a row.

    Labels are Markdown already. An average over a single proportion is left out as well.
    """
    assert made is not None
    (block,) = made.blocks
    entries = [row for row in block.rows if any(entry.text not in (DASH, "") for entry in row.entries)]
    if not entries:
        return ""
    heads = [f"{column.group}{column.label}" for column in made.columns]
    proportions = {
        column.group or column.label for column, head in zip(made.columns, heads, strict=True) if "%" in head
    }
    kept = [
        at
        for at, head in enumerate(heads)
        if any(row.entries[at].text not in (DASH, "") for row in entries)
        and not (head.startswith("average") and len(proportions) == 1)
    ]
    rows = tuple(replace(row, entries=tuple(row.entries[at] for at in kept)) for row in entries)
    block = replace(block, rows=rows)
    columns = tuple(made.columns[at] for at in kept)
    made = replace(made, columns=columns, blocks=(block,), stub=made.stub if stub is None else stub)
    return markdown_block(made, block, escape=str).rstrip()
