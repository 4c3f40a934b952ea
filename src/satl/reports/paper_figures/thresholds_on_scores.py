"""Figure 8: thresholds on the scores of unknown cells, and what they recall."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from satl.drawing import style
from satl.drawing.figure_layout import (
    absent_handle,
    add_heading,
    line_handle,
    panel_title,
    patch_handle,
    present_handle,
    start_figure,
)
from satl.drawing.style import generator_title, method_style, styled
from satl.experiments.finished_runs import RunGroup
from satl.experiments.paper_numbers import FRAMEWORKS, WITH_SATL
from satl.inference.run_record import RunRecord
from satl.reports.comparison import scores_by_label
from satl.reports.distributions import bin_edges, clean, no_negative_ticks, share_limits, shares
from satl.reports.paper_figures.common import TRUTH, Missing, known, shown_classes, with_generators

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def thresholds_on_scores(group: RunGroup, epoch: int | None = None) -> Figure:
    """Return figure 8: four classes across, SATL, SST and HST below each other.

    Args:
        group: the runs.
        epoch: counted from 1, of an epoch whose model the runs kept; None for the last one.
    """
    methods = _rows(group)
    proportion = group.shown_proportion(methods)
    runs = group.matching(methods, proportion)
    records = [run.record_after(epoch) for run in runs]
    if records[0].truth is None:
        raise Missing(f"needs {TRUTH}")
    chosen = shown_classes(records[0])
    figure = start_figure(1.75 * len(records) + 0.45)
    grid = figure.subplots(len(records), len(chosen), squeeze=False)
    for line, record in zip(grid, records, strict=True):
        generator = record.method.generators[-1]
        scores = record.method.scores[generator]
        parts = [scores_by_label(scores, record.cells, record.truth, index) for index in chosen]
        limits = share_limits(
            [part[kind] for part in parts for kind in ("unknown present", "unknown absent")]
            + [record.method.thresholds[generator][list(chosen)]]
        )
        for axes, part, index in zip(line, parts, chosen, strict=True):
            _draw_panel(axes, record, generator, index, part, limits)
        title = method_style(record.method.name).title
        line[0].set_ylabel(f"{title}\n{generator_title(generator)}\nshare (%)")
    for axes in grid[-1]:
        axes.set_xlabel("score")
    for axes, (index, kind) in zip(grid[0], chosen.items(), strict=True):
        axes.set_title(panel_title(figure, records[0].classes[index], kind, len(chosen)), pad=25)
    shown = len(runs[0].epochs) if epoch is None else epoch
    note = (
        f"{known(group, proportion)}; unknown training cells by the hidden truth, generator as given at the left, "
        f"thresholds and scores after epoch {shown}, one run each (seed {runs[0].seed}). Above each panel: recall and "
        "precision of this generator's pseudo-labels. A row of panels has one scale of scores."
    )
    handles = [
        absent_handle("absent"),
        present_handle("present"),
        patch_handle("recalled: present, above the threshold", facecolor=style.PRESENT.light),
        patch_handle(
            "wrong: absent, above the threshold", facecolor=style.WRONG.light, hatch="xxxx", edgecolor="w"
        ),
        *(
            line_handle(
                method_style(run.method), f"threshold of {method_style(run.method).title}", marker=False
            )
            for run in runs
        ),
    ]
    return add_heading(figure, "Thresholds on the scores of unknown cells", note, handles)


def _rows(group: RunGroup) -> tuple[str, ...]:
    """Return the methods below each other: one with SATL, then the frameworks with one threshold for all."""
    methods = with_generators(group)
    found = [name for name in WITH_SATL.values() if name in methods][:1]
    found += [name for name in FRAMEWORKS if name in methods]
    return tuple(found) or methods[:3]


def _draw_panel(
    axes: Axes,
    record: RunRecord,
    generator: str,
    index: int,
    parts: dict[str, np.ndarray],
    limits: tuple[float, float],
) -> None:
    look = method_style(record.method.name)
    threshold = float(record.method.thresholds[generator][index])
    edges = bin_edges(limits)
    present, absent = clean(parts["unknown present"]), clean(parts["unknown absent"])
    axes.stairs(shares(absent, edges), edges, fill=True, color=style.ABSENT.light, alpha=0.75, linewidth=0)
    heights = shares(present, edges)
    axes.stairs(
        heights, edges, fill=True, facecolor="none", edgecolor=style.PRESENT.light, hatch="////", linewidth=0
    )
    recalled = shares(present[present > threshold], edges, total=len(present))
    axes.stairs(recalled, edges, fill=True, color=style.PRESENT.light, linewidth=0)
    wrong = shares(absent[absent > threshold], edges, total=len(absent))
    axes.stairs(
        wrong, edges, fill=True, facecolor=style.WRONG.light, hatch="xxxx", edgecolor="w", linewidth=0
    )
    axes.stairs(heights, edges, color=style.PRESENT.light, linewidth=1.2)
    axes.axvline(threshold, color=str(look.colour), linestyle=look.dash, linewidth=1.8)
    quality = record.quality[generator]
    recall, precision = quality.recall[index], quality.precision[index]
    axes.text(
        0.0,
        1.03,
        f"recall {_percent(recall)}\nprecision {_percent(precision)}",
        transform=axes.transAxes,
        fontsize=7,
        va="bottom",
        color=style.MUTED.light,
    )
    axes.set_xlim(*limits)
    axes.set_ylim(0, max(axes.get_ylim()[1], 1e-3) * 1.04)
    no_negative_ticks(axes)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %" if np.isfinite(value) else "\u2013"
