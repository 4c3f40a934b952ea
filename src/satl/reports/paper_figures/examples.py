"""Figure 9: training images with their known labels, and what two methods make of the unknown ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from satl.drawing import style
from satl.drawing.figure_layout import WIDTH, add_heading, start_figure
from satl.drawing.label_chips import KINDS, LEGEND, LEGEND_WITHOUT_TRUTH, draw_chips
from satl.drawing.style import method_style, styled
from satl.errors import SatlError
from satl.experiments.finished_runs import RunGroup
from satl.reports.comparison import Comparison, Example, choose_examples, compare
from satl.reports.paper_figures.common import Missing, known, pair, union_note
from satl.reports.training_images import run_pixels
from satl.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE, _CARD, _GAP = 1.42, 1.6, 0.1
_CHIP, _STEP, _LINE = 6.8, 0.205, 0.15


@styled
def examples(group: RunGroup) -> Figure:
    """Return figure 9: four images chosen by a rule, failures included, HST against HST+SATL where there is both."""
    methods = pair(group, order=("hst", "sst"))
    proportion = group.shown_proportion(methods)
    runs = group.matching(methods, proportion)
    records = [run.record for run in runs]
    records = [record for record in records if record.agrees_with(records[-1])]
    comparison = compare(*records)
    try:
        record = records[-1]
        pixels_of = run_pixels(record.config, record.rows, RunFolder(record.path).read_broken())
        chosen = _varied(choose_examples(comparison))
        pixels = [pixels_of(example.row) for example in chosen]
    except SatlError as error:
        raise Missing(f"needs the training images ({error})") from error
    down = max(-(-len(chosen) // 2), 1)
    legend = 0.3
    height = down * (_CARD + _GAP) + legend
    figure = start_figure(height)
    figure.set_layout_engine("none")
    wide = WIDTH / 2
    for number, (example, image) in enumerate(zip(chosen, pixels, strict=True)):
        left = 0.06 + wide * (number % 2)
        top = height - (number // 2) * (_CARD + _GAP)
        _picture(figure, image, left, top)
        _labels(figure, comparison, example, left + _SIDE + 0.1, top, left + wide - 0.16)
    words = LEGEND if comparison.truth is not None else LEGEND_WITHOUT_TRUTH
    draw_chips(figure, 0.06, legend - 0.06, WIDTH, list(words.items()), size=_CHIP, step=_STEP)
    shown = [method_style(record.method.name).title for record in records]
    note = (
        f"{known(group, proportion)}; {' against '.join(shown)}, last models, {union_note(runs)}, one run each (seed "
        f"{runs[-1].seed}). Images are picked by a rule: labels recovered, labels wrong, nothing found."
    )
    return add_heading(figure, "What became of the unknown labels", note)


def _varied(found: list[Example]) -> list[Example]:
    """Return at most four of the examples, from the first (a success) to the last (a failure)."""
    if len(found) <= 4:
        return found
    return [found[round(place)] for place in np.linspace(0, len(found) - 1, 4)]


def _picture(figure: Figure, pixels: npt.NDArray[np.uint8], left: float, top: float) -> None:
    """Paint an image into a square of the board, in its own proportions."""
    from matplotlib.image import BboxImage
    from matplotlib.transforms import Bbox, TransformedBbox

    tall, broad = pixels.shape[:2]
    width, height = _SIDE * broad / max(tall, broad), _SIDE * tall / max(tall, broad)
    place = Bbox.from_bounds(left + (_SIDE - width) / 2, top - height, width, height)
    image = BboxImage(TransformedBbox(place, figure.dpi_scale_trans), interpolation="lanczos")
    image.set_data(pixels)
    figure.add_artist(image)


def _labels(
    figure: Figure, comparison: Comparison, example: Example, left: float, top: float, right: float
) -> None:
    """Write the known labels and, for each method, what became of the unknown ones."""
    chips = [("known", name) for name in example.known]
    absent = f"; {example.known_absent} known absent" if example.known_absent else ""
    _title(figure, left, top, f"known{absent}")
    below = draw_chips(figure, left, top - _LINE - 0.03, right, chips, size=_CHIP, step=_STEP, lines=1)
    for method in comparison.with_generators():
        outcome = example.outcomes[method.name]
        chips = [(kind, name) for kind in KINDS for name in outcome.get(kind, ())]
        _title(figure, left, below, method_style(method.name).title)
        below -= _LINE + 0.03
        below = draw_chips(figure, left, below, right, chips, size=_CHIP, step=_STEP, lines=2)
        if not chips:
            _title(figure, left, below, "nothing to find, nothing filled", weight="normal")
            below -= _STEP


def _title(figure: Figure, x: float, y: float, text: str, weight: str = "bold") -> None:
    colour = style.INK.light if weight == "bold" else style.MUTED.light
    place = figure.dpi_scale_trans
    figure.text(x, y, text, fontsize=7.5, fontweight=weight, va="top", color=colour, transform=place)
