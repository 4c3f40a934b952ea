"""Tables of differences: paired tests, differences at each proportion, what a change of settings does, sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Any

from satl.evaluation.paired_tests import PairedTest, holm, pair_by_key, paired_test
from satl.experiments.grid import Grid, Sweep
from satl.experiments.paper_numbers import WITH_SATL, Paper
from satl.experiments.tables.number_text import (
    DASH,
    MINUS,
    MISSING,
    number,
    p_value,
    share,
    spread,
    title_of,
)
from satl.experiments.tables.table_data import Block, Column, Entry, Row, Table, estimate_rows
from satl.experiments.tables.table_source import TableSource

CONFIDENCE = 0.95
QUALITIES = {"all cells": "_micro", "class mean": ""}
"""How precision and recall of pseudo-labels are averaged, and how the columns of the results end that hold it."""
QUALITY_NOTE = (
    "All cells, class mean: precision / recall of the pseudo-labels of all generators in the last epoch, over all "
    "unknown cells together, and the mean over the classes (precision: over those that have a pseudo-label)."
)
Place = tuple[str, str]
"""Method and variant; the variant is empty for plain runs."""
_DIFFERENCE = "difference [95 % interval], p (Holm)"
_DIFFERENCE_NOTE = (
    "Differences in points of mAP, paired by seed: mean, 95 % confidence interval of this difference alone, p of the "
    "two-sided t-test, and in brackets p after Holm's correction over all tests of one model in the table."
)


def compared_methods(grid: Grid) -> tuple[tuple[str, str], ...]:
    """Return the pairs of methods that are compared: those with SATL, or else the last one, with every other."""
    subjects = [method for method in grid.methods if method in WITH_SATL.values()] or [grid.methods[-1]]
    return tuple(
        (subject, other)
        for subject, other in product(subjects, grid.methods)
        if other != subject and not (other in subjects and subjects.index(other) < subjects.index(subject))
    )


def paired_table(source: TableSource) -> Table | None:
    """Return Table 3: the SATL methods against every other, paired by proportion and seed; None for a single method."""
    grid, paper = source.grid, source.paper
    found = {pair: _test(source, *pair) for pair in compared_methods(grid)}
    if not found:
        return None
    subjects = tuple(dict.fromkeys(subject for subject, _ in found))
    adjusted = _holm_by_key({pair: test for pair, (test, _, _) in found.items()})
    adjusted_seeds = _holm_by_key({pair: of_seeds for pair, (_, of_seeds, _) in found.items()})
    blocks = []
    for subject in subjects:
        rows = []
        for (one, other), (test, of_seeds, left_out) in found.items():
            if one == subject:
                corrected = adjusted[one, other], adjusted_seeds[one, other]
                label = f"{title_of(subject)} {MINUS} {title_of(other)}"
                entries = _test_entries(test, corrected, of_seeds, left_out)
                rows.append(Row(label, (*entries, *_paper_entries(paper, subject, other))))
        if rows:
            blocks.append(Block(f"{title_of(subject)} against the others", tuple(rows)))
    names = (
        *("n", "difference", "95 % interval", "d_z", "t", "p", "p (Holm)", "p (Wilcoxon)"),
        *("p (seeds)", "p (seeds, Holm)"),
    )
    return Table(
        key="table-3-paired",
        heading="Table 3: paired tests on mAP",
        title=f"Paired tests on mAP on {source.label}{' beside the paper' if paper else ''}",
        stub=f"first {MINUS} second",
        columns=(
            *(Column(name, source.ours) for name in names),
            *_paper_columns(source),
        ),
        blocks=tuple(blocks),
        notes=(
            source.tested,
            "Differences in points of mAP.",
            *source.on_validation,
            "A pair is two runs with the same proportion and seed, so with the same images and known labels; n counts "
            "the pairs of which both runs are there (in brackets: runs without a partner, left out). Two-sided; d_z is "
            "the mean difference divided by the standard deviation of the differences; Holm's correction is over the "
            "tests of one model in this table.",
            "Runs of one seed at several proportions share labels (masks are nested), so pairs are not independent: "
            "intervals are too narrow and p-values too small, with several proportions often by orders of magnitude. "
            "p (seeds) is of the same t-test with one pair a seed, the means over the proportions that both runs have.",
            MISSING,
            *(paper.notes("table3") if paper else ()),
        ),
    )


def _test(source: TableSource, subject: str, other: str) -> tuple[PairedTest | None, PairedTest | None, int]:
    """Return the test over all pairs, that over the means of seeds, and the number of runs without a partner."""
    results, grid = source.results, source.grid
    pairs = pair_by_key(
        results.paired("mAP", subject, grid.proportions, "", source.model),
        results.paired("mAP", other, grid.proportions, "", source.model),
    )
    if not pairs.keys:
        return None, None, len(pairs.left_out)
    of_seeds: dict[int, list[tuple[float, float]]] = {}
    for (_, seed), one, two in zip(pairs.keys, pairs.first, pairs.second, strict=True):
        of_seeds.setdefault(seed, []).append((one, two))
    means = [[fmean(side) for side in zip(*values, strict=True)] for values in of_seeds.values()]
    return (
        paired_test(pairs.first, pairs.second, CONFIDENCE),
        paired_test([mean[0] for mean in means], [mean[1] for mean in means], CONFIDENCE),
        len(pairs.left_out),
    )


def _test_entries(
    test: PairedTest | None, corrected: tuple[float, float], of_seeds: PairedTest | None, left_out: int
) -> tuple[Entry, ...]:
    if test is None or of_seeds is None:
        return (Entry("0"), *(Entry() for _ in range(9)))
    interval = f"{number(test.interval_low, 2)} to {number(test.interval_high, 2)}"
    texts = (
        f"{test.n} ({left_out})" if left_out else str(test.n),
        number(test.mean_difference, 2),
        interval if test.n > 1 else DASH,
        number(test.effect_size, 2),
        number(test.t, 2),
        p_value(test.p_value),
        p_value(corrected[0]),
        p_value(test.wilcoxon_p_value),
        p_value(of_seeds.p_value),
        p_value(corrected[1]),
    )
    return tuple(Entry(text) for text in texts)


def _paper_columns(source: TableSource) -> tuple[Column, ...]:
    if source.paper is None:
        return ()
    group = source.paper_heading(source.paper.content["table3"]["dataset"], "Table 3")
    return Column("t", group, foreign=True), Column("p", group, foreign=True)


def _paper_entries(paper: Paper | None, subject: str, other: str) -> tuple[Entry, ...]:
    if paper is None:
        return ()
    test = paper.test_of(subject, other)
    return (Entry(), Entry()) if test is None else (Entry(f"{test[0]:.4f}"), Entry(f"{test[1]:.4f}"))


@dataclass(frozen=True)
class Tested:
    """A paired test, and its p-value after Holm's correction over all tests of its table; NaN of a single pair."""

    test: PairedTest
    corrected: float

    def text(self, seeds: int) -> str:
        """Write mean difference, interval, p and corrected p; fewer pairs than ``seeds`` are said.

        >>> Tested(paired_test([3.0, 4.0, 5.2], [1.0, 2.0, 3.0]), 0.004).text(5)
        '2.1 [1.8, 2.4], 0.0010 (0.0040), n = 3'
        >>> Tested(paired_test([3.0], [1.0]), float("nan")).text(5)
        '2.0, one seed'
        """
        test = self.test
        if test.n == 1:
            return f"{number(test.mean_difference)}, one seed"
        interval = f"[{number(test.interval_low)}, {number(test.interval_high)}]"
        fewer = "" if test.n >= seeds else f", n = {test.n}"
        p_values = f"{p_value(test.p_value)} ({p_value(self.corrected)})"
        return f"{number(test.mean_difference)} {interval}, {p_values}{fewer}"


