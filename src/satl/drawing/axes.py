"""What panels share: an empty figure, axes of epochs, ranges, labels at the ends of lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from satl.drawing import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

PANEL = (3.7, 2.5)
"""Inches; a page shows an inch as about 100 pixels."""


def new_figure(width: float = PANEL[0], height: float = PANEL[1]) -> tuple[Figure, Axes]:
    """Return an empty figure of one panel, sizes in inches; it belongs to no window and no global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr, call-arg]
    return figure, figure.add_subplot()


def value_range(values: npt.NDArray[np.float64]) -> tuple[float, float]:
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


def whole_numbers(most: int = 5) -> MaxNLocator:
    """Return what puts at most so many ticks on round whole numbers."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=most, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)


def epoch_axis(axes: Axes, first: float, last: float) -> None:
    """Make the horizontal axis one of epochs, counted from 1."""
    axes.set_xlim(first - 0.3, last + 0.3)
    axes.xaxis.set_major_locator(whole_numbers(6))
    axes.set_xlabel("epoch")
    axes.grid(visible=False, axis="x")


def stage_line(axes: Axes, at: float) -> None:
    """Mark where stage 2 begins."""
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


def label_ends(axes: Axes, x: float, ends: Sequence[tuple[float, str, str]]) -> None:
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
