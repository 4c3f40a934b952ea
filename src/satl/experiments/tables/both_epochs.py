"""The same table for the model of the last epoch and for that of the best validated one, made one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from satl.experiments.tables.number_text import DASH
from satl.experiments.tables.table_data import Block, Column, Entry, Row, Table
from satl.experiments.tables.table_source import TableSource

Made = TypeVar("Made", Table, Table | None)
LAST, BEST, BOTH = "last", "best", "both"
NOTE = (
    "Epoch: the model of the last epoch, and that of the epoch with the best validation mAP; both, where their figures "
    "are the same."
)


def both_epochs(make: Callable[[TableSource], Made], source: TableSource) -> Made:
    """Make a table for either model of the runs and join the two: each row of ours once for each model.

    Args:
        make: makes the table of one model.
        source: what from; its model does not matter.

    Returns:
        The joined table, or None where ``make`` gives none.
    """
    last, best = make(source.of_model(LAST)), make(source.of_model(BEST))
    return best if best is None or last is None else _joined(last, best)


def _joined(last: Table, best: Table) -> Table:
    """Join two tables of the same rows and columns."""
    blocks = []
    for of_last, of_best in zip(last.blocks, best.blocks, strict=True):
        rows: list[Row] = []
        for one, other in zip(of_last.rows, of_best.rows, strict=True):
            assert one.label == other.label
            rows += _joined_rows(one, other, best.columns, of_best)
        blocks.append(replace(of_best, rows=tuple(rows)))
    notes = [NOTE, *(note for note in last.notes if note in best.notes)]
    return replace(best, columns=(Column("epoch"), *best.columns), blocks=tuple(blocks), notes=tuple(notes))


def _joined_rows(last: Row, best: Row, columns: tuple[Column, ...], block: Block) -> list[Row]:
    measured = any(
        entry.text not in (DASH, "") and not column.foreign
        for row in (last, best)
        for entry, column in zip(row.entries, columns, strict=True)
    )
    if block.foreign or not measured:
        return [replace(best, entries=(Entry(""), *best.entries))]
    if last.entries == best.entries:
        return [replace(best, entries=(Entry(BOTH), *best.entries))]
    once = tuple(
        Entry("") if column.foreign or column.of_run else entry
        for entry, column in zip(best.entries, columns, strict=True)
    )
    return [
        replace(last, entries=(Entry(LAST), *last.entries)),
        replace(best, entries=(Entry(BEST), *once)),
    ]