def paired_tests(
    source: TableSource, pairs: Iterable[tuple[Place, Place]], proportions: Sequence[float]
) -> dict[tuple[Place, Place, float], Tested]:
    """Test every pair at every proportion over the seeds that both have, with Holm's correction over all of them.

    Args:
        source: the results; those of its model are taken.
        pairs: what is compared.
        proportions: where.

    Returns:
        first, second and proportion -> the test; nothing where no seed has both.
    """
    tests: dict[tuple[Place, Place, float], PairedTest | None] = {}
    for first, second in pairs:
        for proportion in proportions:
            found = pair_by_key(
                source.values(first[0], proportion, first[1]), source.values(second[0], proportion, second[1])
            )
            if found.keys:
                tests[first, second, proportion] = paired_test(found.first, found.second, CONFIDENCE)
    corrected = _holm_by_key(tests)
    return {key: Tested(test, corrected[key]) for key, test in tests.items() if test is not None}


def _holm_by_key(tests: Mapping[Any, PairedTest | None]) -> dict[Any, float]:
    """Return corrected p-values; NaN where there is no test."""
    p_values = [float("nan") if test is None else test.p_value for test in tests.values()]
    return dict(zip(tests, holm(p_values), strict=True))


def differences_table(
    source: TableSource,
    pairs: Iterable[tuple[Place, Place]] | None = None,
    proportions: Sequence[float] | None = None,
) -> Table | None:
    """Return differences in mAP at each proportion, paired by seed; None where there is nothing to compare.

    Args:
        source: the results.
        pairs: what is compared; None for the methods of :func:`compared_methods`.
        proportions: None for those of the grid.
    """
    grid = source.grid
    if pairs is None:
        pairs = [((one, ""), (other, "")) for one, other in compared_methods(grid)]
    pairs = list(pairs)
    shown = grid.proportions if proportions is None else proportions
    tests = paired_tests(source, pairs, shown)
    rows = []
    for first, second in pairs:
        found = [tests.get((first, second, one)) for one in shown]
        entries = [Entry() if one is None else Entry(one.text(len(grid.seeds))) for one in found]
        rows.append(Row(f"{_title(first)} {MINUS} {_title(second)}", tuple(entries)))
    if not rows:
        return None
    return Table(
        key="differences",
        heading="Differences at each proportion",
        title=f"Differences in mAP at each proportion on {source.label}",
        stub="difference in mAP [95 % interval], p (Holm)",
        columns=tuple(Column(share(one)) for one in shown),
        blocks=(Block(source.ours, tuple(rows)),),
        notes=(source.tested, *source.on_validation, _DIFFERENCE_NOTE, MISSING),
    )


