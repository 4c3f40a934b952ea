"""Figure 13: the classification loss while training, with and without SATL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from satl.drawing.axes import epoch_axis, stage_line
from satl.drawing.figure_layout import WIDTH, add_heading, line_handle, start_figure
from satl.drawing.style import method_style, styled
from satl.experiments.finished_runs import FinishedRun, RunGroup
from satl.experiments.paper_numbers import WITH_SATL
from satl.reports.paper_figures.common import Missing, percent, seeds, whole_pair

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_KNOWN, _PSEUDO = "classification", "pseudo"
_ACROSS = 3
Epoch = Mapping[str, Any]


@styled
def loss_curves(group: RunGroup) -> Figure:
    """Return figure 13: mean and spread over seeds by epoch, a column for each proportion.

    Above, the loss on the known labels alone, of which both methods have the same ones; below, the loss of the labels
    that the classifier is trained with, known ones and pseudo-labels, which is the paper's classification loss.
    """
    methods = whole_pair(group)
    both = [p for p in group.proportions(methods) if all(group.of(name, p) for name in methods)]
    if not both:
        raise Missing(f"needs runs of {methods[0]} and {methods[1]} at the same data.proportion")
    across = min(len(both), _ACROSS)
    down = -(-len(both) // across)
    figure = start_figure(2.0 * 2 * down, width=WIDTH if across > 1 else 4.6)
    grid = figure.subplots(2 * down, across, squeeze=False, sharey="row")
    counts: list[int] = []
    for line, (title, loss) in enumerate(
        (("known labels", known_loss), ("known and\npseudo-labels", class_loss)) * down
    ):
        for column, axes in enumerate(grid[line]):
            number = line // 2 * across + column
            if number >= len(both):
                axes.set_axis_off()
                continue
            # The dashed line goes on top, so that two equal curves are both seen.
            counts += [_draw(axes, group.of(name, both[number]), name, loss) for name in reversed(methods)]
            if line % 2 == 0:
                axes.set_title(f"{percent(both[number])} known")
                axes.set_xlabel("")
            axes.set_ylabel(f"{title}\n(nats)" if column == 0 else "")
            axes.set_ylim(bottom=0.0)
    over = seeds(counts)
    note = (
        f"{group.name}; binary cross-entropy, mean over the steps of an epoch. Above: on the known training labels "
        "alone. Below: on the labels the classifier is trained with, from stage 2 on the pseudo-labels too (the mean "
        f"over the generators). {over[0].upper()}{over[1:]}{' (line and band)' if max(counts) > 1 else ''}."
    )
    handles = [line_handle(method_style(name), marker=False) for name in methods]
    return add_heading(figure, "Classification loss with and without SATL", note, handles)


def known_loss(run: FinishedRun, epoch: Epoch) -> float:
    """Return the loss of an epoch on the known labels; NaN where the method has none."""
    return float(epoch["losses"].get(_KNOWN, np.nan))


def class_loss(run: FinishedRun, epoch: Epoch) -> float:
    """Return the loss of an epoch on the labels that the classifier is trained with.

    That is the loss on the known labels until there are pseudo-labels; then the one on known and pseudo-labels
    together, of which the metrics hold the weighted sum over the generators.
    """
    if _PSEUDO not in epoch["losses"]:
        return known_loss(run, epoch)
    settings = (run.config["method"].get("losses") or {}).get(_PSEUDO) or {}
    weight = float(settings.get("weight", 1.0))
    terms = 1 if settings.get("fused") else len(run.generators)
    return float(epoch["losses"][_PSEUDO]) / (weight * terms) if weight * terms else np.nan


def _draw(
    axes: Axes,
    runs: tuple[FinishedRun, ...],
    method: str,
    loss: Callable[[FinishedRun, Epoch], float],
) -> int:
    look = method_style(method)
    shortest = min(len(run.epochs) for run in runs)
    values = np.array([[loss(run, row) for row in run.epochs[:shortest]] for run in runs])
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
