"""Write the tables of ``docs/results.md`` from the results that are kept in ``experiments/*/results/*.csv``.

``python tools/write_results_page.py`` rewrites what is between the marks; text outside them is written by hand. The
tables are those of ``satl experiment`` (:mod:`satl.experiments.tables`) for the model of the last epoch, in per cent;
this program only chooses them and words their rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from satl.experiments.configs import run_configs
from satl.experiments.grid import GridRun, read_grid
from satl.experiments.results import Results, read_results
from satl.experiments.tables.difference_tables import Change, Place, changes_table, differences_table
from satl.experiments.tables.number_text import spread, title_of
from satl.experiments.tables.recognition_tables import f1_table, map_table
from satl.experiments.tables.table_data import Table
from satl.experiments.tables.table_formats import markdown_block
from satl.experiments.tables.table_source import TableSource
from satl.experiments.tables.training_tables import pseudo_overview_table
from satl.runs.config import changed_settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
EXPERIMENTS = ROOT / "experiments"
MARKS = re.compile(
    r"(<!-- begin (.+?): written by tools/write_results_page\.py -->\n).*?(<!-- end -->)", re.DOTALL
)
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


def source(experiment: str, grid: str, results: Results | None = None) -> TableSource:
    """Return what the tables of a grid are made from; ``results`` are those that are kept if not given."""
    folder = EXPERIMENTS / experiment
    kept = read_results(folder / "results" / f"{grid}.csv") if results is None else results
    return TableSource(read_grid(folder / f"{grid}.yaml"), kept, experiment, model="last")


def markdown(table: Table | None, stub: str | None = None) -> str:
    """Return the only block of a table as Markdown; the labels of its rows are Markdown already.

    Args:
        table: to write.
        stub: heading of its labels, where it is not to be its own.
    """
    assert table is not None
    (block,) = table.blocks
    table = table if stub is None else replace(table, stub=stub)
    return markdown_block(table, block, escape=str)


def main_table(experiment: str) -> str:
    """Return the mAP of the main methods, and of training with every label."""
    known = source(experiment, "all_known")
    every = spread(known.estimate("ignore", 1.0), len(known.grid.seeds))
    sentence = f"With every label known the same network reaches {every} (`all_known.yaml`).\n"
    return f"{markdown(map_table(source(experiment, 'main')), 'mAP')}\n{sentence}"


def others_table(experiment: str) -> str:
    """Return the mAP of the methods that are not among the main ones."""
    return markdown(map_table(source(experiment, "others")), "mAP")


def main_f1_table(experiment: str) -> str:
    """Return OF1 and CF1 at 10 % and on the average of the proportions."""
    return markdown(f1_table(source(experiment, "main"), (0.1,)))


def pair_table(experiment: str) -> str:
    """Return the differences between the main methods, paired by seed."""
    return markdown(differences_table(source(experiment, "main"), plain_pairs(PAIRS)))


def other_pair_table(experiment: str) -> str:
    """Return the differences between the other methods and those they are compared with, paired by seed."""
    rows = [row for grid in ("main", "others") for row in source(experiment, grid).results.rows]
    return markdown(differences_table(source(experiment, "others", Results(rows)), plain_pairs(OTHER_PAIRS)))


def plain_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[Place, Place]]:
    """Return pairs of methods as pairs of their plain runs."""
    return [((one, ""), (other, "")) for one, other in pairs]


def pseudo_table(experiment: str) -> str:
    """Return precision and recall of the pseudo-labels over all unknown cells."""
    return markdown(pseudo_overview_table(source(experiment, "main")))


def part_table(
    experiment: str, grid: str, wording: Sequence[tuple[str, str, str]], bases: dict[str, str]
) -> str:
    """Return methods and variants at 10 %, each with its difference from the method that it is a change of.

    Args:
        experiment: its folder.
        grid: name of the grid.
        wording: method, variant and label of each row.
        bases: methods that are compared with another method.
    """
    changes = []
    for method, variant, label in wording:
        base = bases.get(method, method if variant else "")
        changes.append(Change(label, (method, variant), (base, "") if base else None))
    return markdown(changes_table(source(experiment, grid), changes, (0.1,)))


def alike_table(experiment: str) -> str:
    """Return what images and statistics of SATL+ do for other methods at 10 %, and what is left of its lead."""
    main, changes, pairs = source(experiment, "main"), [], []
    for method in ("ignore", "sst", "sst+satl"):
        alike = (method, "alike")
        changes += [
            Change(title_of(method), (method, "")),
            Change(f"{title_of(method)}, alike", alike, (method, "")),
        ]
        pairs.append((("satl+", ""), alike))
    left = differences_table(main, pairs, (0.1,))
    return f"{markdown(changes_table(main, changes, (0.1,)))}\n{markdown(left)}"


def sweep_table(experiment: str) -> str:
    """Return mAP and pseudo-labels over the values of single settings, at proportions where all of them were run."""
    swept = source(experiment, "sweeps", sweep_results(experiment))
    same = {(one.method, one.variant) for one in equal_to_plain(experiment, "sweeps", "sweeps")}
    changes = []
    for sweep in swept.grid.sweeps:
        for method in sweep.methods or swept.grid.methods:
            variants = {value: sweep.variant(value) for value in sweep.values}
            usual = next((variant for variant in variants.values() if (method, variant) in same), "")
            for value, variant in variants.items():
                label = f"{title_of(method)}, `{sweep.title}: {value}`"
                changes.append(
                    Change(label, (method, variant), None if variant == usual else (method, usual))
                )
    proportions = [
        proportion
        for proportion in swept.grid.proportions
        if all(swept.values(change.place[0], proportion, change.place[1]) for change in changes)
    ]
    return markdown(changes_table(swept, changes, proportions))


def equal_to_plain(experiment: str, varied: str, plain: str) -> dict[GridRun, str]:
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


def sweep_results(experiment: str) -> Results:
    """Return the results of the sweeps, and for values that change nothing those of the runs of ``others.yaml``."""
    found = source(experiment, "sweeps").results
    if not (EXPERIMENTS / experiment / "others.yaml").is_file():
        return found
    there = {row["run"] for row in found.rows}
    others = source(experiment, "others").results.rows
    borrowed = [
        {**row, "variant": grid_run.variant, "run": grid_run.name}
        for grid_run, name in equal_to_plain(experiment, "sweeps", "others").items()
        for row in others
        if row["run"] == name and grid_run.name not in there
    ]
    return Results([*found.rows, *borrowed])


def _scenes_parts() -> str:
    wording = (
        ("sst+satl", "", "SST+SATL"),
        ("sst+drl", "", "without thresholds of its own (SST+DRL)"),
        ("sst+sate", "", "without the ranking loss (SST+SATE)"),
        ("sst+satl", "signed", "signed instead of literal ranking loss (`losses.ranking.clamp: false`)"),
        (
            "sst+satl",
            "own-term",
            "known positives scored with their own feature (`generators.NAME.leave_one_out: false`)",
        ),
        ("sst+satl", "twice-an-epoch", "thresholds move twice an epoch (`thresholds.update_every: 16`)"),
        ("sst+satl", "precision", "another rule in place of SATE (`thresholds.rule: precision`)"),
        ("satl+", "", "SATL+"),
        ("satl+", "precision", "another rule in place of SATE (`thresholds.rule: precision`)"),
        ("satl+", "no-mixed", "without mixed images (`losses.mixed.weight: 0`)"),
        ("satl+", "no-probe", "without the probe (`teacher.probe_weight: 0`)"),
        ("satl+", "no-pseudo", "without pseudo-labels (`losses.pseudo.weight: 0`)"),
        ("satl+", "no-cross", "without those of the cross-image generator (`generators.cross: false`)"),
        (
            "satl+",
            "plain-sate",
            "SATE as published (`thresholds.negatives_per_positive: 0`, `thresholds.floor: 0`)",
        ),
    )
    return part_table("scenes", "ablation", wording, {"sst+drl": "sst+satl", "sst+sate": "sst+satl"})


def _coco18_parts() -> str:
    wording = (
        ("sst", "", "SST"),
        (
            "sst",
            "low",
            "one threshold for all, lowered to 0.45 (`thresholds.step: 0.05`, `thresholds.end: 0.45`)",
        ),
        ("sst+satl", "", "SST+SATL"),
        ("sst+satl", "published-rate", "the published rate of the thresholds (`thresholds.rate: null`)"),
        ("sst+satl", "signed", "signed instead of literal ranking loss (`losses.ranking.clamp: false`)"),
        (
            "sst+satl",
            "leave-one-out",
            "known positives scored without themselves (`generators.NAME.leave_one_out: true`)",
        ),
        ("sst+satl", "often", "thresholds move six times an epoch (`thresholds.update_every: 10`)"),
        ("sst+satl", "precision", "another rule in place of SATE (`thresholds.rule: precision`)"),
        ("satl+", "", "SATL+"),
        (
            "satl+",
            "plain-sate",
            "SATE as published (`thresholds.negatives_per_positive: 0`, `thresholds.floor: 0`)",
        ),
        ("satl+", "no-mixed", "without mixed images (`losses.mixed.weight: 0`)"),
        ("satl+", "no-probe", "without the probe (`teacher.probe_weight: 0`)"),
        ("satl+", "no-pseudo", "without pseudo-labels (`losses.pseudo.weight: 0`)"),
        ("satl+", "no-cross", "without those of the cross-image generator (`generators.cross: false`)"),
        ("satl+", "no-jitter", "without changed colours (`images.jitter: 0`)"),
        ("satl+", "no-freeze", "with statistics of its own batches (`freeze_statistics: false`)"),
    )
    return part_table("coco18", "main", wording, {})


def _coco18_tuning() -> str:
    wording = (
        ("sst+satl", "", "SST+SATL"),
        ("satl+", "plain-sate", "SATL+ with SATE as published"),
        ("satl+", "spare", "`thresholds.negatives_per_positive: 0.02` for both generators"),
        ("satl+", "spare-floor", "that, and `thresholds.floor: 0.5` for the teacher"),
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
            ("F1", main_f1_table),
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
