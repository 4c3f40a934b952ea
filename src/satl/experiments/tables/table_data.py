"""A table as data: headings, blocks of rows, notes; :mod:`satl.experiments.tables.table_formats` writes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from satl.experiments.results import Estimate
from satl.experiments.tables.number_text import DASH, spread


@dataclass(frozen=True)
class Entry:
    """One entry of a table; ``best`` is set in bold."""

    text: str = DASH
    best: bool = False


@dataclass(frozen=True)
class Column:
    """A heading of a column.

    Attributes:
        label: the heading.
        group: the one above it, which it may share with neighbours.
        foreign: not of this experiment.
        of_run: of a whole run, so that both of its models have the same.
    """

    label: str
    group: str = ""
    foreign: bool = False
    of_run: bool = False


@dataclass(frozen=True)
class Row:
    """A label and an entry for every column."""

    label: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Block:
    """Rows that belong together; ``foreign`` ones are not results of this experiment."""

    title: str
    rows: tuple[Row, ...]
    foreign: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        key: name of its files.
        heading: what it is, in a few words, where data set and backbone stand around it.
        title: the same with data set and backbone, for a page of its own.
        stub: heading of the labels.
        columns: headings.
        blocks: rows in groups.
        notes: sentences below it.
    """

    key: str
    heading: str
    title: str
    stub: str
    columns: tuple[Column, ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for block in self.blocks:
            for row in block.rows:
                assert len(row.entries) == len(self.columns), (self.key, row.label)


def estimate_rows(
    labels: Sequence[str], estimates: Sequence[Sequence[Estimate]], seeds: int
) -> tuple[Row, ...]:
    """Return rows of means, the highest of every column in bold where there are several to compare.

    Means over fewer seeds than planned are not compared: seeds differ by more than methods do.
    """
    best = [_best(one for one in column if one.n >= seeds) for column in zip(*estimates, strict=True)]
    return tuple(
        Row(
            label,
            tuple(
                Entry(spread(one, seeds), one.n >= seeds and _rounded(one) == top)
                for one, top in zip(line, best, strict=True)
            ),
        )
        for label, line in zip(labels, estimates, strict=True)
    )


def _best(column: Iterable[Estimate]) -> float | None:
    """Return the highest mean as it is printed, or None if there is no other."""
    means = [mean for one in column if (mean := _rounded(one)) is not None]
    return max(means) if len(set(means)) > 1 else None


def _rounded(estimate: Estimate) -> float | None:
    return None if estimate.mean is None else round(estimate.mean, 1)
