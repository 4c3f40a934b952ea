"""Every table against numbers worked out by hand, or by scipy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scipy import stats

from experiments.grids import grid_of, results_of, row
from satl.experiments.paper_numbers import ABLATION
from satl.experiments.tables.both_epochs import both_epochs
from satl.experiments.tables.difference_tables import (
    Change,
    changes_table,
    differences_table,
    paired_table,
    sweep_table,
)
from satl.experiments.tables.number_text import DASH, MINUS, TIMES
from satl.experiments.tables.recognition_tables import (
    ablation_table,
    f1_table,
    map_table,
    rare_table,
    stability_table,
    variants_table,
)
from satl.experiments.tables.table_source import make_source
from satl.experiments.tables.training_tables import pseudo_overview_table, pseudo_table, time_table
from satl.methods import METHODS
from satl.reports.experiment_report import lead_sentence, make_tables

SEEDS = (0, 1, 2)
MAP = {
    ("sst", 0.1): (60.0, 62.0, 64.0),
    ("sst", 0.2): (70.0, 72.0, 71.0),
    ("sst+satl", 0.1): (63.0, 64.5, 66.0),
    ("sst+satl", 0.2): (73.0, 73.5, 74.0),
}

ONLY_SST = (
    "SST reaches a mAP on average over 2 proportions of known labels of 66.5 (3 seeds, best validated epoch; 66.5 with "
    "the last one)."
)


def source_of(
    *further, methods=("sst", "sst+satl"), proportions=(0.1, 0.2), seeds=SEEDS, without=(), **changes
):
    rows = [
        row(method, proportion, seed, value)
        for (method, proportion), values in MAP.items()
        for seed, value in zip(SEEDS, values, strict=True)
        if (method, proportion, seed) not in without
    ]
    grid = grid_of(
        dataset="scenes", methods=list(methods), proportions=list(proportions), seeds=list(seeds), **changes
    )
    return make_source(grid, results_of(*rows, *further))


def shown(table, block, label):
    """Return the texts of a row by heading."""
    found = next(r for r in table.blocks[block].rows if r.label == label)
    return {
        (c.group, c.label) if c.group else c.label: entry.text
        for c, entry in zip(table.columns, found.entries, strict=True)
    }


def test_table_1_has_mean_deviation_and_average():
    table = map_table(source_of())
    assert shown(table, 0, "SST") == {
        "5 %": DASH,
        "10 %": "62.0 ± 2.0",
        "20 %": "71.0 ± 1.0",
        "30 %": DASH,
        "40 %": DASH,
        "50 %": DASH,
        "average": "66.5 ± 1.3",  # of 65, 67 and 67.5
    }
    assert shown(table, 0, "SST+SATL")["10 %"] == "64.5 ± 1.5"
    best = [entry.best for entry in table.blocks[0].rows[1].entries]
    assert best == [False, True, True, False, False, False, True]
    assert table.notes[:2] == (
        "The model of the epoch with the best validation mAP.",
        "In per cent; mean ± standard deviation over 3 seeds (0, 1, 2).",
    )


def test_what_is_missing_is_a_dash_and_fewer_runs_are_said():
    table = map_table(source_of(without={("sst", 0.1, 0), ("sst", 0.2, 1), ("sst", 0.2, 2), ("sst", 0.2, 0)}))
    values = shown(table, 0, "SST")
    assert (values["10 %"], values["20 %"], values["average"]) == ("63.0 ± 1.4 (n = 2)", DASH, DASH)
    assert "0.0" not in values.values()
    one = map_table(source_of(seeds=(0,), without={(m, p, s) for m, p in MAP for s in (1, 2)}))
    assert shown(one, 0, "SST")["10 %"] == "60.0"
    assert "one seed (0), so no spread" in one.notes[1]


def test_a_mean_over_fewer_seeds_is_not_the_best():
    table = map_table(source_of(without={("sst+satl", 0.1, 0)}))
    best = {row.label: [entry.best for entry in row.entries] for row in table.blocks[0].rows}
    # 65.2 of two seeds stands above 62.0 of three, and is not compared with it.
    assert shown(table, 0, "SST+SATL")["10 %"] == "65.2 ± 1.1 (n = 2)"
    assert not best["SST"][1]
    assert not best["SST+SATL"][1]
    assert best["SST+SATL"][2]


def test_figures_of_validation_images_say_so():
    source = source_of()
    assert not any("validation images" in note for note in map_table(source).notes)
    for one in source.results.rows:
        one["split"] = "val"
    tables = [table for table in make_tables(source) if table.key not in ("time", "pseudo-labels")]
    assert len(tables) >= 5
    for table in tables:
        assert any("Measured on the validation images" in note for note in table.notes), table.key


def test_variants_with_seeds_of_their_own_say_so():
    rows = [row("sst", 0.1, seed, 60.0 + seed, variant="wide") for seed in (0, 1)]
    wide = {
        "name": "wide",
        "set": ["model.pool=2"],
        "seeds": [0, 1],
        "methods": ["sst"],
        "proportions": [0.1],
    }
    assert "2 seeds (0, 1)" in variants_table(source_of(*rows, variants=[wide])).notes[1]
    other = {"name": "thin", "set": ["model.pool=3"]}
    assert "the seeds of each variant" in variants_table(source_of(*rows, variants=[wide, other])).notes[1]


def of_last_epoch(source, change):
    for one in source.results.rows:
        if one["model"] == "last" and one["mAP"] is not None:
            one["mAP"] += change(one)
    return source


def test_both_models_stand_side_by_side_and_the_paper_once():
    source = of_last_epoch(source_of(), lambda one: -10 - (one["method"] == "sst+satl") * 5)
    alone = map_table(source.of_model("last"))
    assert shown(alone, 0, "SST")["10 %"] == "52.0 ± 2.0"
    assert alone.notes[0] == "The model of the last epoch."
    table = both_epochs(map_table, source)
    ours, coco, _ = table.blocks
    assert [(one.label, *(entry.text for entry in one.entries[:1])) for one in ours.rows] == [
        ("SST", "last"),
        ("SST", "best"),
        ("SST+SATL", "last"),
        ("SST+SATL", "best"),
    ]
    assert [one.entries[2].text for one in ours.rows] == [
        "52.0 ± 2.0",
        "62.0 ± 2.0",
        "49.5 ± 1.5",
        "64.5 ± 1.5",
    ]
    # The best of each model is bold, not the best of both.
    assert [one.entries[2].best for one in ours.rows] == [True, False, False, True]
    assert [one.label for one in coco.rows] == [one.label for one in alone.blocks[1].rows]
    assert {one.entries[0].text for one in coco.rows} == {""}
    assert not any(note.startswith("The model of") for note in table.notes)
    assert table.key == "table-1-map"


def test_models_with_the_same_figures_have_one_row():
    table = both_epochs(map_table, source_of(without={("sst", p, s) for p in (0.1, 0.2) for s in SEEDS}))
    assert [(one.label, one.entries[0].text) for one in table.blocks[0].rows] == [
        ("SST", ""),
        ("SST+SATL", "both"),
    ]
    assert both_epochs(paired_table, source_of(methods=("sst",))) is None


def test_what_is_of_the_whole_run_or_of_the_paper_is_printed_once():
    source = of_last_epoch(source_of(), lambda one: one["seed"])
    for one in source.results.rows:
        one |= {"OF1": one["mAP"], "CF1": one["mAP"]}
        one |= {"pseudo_precision_micro": 90.0, "pseudo_recall_micro": 30.0}
    last, best, *_ = both_epochs(f1_table, source).blocks[0].rows
    assert (last.label, last.entries[3].text, best.entries[3].text) == ("SST", "72.9", "")
    changes = [Change("SST+SATL", ("sst+satl", ""), ("sst", ""))]
    table = both_epochs(lambda one: changes_table(one, changes, (0.1,)), source)
    place = [column.label for column in table.columns].index("all cells")
    assert [one.entries[place].text for one in table.blocks[0].rows] == ["90.0 / 30.0", ""]


def test_the_rarest_classes_and_the_spread_over_seeds_have_tables():
    assert rare_table(source_of()) is None
    source = source_of(without={("sst", 0.2, 1), ("sst", 0.2, 2)})
    for one in source.results.rows:
        one["mAP_rare"] = one["mAP"] / 2
    assert shown(rare_table(source), 0, "SST")["10 %"] == "31.0 ± 1.0"
    spread = stability_table(source)
    assert shown(spread, 0, "SST") == {"10 %": "2.0 (4.0)", "20 %": DASH, "mean deviation": DASH}
    assert shown(spread, 0, "SST+SATL")["mean deviation"] == "1.0"  # of 1.5 and 0.5
    assert stability_table(source_of(seeds=(0,))) is None


def test_the_papers_numbers_stand_beside_under_their_own_name():
    table = map_table(source_of())
    ours, coco, vg = table.blocks
    assert ours.title == "This experiment: scenes, satl_tiny, from scratch, 32 px"
    assert coco.title == "Paper, Table 1: MS-COCO, ResNet-101, ImageNet weights, 448 px"
    assert (ours.foreign, coco.foreign, vg.foreign) == (False, True, True)
    assert shown(table, 1, "SST+SATL")["10 %"] == "73.7 ± 0.3"
    assert shown(table, 2, "HST")["average"] == "42.6 ± 0.3"
    assert any("41.4 for HST on VG-200 (printed 42.6)" in note for note in table.notes)
    assert any("cannot be compared" in note for note in table.notes)
    six = map_table(source_of(proportions=(0.05, 0.1, 0.2, 0.3, 0.4, 0.5)))
    assert any("the six of the paper" in note for note in six.notes)


def test_table_2_has_averages_of_both_f1():
    rows = [
        {**row("sst", proportion, seed, None), "OF1": 40.0 + seed, "CF1": 100 * proportion}
        for proportion in (0.1, 0.2)
        for seed in SEEDS
    ]
    grid = grid_of(dataset="scenes", methods=["sst"], proportions=[0.1, 0.2], seeds=list(SEEDS))
    table = f1_table(make_source(grid, results_of(*rows)))
    ours, coco, vg = dict.fromkeys(column.group for column in table.columns)
    values = shown(table, 0, "SST")
    assert (values[ours, "OF1"], values[ours, "CF1"]) == ("41.0 ± 1.0", "15.0 ± 0.0")
    assert (values[coco, "OF1"], values[coco, "CF1"], values[vg, "CF1"]) == ("72.9", "68.7", "32.0")
    assert shown(table, 0, "KGGR")[ours, "OF1"] == DASH
    assert [column.foreign for column in table.columns] == [False, False, True, True, True, True]


def test_table_3_equals_scipy_and_pairs_by_proportion_and_seed():
    table = paired_table(source_of(without={("sst", 0.2, 1)}))
    pairs = [(63.0, 60.0), (64.5, 62.0), (66.0, 64.0), (73.0, 70.0), (74.0, 71.0)]
    test = stats.ttest_rel(*zip(*pairs, strict=True))
    signed = stats.wilcoxon([a - b for a, b in pairs])
    low, high = test.confidence_interval(0.95)
    ours, theirs = dict.fromkeys(column.group for column in table.columns)
    values = shown(table, 0, f"SST+SATL {MINUS} SST")
    assert values[ours, "n"] == "5 (1)"
    assert values[ours, "difference"] == "2.70"
    assert values[ours, "95 % interval"] == f"{low:.2f} to {high:.2f}"
    assert values[ours, "t"] == f"{test.statistic:.2f}"
    assert values[ours, "p"] == f"{test.pvalue:.4f}" == values[ours, "p (Holm)"]
    assert values[ours, "p (Wilcoxon)"] == f"{signed.pvalue:.4f}"
    assert values[ours, "d_z"] == f"{test.statistic / 5**0.5:.2f}"
    # One pair a seed: means over the proportions that both have.
    means = [((63.0 + 73.0) / 2, (60.0 + 70.0) / 2), (64.5, 62.0), ((66.0 + 74.0) / 2, (64.0 + 71.0) / 2)]
    assert values[ours, "p (seeds)"] == f"{stats.ttest_rel(*zip(*means, strict=True)).pvalue:.4f}"
    assert values[ours, "p (seeds, Holm)"] == values[ours, "p (seeds)"]
    assert (values[theirs, "t"], values[theirs, "p"]) == ("4.8824", "0.0019")


def test_equal_differences_one_pair_and_no_pair_do_not_crash():
    further = [row("ignore", 0.1, seed, MAP["sst+satl", 0.1][seed] - 1) for seed in SEEDS]
    methods = ("ignore", "sst", "hst", "sst+satl")
    without = {
        key
        for key in ((m, p, s) for m, p in MAP for s in SEEDS)
        if key[0] == "sst" and key != ("sst", 0.1, 0)
    }
    table = paired_table(source_of(*further, methods=methods, without=without))
    ours = table.columns[0].group
    equal, one, none = (
        shown(table, 0, f"SST+SATL {MINUS} {name}") for name in ("ignore-unknown", "SST", "HST")
    )
    assert (equal[ours, "t"], equal[ours, "p"]) == ("∞", "< 0.0001")
    assert equal[ours, "95 % interval"] == "1.00 to 1.00"
    assert (one[ours, "n"], one[ours, "difference"], one[ours, "p"]) == ("1 (5)", "3.00", DASH)
    assert (none[ours, "n"], none[ours, "difference"]) == ("0", DASH)


def test_several_tests_are_corrected_together():
    further = [
        row("ignore", p, seed, MAP["sst", p][seed] - 0.3 * seed - 1) for p in (0.1, 0.2) for seed in SEEDS
    ]
    table = paired_table(source_of(*further, methods=("ignore", "sst", "sst+satl")))
    ours = table.columns[0].group
    rows = [shown(table, 0, f"SST+SATL {MINUS} {name}") for name in ("ignore-unknown", "SST")]
    p_values = [
        stats.ttest_rel(
            [v for p in (0.1, 0.2) for v in MAP["sst+satl", p]],
            [v for p in (0.1, 0.2) for v in other(p)],
        ).pvalue
        for other in (
            lambda p: [v - 0.3 * s - 1 for s, v in enumerate(MAP["sst", p])],
            lambda p: MAP["sst", p],
        )
    ]
    low, high = sorted(p_values)
    expected = {low: min(1, 2 * low), high: max(2 * low, high)}
    for values, p in zip(rows, p_values, strict=True):
        assert values[ours, "p (Holm)"] in (f"{expected[p]:.4f}", "< 0.0001")


def test_one_method_has_nothing_to_be_compared_with():
    assert paired_table(source_of(methods=("sst",))) is None
    # Without SATL the last method of the grid is compared with the others.
    table = paired_table(source_of(methods=("sst+satl", "sst")))
    assert [r.label for r in table.blocks[0].rows] == [f"SST+SATL {MINUS} SST"]
    further = [row("kggr", 0.1, seed, 50.0) for seed in SEEDS]
    table = paired_table(source_of(*further, methods=("sst", "kggr")))
    assert [r.label for r in table.blocks[0].rows] == [f"KGGR {MINUS} SST"]


def test_the_ablation_has_four_rows_a_base_and_dashes_for_what_is_not_run():
    table = ablation_table(source_of())
    assert [r.label for r in table.blocks[0].rows] == [
        "SST",
        "SST + SATE",
        "SST + DRL",
        "SST + both (SATL)",
    ]
    assert shown(table, 0, "SST + both (SATL)")["20 %"] == "73.5 ± 0.5"
    assert set(shown(table, 0, "SST + DRL").values()) == {DASH}
    assert shown(table, 1, "SST + DRL")["5 %"] == "67.8"
    assert len(table.blocks) == 3  # no block for HST, of which the grid has nothing
    assert ablation_table(source_of(methods=("ignore", "sst"))) is None


def test_a_sweep_has_map_and_pseudo_label_quality_by_value():
    sweep = {
        "key": "method.thresholds.rate",
        "values": [0.1, 0.3],
        "methods": ["sst+sate"],
        "proportions": [0.2],
        "seeds": [0, 1],
    }
    rows = [
        row(
            "sst+sate",
            0.2,
            seed,
            70.0 + seed,
            variant="rate=0.1",
            pseudo_precision=90.0,
            pseudo_recall=10.0 * seed,
        )
        for seed in (0, 1)
    ]
    source = source_of(*rows, sweeps=[sweep])
    table = sweep_table(source, source.grid.sweeps[0], "sweep-rate")
    group = "SST+SATE, 20 %"
    assert shown(table, 0, "0.1") == {
        (group, "mAP"): "70.5 ± 0.7",
        (group, "precision"): "90.0 ± 0.0",
        (group, "recall"): "5.0 ± 7.1",
    }
    assert set(shown(table, 0, "0.3").values()) == {DASH}
    assert "2 seeds (0, 1)" in table.notes[1]
    assert any("0.3 was chosen at 20 %" in note for note in table.notes)
    keys = [one.key for one in make_tables(source_of(sweeps=[sweep, {**sweep, "values": [0.5]}]))]
    assert ("sweep-rate" in keys, "sweep-rate-2" in keys) == (True, True)


def test_time_is_compared_with_the_base_run_by_run():
    source = source_of()
    for one in source.results.rows:
        one["train_seconds"] = 10.0 * (1 + one["seed"]) * (1.2 if one["method"] == "sst+satl" else 1.0)
    table = time_table(source)
    assert shown(table, 0, "SST+SATL") == {
        "seconds": "24.0 ± 10.7",
        "runs": "6",
        "base": "SST",
        f"{TIMES} base": "1.20 ± 0.00",
    }
    assert shown(table, 0, "SST")[f"{TIMES} base"] == DASH
    assert any("one run at a time" in note for note in table.notes)
    source.results.rows[0]["jobs"] = 4
    assert any("Not all runs were timed alike" in note for note in time_table(source).notes)
    assert any("2 hours" in note for note in table.notes)


def test_pseudo_labels_by_proportion():
    assert pseudo_table(source_of()) is None
    source = source_of()
    for one in source.results.rows:
        if one["method"] == "sst+satl":
            one |= {"pseudo_precision": 90.0, "pseudo_recall": 30.0 + one["seed"]}
            one |= {"pseudo_precision_micro": None, "pseudo_recall_micro": 20.0}
    table = pseudo_table(source)
    assert [r.label for r in table.blocks[0].rows] == ["SST+SATL"]
    assert shown(table, 0, "SST+SATL")["20 %", "recall"] == "31.0 ± 1.0"
    assert shown(table, 1, "SST+SATL")["20 %", "precision"] == DASH


def test_a_variant_is_compared_with_the_plain_runs():
    variant = {"name": "hot", "set": ["training.lr=0.1"], "methods": ["sst"], "proportions": [0.1]}
    rows = [row("sst", 0.1, seed, value, variant="hot") for seed, value in ((0, 61.0), (1, 64.0))]
    table = variants_table(source_of(*rows, variants=[variant]))
    assert shown(table, 0, "SST") == {
        "10 %": "62.5 ± 2.1 (n = 2)",
        "20 %": DASH,
        "against plain": "+1.5 ± 0.7",
        "pairs": "2",
    }
    assert "training.lr=0.1" in table.blocks[0].title
    assert variants_table(source_of()) is None


def test_the_lead_says_who_is_best():
    assert lead_sentence(source_of()) == (
        "SST+SATL has the highest mAP on average over 2 proportions of known labels: 69.0 (3 seeds, best validated "
        "epoch), 2.5 above SST. So it is with the last epoch: 69.0."
    )
    worse = of_last_epoch(source_of(), lambda one: -4 * (one["method"] == "sst+satl"))
    assert lead_sentence(worse).endswith("2.5 above SST. With the last epoch it is SST: 66.5.")
    few = lead_sentence(source_of(seeds=(0,), without={(m, p, s) for m, p in MAP for s in (1, 2)}))
    assert few.endswith("Too few seeds to tell a difference from chance.")
    alone = lead_sentence(source_of(methods=("sst",)))
    assert alone == ONLY_SST
    assert "nothing to compare" in lead_sentence(source_of(methods=("hst",)))


def test_the_lead_compares_only_methods_that_have_every_seed():
    text = lead_sentence(source_of(without={("sst+satl", 0.1, 0)}))
    assert text == ONLY_SST
    nobody = lead_sentence(source_of(without={("sst+satl", 0.1, 0), ("sst", 0.2, 1)}))
    assert "nothing to compare" in nobody


def test_the_lead_names_all_that_are_level():
    rows = [
        row("hst", proportion, seed, MAP["sst+satl", proportion][seed])
        for proportion in (0.1, 0.2)
        for seed in range(3)
    ]
    text = lead_sentence(source_of(*rows, methods=("sst", "hst", "sst+satl")))
    assert text == (
        "HST and SST+SATL have the highest mAP on average over 2 proportions of known labels: 69.0 (3 seeds, best "
        "validated epoch). So it is with the last epoch: 69.0."
    )


@pytest.mark.parametrize(
    ("dataset", "facts", "parts"),
    [
        ("scenes", {}, ["data set scenes", "backbone satl_tiny", "images of 32 px", "from scratch"]),
        ("COCO", {"backbone": "resnet101", "image_size": 448, "pretrained": True}, []),
        (
            "COCO",
            {"backbone": "resnet101", "image_size": 448, "pretrained": True, "word_vectors": False},
            ["without word vectors instead of GloVe"],
        ),
        ("VG-200", {"backbone": "resnet50", "image_size": 448, "pretrained": True}, ["backbone resnet50"]),
        (
            "COCO",
            {"backbone": "features", "image_size": None, "pretrained": True},
            ["backbone features", "images of the backbone's own size instead of 448 px"],
        ),
    ],
)
def test_what_differs_from_the_paper_is_said(dataset, facts, parts):
    source = source_of()
    source.results.facts = {**source.results.facts, **facts}
    made = make_source(source.grid.model_copy(update={"dataset": dataset}), source.results)
    assert "None" not in made.label
    differences = made.differences
    assert len(differences) == len(parts)
    assert all(part in text for part, text in zip(parts, differences, strict=True))


def test_tables_of_nothing_are_full_of_dashes():
    grid = grid_of(dataset="scenes", methods=["sst", "sst+satl"])
    tables = make_tables(make_source(grid, results_of()))
    assert {table.key for table in tables} >= {"table-1-map", "table-2-f1", "table-3-paired", "time"}
    texts = {e.text for t in tables for b in t.blocks if not b.foreign for r in b.rows for e in r.entries[:2]}
    assert texts == {"", "both", DASH, "0"}


def test_the_methods_of_the_paper_extend_what_the_methods_say():
    for base, methods in ABLATION.items():
        for adds, method in methods.items():
            assert (METHODS[method].framework, set(METHODS[method].adds)) == (base, set(adds))


def test_differences_at_each_proportion_are_paired_by_seed():
    table = differences_table(source_of(without={("sst", 0.2, 1), ("sst", 0.2, 2)}))
    test = stats.ttest_rel(MAP["sst+satl", 0.1], MAP["sst", 0.1])
    low, high = test.confidence_interval(0.95)
    values = shown(table, 0, f"SST+SATL {MINUS} SST")
    # One test in the table, so that the correction changes nothing.
    p_values = f"{test.pvalue:.4f} ({test.pvalue:.4f})"
    assert values == {"10 %": f"2.5 [{low:.1f}, {high:.1f}], {p_values}", "20 %": "3.0, one seed"}
    assert differences_table(source_of(methods=("sst",))) is None


def test_differences_are_corrected_over_all_tests_of_a_model():
    table = differences_table(source_of())
    tests = [stats.ttest_rel(MAP["sst+satl", p], MAP["sst", p]) for p in (0.1, 0.2)]
    assert tests[0].pvalue < tests[1].pvalue
    corrected = [2 * tests[0].pvalue, max(2 * tests[0].pvalue, tests[1].pvalue)]
    values = shown(table, 0, f"SST+SATL {MINUS} SST")
    for one, test, p in zip(("10 %", "20 %"), tests, corrected, strict=True):
        assert values[one].endswith(f"], {test.pvalue:.4f} ({p:.4f})")
    assert any("Holm's correction over all tests of one model" in note for note in table.notes)


def test_changes_have_their_difference_from_the_plain_runs_and_their_pseudo_labels():
    variant = {"name": "hot", "set": ["training.lr=0.1"], "methods": ["sst"], "proportions": [0.1]}
    quality = {"pseudo_precision_micro": 90.0, "pseudo_recall_micro": 30.0}
    quality |= {"pseudo_precision": 70.0, "pseudo_recall": 20.0}
    rows = [row("sst", 0.1, seed, value, variant="hot", **quality) for seed, value in ((0, 61.0), (1, 64.0))]
    table = changes_table(source_of(*rows, variants=[variant]))
    assert [one.label for one in table.blocks[0].rows] == ["SST", "SST, hot"]
    plain, hot = (shown(table, 0, label) for label in ("SST", "SST, hot"))
    difference = "difference [95 % interval], p (Holm)"
    assert (plain["10 %", "mAP"], plain["10 %", difference]) == ("62.0 ± 2.0", "")
    assert hot["10 %", "mAP"] == "62.5 ± 2.1 (n = 2)"
    test = stats.ttest_rel([61.0, 64.0], [60.0, 62.0])
    low, high = (f"{value:.1f}".replace("-", MINUS) for value in test.confidence_interval(0.95))
    assert hot["10 %", difference] == f"1.5 [{low}, {high}], {test.pvalue:.4f} ({test.pvalue:.4f}), n = 2"
    assert hot["10 %", "all cells"] == "90.0 (n = 2) / 30.0 (n = 2)"
    assert hot["10 %", "class mean"] == "70.0 (n = 2) / 20.0 (n = 2)"
    assert {hot[key] for key in hot if key[0] == "20 %"} == {DASH}
    assert changes_table(source_of()) is None


def test_the_overview_of_pseudo_labels_has_all_cells_and_class_means():
    source = source_of()
    for one in source.results.rows:
        if one["method"] == "sst+satl":
            one |= {"pseudo_precision": 50.0, "pseudo_precision_micro": 80.0 + one["seed"]}
            one |= {"pseudo_recall": 10.0, "pseudo_recall_micro": 20.0}
    table = pseudo_overview_table(source)
    assert [[one.label, *(entry.text for entry in one.entries[:2])] for one in table.blocks[0].rows] == [
        ["SST+SATL", "all cells", "81.0 / 20.0"],
        ["SST+SATL", "class mean", "50.0 / 10.0"],
    ]


def test_without_the_paper_only_our_own_numbers_are_shown():
    source = replace(source_of(), paper=None)
    tables = [map_table(source), f1_table(source), paired_table(source), ablation_table(source)]
    for table in tables:
        assert len(table.blocks) == 1
        assert not any(column.foreign for column in table.columns)
        assert "paper" not in table.title
    assert [column.label for column in map_table(source).columns] == ["10 %", "20 %", "average"]
    groups = dict.fromkeys(column.group for column in f1_table(source, (0.1,)).columns)
    assert list(groups) == ["10 %", "average"]