def _title(place: Place) -> str:
    method, variant = place
    return f"{title_of(method)}, {variant}" if variant else title_of(method)


@dataclass(frozen=True)
class Change:
    """A row of :func:`changes_table`.

    Attributes:
        label: what it is called.
        place: its method and variant.
        base: the method and variant that it is compared with; None to compare it with nothing.
    """

    label: str
    place: Place
    base: Place | None = None


def grid_changes(grid: Grid) -> list[Change]:
    """Return the variants and sweep values of a grid, below the plain runs of their method."""
    varied = [(method, one.name) for one in grid.variants for method in one.methods or grid.methods]
    varied += [
        (method, one.variant(value))
        for one in grid.sweeps
        for method in one.methods or grid.methods
        for value in one.values
    ]
    changes = []
    for method in dict.fromkeys(method for method, _ in varied):
        changes.append(Change(title_of(method), (method, "")))
        changes += [Change(_title(place), place, base=(method, "")) for place in varied if place[0] == method]
    return changes


def changes_table(
    source: TableSource, changes: Sequence[Change] | None = None, proportions: Sequence[float] | None = None
) -> Table | None:
    """Return what changes of settings do: mAP, its difference from the base, precision / recall of pseudo-labels.

    Args:
        source: the results.
        changes: the rows; None for the variants and sweeps of the grid.
        proportions: None for those of the grid.

    Returns:
        The table, or None without a row.
    """
    grid, seeds = source.grid, len(source.grid.seeds)
    rows = []
    shown = grid.proportions if proportions is None else proportions
    changes = grid_changes(grid) if changes is None else changes
    pairs = dict.fromkeys((one.place, one.base) for one in changes if one.base is not None)
    tests = paired_tests(source, pairs, shown)
    for change in changes:
        texts = []
        for one in shown:
            method, variant = change.place
            difference = ""
            if change.base is not None:
                tested = tests.get((change.place, change.base, one))
                difference = DASH if tested is None else tested.text(seeds)
            texts += [
                spread(source.estimate(method, one, variant), seeds),
                difference,
                *(quality_text(source, method, one, variant, kind) for kind in QUALITIES),
            ]
        rows.append(Row(change.label, tuple(map(Entry, texts))))
    if not rows:
        return None
    labels = (("mAP", False), (_DIFFERENCE, False), *((kind, True) for kind in QUALITIES))
    return Table(
        key="changes",
        heading="Variants and sweeps against plain runs",
        title=f"Variants and sweeps against plain runs on {source.label}",
        stub="",
        columns=tuple(Column(label, share(one), of_run=of_run) for one in shown for label, of_run in labels),
        blocks=(Block(source.ours, tuple(rows)),),
        notes=(*source.model_notes(), _DIFFERENCE_NOTE, QUALITY_NOTE, MISSING),
    )


