"""What the figures of the paper share: the choice of runs, error bars, and the wording of notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from satl.drawing.style import generator_title
from satl.errors import SatlError
from satl.experiments.finished_runs import FinishedRun, RunGroup
from satl.experiments.paper_numbers import FRAMEWORKS, WITH_SATL
from satl.experiments.results import Estimate
from satl.inference.run_record import RunRecord
from satl.reports.comparison import compare, easy_and_hard

_SUBJECTS = (
    *("sst+satl", "hst+satl", "satl+", "sst+sate", "hst+sate"),
    *("sst+drl", "hst+drl", "sst", "hst"),
)
TRUTH = "the truth of the unknown cells: hide labels with data.proportion, or give them with data.truth"


class Missing(SatlError):
    """A figure cannot be drawn from these runs; the message says what it needs and how to get it."""


Floats = npt.NDArray[np.float64]


def error_bars(estimates: Iterable[Estimate]) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Return means (NaN where there is none), standard deviations (0 of a single run) and numbers of runs, to draw.

    >>> error_bars([Estimate.of([1.0, 3.0]), Estimate.of([])])[0]
    array([ 2., nan])
    """
    found = list(estimates)
    return (
        np.array([np.nan if one.mean is None else one.mean for one in found], dtype=np.float64),
        np.array([one.deviation or 0.0 for one in found], dtype=np.float64),
        np.array([one.n for one in found], dtype=np.int64),
    )


def percent(proportion: float) -> str:
    """Write a proportion.

    >>> percent(0.05), percent(0.125)
    ('5 %', '12.5 %')
    """
    return f"{100 * proportion:.4g} %"


def known(group: RunGroup, proportion: float) -> str:
    """Return on what the runs of a figure were trained, in words."""
    return f"{group.name}, {percent(proportion)} of the training labels known"


def seeds(counts: Iterable[int]) -> str:
    """Return over how many runs an average is taken, in words.

    >>> seeds([3, 3]), seeds([1]), seeds([2, 3])
    ('mean and standard deviation, n = 3 seeds', 'n = 1 seed', 'mean and standard deviation, n = 2 to 3 seeds')
    """
    found = sorted(set(counts) - {0}) or [1]
    if found == [1]:
        return "n = 1 seed"
    number = str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return f"mean and standard deviation, n = {number} seeds"


def generators_note(generators: Sequence[str]) -> str:
    """Name the generators whose pseudo-labels are taken together.

    >>> generators_note(["intra", "cross"])
    'union of the intra-image and cross-image generators'
    """
    titles = [generator_title(name) for name in generators]
    if len(titles) == 1:
        return f"{titles[0]} generator"
    return f"union of the {' and '.join(titles)} generators"


def union_note(runs: Iterable[FinishedRun]) -> str:
    """Name the generators of several methods, which may differ."""
    kinds = list(dict.fromkeys(run.generators for run in runs if run.generators))
    if len(kinds) == 1:
        return generators_note(kinds[0])
    names = dict.fromkeys(name for kind in kinds for name in kind)
    titles = ", ".join(generator_title(name) for name in names)
    return f"union of each method's generators ({titles})"


def pair(group: RunGroup, order: Sequence[str] = FRAMEWORKS) -> tuple[str, ...]:
    """Return a framework and the same with SATL; only one of the two where the other was not run.

    Raises:
        Missing: there is neither.
    """
    pairs = [tuple(m for m in (name, WITH_SATL[name]) if m in group.methods) for name in order]
    best = max(pairs, key=len)
    if not best:
        raise Missing("needs a run of sst+satl and one of sst to compare with (method.name)")
    return best


def whole_pair(group: RunGroup) -> tuple[str, str]:
    """Return a framework and the same with SATL.

    Raises:
        Missing: one of them was not run.
    """
    found = pair(group)
    if len(found) == 1:
        (base,) = (name for name in FRAMEWORKS if found[0] in (name, WITH_SATL[name]))
        other = base if found[0] != base else WITH_SATL[base]
        raise Missing(f"needs a run of {other} beside {found[0]}: train one with method.name={other}")
    return found[0], found[1]


def with_generators(group: RunGroup) -> tuple[str, ...]:
    """Return the methods that make pseudo-labels.

    Raises:
        Missing: none does.
    """
    found = tuple(m for m in group.methods if any(run.generators for run in group.of(m)))
    if not found:
        raise Missing("needs a run of a method with generators, such as sst+satl (method.name)")
    return found


def subject(group: RunGroup) -> FinishedRun:
    """Return the run whose scores are shown: with generators, SATL where there is one, near 20 % known."""
    methods = with_generators(group)
    name = next((m for m in _SUBJECTS if m in methods), methods[0])
    return group.of(name, group.shown_proportion([name]))[0]


def shown_classes(record: RunRecord) -> dict[int, str]:
    """Return the four classes of a figure and whether each is easy or hard, by average precision.

    Raises:
        Missing: no class can be measured.
    """
    easy, hard = easy_and_hard(compare(record))
    if not easy:
        raise Missing("needs a class with a known positive among the test or validation images")
    return {**dict.fromkeys(easy, "easy"), **dict.fromkeys(hard, "hard")}
