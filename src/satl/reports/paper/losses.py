"""Figure 13: the classification loss while training, with and without SATL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from satl.drawing.axes import epoch_axis, stage_line
from satl.drawing.sheet import WIDTH, finish, line_handle, new_sheet
from satl.drawing.style import method_style, styled
from satl.reports.paper.common import Missing, percent, seeds, whole_pair
from satl.reports.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TERM = "classification"
_ACROSS = 3


@styled
def loss_curves(study: Study) -> Figure:
    """Return figure 13: mean and spread over seeds by epoch, a panel for each proportion."""
    methods = whole_pair(study)
    both = [p for p in study.proportions(methods) if all(study.of(name, p) for name in methods)]
    if not both:
        raise Missing(f"needs runs of {methods[0]} and {methods[1]} at the same data.proportion")
    across = min(len(both), _ACROSS)
    down = -(-len(both) // across)
    figure = new_sheet(2.35 * down, width=WIDTH if across > 1 else 4.6)
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    counts: list[int] = []
    for number, axes in enumerate(grid.flat):
        if number >= len(both):
            axes.set_axis_off()
            continue
        # The dashed line goes on top, so that two equal curves are both seen.
        counts += [_draw(axes, study, name, both[number]) for name in reversed(methods)]
        axes.set_title(f"{percent(both[number])} known")
        axes.set_ylabel("loss on known labels (nats)" if number % across == 0 else "")
    note = (
        f"{study.name}; binary cross-entropy on the known training labels, mean over the steps of an epoch; "
        f"{seeds(counts)}{' (line and band)' if max(counts) > 1 else ''}."
    )
    handles = [line_handle(method_style(name), marker=False) for name in methods]
    return finish(figure, "Classification loss with and without SATL", note, handles)


def _draw(axes: Axes, study: Study, method: str, proportion: float) -> int:
    look = method_style(method)
    runs = study.of(method, proportion)
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
    if method.endswith("+satl") and 1 <= stage1 < shortest:
        stage_line(axes, stage1 + 0.5)
    return len(runs)
