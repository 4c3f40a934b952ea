"""Score distributions as pure functions: what known and unknown cells score, and thresholds on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from satl.drawing import style
from satl.drawing.axes import new_figure, value_range, whole_numbers
from satl.drawing.style import method_style, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 25
_FEW = 60
"""A sample smaller than this is also shown cell by cell."""


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
    positive, negative = clean(present), clean(absent)
    lines = {name: value for name, value in (thresholds or {}).items() if np.isfinite(value)}
    edges = bin_edges(limits, positive, negative, np.array(list(lines.values())))
    share_histogram(axes, negative, edges, style.ABSENT, filled=True)
    share_histogram(axes, positive, edges, style.PRESENT, filled=False)
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
    no_negative_ticks(axes)


@styled
def score_distributions(
    present: npt.ArrayLike, absent: npt.ArrayLike, *, title: str = "", **options: Any
) -> Figure:
    """Return a panel with the scores of a class; see :func:`draw_score_distributions`."""
    figure, axes = new_figure(4.6, 2.2)
    draw_score_distributions(axes, present, absent, **options)
    axes.set_title(title)
    return figure


@styled
def known_against_unknown(
    known: tuple[npt.ArrayLike, npt.ArrayLike],
    unknown: tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    title: str = "",
) -> Figure:
    """Return a panel with known scores upwards and unknown scores downwards, each split into present and absent.

    Args:
        known: scores of the known present and of the known absent cells of a class.
        unknown: the same of its unknown cells, by the hidden truth.
    """
    figure, axes = new_figure(4.6, 2.5)
    samples = [clean(values) for values in (*known, *unknown)]
    edges = bin_edges(None, *samples)
    for sign, (present, absent) in ((1, samples[:2]), (-1, samples[2:])):
        share_histogram(axes, absent, edges, style.ABSENT, filled=True, sign=sign)
        share_histogram(axes, present, edges, style.PRESENT, filled=False, sign=sign)
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
    axes.yaxis.set_major_locator(whole_numbers())
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
    axes.set_xlabel("score")
    axes.set_ylabel("share of cells (%)")
    axes.set_title(title)
    return figure


def clean(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the finite values, flat."""
    array = np.asarray(values, float).ravel()
    return array[np.isfinite(array)]


def bin_edges(
    limits: tuple[float, float] | None, *samples: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the borders of the bins, over everything that must be seen."""
    low, high = share_limits(samples) if limits is None else limits
    return np.linspace(low, high, _BINS + 1)


def share_limits(samples: Iterable[npt.ArrayLike]) -> tuple[float, float]:
    """Return round limits around all scores of several samples."""
    return value_range(np.concatenate([np.empty(0), *(clean(values) for values in samples)]))


def shares(
    values: npt.ArrayLike, edges: npt.NDArray[np.float64], total: int | None = None
) -> npt.NDArray[np.float64]:
    """Return the height of each bin in per cent of the sample, or of a larger ``total``.

    Empty bins are NaN, so that an outline does not run along the axis.

    >>> shares([0.1, 0.1, 0.7, 0.9], np.array([0.0, 0.5, 0.6, 1.0]))
    array([50., nan, 50.])
    """
    sample = clean(values)
    counts, _ = np.histogram(np.clip(sample, edges[0], edges[-1]), edges)
    heights = 100.0 * counts / max(len(sample) if total is None else total, 1)
    return np.where(counts > 0, heights, np.nan)


def share_histogram(
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
    heights = sign * shares(values, edges)
    if filled:
        axes.stairs(heights, edges, fill=True, color=str(colour), alpha=0.75, linewidth=0)
    else:
        axes.stairs(
            heights, edges, fill=True, facecolor="none", edgecolor=str(colour), hatch="////", linewidth=0
        )
        axes.stairs(heights, edges, color=str(colour), linewidth=1.5)


def no_negative_ticks(axes: Axes) -> None:
    """Label the vertical axis from 0 on, although it begins lower."""
    axes.yaxis.set_major_locator(whole_numbers())
    axes.yaxis.set_major_formatter(lambda value, _: "" if value < 0 else f"{value:.0f}")
