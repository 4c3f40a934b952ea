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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BUSY = 0.5
"""So many processors that other programs keep busy make the time of a training doubtful."""
_UNITS = ((2 * 3600.0, 3600.0, "hours"), (2 * 60.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


@styled
def training_time(groups: Sequence[RunGroup]) -> Figure:
    """Return figure 5: how long a framework trains alone and with SATL, on every data set."""
    bars: list[tuple[str, str, float, float, int]] = []
    shares: list[Estimate] = []
    for group in groups:
        for methods in WITH_SATL.items():
            if all(method in group.methods for method in methods):
                spent = [_seconds(group, method) for method in methods]
                shares.append(
                    Estimate.of(
                        100 * (spent[1][place] / spent[0][place] - 1)
                        for place in sorted(spent[0].keys() & spent[1].keys())
                        if spent[0][place]
                    )
                )
                for method, seconds in zip(methods, spent, strict=True):
                    own = Estimate.of(seconds.values())
                    bars.append((group.name, method, own.mean or 0.0, own.deviation or 0.0, own.n))
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
        name, base, *_ = bars[number]
        labels.append(f"{method_style(base).title} on {name}\nwith SATL {_more(shares[place])}")
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
        f"run{'' if counts == [1] else 's'} a bar), lines are the standard deviation. With SATL: mean and standard "
        f"deviation over runs with the same proportion and seed. {_conditions(groups, shares)}"
    )
    return add_heading(figure, "Training time of a framework alone and with SATL", note, handles)


def _seconds(group: RunGroup, method: str) -> dict[tuple[float, int], float]:
    return group.results.paired("train_seconds", method, group.proportions([method]), model="last")


def _more(share: Estimate) -> str:
    """Write how much longer a run takes.

    >>> _more(Estimate.of([3.0, 5.0])), _more(Estimate.of([-7.0])), _more(Estimate.of([]))
    ('+4 ± 1 %', '−7 %', 'not comparable')
    """
    if share.mean is None:
        return "not comparable"
    spread = "" if share.deviation is None else f" ± {share.deviation:.0f}"
    mean = round(share.mean) or 0  # no minus before nothing
    return f"{mean:+d}{spread} %".replace("-", "\u2212")


def _conditions(groups: Sequence[RunGroup], shares: Sequence[Estimate]) -> str:
    """Say how far the times can be trusted."""
    shown = {method for pair in WITH_SATL.items() for method in pair}
    runs = [run for group in groups for run in group.plain if run.method in shown]
    jobs = {run.jobs for run in runs}
    side_by_side = max((number for number in jobs if number is not None), default=0)
    others = [run.other_processors for run in runs]
    busy = max((number for number in others if number is not None), default=0.0)
    text = ""
    if side_by_side > 1:
        text = f"Up to {side_by_side} runs shared the machine, so that they also measure each other. "
    if busy > BUSY:
        text += f"Other programs kept up to {busy:.1f} processors busy. "
    elif None in others:
        text += "What else the machine did meanwhile is not recorded. "
    elif not text:
        text = "The machine did next to nothing else meanwhile. "
    if any(share.mean is not None and share.mean < 0 for share in shares):
        text = f"SATL only adds work, so a negative difference is noise of the machine. {text}"
    elif any(
        share.mean is None or share.deviation is None or share.mean < 2 * share.deviation for share in shares
    ):
        text = f"A difference of less than two standard deviations says nothing. {text}"
    elif side_by_side <= 1 and busy <= BUSY:
        return text.strip()
    return f"Warning: {text.strip()}"


@styled
def precision_by_proportion(group: RunGroup) -> Figure:
    """Return figure 7: mean precision of the pseudo-labels on unknown cells at each known proportion.

    Their recall stands beside it, without which a precision says little: a threshold that lets nothing pass has 100 %.
    """
    methods = [
        name
        for name in with_generators(group)
        if group.results.paired("pseudo_precision", name, group.proportions([name]), model="last")
    ]
    if not methods:
        raise Missing(f"needs pseudo-labels and {TRUTH}")
    proportions = group.proportions(methods)
    figure = start_figure(2.9)
    counts: list[int] = []
    for axes, kind in zip(figure.subplots(1, 2), ("precision", "recall"), strict=True):
        for number, name in enumerate(methods):
            # A little apart, so that no method's error bars hide another's.
            shift = 0.05 * (number - (len(methods) - 1) / 2)
            counts += _draw_quality(axes, group, name, proportions, f"pseudo_{kind}", shift)
        axes.set_xticks(range(len(proportions)), [percent(p) for p in proportions])
        axes.set_xlim(-0.4, len(proportions) - 0.6)
        axes.set_xlabel("known training labels")
        axes.set_ylabel(f"{kind}, mean over classes (%)")
        axes.set_ylim(-3.0, 103.0)  # all of it: a cut axis makes small differences look large
        axes.set_yticks(range(0, 101, 20))
        axes.grid(visible=False, axis="x")
    runs = [run for name in methods for run in group.of(name)]
    note = (
        f"{group.name}; unknown training cells in the last epoch, {union_note(runs)}; {seeds(counts)}. Precision is a "
        "mean over the classes that have a pseudo-label."
    )
    silent = [method_style(name).title for name in with_generators(group) if name not in methods]
    note += f" No pseudo-label to judge: {', '.join(silent)}." if silent else ""
    handles = [line_handle(method_style(name)) for name in methods]
    return add_heading(figure, "Pseudo-labels at each known proportion", note, handles)


def _draw_quality(
    axes: Axes, group: RunGroup, method: str, proportions: Sequence[float], column: str, shift: float
) -> list[int]:
    """Draw the line of a method; return how many seeds its points have."""
    look = method_style(method)
    mean, sd, n = error_bars(
        Estimate.of(group.results.by_seed(column, method, p, model="last").values()) for p in proportions
    )
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
    return [int(count) for count in n]
