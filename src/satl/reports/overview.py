"""One image that shows what satl does: labels recovered, one threshold per class, a better model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from satl.drawing import style
from satl.drawing.label_chips import KINDS, LEGEND, LEGEND_WITHOUT_TRUTH, draw_chips
from satl.drawing.style import method_style, styled
from satl.files import atomic_path
from satl.reports import distributions, figures
from satl.reports.comparison import Comparison, Example, choose_examples, easy_and_hard, scores_by_label
from satl.reports.training_images import PixelsOf

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT, _DPI = 12.0, 6.0, 150


@styled
def overview_figure(comparison: Comparison, pixels_of: PixelsOf) -> Figure:
    """Return the image: examples on the left, thresholds on scores in the middle, mAP on the right.

    Args:
        comparison: what was measured.
        pixels_of: from a row of the training images to its pixels, uint8 (H, W, 3).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI, facecolor=style.PAPER.light)
    FigureCanvasAgg(figure)
    _heading(figure, 0.028, "1  Recover missing labels")
    _heading(figure, 0.44, "2  One threshold per class")
    _heading(figure, 0.745, "3  Test on unseen images")
    _draw_examples(figure, comparison, pixels_of)
    _draw_scores(figure, comparison)
    _draw_results(figure, comparison)
    return figure


@styled
def write_overview(comparison: Comparison, pixels_of: PixelsOf, path: Path) -> None:
    """Write the image as PNG, atomically."""
    figure = overview_figure(comparison, pixels_of)
    with atomic_path(path) as temporary:
        figure.savefig(
            temporary, format="png", dpi=_DPI, facecolor=style.PAPER.light, metadata={"Software": None}
        )


def _heading(figure: Figure, x: float, text: str) -> None:
    figure.text(x, 0.945, text, fontsize=12.5, fontweight="bold", va="center")


def _draw_examples(figure: Figure, comparison: Comparison, pixels_of: PixelsOf) -> None:
    side, name = 0.265, comparison.subject.name
    for number, example in enumerate(_four(choose_examples(comparison), name)):
        left, top = 0.028 + 0.2 * (number % 2), 0.885 - 0.43 * (number // 2)
        axes = figure.add_axes((left, top - side, side * _HEIGHT / _WIDTH, side))
        axes.imshow(pixels_of(example.row), interpolation="lanczos")
        axes.set_axis_off()
        outcome = example.outcomes.get(name, {})
        chips = [("known", label) for label in example.known]
        chips += [(kind, label) for kind in KINDS for label in outcome.get(kind, ())]
        _chips(figure, left, top - side - 0.022, left + 0.19, chips)
    words = LEGEND_WITHOUT_TRUTH if comparison.truth is None else LEGEND
    _chips(figure, 0.028, 0.054, 0.43, list(words.items()))


def _chips(figure: Figure, left: float, top: float, right: float, chips: Sequence[tuple[str, str]]) -> None:
    draw_chips(figure, left * _WIDTH, top * _HEIGHT, right * _WIDTH, chips)


def _four(examples: Sequence[Example], method: str) -> list[Example]:
    """Take three examples of success and, where there is one, one with a mistake, with few enough labels."""
    fitting = [e for e in examples if len(e.known) + sum(map(len, e.outcomes.get(method, {}).values())) <= 5]
    flawed = [e for e in fitting if e.outcomes.get(method, {}).get("wrong")]
    chosen = [e for e in fitting if e not in flawed][:3] + flawed[:1]
    return (chosen + [e for e in fitting if e not in chosen])[:4]


def _draw_scores(figure: Figure, comparison: Comparison) -> None:
    subject = comparison.subject
    easy, hard = easy_and_hard(comparison)
    chosen = [("easy", index) for index in easy[:1]] + [("hard", index) for index in hard[-1:]]
    if not subject.generators or not chosen:
        figure.text(0.44, 0.5, "no generator, no threshold", color=style.MUTED.light)
        return
    generator = subject.generators[-1]
    others = [
        method
        for method in comparison.with_generators()
        if method is not subject and generator in method.thresholds
    ]
    for number, (kind, index) in enumerate(chosen):
        axes = figure.add_axes((0.463, 0.565 - number * 0.41, 0.232, 0.28))
        parts = scores_by_label(subject.scores[generator], comparison.cells, None, index)
        limits = {m.name: float(m.thresholds[generator][index]) for m in (*others[-1:], subject)}
        distributions.draw_score_distributions(
            axes, parts["known present"], parts["known absent"], thresholds=limits, label_thresholds=True
        )
        axes.set_title(f"{comparison.classes[index]} ({kind})", fontsize=9.5)
        axes.set_xlabel("score" if number else "")
    for x, colour, hatch, word in (
        (0.463, style.PRESENT, "////", "known present"),
        (0.585, style.ABSENT, "", "known absent"),
    ):
        from matplotlib.patches import Rectangle

        face = "none" if hatch else colour.light
        figure.add_artist(
            Rectangle(
                (x, 0.047), 0.016, 0.022, facecolor=face, edgecolor=colour.light, hatch=hatch, linewidth=1.0
            )
        )
        figure.text(x + 0.021, 0.058, word, fontsize=8.5, va="center")


def _draw_results(figure: Figure, comparison: Comparison) -> None:
    axes = figure.add_axes((0.765, 0.565, 0.205, 0.28))
    figures.draw_method_bars(axes, {method.name: method.summary.get("mAP") for method in comparison.methods})
    axes.set_title(f"mAP on {comparison.counts.get('test', 0):,} test images (%)", fontsize=9.5)

    methods = [method for method in comparison.with_generators() if method.last_union()]
    if comparison.truth is None or not methods:
        return
    axes = figure.add_axes((0.765, 0.155, 0.205, 0.28))
    height = 0.8 / len(methods)
    for number, method in enumerate(methods):
        look = method_style(method.name)
        quality = method.quality(comparison.cells, comparison.truth)
        assert quality is not None
        for row, value in enumerate((quality.micro_precision, quality.micro_recall)):
            if np.isfinite(value):
                y = row + (number - (len(methods) - 1) / 2) * height
                axes.barh(y, 100 * value, height=0.86 * height, color=look.colour.light)
                axes.text(100 * value, y, f" {100 * value:.0f}  {look.title}", va="center", fontsize=8.5)
    axes.set_yticks((0, 1), ("precision", "recall"))
    axes.tick_params(axis="y", labelcolor=style.INK.light, labelrotation=90)
    for label in axes.get_yticklabels():
        label.set_verticalalignment("center")
    axes.set_ylim(1.5, -0.5)
    axes.set_xlim(0, 145)
    axes.set_xticks((0, 50, 100))
    axes.grid(visible=False, axis="y")
    axes.set_title("Pseudo-label quality (%)", fontsize=9.5)
