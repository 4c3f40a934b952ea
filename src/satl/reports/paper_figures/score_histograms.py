"""Figures 1 and 2: what positives and negatives score, and whether unknown cells score like known ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from satl.drawing import style
from satl.drawing.figure_layout import (
    absent_handle,
    add_heading,
    fitted,
    panel_title,
    patch_handle,
    present_handle,
    start_figure,
)
from satl.drawing.style import generator_title, method_style, styled
from satl.experiments.finished_runs import RunGroup
from satl.inference.run_record import FloatArray, RunRecord
from satl.reports.comparison import kolmogorov_smirnov, scores_by_label
from satl.reports.distributions import (
    bin_edges,
    draw_score_distributions,
    no_negative_ticks,
    share_limits,
    shares,
)
from satl.reports.paper_figures.common import TRUTH, Missing, known, shown_classes, subject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def score_histograms(group: RunGroup) -> Figure:
    """Return figure 1: scores of known positives and negatives of four classes, two easy and two hard."""
    run = subject(group)
    record = run.record
    chosen = shown_classes(record)
    generators = record.method.generators
    figure = start_figure(1.75 * len(generators) + 0.2)
    grid = figure.subplots(len(generators), len(chosen), squeeze=False)
    for line, generator in zip(grid, generators, strict=True):
        parts = [scores_by_label(record.method.scores[generator], record.cells, None, i) for i in chosen]
        limits = share_limits([values for part in parts for values in part.values()])
        for axes, part in zip(line, parts, strict=True):
            draw_score_distributions(axes, part["known present"], part["known absent"], limits=limits)
            axes.set(ylabel="", xlabel="")
        line[0].set_ylabel(f"{generator_title(generator)} generator\nshare of cells (%)")
    for axes in grid[-1]:
        axes.set_xlabel("score")
    for axes, (index, kind) in zip(grid[0], chosen.items(), strict=True):
        axes.set_title(panel_title(figure, record.classes[index], kind, len(chosen)))
    note = (
        f"{known(group, run.proportion)}; scores of {method_style(run.method).title} after training, one run (seed "
        f"{run.seed}); easy and hard by average precision. Each row of panels is a generator, with one scale."
    )
    handles = [present_handle("known present"), absent_handle("known absent")]
    return add_heading(figure, "Scores of positives and negatives, class by class", note, handles)


@styled
def known_and_unknown(group: RunGroup) -> Figure:
    """Return figure 2: known against unknown scores of one class, with the Kolmogorov-Smirnov distance."""
    run = subject(group)
    record = run.record
    if record.truth is None:
        raise Missing(f"needs {TRUTH}")
    index = _most_known(record)
    generators = record.method.generators
    figure = start_figure(1.8 * len(generators) + 0.2)
    grid = figure.subplots(len(generators), 2, squeeze=False)
    for line, generator in zip(grid, generators, strict=True):
        parts = scores_by_label(record.method.scores[generator], record.cells, record.truth, index)
        limits = share_limits(parts.values())
        for axes, kind in zip(line, ("present", "absent"), strict=True):
            _draw_pair(axes, parts[f"known {kind}"], parts[f"unknown {kind}"], kind, limits)
        line[0].set_ylabel(f"{generator_title(generator)} generator\nshare of cells (%)")
    for axes in grid[-1]:
        axes.set_xlabel("score")
    for axes, title in zip(grid[0], ("present cells", "absent cells"), strict=True):
        axes.set_title(title)
    name = fitted(figure, record.classes[index], 3.0, 10.5, "bold")
    note = (
        f"{known(group, run.proportion)}; scores of {method_style(run.method).title} after training, one run (seed "
        f"{run.seed}); the class with the most known positives. KS is the two-sample Kolmogorov-Smirnov distance, "
        "from 0 (alike) to 1 (apart); chance is what two samples of these sizes from one distribution exceed in 5 % of "
        "cases."
    )
    handles = [
        patch_handle("known present", facecolor=style.PRESENT.light, alpha=0.6),
        patch_handle("known absent", facecolor=style.ABSENT.light, alpha=0.75),
        patch_handle(
            "unknown (by the hidden truth)", facecolor="none", edgecolor=style.INK.light, linewidth=1.4
        ),
    ]
    return add_heading(figure, f"Scores of known and of unknown cells: {name}", note, handles)


def _most_known(record: RunRecord) -> int:
    """Return the class with the most known positives whose scores mean something, for every generator."""
    usable = np.full(len(record.classes), np.iinfo(np.int64).max)
    for scores in record.method.scores.values():
        usable = np.minimum(usable, np.count_nonzero((record.cells > 0) & ~np.isnan(scores), axis=0))
    return int(np.argmax(usable))


def _draw_pair(
    axes: Axes,
    known: FloatArray,
    unknown: FloatArray,
    kind: str,
    limits: tuple[float, float],
) -> None:
    edges = bin_edges(limits)
    colour, alpha = (style.PRESENT, 0.6) if kind == "present" else (style.ABSENT, 0.75)
    axes.stairs(shares(known, edges), edges, fill=True, color=colour.light, alpha=alpha, linewidth=0)
    axes.stairs(shares(unknown, edges), edges, color=style.INK.light, linewidth=1.4)
    distance, chance = kolmogorov_smirnov(known, unknown)
    text = "KS not measurable" if np.isnan(distance) else f"KS {distance:.2f} (chance {chance:.2f})"
    axes.text(
        0.98,
        0.97,
        f"{text}\n{len(known)} known, {len(unknown)} unknown",
        transform=axes.transAxes,
        ha="right",
        va="top",
        fontsize=8,
        linespacing=1.3,
    )
    axes.set_xlim(*limits)
    axes.set_ylim(0, max(axes.get_ylim()[1], 1e-3) * 1.38)
    no_negative_ticks(axes)
