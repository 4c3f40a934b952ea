"""A table as data: headings, blocks of rows, notes; :mod:`satl.experiments.formats` writes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from satl.drawing.style import method_style
from satl.experiments.grid import Grid
from satl.experiments.paper import Paper
from satl.experiments.results import Estimate, Results

DASH = "\u2013"
MINUS = "\u2212"
TIMES = "\u00d7"
MISSING = "A dash: not run, failed, or nothing to measure."


@dataclass(frozen=True)
class Entry:
    """What stands in one place of a table; ``best`` is set in bold."""

    text: str = DASH
    best: bool = False


@dataclass(frozen=True)
class Column:
    """A heading, and the one above it that it may share with neighbours; ``foreign``: not of this experiment."""

    label: str
    group: str = ""
    foreign: bool = False


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
        title: the same with data set and backbone, where it stands alone.
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


@dataclass(frozen=True)
class Study:
    """What tables are made from.

    Attributes:
        grid: of the experiment, resolved.
        results: what was measured.
        label: data set and backbone of the experiment, for headings.
        paper: the numbers to stand beside.
        differences: in which ways the experiment is not the paper's.
        model: which of a run's models: ``best`` (validated) or ``last``.
    """

    grid: Grid
    results: Results
    label: str
    paper: Paper
    differences: tuple[str, ...] = ()
    model: str = "best"

    def of_model(self, model: str) -> Study:
        """Return the same study of the other model."""
        return replace(self, model=model)

    @property
    def ours(self) -> str:
        """Heading of our own numbers."""
        return f"This experiment: {self.label}"

    def theirs(self, dataset: str, table: str = "") -> str:
        """Heading of the paper's numbers."""
        return f"Paper{f', {table}' if table else ''}: {dataset}, {self.paper.label}"

    @property
    def tested(self) -> str:
        """Say which model was tested, and on what if not on test images."""
        model = {
            "best": "The model of the epoch with the best validation mAP",
            "last": "The model of the last epoch",
        }[self.model]
        if any(row["split"] == "val" for row in self.results.rows):
            return f"{model}, measured on the validation images, not on test images as the paper's"
        return model

    def model_note(self, seeds: Sequence[int] | None = None) -> str:
        """Say which model was tested, over how many seeds; those of the grid if not given."""
        return f"{self.tested}, in per cent; {self.seeds_note(seeds)}."

    def seeds_note(self, seeds: Sequence[int] | None = None) -> str:
        """Say over how many seeds a mean is."""
        given = seeds or self.grid.seeds
        shown = ", ".join(map(str, given))
        if len(given) == 1:
            return f"one seed ({shown}), so no spread"
        return f"mean ± standard deviation over {len(given)} seeds ({shown})"


def title_of(method: str) -> str:
    """Return how a method is called in a table."""
    return method_style(method).title


def share(proportion: float) -> str:
    """Write a proportion as a heading.

    >>> share(0.05), share(0.125)
    ('5 %', '12.5 %')
    """
    return f"{100 * proportion:.6g} %"


def number(value: float | None, digits: int = 1) -> str:
    """Write a number, or a dash where there is none.

    >>> number(71.26), number(None), number(float("nan")), number(float("-inf")), number(-0.04)
    ('71.3', '–', '–', '−∞', '0.0')
    """
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def spread(estimate: Estimate, seeds: int, digits: int = 1) -> str:
    """Write mean and deviation; fewer runs than planned are said.

    >>> spread(Estimate(71.26, 0.34, 3), 3), spread(Estimate(71.26, 0.34, 2), 3), spread(Estimate(None, None, 0), 3)
    ('71.3 ± 0.3', '71.3 ± 0.3 (n = 2)', '–')
    """
    if estimate.mean is None:
        return DASH
    text = number(estimate.mean, digits)
    if estimate.deviation is not None:
        text += f" ± {number(estimate.deviation, digits)}"
    return text if estimate.n >= seeds else f"{text} (n = {estimate.n})"


def p_value(value: float) -> str:
    """Write a probability.

    >>> p_value(0.0123), p_value(1e-9), p_value(float("nan"))
    ('0.0123', '< 0.0001', '–')
    """
    if math.isnan(value):
        return DASH
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def estimate_rows(
    labels: Sequence[str], estimates: Sequence[Sequence[Estimate]], seeds: int, digits: int = 1
) -> tuple[Row, ...]:
    """Return rows of means, the highest of every column in bold where there are several to compare.

    Means over fewer seeds than planned are not compared: seeds differ by more than methods do.
    """
    best = [
        _best([one for one in column if one.n >= seeds], digits) for column in zip(*estimates, strict=True)
    ]
    return tuple(
        Row(
            label,
            tuple(
                Entry(spread(one, seeds, digits), one.n >= seeds and _rounded(one, digits) == top)
                for one, top in zip(line, best, strict=True)
            ),
        )
        for label, line in zip(labels, estimates, strict=True)
    )


def _best(column: Iterable[Estimate], digits: int) -> float | None:
    """Return the highest mean as it is printed, or None if it stands alone."""
    means = [mean for one in column if (mean := _rounded(one, digits)) is not None]
    return max(means) if len(set(means)) > 1 else None


def _rounded(estimate: Estimate, digits: int) -> float | None:
    return None if estimate.mean is None else round(estimate.mean, digits)
