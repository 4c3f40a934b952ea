"""Figures as pure functions: arrays in, a matplotlib figure out.

``draw_...`` draws into given axes, for whoever composes a larger figure; the function of the same name without
``draw_`` returns a figure with one panel. A page puts panels side by side as far as the screen is wide, so a
panel never needs to shrink until its text cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from satl.reports import style
from satl.reports.style import method_style, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

PANEL = (3.7, 2.5)
"""Inches; a page shows an inch as about 100 pixels."""
_BINS = 25
_FEW = 60
"""A sample smaller than this is also shown cell by cell."""


def new_figure(width: float = PANEL[0], height: float = PANEL[1]) -> tuple[Figure, Axes]:
    """Return an empty figure of one panel, sizes in inches; it belongs to no window and no global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr, call-arg]
    return figure, figure.add_subplot()


def draw_curves(
    axes: Axes,
    curves: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    ylabel: str,
    stage1_epochs: int = 0,
    marks: Mapping[str, int] | None = None,
    percent: bool = False,
    from_zero: bool = False,
) -> None:
    """Draw one line for each method over the epochs.

    Args:
        axes: where.
        curves: method -> epochs (E,), counted from 1, and values (E,); NaN leaves a gap.
        ylabel: what the values are, with their unit.
        stage1_epochs: a thin line marks the end of stage 1, if it is not 0.
        marks: method -> position on its curve that gets a marker, for example its best epoch.
        percent: the values are shares of one, shown as per cent.
        from_zero: the axis of values begins at 0.
    """
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
        _stage_line(axes, stage1_epochs + 0.5)
    _epoch_axis(axes, first, last)
    axes.set_ylabel(ylabel)
    axes.margins(y=0.12)
    axes.ticklabel_format(axis="y", useOffset=False)
    low, high = axes.get_ylim()
    if from_zero:
        axes.set_ylim(0, max(high, 1.0))
    elif high - low < 0.1 * abs(high):  # do not make mountains of the last digits
        middle = (low + high) / 2
        axes.set_ylim(middle - 0.05 * abs(high), middle + 0.05 * abs(high))


@styled
def curves(
    curves: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    title: str = "",
    width: float = PANEL[0],
    **options: Any,
) -> Figure:
    """Return a panel with one line for each method; see :func:`draw_curves`."""
    figure, axes = new_figure(width)
    draw_curves(axes, curves, **options)
    axes.set_title(title)
    return figure


def draw_threshold_trajectories(
    axes: Axes,
    epochs: npt.ArrayLike,
    thresholds: npt.ArrayLike,
    *,
    classes: Sequence[str],
    highlighted: Sequence[int] = (),
    reference: tuple[npt.ArrayLike, npt.ArrayLike, str] | None = None,
) -> None:
    """Draw the threshold of every class over the epochs.

    Args:
        axes: where.
        epochs: (E,), counted from 1.
        thresholds: (E, C).
        classes: C names.
        highlighted: at most four classes in colour, named at the end of their line; the others are grey.
        reference: epochs, values and name of one threshold for all classes, drawn dashed.
    """
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
    low, high = _range(np.concatenate([y.ravel(), shared]))
    axes.set_ylim(low, high)
    _epoch_axis(axes, float(x.min()), float(x.max()))
    axes.set_ylabel("threshold (score)")
    _label_ends(axes, float(x.max()), ends)


@styled
def threshold_trajectories(
    epochs: npt.ArrayLike, thresholds: npt.ArrayLike, *, title: str = "", **options: Any
) -> Figure:
    """Return a panel with the thresholds of all classes; see :func:`draw_threshold_trajectories`."""
    figure, axes = new_figure(4.6, 2.9)
    draw_threshold_trajectories(axes, epochs, thresholds, **options)
    axes.set_title(title)
    return figure


