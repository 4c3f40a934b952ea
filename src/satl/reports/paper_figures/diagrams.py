"""Figures 3 and 4: how SATL works, drawn without data.

They are drawn by code, not kept as SVG files: they come in every format that is asked for (PDF, PNG), which an SVG file
does not give without a further dependency, and in the fonts and colours of all other figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from satl.drawing import style
from satl.drawing.diagram import Diagram
from satl.drawing.figure_layout import add_heading, patch_handle, start_figure
from satl.drawing.style import styled

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FRAMEWORK: dict[str, Any] = {"facecolor": "#f6f1ea", "edgecolor": style.TRANSFER.light, "linewidth": 1.0}
_SATE: dict[str, Any] = {"facecolor": "#e9f1fa", "edgecolor": style.SEMANTIC.light, "linewidth": 1.6}
_DRL: dict[str, Any] = {**_SATE, "linestyle": (0, (4, 1.6))}
_LOSS: dict[str, Any] = {"facecolor": style.PAPER.light, "edgecolor": style.INK.light, "linewidth": 1.0}


@styled
def pipeline() -> Figure:
    """Return figure 3: from an image with holes in its labels to thresholds, pseudo-labels and losses."""
    figure = start_figure(3.78)
    figure.set_layout_engine("none")
    diagram = Diagram(figure)
    wide, gap = 1.22, 0.25
    x = [0.05 + number * (wide + gap) for number in range(5)]
    top, middle, low = 2.92, 1.68, 0.06
    image = diagram.box(x[0], top, wide, 0.8, "Image and labels", "known or unknown", **_FRAMEWORK)
    diagram.cells(x[0] + 0.15, top + 0.1, "+-??+")
    backbone = diagram.box(x[1], top, wide, 0.8, "Backbone", "feature map", **_FRAMEWORK)
    features = diagram.box(
        x[2], top, wide, 0.8, "Decoupling, graph", "one feature\nfor each class", **_FRAMEWORK
    )
    classifier = diagram.box(
        x[3], top, wide, 0.8, "Classifier", "one probability\nfor each class", **_FRAMEWORK
    )
    loss = diagram.box(
        x[4], top, wide, 0.8, "Classification loss", "known labels and\npseudo-labels", **_LOSS
    )
    generators = diagram.box(
        x[2], middle, wide, 0.8, "Generators", "intra-image;\ncross-image or\nprototypes", **_FRAMEWORK
    )
    pseudo = diagram.box(x[3], middle, wide, 0.8, "Pseudo-labels", "unknown, s > \u03c4", **_SATE)
    diagram.cells(x[3] + 0.15, middle + 0.1, "+-?*+")
    known = diagram.box(x[1], low, wide, 1.25, "Scores by class", "known absent,\nknown present", **_SATE)
    diagram.humps(x[1] + 0.16, low + 0.1, 0.9, 0.36)
    ideal = diagram.box(
        x[2],
        low,
        wide,
        1.25,
        "Ideal threshold \u03c4*",
        "larger of the quantiles\n\u03ba\u207b and \u03ba\u207a",
        **_SATE,
    )
    diagram.humps(x[2] + 0.16, low + 0.1, 0.9, 0.34, threshold=0.56)
    moved = diagram.box(
        x[3],
        low,
        wide,
        1.25,
        "Threshold \u03c4",
        "per class, each epoch\n\u03c4 \u2190 (1\u2212\u03b3) \u03c4 + \u03b3 \u03c4*",
        **_SATE,
    )
    ranking = diagram.box(
        x[4],
        low,
        wide,
        1.25,
        "Ranking loss",
        "d = max(0, s \u2212 \u03c4)\npresent: 1 \u2212 d\nabsent: 1 + d",
        **_DRL,
    )
    _steps(diagram, x[3] + 0.16, low + 0.12)
    _fork(diagram, x[4] + 0.16, low + 0.08)
    for one, other in ((image, backbone), (backbone, features), (features, classifier), (classifier, loss)):
        diagram.arrow([one.right, other.left])
    diagram.arrow([features.bottom, generators.top])
    diagram.arrow([image.bottom, (image.bottom[0], generators.left[1]), generators.left])
    diagram.text(
        image.bottom[0] + 0.08,
        generators.left[1] + 0.04,
        "known positives",
        va="bottom",
        color=style.MUTED.light,
    )
    diagram.arrow([generators.right, pseudo.left])
    diagram.text(
        generators.right[0] + gap / 2, generators.right[1] + 0.05, "s", ha="center", va="bottom", size=8
    )
    diagram.arrow([pseudo.right, (loss.bottom[0], pseudo.right[1]), loss.bottom])
    turn = (generators.y + known.y + known.height) / 2
    diagram.arrow([generators.bottom, (generators.bottom[0], turn), (known.top[0], turn), known.top])
    diagram.text(
        known.top[0] + 0.08, turn + 0.04, "scores s of known cells", va="bottom", color=style.MUTED.light
    )
    for one, other in ((known, ideal), (ideal, moved), (moved, ranking)):
        diagram.arrow([one.right, other.left])
    diagram.arrow([moved.top, pseudo.bottom])
    diagram.text(moved.top[0] + 0.06, (moved.top[1] + pseudo.bottom[1]) / 2, "\u03c4", va="center", size=8)
    handles = [
        patch_handle("framework (SST or HST)", **_FRAMEWORK),
        patch_handle("SATE: thresholds", **_SATE),
        patch_handle("DRL: differential ranking", **_DRL),
        patch_handle("classification loss", **_LOSS),
    ]
    note = (
        "Stage 1 trains the framework alone; its last epoch fills the histograms. In stage 2 the thresholds move at "
        "the start of every epoch, pseudo-labels join the classification loss, and the ranking loss is added. Squares "
        "are labels of one image: +\u00a0present, \u2212\u00a0absent, ?\u00a0unknown, \u2713\u00a0filled."
    )
    return add_heading(figure, "SATL on a framework with pseudo-labels", note, handles)


def _steps(diagram: Diagram, x: float, y: float) -> None:
    """Draw a threshold that goes a share of the way to its goal at every epoch."""
    wide, tall, steps = 0.9, 0.4, 6
    diagram.line(
        [(x, y + 0.06), (x + wide, y + 0.06)], color=style.MUTED.light, linewidth=0.8, linestyle=(0, (3, 2))
    )
    heights = [0.06 + (tall - 0.06) * 0.55**number for number in range(steps)]
    places = [x + wide * number / steps for number in range(steps + 1)]
    points = [(place, y + heights[n]) for n in range(steps) for place in places[n : n + 2]]
    diagram.line(points, color=style.SEMANTIC.light, linewidth=1.6)


def _fork(diagram: Diagram, x: float, y: float) -> None:
    """Draw the loss of absent (up) and present cells (down) over the score."""
    wide, tall = 0.9, 0.4
    start, turn = (x, y + tall / 2), (x + 0.5 * wide, y + tall / 2)
    diagram.line([start, turn], color=style.MUTED.light, linewidth=1.6)
    diagram.line([turn, (x + wide, y + tall)], color=style.ABSENT.light, linewidth=1.6)
    diagram.line([turn, (x + wide, y)], color=style.PRESENT.light, linewidth=1.6)
    diagram.line([(turn[0], y), (turn[0], y + tall)], color=style.SEMANTIC.light, linewidth=1.2)


@styled
def ranking_sketch() -> Figure:
    """Return figure 4: what differential ranking does to the score distributions, and its loss."""
    figure = start_figure(2.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.75, 1.0))
    threshold = 0.56
    scores = np.linspace(0, 1, 401)
    before = (_density(scores, 0.34, 0.115), _density(scores, 0.66, 0.115))
    after = (
        _moved(scores, before[0], _pushed_down(scores, threshold)),
        _moved(scores, before[1], _pushed_up(scores, threshold)),
    )
    for (solid, dashed), colour in zip(
        zip(before, after, strict=True), (style.ABSENT, style.PRESENT), strict=True
    ):
        left.plot(scores, solid, color=colour.light)
        left.plot(scores, dashed, color=colour.light, linestyle=(0, (4, 1.8)))
    beyond = scores >= threshold
    left.fill_between(
        scores[beyond],
        before[0][beyond],
        facecolor=style.WRONG.light,
        hatch="xxxx",
        edgecolor="w",
        linewidth=0,
    )
    top = 1.42 * max(after[0].max(), after[1].max())
    left.axvline(threshold, color=style.SEMANTIC.light, linewidth=1.8, ymax=0.9)
    left.text(
        threshold, 0.945 * top, "threshold \u03c4", ha="center", va="bottom", color=style.SEMANTIC.light
    )
    left.set(xlim=(0, 1), ylim=(0, 1.03 * top), yticks=[], xlabel="score s", ylabel="density")
    left.grid(visible=False)
    left.set_title("Distributions of a class")
    for start, end, colour, word in (
        (0.52, 0.40, style.ABSENT, "negatives above \u03c4\npushed below it"),
        (0.60, 0.72, style.PRESENT, "positives above \u03c4\npushed up"),
    ):
        left.annotate(
            "",
            (end, 0.79 * top),
            xytext=(start, 0.79 * top),
            arrowprops={"arrowstyle": "-|>", "color": colour.light, "linewidth": 1.8},
        )
        side = "right" if end < start else "left"
        left.text(
            end - 0.01 if side == "right" else end + 0.01, 0.79 * top, word, ha=side, va="center", fontsize=8
        )
    _draw_loss(right, scores, threshold)
    handles = [
        _line(style.ABSENT, "solid", "negatives before"),
        _line(style.ABSENT, (0, (4, 1.8)), "negatives after"),
        _line(style.PRESENT, "solid", "positives before"),
        _line(style.PRESENT, (0, (4, 1.8)), "positives after"),
        patch_handle("wrong pseudo-labels", facecolor=style.WRONG.light, hatch="xxxx", edgecolor="w"),
    ]
    note = (
        "A sketch, no data. The loss of a known cell grows or falls with d = max(0, s \u2212 \u03c4), so it moves only "
        "scores above the threshold: below it the curves before and after are one, but for the negatives that arrive."
    )
    return add_heading(figure, "What differential ranking does", note, handles, columns=3)


def _draw_loss(axes: Axes, scores: np.ndarray, threshold: float) -> None:
    distance = np.maximum(scores - threshold, 0)
    for sign, colour, thick, word in (
        (1, style.ABSENT, 3.4, "absent: 1 + d"),
        (-1, style.PRESENT, 1.6, "present: 1 \u2212 d"),
    ):
        axes.plot(scores, 1 + sign * distance, color=colour.light, linewidth=thick)
        axes.text(0.03, 1 + 0.16 * sign, word, va="center", color=style.INK.light, fontsize=8)
    axes.axvline(threshold, color=style.SEMANTIC.light, linewidth=1.8, ymax=0.86)
    axes.text(threshold, 1.5, "\u03c4", ha="center", va="bottom", color=style.SEMANTIC.light)
    axes.set(xlim=(0, 1), ylim=(0.4, 1.6), xlabel="score s", ylabel="loss of one known cell")
    axes.set_title("Loss")


def _density(x: np.ndarray, mean: float, sd: float) -> np.ndarray:
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / sd


def _pushed_down(scores: np.ndarray, threshold: float) -> np.ndarray:
    """Return where negatives go: those above the threshold down, and no further than just below it."""
    return np.where(scores > threshold, np.maximum(scores - 0.16, threshold - 0.025), scores)


def _pushed_up(scores: np.ndarray, threshold: float) -> np.ndarray:
    """Return where positives go: those above the threshold up, the more the further above it they are, within 1."""
    share = np.maximum(scores - threshold, 0) / (1 - threshold)
    return scores + 0.9 * (1 - threshold) * share**2 * (1 - share)


def _moved(scores: np.ndarray, density: np.ndarray, target: np.ndarray, width: float = 0.012) -> np.ndarray:
    """Return the density of scores that have moved to ``target``, smoothed over ``width`` for the eye."""
    kernel = np.exp(-0.5 * ((scores[:, None] - target[None, :]) / width) ** 2) / (width * np.sqrt(2 * np.pi))
    moved: np.ndarray = (kernel * density[None, :]).sum(axis=1) * (scores[1] - scores[0])
    return moved


def _line(colour: style.Colour, dash: Any, title: str) -> Artist:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour.light, linestyle=dash, label=title)
