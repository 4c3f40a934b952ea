"""Figure 13: the classification loss while training, with and without SATL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from satl.drawing.axes import epoch_axis, stage_line
from satl.drawing.figure_layout import WIDTH, add_heading, line_handle, start_figure
from satl.drawing.style import method_style, styled
from satl.experiments.finished_runs import RunGroup
from satl.experiments.paper_numbers import WITH_SATL
from satl.reports.paper_figures.common import Missing, percent, seeds, whole_pair

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TERM = "classification"
_ACROSS = 3


@styled
def loss_curves(group: RunGroup) -> Figure:
    """Return figure 13: mean and spread over seeds by epoch, a panel for each proportion."""
    methods = whole_pair(group)
    both = [p for p in group.proportions(methods) if all(group.of(name, p) for name in methods)]
    if not both:
        raise Missing(f"needs runs of {methods[0]} and {methods[1]} at the same data.proportion")
    across = min(len(both), _ACROSS)
    down = -(-len(both) // across)
    figure = start_figure(2.35 * down, width=WIDTH if across > 1 else 4.6)
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    counts: list[int] = []
    for number, axes in enumerate(grid.flat):
        if number >= len(both):
            axes.set_axis_off()
            continue
        # The dashed line goes on top, so that two equal curves are both seen.
        counts += [_draw(axes, group, name, both[number]) for name in reversed(methods)]
        axes.set_title(f"{percent(both[number])} known")
        axes.set_ylabel("loss on known labels (nats)" if number % across == 0 else "")
    note = (
        f"{group.name}; binary cross-entropy on the known training labels, mean over the steps of an epoch; "
        f"{seeds(counts)}{' (line and band)' if max(counts) > 1 else ''}."
    )
    handles = [line_handle(method_style(name), marker=False) for name in methods]
    return add_heading(figure, "Classification loss with and without SATL", note, handles)


def _draw(axes: Axes, group: RunGroup, method: str, proportion: float) -> int:
    look = method_style(method)
    runs = group.of(method, proportion)
    shortest = min(len(run.epochs) for run in runs)
    values = np.array([[row["losses"].get(_TERM, np.nan) for row in run.epochs[:shortest]] for run in runs])
    epochs = np.arange(1, shortest + 1)
    mean = values.mean(0)
    axes.plot(epochs, mean, color=str(look.colour), linestyle=look.dash, marker="o" if shortest == 1 else "")
    if len(runs) > 1:
        sd = values.std(0, ddof=1)
        axes.fill_between(epochs, mean - sd, mean + sd, color=str(look.colour), alpha=0.2, linewidth=0)
    epoch_axis(axes, 1, shortest)
    stage1 = sum(row["stage"] == 1 for row in runs[0].epochs)
    if method in WITH_SATL.values() and 1 <= stage1 < shortest:
        stage_line(axes, stage1 + 0.5)
    return len(runs)