def draw_score_distributions(
    axes: Axes,
    present: npt.ArrayLike,
    absent: npt.ArrayLike,
    *,
    thresholds: Mapping[str, float] | None = None,
    limits: tuple[float, float] | None = None,
    label_thresholds: bool = False,
) -> None:
    """Draw the scores of the known present and absent cells of a class, and thresholds on them.

    Args:
        axes: where.
        present: scores of known positives.
        absent: scores of known negatives.
        thresholds: method -> threshold, in the method's colour and dash.
        limits: range of scores; by default all that is shown.
        label_thresholds: write the method beside its line.
    """
    positive, negative = _clean(present), _clean(absent)
    lines = {name: value for name, value in (thresholds or {}).items() if np.isfinite(value)}
    edges = _edges(limits, positive, negative, np.array(list(lines.values())))
    _share_histogram(axes, negative, edges, style.ABSENT, filled=True)
    _share_histogram(axes, positive, edges, style.PRESENT, filled=False)
    top = max(axes.get_ylim()[1], 1e-3)
    axes.set_ylim(-0.075 * top if len(positive) < _FEW else 0, top * (1.25 if label_thresholds else 1.02))
    if len(positive) < _FEW:
        axes.plot(positive, np.full(len(positive), -0.035 * top), "|", color=str(style.PRESENT), markersize=5)
    labelled: list[float] = []
    for name, value in sorted(lines.items(), key=lambda line: -line[1]):
        look = method_style(name)
        axes.axvline(value, color=str(look.colour), linestyle=look.dash, linewidth=1.8)
        if label_thresholds:
            span = edges[-1] - edges[0]
            right = value < edges[0] + 0.6 * span
            line = sum(abs(value - other) < 0.45 * span for other in labelled)
            labelled.append(value)
            axes.annotate(
                look.title,
                (value, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(3 if right else -3, -1 - 10 * line),
                textcoords="offset points",
                ha="left" if right else "right",
                va="top",
                color=str(look.colour),
                fontsize=7.5,
                fontweight="bold",
                bbox={"facecolor": str(style.PAPER), "edgecolor": "none", "pad": 0.8},
            )
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xlabel("score")
    axes.set_ylabel("share of cells (%)")
    _no_negative_ticks(axes)


@styled
def score_distributions(
    present: npt.ArrayLike, absent: npt.ArrayLike, *, title: str = "", **options: Any
) -> Figure:
    """Return a panel with the scores of a class; see :func:`draw_score_distributions`."""
    figure, axes = new_figure(4.6, 2.2)
    draw_score_distributions(axes, present, absent, **options)
    axes.set_title(title)
    return figure


def draw_known_against_unknown(
    axes: Axes,
    known: tuple[npt.ArrayLike, npt.ArrayLike],
    unknown: tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    limits: tuple[float, float] | None = None,
) -> None:
    """Draw known scores upwards and unknown scores downwards, each split into present and absent.

    Args:
        axes: where.
        known: scores of the known present and of the known absent cells of a class.
        unknown: the same of its unknown cells, by the hidden truth.
        limits: range of scores.
    """
    samples = [_clean(values) for values in (*known, *unknown)]
    edges = _edges(limits, *samples)
    for sign, (present, absent) in ((1, samples[:2]), (-1, samples[2:])):
        _share_histogram(axes, absent, edges, style.ABSENT, filled=True, sign=sign)
        _share_histogram(axes, present, edges, style.PRESENT, filled=False, sign=sign)
    top = max(float(np.abs(axes.get_ylim()).max()), 1e-3) * 1.2
    axes.set_ylim(-top, top)
    axes.set_xlim(edges[0], edges[-1])
    axes.axhline(0, color=str(style.MUTED), linewidth=0.9)
    for text, height, where in (("known", 0.985, "top"), ("unknown", 0.015, "bottom")):
        axes.text(
            0.99,
            height,
            text,
            transform=axes.transAxes,
            ha="right",
            va=where,
            fontsize=8,
            color=str(style.MUTED),
        )
    axes.yaxis.set_major_locator(_whole_numbers())
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
    axes.set_xlabel("score")
    axes.set_ylabel("share of cells (%)")


@styled
def known_against_unknown(
    known: tuple[npt.ArrayLike, npt.ArrayLike],
    unknown: tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    title: str = "",
    **options: Any,
) -> Figure:
    """Return a panel of known against unknown scores; see :func:`draw_known_against_unknown`."""
    figure, axes = new_figure(4.6, 2.5)
    draw_known_against_unknown(axes, known, unknown, **options)
    axes.set_title(title)
    return figure


def draw_class_dots(
    axes: Axes, classes: Sequence[str], values: Mapping[str, npt.ArrayLike], *, xlabel: str
) -> None:
    """Draw one row for each class and one dot for each method, joined by a thin line.

    Args:
        axes: where.
        classes: C names, from the top.
        values: method -> (C,) shares of one; NaN, not measurable, has no dot.
        xlabel: what the values are; they are shown as per cent.
    """
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


@styled
def class_dots(
    classes: Sequence[str], values: Mapping[str, npt.ArrayLike], *, xlabel: str, title: str = ""
) -> Figure:
    """Return a panel with a row for each class; see :func:`draw_class_dots`."""
    figure, axes = new_figure(4.6, 0.8 + 0.185 * max(len(classes), 3))
    draw_class_dots(axes, classes, values, xlabel=xlabel)
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


@styled
def method_bars(values: Mapping[str, float | None], *, title: str = "") -> Figure:
    """Return a panel with a bar for each method; see :func:`draw_method_bars`."""
    figure, axes = new_figure(PANEL[0], 0.7 + 0.5 * len(values))
    draw_method_bars(axes, values)
    axes.set_title(title)
    return figure


def _clean(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    array = np.asarray(values, float).ravel()
    return array[np.isfinite(array)]


def _edges(limits: tuple[float, float] | None, *samples: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the borders of the bins, over everything that must be seen."""
    if limits is None:
        low, high = _range(np.concatenate([*samples, np.empty(0)]))
    else:
        low, high = limits
    return np.linspace(low, high, _BINS + 1)


def _range(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return round limits around values in [-1, 1], never narrower than 0.1."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    margin = max(0.04 * (high - low), 0.01)
    low, high = np.floor((low - margin) * 20) / 20, np.ceil((high + margin) * 20) / 20
    if low < 0 <= finite.min():
        low = 0.0
    if high > 1 >= finite.max():
        high = 1.0 + 0.02 * (1 - low)
    return float(low), float(max(high, low + 0.1))


def _share_histogram(
    axes: Axes,
    values: npt.NDArray[np.float64],
    edges: npt.NDArray[np.float64],
    colour: style.Colour,
    *,
    filled: bool,
    sign: int = 1,
) -> None:
    """Draw a histogram as shares of the sample; the filled one is light, the other a strong outline."""
    if not len(values):
        return
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    # Empty bins are left out, so that an outline does not run along the axis.
    shares = np.where(counts > 0, sign * 100 * counts / len(values), np.nan)
    if filled:
        axes.stairs(shares, edges, fill=True, color=str(colour), alpha=0.75, linewidth=0)
    else:
        axes.stairs(
            shares, edges, fill=True, facecolor="none", edgecolor=str(colour), hatch="////", linewidth=0
        )
        axes.stairs(shares, edges, color=str(colour), linewidth=1.5)


def _whole_numbers(most: int = 5) -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=most, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)


def _no_negative_ticks(axes: Axes) -> None:
    axes.yaxis.set_major_locator(_whole_numbers())
    axes.yaxis.set_major_formatter(lambda value, _: "" if value < 0 else f"{value:.0f}")


def _epoch_axis(axes: Axes, first: float, last: float) -> None:
    axes.set_xlim(first - 0.3, last + 0.3)
    axes.xaxis.set_major_locator(_whole_numbers(6))
    axes.set_xlabel("epoch")
    axes.grid(visible=False, axis="x")


def _stage_line(axes: Axes, at: float) -> None:
    axes.axvline(at, color=str(style.FAINT), linewidth=1.0, linestyle=(0, (2, 2)))
    axes.annotate(
        "stage 2",
        (at, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, -1),
        textcoords="offset points",
        va="top",
        fontsize=7,
        color=str(style.MUTED),
    )


def _label_ends(axes: Axes, x: float, ends: Sequence[tuple[float, str, str]]) -> None:
    """Name lines at their right end, moved apart where they would overlap."""
    if not ends:
        return
    low, high = axes.get_ylim()
    gap = 0.075 * (high - low)
    order = sorted(ends)
    heights = [end[0] for end in order]
    for index in range(1, len(heights)):
        heights[index] = max(heights[index], heights[index - 1] + gap)
    excess = heights[-1] - (high - 0.3 * gap)
    if excess > 0:
        heights[-1] -= excess
        for index in range(len(heights) - 2, -1, -1):
            heights[index] = min(heights[index], heights[index + 1] - gap)
    for (value, name, colour), height in zip(order, heights, strict=True):
        axes.annotate(
            name,
            (x, value),
            xytext=(1.025, (height - low) / (high - low)),
            textcoords="axes fraction",
            ha="left",
            va="center",
            color=colour,
            fontsize=8,
            fontweight="bold",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 1},
        )
