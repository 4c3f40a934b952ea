"""Write the tables of ``docs/results.md`` from the results that were measured, ``experiments/*/results/*.csv``.

``python docs/make_results.py`` rewrites what stands between the marks; text outside them is written by hand. The files
are ``results.csv`` of the folders that ``satl experiment`` wrote, under the names of their grids. All figures are of
the last epoch, in per cent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from satl.evaluation.paired import pair_by_key, paired_test
from satl.experiments.configs import run_configs
from satl.experiments.grid import GridRun, read_grid
from satl.experiments.results import Estimate, Results, read_results
from satl.experiments.tables import DASH, number, p_value, share, spread, title_of
from satl.runs.config import changed_settings

PAGE = Path(__file__).with_name("results.md")
EXPERIMENTS = Path(__file__).parents[1] / "experiments"
MARKS = re.compile(r"(<!-- begin (.+?): written by docs/make_results\.py -->\n).*?(<!-- end -->)", re.DOTALL)
SEEDS = 5
"""Entries over fewer seeds say over how many."""
MAIN = ("ignore", "sst", "sst+satl", "hst+satl", "satl+")
F1 = ("OF1", "CF1")
PAIRS = (
    ("sst+satl", "ignore"),
    ("sst+satl", "sst"),
    ("hst+satl", "sst+satl"),
    ("satl+", "sst+satl"),
    ("satl+", "ignore"),
)
OTHER_PAIRS = (
    *(("ssgrl", "ignore"), ("kggr", "ignore"), ("ml-gcn", "ignore"), ("assume-negative", "ignore")),
    *(("hst", "sst"), ("sst+drl", "sst"), ("hst+drl", "hst")),
    *(("sst+sate", "sst"), ("sst+satl", "sst+sate"), ("hst+sate", "hst"), ("hst+satl", "hst+sate")),
)
"""Comparisons in which at least one method is not among the main ones."""


def results(experiment: str, grid: str) -> Results:
    """Return what the runs of a grid measured."""
    return read_results(EXPERIMENTS / experiment / "results" / f"{grid}.csv")


def seeds_of(experiment: str, grid: str) -> int:
    """Return over how many seeds a grid goes."""
    return len(read_grid(EXPERIMENTS / experiment / f"{grid}.yaml").seeds)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---:") -> str:
    """Return a table whose first column is to the left."""
    lines = [head, ("---", *[align] * (len(head) - 1)), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def estimate(values: Iterable[float], seeds: int = SEEDS) -> str:
    """Return mean and deviation."""
    return spread(Estimate.of(values), seeds)


def difference(first: dict[int, float], second: dict[int, float], seeds: int = SEEDS) -> str:
    """Return the mean difference over the seeds that both have, its interval and p.

    >>> difference({0: 3.0, 1: 4.0, 2: 5.2}, {0: 1.0, 1: 2.0, 2: 3.0, 3: 9.0})
    '2.1 [1.8, 2.4], 0.0010 (n = 3)'
    """
    pairs = pair_by_key(first, second)
    if len(pairs.keys) < 2:
        return DASH
    test = paired_test(pairs.first, pairs.second)
    interval = f"[{number(test.interval_low)}, {number(test.interval_high)}]"
    fewer = "" if test.n >= seeds else f" (n = {test.n})"
    return f"{number(test.mean_difference)} {interval}, {p_value(test.p_value)}{fewer}"


def scores(found: Results, method: str, proportion: float, variant: str = "") -> dict[int, float]:
    """Return the mAP by seed."""
    return found.by_seed("mAP", method, proportion, variant, "last")


def main_table(experiment: str) -> str:
    """Return the mAP of the main methods, and of training with every label."""
    found, known = results(experiment, "main"), results(experiment, "all_known")
    proportions = _proportions(found)
    rows = []
    for method in MAIN:
        grid_runs = [
            *(estimate(scores(found, method, proportion).values()) for proportion in proportions),
            estimate(found.averages("mAP", method, proportions, model="last").values()),
        ]
        rows.append((title_of(method), *grid_runs))
    every = estimate(scores(known, "ignore", 1.0).values())
    return (
        table(("mAP", *_percents(proportions), "average"), rows)
        + f"\nWith every label known the same network reaches {every} (`all_known.yaml`).\n"
    )


def f1_table(experiment: str) -> str:
    """Return OF1 and CF1 at 10 % and on the average of the proportions."""
    found = results(experiment, "main")
    proportions = _proportions(found)
    rows = [
        (
            title_of(method),
            *(estimate(found.by_seed(metric, method, 0.1, model="last").values()) for metric in F1),
            *(estimate(found.averages(metric, method, proportions, model="last").values()) for metric in F1),
        )
        for method in MAIN
    ]
    return table(("", *(f"{metric}, {place}" for place in ("10 %", "average") for metric in F1)), rows)


def pair_table(experiment: str) -> str:
    """Return the differences between the main methods, paired by seed."""
    return _differences(results(experiment, "main"), PAIRS, SEEDS)


def other_pair_table(experiment: str) -> str:
    """Return the differences between the other methods and those they are compared with, paired by seed."""
    found = Results([row for grid in ("main", "others") for row in results(experiment, grid).rows])
    return _differences(found, OTHER_PAIRS, seeds_of(experiment, "others"))


def _differences(found: Results, pairs: Iterable[tuple[str, str]], seeds: int) -> str:
    proportions = _proportions(found)
    rows = []
    for first, second in pairs:
        grid_runs = [
            difference(scores(found, first, one), scores(found, second, one), seeds) for one in proportions
        ]
        rows.append((f"{title_of(first)} - {title_of(second)}", *grid_runs))
    return table(("difference in mAP [95 % interval], p", *_percents(proportions)), rows, align="---")


def pseudo_table(experiment: str) -> str:
    """Return precision and recall of the pseudo-labels over all unknown cells."""
    found = results(experiment, "main")
    proportions = _proportions(found)
    rows = [
        (title_of(method), *(_quality(found, method, proportion) for proportion in proportions))
        for method in MAIN
        if method != "ignore"
    ]
    head = ("pseudo-labels, all cells: precision / recall", *_percents(proportions))
    return table(head, rows, align="---")


def part_table(
    experiment: str, grid: str, wording: Sequence[tuple[str, str, str]], against: dict[str, str]
) -> str:
    """Return methods and variants at 10 %, each with its difference to the method that it is a change of."""
    found, seeds = results(experiment, grid), seeds_of(experiment, grid)
    rows = []
    for method, variant, words in wording:
        here = scores(found, method, 0.1, variant)
        base = against.get(method, method if variant else "")
        change = difference(here, scores(found, base, 0.1), seeds) if base else ""
        quality = _quality(found, method, 0.1, variant, seeds)
        rows.append((words, estimate(here.values(), seeds), change, quality))
    return table(
        ("10 % known", "mAP", "difference [95 % interval], p", "precision / recall"), rows, align="---"
    )


def alike_table(experiment: str) -> str:
    """Return what the pictures and statistics of SATL+ do for other methods at 10 %, and what is left of its lead."""
    found = results(experiment, "main")
    ahead = scores(found, "satl+", 0.1)
    rows = []
    for method in ("ignore", "sst", "sst+satl"):
        own, alike = scores(found, method, 0.1), scores(found, method, 0.1, "alike")
        rows.append(
            (
                title_of(method),
                *(estimate(values.values()) for values in (own, alike)),
                difference(alike, own),
                difference(ahead, alike),
            )
        )
    head = ("10 % known", "mAP", "alike", "alike - as it is [95 % interval], p", "SATL+ - alike")
    return table(head, rows, align="---")


def others_table(experiment: str) -> str:
    """Return the mAP of the methods that are not among the main ones."""
    found, seeds = results(experiment, "others"), seeds_of(experiment, "others")
    proportions = _proportions(found)
    methods = dict.fromkeys(row["method"] for row in found.rows)
    rows = [
        (
            title_of(method),
            *(estimate(scores(found, method, one).values(), seeds) for one in proportions),
            estimate(found.averages("mAP", method, proportions, model="last").values(), seeds),
        )
        for method in methods
    ]
    return table(("mAP", *_percents(proportions), "average"), rows)


def sweep_table(experiment: str) -> str:
    """Return mAP and pseudo-labels over the values of single settings, where all of them were run."""
    grid, found = read_grid(EXPERIMENTS / experiment / "sweeps.yaml"), _sweep_results(experiment)
    seeds = len(grid.seeds)
    same = {
        (grid_run.method, grid_run.variant) for grid_run in _equal_to_plain(experiment, "sweeps", "sweeps")
    }
    lines = []
    for sweep in grid.sweeps:
        for method in sweep.methods or grid.methods:
            variants = {value: sweep.variant(value) for value in sweep.values}
            usual = next((variant for variant in variants.values() if (method, variant) in same), "")
            for value, variant in variants.items():
                lines.append((f"{title_of(method)}, `{sweep.title}: {value}`", method, variant, usual))
    proportions = [
        proportion
        for proportion in grid.proportions
        if all(scores(found, method, proportion, variant) for _, method, variant, _ in lines)
    ]
    rows = []
    for words, method, variant, usual in lines:
        grid_runs = []
        for proportion in proportions:
            here = scores(found, method, proportion, variant)
            change = (
                "" if variant == usual else difference(here, scores(found, method, proportion, usual), seeds)
            )
            grid_runs += [
                estimate(here.values(), seeds),
                change,
                _quality(found, method, proportion, variant, seeds),
            ]
        rows.append((words, *grid_runs))
    columns = ("mAP, {}", "difference, {} [95 % interval], p", "precision / recall, {}")
    head = [column.format(share(proportion)) for proportion in proportions for column in columns]
    return table(("", *head), rows, align="---")


def _equal_to_plain(experiment: str, varied: str, plain: str) -> dict[GridRun, str]:
    """Return the runs of a grid whose variant changes nothing, and the name of the plain run that each one equals.

    Args:
        experiment: its folder.
        varied: the grid that has variants.
        plain: the grid with the plain runs.
    """
    folder = EXPERIMENTS / experiment
    configs = {
        name: run_configs(read_grid(folder / f"{name}.yaml"), folder, name) for name in {varied, plain}
    }
    by_name = {grid_run.name: config for grid_run, config in configs[plain].items()}
    found = {}
    for grid_run, config in configs[varied].items():
        name = replace(grid_run, variant="").name
        if grid_run.variant and name in by_name and not changed_settings(by_name[name], config):
            found[grid_run] = name
    return found


def _sweep_results(experiment: str) -> Results:
    """Return what the sweeps measured, and for values that change nothing the runs of ``others.yaml`` they equal."""
    found = results(experiment, "sweeps")
    if not (EXPERIMENTS / experiment / "others.yaml").is_file():
        return found
    there = {row["run"] for row in found.rows}
    others = results(experiment, "others").rows
    borrowed = [
        {**row, "variant": grid_run.variant, "run": grid_run.name}
        for grid_run, name in _equal_to_plain(experiment, "sweeps", "others").items()
        for row in others
        if row["run"] == name and grid_run.name not in there
    ]
    return Results([*found.rows, *borrowed])


def _quality(found: Results, method: str, proportion: float, variant: str = "", seeds: int = SEEDS) -> str:
    both = [
        Estimate.of(found.by_seed(column, method, proportion, variant, "last").values())
        for column in ("pseudo_precision_micro", "pseudo_recall_micro")
    ]
    if any(one.mean is None for one in both):
        return DASH
    # Where nothing was emitted there is no precision. Deviations would make the tables unreadable.
    return " / ".join(spread(replace(one, deviation=None), seeds) for one in both)


def _proportions(found: Results) -> tuple[float, ...]:
    return tuple(sorted({proportion for proportion, _, variant in found.places("last") if not variant}))


def _percents(proportions: Sequence[float]) -> list[str]:
    first, *others = map(share, proportions)
    return [f"{first} known", *others]


def _scenes_parts() -> str:
    wording = (
        ("sst+satl", "", "SST+SATL"),
        ("sst+drl", "", "without thresholds of its own (SST+DRL)"),
        ("sst+sate", "", "without the ranking loss (SST+SATE)"),
        ("sst+satl", "signed", "signed instead of literal ranking loss (`ranking_clamp: false`)"),
        ("sst+satl", "own-term", "known positives scored with their own feature (`leave_one_out: false`)"),
        ("sst+satl", "twice-an-epoch", "thresholds move twice an epoch (`update_every: 16`)"),
        ("sst+satl", "precision", "another rule in place of SATE (`threshold: precision`)"),
        ("satl+", "", "SATL+"),
        ("satl+", "precision", "another rule in place of SATE (`threshold: precision`)"),
        ("satl+", "no-mixed", "without mixed pictures (`mix_weight: 0`)"),
        ("satl+", "no-probe", "without the probe (`probe_weight: 0`)"),
        ("satl+", "no-pseudo", "without pseudo-labels (`pseudo_weight: 0`)"),
        ("satl+", "no-cross", "without those of the cross-image generator (`generators: teacher`)"),
        ("satl+", "plain-sate", "SATE as published (`negatives_per_positive: 0`, `threshold_floor: 0`)"),
    )
    return part_table("scenes", "ablation", wording, {"sst+drl": "sst+satl", "sst+sate": "sst+satl"})


def _coco18_parts() -> str:
    wording = (
        ("sst", "", "SST"),
        (
            "sst",
            "low",
            "one threshold for all, lowered to 0.45 (`threshold_step: 0.05`, `threshold_end: 0.45`)",
        ),
        ("sst+satl", "", "SST+SATL"),
        ("sst+satl", "published-rate", "the published rate of the thresholds (`rate: null`)"),
        ("sst+satl", "signed", "signed instead of literal ranking loss (`ranking_clamp: false`)"),
        ("sst+satl", "leave-one-out", "known positives scored without themselves (`leave_one_out: true`)"),
        ("sst+satl", "often", "thresholds move six times an epoch (`update_every: 10`)"),
        ("sst+satl", "precision", "another rule in place of SATE (`threshold: precision`)"),
        ("satl+", "", "SATL+"),
        ("satl+", "plain-sate", "SATE as published (`negatives_per_positive: 0`, `threshold_floor: 0`)"),
        ("satl+", "no-mixed", "without mixed pictures (`mix_weight: 0`)"),
        ("satl+", "no-probe", "without the probe (`probe_weight: 0`)"),
        ("satl+", "no-pseudo", "without pseudo-labels (`pseudo_weight: 0`)"),
        ("satl+", "no-cross", "without those of the cross-image generator (`generators: teacher`)"),
        ("satl+", "no-jitter", "without changed colours (`images.jitter: 0`)"),
        ("satl+", "no-freeze", "with statistics of its own batches (`freeze_statistics: false`)"),
    )
    return part_table("coco18", "main", wording, {})


def _coco18_tuning() -> str:
    wording = (
        ("sst+satl", "", "SST+SATL"),
        ("satl+", "plain-sate", "SATL+ with SATE as published"),
        ("satl+", "spare", "`negatives_per_positive: 0.02` for both generators"),
        ("satl+", "spare-floor", "that, and `threshold_floor: 0.5` for the teacher"),
        ("satl+", "spare-floor6", "that, and 0.6"),
        ("satl+", "teacher-2-50", "0.02 and 0.5, both for the teacher alone"),
        ("satl+", "teacher-2-55", "0.02 and 0.55"),
        ("satl+", "", "0.01 and 0.5: SATL+ as it is"),
    )
    return part_table("coco18", "tuning", wording, {})


TABLES: dict[str, Callable[[], str]] = {
    **{
        f"{experiment} {name}": partial(make, experiment)
        for experiment in ("scenes", "coco18")
        for name, make in (
            ("mAP", main_table),
            ("F1", f1_table),
            ("differences", pair_table),
            ("pseudo-labels", pseudo_table),
        )
    },
    "scenes parts": _scenes_parts,
    "scenes sweeps": partial(sweep_table, "scenes"),
    "coco18 alike": partial(alike_table, "coco18"),
    "coco18 others": partial(others_table, "coco18"),
    "coco18 other differences": partial(other_pair_table, "coco18"),
    "coco18 sweeps": partial(sweep_table, "coco18"),
    "coco18 parts": _coco18_parts,
    "coco18 tuning": _coco18_tuning,
}


def page() -> str:
    """Return the whole page as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    found = [match[1] for match in MARKS.findall(text)]
    if sorted(found) != sorted(TABLES):
        wanted, there = ", ".join(TABLES), ", ".join(found)
        raise SystemExit(f"{PAGE.name} must have the marks of {wanted}, each once; it has {there}.")
    return MARKS.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