def quality_text(
    source: TableSource, method: str, proportion: float, variant: str = "", kind: str = "all cells"
) -> str:
    """Write precision / recall of the pseudo-labels, means over the seeds.

    Args:
        source: the results.
        method: of the runs.
        proportion: of the known labels.
        variant: of the runs.
        kind: one of :data:`QUALITIES`.
    """
    both = [
        source.estimate(method, proportion, variant, f"pseudo_{measure}{QUALITIES[kind]}")
        for measure in ("precision", "recall")
    ]
    if any(one.mean is None for one in both):
        return DASH
    # Without a pseudo-label there is no precision, hence the n of each. Deviations would make the tables unreadable.
    return " / ".join(spread(replace(one, deviation=None), len(source.grid.seeds)) for one in both)


def sweep_table(source: TableSource, sweep: Sweep, key: str) -> Table:
    """Return mAP and pseudo-label quality over the values of a setting."""
    grid = source.grid
    places = list(product(sweep.methods or grid.methods, sweep.proportions or grid.proportions))
    columns = ("mAP", "pseudo_precision", "pseudo_recall")
    seeds = len(sweep.seeds or grid.seeds)
    lines = []
    for value in sweep.values:
        variant = sweep.variant(value)
        lines.append(
            [
                source.estimate(method, one, variant, column)
                for (method, one), column in product(places, columns)
            ]
        )
    settings = f" with {', '.join(sweep.set)}" if sweep.set else ""
    return Table(
        key=key,
        heading=f"Sweep of {sweep.key}{settings}",
        title=f"{sweep.key}{settings} on {source.label}",
        stub=sweep.title,
        columns=tuple(
            Column(label, f"{title_of(method)}, {share(one)}", of_run=label != "mAP")
            for (method, one), label in product(places, ("mAP", "precision", "recall"))
        ),
        blocks=(Block(source.ours, estimate_rows([str(value) for value in sweep.values], lines, seeds)),),
        notes=(
            *source.model_notes(sweep.seeds),
            "Precision and recall: of the pseudo-labels of all generators in the last epoch, mean over classes.",
            MISSING,
            *(source.paper.prose_of_setting(sweep.key) if source.paper else ()),
        ),
    )
