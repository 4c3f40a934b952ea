"""The tables around recognition: paired tests, sweeps, training time, pseudo-labels."""

from __future__ import annotations

from itertools import product
from statistics import fmean

from satl.evaluation.paired import PairedTest, holm, pair_by_key, paired_test
from satl.experiments.grid import Sweep
from satl.experiments.results import Estimate, Results
from satl.experiments.tables import (
    DASH,
    MINUS,
    MISSING,
    TIMES,
    Block,
    Column,
    Entry,
    Row,
    Study,
    Table,
    estimate_rows,
    number,
    p_value,
    share,
    spread,
    title_of,
)

CONFIDENCE = 0.95


def paired_table(study: Study) -> Table | None:
    """Return Table 3: the SATL methods against every other, paired by proportion and seed.

    A grid without a SATL method has its last method compared; one with a single method has no such table.
    """
    grid, paper = study.grid, study.paper
    subjects = [method for method in grid.methods if method.endswith("+satl")] or [grid.methods[-1]]
    found = {
        (subject, other): _test(study, subject, other)
        for subject, other in product(subjects, grid.methods)
        if other != subject and not (other in subjects and subjects.index(other) < subjects.index(subject))
    }
    if not found:
        return None
    tested = [test.p_value for test, *_ in found.values() if test is not None]
    adjusted = iter(holm(tested))
    blocks = []
    for subject in subjects:
        rows = []
        for (one, other), (test, of_seeds, left_out) in found.items():
            if one == subject:
                corrected = float("nan") if test is None else next(adjusted)
                printed = paper.test_of(subject, other)
                theirs = (Entry(), Entry()) if printed is None else _printed(printed)
                label = f"{title_of(subject)} {MINUS} {title_of(other)}"
                rows.append(Row(label, (*_entries(test, corrected, of_seeds, left_out), *theirs)))
        if rows:
            blocks.append(Block(f"{title_of(subject)} against the others", tuple(rows)))
    names = ("n", "difference", "95 % interval", "d_z", "t", "p", "p (Holm)", "p (Wilcoxon)", "p (seeds)")
    theirs_group = study.theirs(paper.content["table3"]["dataset"], "Table 3")
    return Table(
        key="table-3-paired" if study.model == "best" else f"table-3-paired-{study.model}",
        heading="Table 3: paired tests on mAP",
        title=f"Paired tests on mAP on {study.label} beside the paper",
        stub=f"first {MINUS} second",
        columns=(
            *(Column(name, study.ours) for name in names),
            Column("t", theirs_group, foreign=True),
            Column("p", theirs_group, foreign=True),
        ),
        blocks=tuple(blocks),
        notes=(
            f"{study.tested}; differences in points of mAP.",
            "A pair is two runs with the same proportion and seed, so with the same images and known labels; n counts "
            "the pairs of which both runs are there (in brackets: runs without a partner, left out). Two-sided; d_z is "
            "the mean difference divided by the standard deviation of the differences; Holm's correction is over the "
            "tests of this table.",
            "Runs of one seed at several proportions share labels (masks are nested), so pairs are not independent: "
            "intervals are too narrow and p-values too small, with several proportions often by orders of magnitude. "
            "p (seeds) is of the same t-test with one pair a seed, the means over the proportions that both runs have.",
            MISSING,
            *paper.notes("table3"),
        ),
    )


