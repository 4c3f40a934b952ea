"""Figures 10 and 11: precision and recall of pseudo-labels against the rate and against both quantiles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from satl.drawing import style
from satl.drawing.figure_layout import add_heading, start_figure
from satl.drawing.style import method_style, proportion_style, styled
from satl.experiments.finished_runs import FinishedRun, RunGroup
from satl.experiments.results import Estimate, Results
from satl.reports.paper_figures.common import TRUTH, Missing, error_bars, percent, seeds, union_note

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_KINDS = ("precision", "recall")
RATE = "method.thresholds.rate"
QUANTILES = ("method.thresholds.negative_quantile", "method.thresholds.positive_quantile")
_ON_HST = ("hst+sate", "hst+satl", "sst+sate", "sst+satl")
_ON_SST = ("sst+sate", "sst+satl", "hst+sate", "hst+satl")


@styled
def rate_sweep(group: RunGroup) -> Figure:
    """Return figure 10: precision and recall against the rate (the paper's gamma), a line a proportion."""
    runs = _swept(group, RATE, _ON_HST, "0.1, 0.3, 0.5, 0.7 and 0.9")
    figure = start_figure(2.5)
    grid = figure.subplots(1, 2)
    counts: list[int] = []
    for axes, kind in zip(grid, _KINDS, strict=True):
        counts += _draw(axes, runs, RATE, kind)
        axes.set(xlabel="rate (\u03b3)", title=kind.capitalize(), ylabel=f"{kind} (%)")
    return add_heading(figure, "Pseudo-labels against the rate", _note(group, runs, counts), _handles(runs))


@styled
def quantile_sweep(group: RunGroup) -> Figure:
    """Return figure 11: precision above, recall below, against the two quantiles (the paper's kappas)."""
    words = ("0.5, 0.9 and 0.999", "0.1, 0.3 and 0.5")
    found: dict[str, tuple[FinishedRun, ...]] = {}
    for key, values in zip(QUANTILES, words, strict=True):
        try:
            found[key] = _swept(group, key, _ON_SST, values)
        except Missing:
            if key == QUANTILES[1] and not found:
                raise
    figure = start_figure(4.3, width=7.2 if len(found) == 2 else 4.4)
    grid = figure.subplots(2, len(found), squeeze=False, sharex="col")
    labels = ("level on known negatives (\u03ba\u207b)", "level on known positives (\u03ba\u207a)")
    counts: list[int] = []
    for column, (key, runs) in enumerate(found.items()):
        for row, kind in enumerate(_KINDS):
            counts += _draw(grid[row, column], runs, key, kind)
            grid[row, column].set_ylabel(f"{kind} (%)" if column == 0 else "")
        grid[0, column].set_title(
            ("Quantile of the negatives", "Quantile of the positives")[QUANTILES.index(key)]
        )
        grid[1, column].set_xlabel(labels[QUANTILES.index(key)])
    every = [run for runs in found.values() for run in runs]
    note = (
        _note(group, every, counts)
        + " The other quantile is kept. Steps of the horizontal axes are not to scale."
    )
    return add_heading(figure, "Pseudo-labels against the two quantiles", note, _handles(every))


def _swept(group: RunGroup, key: str, preferred: Sequence[str], values: str) -> tuple[FinishedRun, ...]:
    runs = tuple(run for run in group.sweep(key, preferred) if run.generators)
    if not runs:
        raise Missing(
            f"needs runs that differ in {key} only, for example {preferred[0]} at {values} "
            f"(train with {key}=..., or as a sweep in the grid of an experiment)"
        )
    if not any(run.row()["pseudo_recall"] is not None for run in runs):
        raise Missing(f"needs {TRUTH}")
    return runs


def _value(run: FinishedRun, key: str) -> float:
    """Return the setting of a run; a rate that was left to the known proportion is what it came to."""
    value = json.loads(run.settings[key])
    if value is None:
        from satl.methods.rules import default_rate

        return round(default_rate(run.proportion), 3)
    return float(value)


def _draw(axes: Axes, runs: Sequence[FinishedRun], key: str, kind: str) -> list[int]:
    """Draw a line for each proportion; return how many seeds its points have."""
    values = sorted({_value(run, key) for run in runs})
    method = runs[0].method
    results = Results([run.row(variant=str(_value(run, key))) for run in runs])
    to_scale = key == RATE
    counts = []
    for proportion in sorted({run.proportion for run in runs}):
        colour, dash, marker = proportion_style(proportion)
        mean, sd, n = error_bars(
            Estimate.of(results.by_seed(f"pseudo_{kind}", method, proportion, str(value), "last").values())
            for value in values
        )
        shown = np.isfinite(mean)
        places = np.array(values) if to_scale else np.arange(len(values), dtype=float)
        counts += [int(count) for count in n]
        axes.errorbar(
            places[shown],
            mean[shown],
            sd[shown] if (n > 1).any() else None,
            color=colour,
            linestyle=dash,
            marker=marker,
            markersize=5.5,
            markeredgecolor=style.PAPER.light,
            markeredgewidth=0.5,
            capsize=2.5,
            elinewidth=1.0,
        )
    if not to_scale:
        axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        axes.set_xlim(-0.3, len(values) - 0.7)
    else:
        axes.set_xlim(values[0] - 0.05, values[-1] + 0.05)
        if min(np.diff(values)) > 0.06 * (values[-1] - values[0]):  # room for every number
            axes.set_xticks(values, [f"{value:.2g}" for value in values])
    axes.margins(y=0.12)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid(visible=False, axis="x")
    return counts


def _note(group: RunGroup, runs: Sequence[FinishedRun], counts: Sequence[int]) -> str:
    names = ", ".join(dict.fromkeys(method_style(run.method).title for run in runs))
    cells = f"unknown training cells in the last epoch, mean over classes, {union_note(runs)}"
    return f"{group.name}, {names}; {cells}; {seeds(counts)}. No pseudo-label, no precision."


def _handles(runs: Sequence[FinishedRun]) -> list[Artist]:
    from matplotlib.lines import Line2D

    handles: list[Artist] = []
    for proportion in sorted({run.proportion for run in runs}):
        colour, dash, marker = proportion_style(proportion)
        handles.append(
            Line2D(
                [],
                [],
                color=colour,
                linestyle=dash,  # type: ignore[arg-type]
                marker=marker,
                markersize=5.5,
                markeredgecolor=style.PAPER.light,
                label=f"{percent(proportion)} known",
            )
        )
    return handles
