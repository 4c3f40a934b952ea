"""Panels as pure functions: arrays in, a matplotlib figure out; those of scores are in the file beside.

``draw_...`` draws into given axes, for parts of a larger figure. A page puts panels side by side as far as the screen
is wide, so a panel never needs to shrink until its text cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from satl.drawing import style
from satl.drawing.axes import PANEL, epoch_axis, label_ends, new_figure, stage_line, value_range
from satl.drawing.style import method_style, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def curves(
    curves: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    ylabel: str,
    title: str = "",
    width: float = PANEL[0],
    stage1_epochs: int = 0,
    marks: Mapping[str, int] | None = None,
    percent: bool = False,
    from_zero: bool = False,
) -> Figure:
    """Return a panel with one line for each method over the epochs.

    Args:
        curves: method -> epochs (E,), counted from 1, and values (E,); NaN leaves a gap.
        ylabel: what the values are, with their unit.
        stage1_epochs: a thin line marks the end of stage 1, if it is not 0.
        marks: method -> position on its curve that gets a marker, for example its best epoch.
        percent: the values are shares of one, shown as per cent.
        from_zero: the axis of values begins at 0.
    """
    figure, axes = new_figure(width)
    shown = [float(epoch) for epochs, _ in curves.values() for epoch in np.asarray(epochs, float)]
    first, last = min(shown, default=1.0), max(shown, default=1.0)
    for name, (epochs, values) in curves.items():
        look = method_style(name)
        x, y = np.asarray(epochs, float), np.asarray(values, float) * (100 if percent else 1)
        if not len(x):
            continue
        dot = look.marker if len(x) == 1 else ""
        axes.plot(x, y, color=str(look.colour), linestyle=look.dash, marker=dot, markersize=4)
        if marks and name in marks and 0 <= marks[name] < len(x):
            at = marks[name]
            axes.plot(
                x[at],
                y[at],
                look.marker,
                color=str(look.colour),
                markersize=6,
                markeredgecolor=str(style.PAPER),
            )
    if first <= stage1_epochs < last:
        stage_line(axes, stage1_epochs + 0.5)
    epoch_axis(axes, first, last)
    axes.set_ylabel(ylabel)
    axes.margins(y=0.12)
    axes.ticklabel_format(axis="y", useOffset=False)
    low, high = axes.get_ylim()
    if from_zero:
        axes.set_ylim(0, max(high, 1.0))
    elif high - low < 0.1 * abs(high):  # do not make mountains of the last digits
        middle = (low + high) / 2
        axes.set_ylim(middle - 0.05 * abs(high), middle + 0.05 * abs(high))
    axes.set_title(title)
    return figure


@styled
def threshold_trajectories(
    epochs: npt.ArrayLike,
    thresholds: npt.ArrayLike,
    *,
    classes: Sequence[str],
    title: str = "",
    highlighted: Sequence[int] = (),
    reference: tuple[npt.ArrayLike, npt.ArrayLike, str] | None = None,
) -> Figure:
    """Return a panel with the threshold of every class over the epochs.

    Args:
        epochs: (E,), counted from 1.
        thresholds: (E, C).
        classes: C names.
        highlighted: at most four classes in colour, named at the end of their line; the others are grey.
        reference: epochs, values and name of one threshold for all classes, drawn dashed.
    """
    figure, axes = new_figure(4.6, 2.9)
    x, y = np.asarray(epochs, float), np.asarray(thresholds, float)
    marker = "o" if len(x) == 1 else ""
    for index in range(y.shape[1]):
        if index not in highlighted:
            axes.plot(x, y[:, index], color=str(style.FAINT), linewidth=0.8, marker=marker, markersize=2.5)
    ends: list[tuple[float, str, str]] = []
    looks = zip(style.HIGHLIGHTS, style.HIGHLIGHT_DASHES, strict=True)
    for index, (colour, dash) in zip(highlighted, looks, strict=False):
        axes.plot(x, y[:, index], color=str(colour), linestyle=dash, marker=marker, markersize=4)
        ends.append((float(y[-1, index]), str(classes[index]), str(colour)))
    shared = np.empty(0)
    if reference is not None:
        when, values, name = reference
        at, shared = np.asarray(when, float), np.asarray(values, float)
        axes.plot(
            at, shared, color=str(style.TRANSFER), linestyle=(0, (4.5, 1.8)), linewidth=2.0, marker=marker
        )
        ends.append((float(shared[-1]), name, str(style.TRANSFER)))
    low, high = value_range(np.concatenate([y.ravel(), shared]))
    axes.set_ylim(low, high)
    epoch_axis(axes, float(x.min()), float(x.max()))
    axes.set_ylabel("threshold (score)")
    label_ends(axes, float(x.max()), ends)
    axes.set_title(title)
    return figure


@styled
def class_dots(
    classes: Sequence[str], values: Mapping[str, npt.ArrayLike], *, xlabel: str, title: str = ""
) -> Figure:
    """Return a panel with one row for each class and one dot for each method, joined by a thin line.

    Args:
        classes: C names, from the top.
        values: method -> (C,) shares of one; NaN, not measurable, has no dot.
        xlabel: what the values are; they are shown as per cent.
    """
    figure, axes = new_figure(4.6, 0.8 + 0.185 * max(len(classes), 3))
    rows = np.arange(len(classes))
    table = np.array([np.asarray(column, float) * 100 for column in values.values()]).reshape(
        -1, len(classes)
    )
    if len(table) > 1:
        defined = ~np.isnan(table).any(0)
        axes.hlines(
            rows[defined],
            table[:, defined].min(0),
            table[:, defined].max(0),
            color=str(style.FAINT),
            linewidth=1.4,
        )
    for number, (name, column) in enumerate(zip(values, table, strict=True)):
        look = method_style(name)
        axes.plot(
            column,
            rows,
            look.marker,
            color=str(look.colour),
            markeredgecolor=str(style.PAPER),
            markersize=7.5 - 2 * number / max(len(table) - 1, 1),  # a later one on top hides none
            markeredgewidth=0.6,
            clip_on=False,
        )
    axes.set_yticks(rows, list(map(str, classes)))
    axes.tick_params(axis="y", labelcolor=str(style.INK), pad=7)
    axes.set_ylim(len(classes) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(xlabel)
    axes.set_title(title)
    return figure


def draw_method_bars(axes: Axes, values: Mapping[str, float | None]) -> None:
    """Draw one bar for each method, its name above and its number behind; shares of one, as per cent."""
    for row, (name, value) in enumerate(values.items()):
        look = method_style(name)
        axes.text(0, row - 0.42, look.title, fontsize=9, va="center")
        if value is not None and np.isfinite(value):
            axes.barh(row, 100 * value, height=0.5, color=str(look.colour))
            axes.text(100 * value, row, f" {100 * value:.1f}", va="center", fontweight="bold", fontsize=10.5)
        else:
            axes.text(0, row, "not measurable", va="center", color=str(style.MUTED))
    largest = max((100 * value for value in values.values() if value is not None), default=1.0)
    axes.set_xlim(0, max(largest, 1.0) * 1.22)
    axes.set_ylim(len(values) - 0.6, -0.75)
    axes.set_yticks([])
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