def _test(study: Study, subject: str, other: str) -> tuple[PairedTest | None, PairedTest | None, int]:
    """Return the test over all pairs, that over the means of seeds, and the number of runs without a partner."""
    results, grid = study.results, study.grid
    pairs = pair_by_key(
        results.paired("mAP", subject, grid.proportions, "", study.model),
        results.paired("mAP", other, grid.proportions, "", study.model),
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


def _entries(
    test: PairedTest | None, corrected: float, of_seeds: PairedTest | None, left_out: int
) -> tuple[Entry, ...]:
    if test is None or of_seeds is None:
        return (Entry("0"), *(Entry() for _ in range(8)))
    interval = f"{number(test.interval_low, 2)} to {number(test.interval_high, 2)}"
    texts = (
        f"{test.n} ({left_out})" if left_out else str(test.n),
        number(test.mean_difference, 2),
        interval if test.n > 1 else DASH,
        number(test.effect_size, 2),
        number(test.t, 2),
        p_value(test.p_value),
        p_value(corrected),
        p_value(test.wilcoxon_p_value),
        p_value(of_seeds.p_value),
    )
    return tuple(Entry(text) for text in texts)


def _printed(test: tuple[float, float]) -> tuple[Entry, Entry]:
    return Entry(f"{test[0]:.4f}"), Entry(f"{test[1]:.4f}")


def sweep_table(study: Study, sweep: Sweep, key: str) -> Table:
    """Return mAP and pseudo-label quality over the values of a setting."""
    grid, results = study.grid, study.results
    places = list(product(sweep.methods or grid.methods, sweep.proportions or grid.proportions))
    columns = ("mAP", "pseudo_precision", "pseudo_recall")
    seeds = len(sweep.seeds or grid.seeds)
    lines = []
    for value in sweep.values:
        variant = sweep.variant(value)
        lines.append(
            [
                Estimate.of(results.by_seed(column, method, one, variant, study.model).values())
                for (method, one), column in product(places, columns)
            ]
        )
    settings = f" with {', '.join(sweep.set)}" if sweep.set else ""
    return Table(
        key=key,
        heading=f"Sweep of {sweep.key}{settings}",
        title=f"{sweep.key}{settings} on {study.label}",
        stub=sweep.title,
        columns=tuple(
            Column(label, f"{title_of(method)}, {share(one)}")
            for (method, one), label in product(places, ("mAP", "precision", "recall"))
        ),
        blocks=(Block(study.ours, estimate_rows([str(value) for value in sweep.values], lines, seeds)),),
        notes=(
            f"mAP: {study.tested[:1].lower()}{study.tested[1:]}, in per cent; {study.seeds_note(sweep.seeds)}.",
            "Precision and recall: of the pseudo-labels of all generators in the last epoch, mean over classes.",
            MISSING,
            *study.paper.prose_of_setting(sweep.key),
        ),
    )


def time_table(study: Study) -> Table:
    """Return the seconds of training of every method, and the ratio to its base where it is one plus something."""
    grid, results = study.grid, study.results
    rows = []
    for method in grid.methods:
        own = results.paired("train_seconds", method, grid.proportions)
        base = method.partition("+")[0]
        entries = [Entry(spread(Estimate.of(own.values()), 0, 1)), Entry(str(len(own)))]
        if base != method and base in grid.methods:
            other = results.paired("train_seconds", base, grid.proportions)
            ratio = Estimate.of(
                own[place] / other[place] for place in own.keys() & other.keys() if other[place]
            )
            entries += [Entry(title_of(base)), Entry(spread(ratio, 0, 2))]
        else:
            entries += [Entry(), Entry()]
        rows.append(Row(title_of(method), tuple(entries)))
    return Table(
        key="time",
        heading="Training time",
        title=f"Training time on {study.label}",
        stub="method",
        columns=(Column("seconds"), Column("runs"), Column("base"), Column(f"{TIMES} base")),
        blocks=(Block(study.ours, tuple(rows)),),
        notes=(
            "Seconds of the training steps of a whole run, validation and test not counted: mean ± standard deviation "
            f"over proportions and seeds. {TIMES} base: mean ratio of runs with the same proportion and seed.",
            _machine(results),
            study.paper.prose("time"),
        ),
    )


def _machine(results: Results) -> str:
    """Say under which conditions the times were measured."""
    found = sorted(
        {
            (str(row["device"]), int(row["threads"]), int(row["jobs"]))
            for row in results.rows
            if row["status"] == "done"
        }
    )
    text = "; ".join(
        f"{device} with {threads} thread{'s' if threads > 1 else ''}, "
        f"{f'{jobs} runs side by side' if jobs > 1 else 'one run at a time'}"
        for device, threads, jobs in found
    )
    if len(found) > 1:
        return f"Not all runs were timed alike ({text}): compare with care."
    return f"Timed on {text}." if text else "Nothing has been timed yet."


def pseudo_table(study: Study) -> Table | None:
    """Return precision and recall of pseudo-labels by proportion, or None if no run has any that can be judged."""
    grid, results = study.grid, study.results
    kinds = ("pseudo_precision", "pseudo_recall")
    methods = [
        method
        for method in grid.methods
        if any(results.paired(kind, method, grid.proportions) for kind in kinds)
    ]
    if not methods:
        return None
    blocks = []
    for title, suffix in (("mean over classes", ""), ("all cells together", "_micro")):
        lines = [
            [
                Estimate.of(results.by_seed(kind + suffix, method, one).values())
                for one, kind in product(grid.proportions, kinds)
            ]
            for method in methods
        ]
        rows = estimate_rows([title_of(method) for method in methods], lines, len(grid.seeds))
        blocks.append(Block(f"{study.ours}, {title}", rows))
    return Table(
        key="pseudo-labels",
        heading="Pseudo-labels",
        title=f"Precision and recall of pseudo-labels on {study.label}",
        stub="method",
        columns=tuple(
            Column(label, share(one)) for one, label in product(grid.proportions, ("precision", "recall"))
        ),
        blocks=tuple(blocks),
        notes=(
            f"In per cent, over the unknown training cells in the last epoch, all generators together; "
            f"{study.seeds_note()}.",
            MISSING,
            study.paper.prose("rarest"),
        ),
    )
