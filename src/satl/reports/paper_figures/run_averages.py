"""Figures 5 and 7: numbers of whole runs, averaged over seeds: training time, precision of pseudo-labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from satl.drawing import style
from satl.drawing.figure_layout import add_heading, bar_look, line_handle, patch_handle, start_figure
from satl.drawing.style import method_style, styled
from satl.experiments.finished_runs import RunGroup
from satl.experiments.paper_numbers import WITH_SATL
from satl.experiments.results import Estimate
from satl.reports.paper_figures.common import (
    TRUTH,
    Missing,
    error_bars,
    percent,
    seeds,
    union_note,
    whole_pair,
    with_generators,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNITS = ((2 * 3600.0, 3600.0, "hours"), (2 * 60.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


@styled
def training_time(groups: Sequence[RunGroup]) -> Figure:
    """Return figure 5: how long a framework trains alone and with SATL, on every data set."""
    bars: list[tuple[str, str, float, float, int]] = []
    for group in groups:
        for methods in WITH_SATL.items():
            if all(method in group.methods for method in methods):
                for method in methods:
                    seconds = group.results.paired(
                        "train_seconds", method, group.proportions([method]), model="last"
                    )
                    spent = Estimate.of(seconds.values())
                    bars.append((group.name, method, spent.mean or 0.0, spent.deviation or 0.0, spent.n))
    if not bars:
        whole_pair(groups[0])
    largest = max(bar[2] for bar in bars)
    factor, unit = next((factor, unit) for least, factor, unit in _UNITS if largest >= least)
    figure = start_figure(2.6)
    axes = figure.subplots()
    ticks, labels = [], []
    for number in range(0, len(bars), 2):
        place = number // 2
        for side, (_, method, mean, sd, _) in zip((-1, 1), bars[number : number + 2], strict=True):
            x = place + 0.19 * side
            axes.bar(x, mean / factor, 0.36, **bar_look(method_style(method)))
            if sd:
                axes.errorbar(
                    x, mean / factor, sd / factor, color=style.INK.light, capsize=2.5, linewidth=1.0
                )
            axes.annotate(
                f"{mean / factor:.3g}",
                (x, (mean + sd) / factor),
                xytext=(0, 2.5),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=8,
            )
        ticks.append(place)
        name, base, plain, *_ = bars[number]
        share = bars[number + 1][2] / plain - 1 if plain else 0.0
        more = f"{100 * share:+.0f} %".replace("-", "\u2212")
        labels.append(f"{method_style(base).title} on {name}\nwith SATL {more}")
    axes.set_xticks(ticks, labels)
    axes.tick_params(axis="x", labelcolor=style.INK.light)
    axes.set_xlim(-0.6, len(ticks) - 0.4)
    axes.set_ylim(0, 1.15 * max(mean + sd for _, _, mean, sd, _ in bars) / factor)
    axes.set_ylabel(f"training time ({unit})")
    axes.grid(visible=False, axis="x")
    shown = dict.fromkeys(method for _, method, *_ in bars)
    handles = [patch_handle(method_style(m).title, **bar_look(method_style(m))) for m in shown]
    counts = sorted({count for *_, count in bars})
    runs = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
    note = (
        f"Time in training steps, validation left out; mean over all proportions and seeds ({runs} "
        f"run{'' if counts == [1] else 's'} a bar), lines are the standard deviation."
    )
    return add_heading(figure, "Training time of a framework alone and with SATL", note, handles)


@styled
def precision_by_proportion(group: RunGroup) -> Figure:
    """Return figure 7: mean precision of the pseudo-labels on unknown cells at each known proportion."""
    methods = [
        name
        for name in with_generators(group)
        if group.results.paired("pseudo_precision", name, group.proportions([name]), model="last")
    ]
    if not methods:
        raise Missing(f"needs pseudo-labels and {TRUTH}")
    proportions = group.proportions(methods)
    figure = start_figure(2.9)
    axes = figure.subplots()
    counts: list[int] = []
    for number, name in enumerate(methods):
        look = method_style(name)
        # A little apart, so that no method's error bars hide another's.
        shift = 0.05 * (number - (len(methods) - 1) / 2)
        mean, sd, n = error_bars(
            Estimate.of(group.results.by_seed("pseudo_precision", name, p, model="last").values())
            for p in proportions
        )
        counts += [int(count) for count in n]
        axes.errorbar(
            np.arange(len(proportions)) + shift,
            mean,
            sd if (n > 1).any() else None,
            color=str(look.colour),
            linestyle=look.dash,
            marker=look.marker,
            markersize=6,
            markeredgecolor=style.PAPER.light,
            markeredgewidth=0.6,
            capsize=2.5,
            elinewidth=1.0,
        )
    axes.set_xticks(range(len(proportions)), [percent(p) for p in proportions])
    axes.set_xlim(-0.4, len(proportions) - 0.6)
    axes.set_xlabel("known proportion of the training labels")
    axes.set_ylabel("precision, mean over classes (%)")
    low, high = axes.get_ylim()
    axes.set_ylim(max(0.0, low - 0.04 * (high - low)), min(high + 0.04 * (high - low), 101.0))
    axes.grid(visible=False, axis="x")
    runs = [run for name in methods for run in group.of(name)]
    note = f"{group.name}; unknown training cells in the last epoch, {union_note(runs)}; {seeds(counts)}."
    silent = [method_style(name).title for name in with_generators(group) if name not in methods]
    note += f" No pseudo-label to judge: {', '.join(silent)}." if silent else ""
    handles = [line_handle(method_style(name)) for name in methods]
    return add_heading(figure, "Precision of the pseudo-labels at each known proportion", note, handles)
