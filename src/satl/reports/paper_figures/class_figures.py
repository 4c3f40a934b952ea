"""Figures 6 and 12: pseudo-labels class by class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from satl.drawing import style
from satl.drawing.figure_layout import WIDTH, add_heading, fitted, line_handle, patch_handle, start_figure
from satl.drawing.style import method_style, styled
from satl.evaluation.pseudo_quality import UNION
from satl.experiments.finished_runs import FinishedRun, RunGroup
from satl.experiments.results import Estimate
from satl.reports.paper_figures.common import TRUTH, Missing, error_bars, known, pair, seeds, union_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
_ROWS = 50
"""Most classes below each other."""
_RAREST = 10


@styled
def recall_by_class(group: RunGroup) -> Figure:
    """Return figure 6: recall of the pseudo-labels of every class, SATL against its framework."""
    methods, runs = _measured(group)
    first = runs[methods[-1]][0].record
    order = np.argsort(-first.known_positives, kind="stable")
    values = {name: _by_class(runs[name], "recall") for name in methods}
    columns = max(1, math.ceil(len(order) / _ROWS)) if len(order) > 24 else 1
    columns = max(columns, 2) if len(order) > 24 else columns
    parts = np.array_split(order, columns)
    size = 8.0 if columns == 1 else 7.0 if columns == 2 else 6.0
    height = (0.175, 0.145, 0.115, 0.115)[min(columns, 4) - 1]
    figure = start_figure(max(height * len(parts[0]), 0.6) + 0.5)
    names = [_counted(figure, first.classes[i], first.known_positives[i], columns, size) for i in order]
    start = 0
    for axes, part in zip(figure.subplots(1, columns, squeeze=False)[0], parts, strict=True):
        here = {name: (mean[part], sd[part]) for name, (mean, sd) in values.items()}
        _dots(axes, names[start : start + len(part)], here, rows=len(parts[0]), size=size, small=columns > 1)
        axes.set_xlabel("recall (%)")
        start += len(part)
    handles = []
    for name in methods:
        (mean,), _, (count,) = error_bars([_defined(values[name][0])])
        look = method_style(name)
        title = f"{look.title} (mean of {count} classes {100 * mean:.1f} %)"
        handles.append(line_handle(look, title, line=False))
    note = (
        f"{known(group, runs[methods[0]][0].proportion)}; unknown training cells, last model, "
        f"{union_note(run for members in runs.values() for run in members)}; {_seeds(runs)}. Classes from the most to "
        "the fewest known positives, which are the numbers in brackets."
    )
    return add_heading(figure, "Recall of the pseudo-labels, class by class", note, handles)


@styled
def rarest_classes(group: RunGroup) -> Figure:
    """Return figure 12: precision, recall and number of samples of the ten rarest classes."""
    methods, runs = _measured(group)
    first = runs[methods[-1]][0].record
    assert first.positives is not None
    order = np.lexsort((first.known_positives, first.positives))[:_RAREST]
    figure = start_figure(0.24 * max(len(order), 3) + 0.55)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 0.75), gridspec_kw={"wspace": 0.12})
    names = [fitted(figure, first.classes[index], 1.6, 8.0) for index in order]
    summary = []
    for axes, kind in ((left, "precision"), (middle, "recall")):
        values = {name: _by_class(runs[name], kind) for name in methods}
        here = {name: (mean[order], sd[order]) for name, (mean, sd) in values.items()}
        _dots(axes, names if axes is left else [""] * len(order), here, rows=max(len(order), 3), size=8.0)
        axes.set_xlabel(f"{kind} (%)")
        (mean,), _, _ = error_bars([_defined(values[methods[-1]][0][order])])
        summary.append(f"{kind} {100 * mean:.1f} %" if np.isfinite(mean) else f"{kind} not measurable")
    rows = np.arange(len(order))
    right.barh(rows, first.positives[order], 0.62, color=style.FAINT.light)
    right.barh(
        rows, first.known_positives[order], 0.62, facecolor=style.KNOWN.light, hatch="////", edgecolor="w"
    )
    for row, index in enumerate(order):
        right.annotate(
            f"{first.known_positives[index]} of {first.positives[index]}",
            (first.positives[index], row),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
        )
    right.set_yticks([])
    right.set_ylim(left.get_ylim())
    right.set_xlim(0, max(1.6 * float(first.positives[order].max(initial=1)), 1.0))
    right.locator_params(axis="x", nbins=3, integer=True)
    right.grid(visible=False, axis="y")
    right.set_xlabel("positives (images)")
    note = (
        f"{known(group, runs[methods[0]][0].proportion)}; unknown training cells, last model, "
        f"{union_note(run for members in runs.values() for run in members)}; {_seeds(runs)}. Mean of these classes, "
        f"{method_style(methods[-1]).title}: {', '.join(summary)}. No dot: no pseudo-label, or nothing to find."
    )
    handles = [line_handle(method_style(name), line=False) for name in methods]
    handles += [
        patch_handle("known positives", facecolor=style.KNOWN.light, hatch="////", edgecolor="w"),
        patch_handle("all positives", facecolor=style.FAINT.light),
    ]
    title = f"The {len(order)} rarest classes" if len(order) > 1 else "The rarest class"
    return add_heading(figure, title, note, handles)


def _measured(group: RunGroup) -> tuple[tuple[str, ...], dict[str, tuple[FinishedRun, ...]]]:
    """Return the methods to compare and their runs at one proportion, all with truth."""
    methods = pair(group)
    proportion = group.shown_proportion(methods)
    runs = {name: group.of(name, proportion) for name in methods}
    runs = {name: members for name, members in runs.items() if members}
    if any(UNION not in run.record.quality for members in runs.values() for run in members):
        raise Missing(f"needs {TRUTH}")
    return tuple(runs), runs


def _by_class(
    runs: Sequence[FinishedRun], kind: Literal["precision", "recall"] | str
) -> tuple[Floats, Floats]:
    """Return mean and standard deviation over seeds, (C,) each; NaN where no seed measures it."""
    table = np.stack([getattr(run.record.quality[UNION], kind) for run in runs])
    mean, sd, _ = error_bars(_defined(column) for column in table.T)
    return mean, sd


def _defined(values: Floats) -> Estimate:
    """Return mean and deviation of the values that are defined."""
    return Estimate.of(values[np.isfinite(values)].tolist())


def _seeds(runs: Mapping[str, Sequence[FinishedRun]]) -> str:
    return seeds(len(members) for members in runs.values())


def _counted(figure: Figure, name: str, count: int, columns: int, size: float) -> str:
    tail = f" ({count})"
    return fitted(figure, name, (0.42 if columns < 3 else 0.55) * WIDTH / columns - 0.32, size) + tail


def _dots(
    axes: Axes,
    names: Sequence[str],
    values: Mapping[str, tuple[Floats, Floats]],
    *,
    rows: int,
    size: float,
    small: bool = False,
) -> None:
    """Draw a row for each class and a dot with its standard deviation for each method."""
    places = np.arange(len(names))
    for number, (name, (mean, sd)) in enumerate(values.items()):
        look = method_style(name)
        axes.errorbar(
            100 * mean,
            places + 0.26 * (number - (len(values) - 1) / 2),
            xerr=100 * np.stack([np.fmin(sd, mean), np.fmin(sd, 1 - mean)]) if sd.any() else None,
            linestyle="none",
            color=str(look.colour),
            marker=look.marker,
            markersize=4.2 if small else 5.6,
            markeredgecolor=style.PAPER.light,
            markeredgewidth=0.4,
            elinewidth=0.8,
            clip_on=False,
        )
    axes.set_yticks(places, list(names))
    axes.tick_params(axis="y", labelcolor=style.INK.light, labelsize=size, pad=5)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xticks((0, 50, 100))
    axes.spines["left"].set_visible(False)
