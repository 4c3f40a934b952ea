"""docs/results.md and README.md say what was measured, in their tables and in their sentences."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from programs import ROOT, load_program
from satl.experiments.configs import run_configs
from satl.experiments.grid import choose_runs, read_grid
from satl.experiments.results import Results, read_results
from satl.experiments.tables.number_text import spread

KEPT = sorted((ROOT / "experiments").glob("*/results/*.csv"))
LITERALS = {
    "0.05": "level of the tests",
    "0.5": "a cut; the paper's HST+SATL",
    "2.15": "torch",
    "2.11": "torch",
    "0.999": "a quantile",
    "0.1": "a quantile, a rate",
    "0.75": "SST's last threshold",
    "1.55": "labels an image of coco18",
    "58.1": "a rule that was written down before",
    "2.9": "labels an image of coco2014",
    **dict.fromkeys(("0.45", "0.02", "0.55", "0.6", "0.65", "0.01"), "settings in labels of rows"),
}
"""Decimals that templates may hold as they are; everything else that was measured is an expression."""


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    return load_program("tools/write_results_page.py")


@pytest.fixture(scope="module")
def facts(writer: ModuleType) -> ModuleType:
    import kept_facts

    return kept_facts


@pytest.fixture
def elsewhere(facts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the experiments that the pages are made from."""
    copy = tmp_path / "experiments"
    for file in (ROOT / "experiments").rglob("*"):
        if file.suffix in (".csv", ".yaml") and "data" not in file.parts:
            target = copy / file.relative_to(ROOT / "experiments")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    import kept_files

    monkeypatch.setattr(kept_files, "EXPERIMENTS", copy)
    return copy


def change(folder: Path, experiment: str, grid: str, changed) -> None:
    """Rewrite kept results; ``changed`` takes a row and returns it, or nothing."""
    file = folder / experiment / "results" / f"{grid}.csv"
    results = read_results(file)
    rows = [row for row in map(changed, results.rows) if row is not None]
    Results(rows, results.columns[len(Results([]).columns) :]).write_csv(file)


def prose(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("|"))


def test_the_pages_are_up_to_date(writer: ModuleType) -> None:
    assert writer.PAGE.read_text(encoding="utf-8") == writer.page(), (
        "run `python tools/write_results_page.py`"
    )
    assert writer.README.read_text(encoding="utf-8") == writer.readme(), (
        "run `python tools/write_results_page.py`"
    )


def test_a_changed_result_changes_tables_and_sentences(
    writer: ModuleType, facts: ModuleType, elsewhere: Path
) -> None:
    before, readme = writer.page(), writer.readme()
    measured = spread(facts.Kept("coco18", "main").source.estimate("satl+", 0.1), 5)
    assert measured in before
    assert before == writer.PAGE.read_text(encoding="utf-8")

    def lower(row):
        if (row["method"], row["variant"], row["proportion"]) == ("sst+satl", "", 0.1):
            row["mAP"] -= 3.0
        return row

    change(elsewhere, "coco18", "main", lower)
    after = writer.page()
    assert prose(after) != prose(before)
    assert prose(writer.readme()) != prose(readme)
    # SST+SATL is no longer significantly higher than SST at 10 %, and the summary says so without anybody's help.
    assert "(SST+SATL against SST): higher at 5, 10 and 20 %" in before
    assert "(SST+SATL against SST): higher at 5 and 20 %" in after


def test_a_sentence_that_no_longer_holds_is_left_out_aloud(
    writer: ModuleType, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "SATL+ is better than SST+SATL at every proportion."
    assert sentence in writer.page()

    def worse(row):
        if row["method"] == "satl+" and row["proportion"] == 0.05:
            row["mAP"] -= 20.0
        return row

    change(elsewhere, "scenes", "main", worse)
    capsys.readouterr()
    assert sentence not in writer.page()
    assert f"does not hold: {sentence}" in capsys.readouterr().err


@pytest.mark.parametrize("template", sorted(path.name for path in (ROOT / "tools").glob("*.md.j2")))
def test_no_measured_number_is_written_by_hand(template: str) -> None:
    text = (ROOT / "tools" / template).read_text(encoding="utf-8")
    text = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|`[^`]*`", "", text, flags=re.DOTALL)
    assert set(re.findall(r"\d+\.\d+", text)) <= set(LITERALS)


def test_a_readme_without_marks_is_refused(
    writer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "README", tmp_path / "README.md")
    writer.README.write_text("# satl\n")
    with pytest.raises(SystemExit, match="marks"):
        writer.readme()


def test_what_has_not_been_run_makes_no_claim(writer: ModuleType, facts: ModuleType, elsewhere: Path) -> None:
    kept = facts.Kept("coco2014", "table1")
    pairs = [("satl+", "sst+satl"), ("sst+satl", "ignore")]
    change(
        elsewhere,
        "coco2014",
        "table1",
        lambda row: row if row["run"] in ("ignore-p10-s0", "sst+satl-p10-s0") else None,
    )
    kept = facts.Kept("coco2014", "table1")
    assert kept.methods == ("ignore", "sst+satl")
    assert kept.proportions == (0.1,)
    assert "(n = 1)" in kept.map()
    assert "SATL+ " not in kept.differences(pairs)
    assert (
        kept.claims(pairs).sentences() == "- One seed, so no test at 10 %: SST+SATL against ignore-unknown."
    )


def test_a_probe_is_a_row_once_there_are_results(
    facts: ModuleType, writer: ModuleType, elsewhere: Path
) -> None:
    (elsewhere / "coco18" / "results" / "probe.csv").unlink(missing_ok=True)
    assert "probe" not in facts.Kept("coco18", "main", probe=True).methods
    rows = [
        {**row, "method": "probe", "run": f"probe-p{row['proportion']}-s{row['seed']}"}
        for row in facts.Kept("coco18", "main").source.results.rows
        if (row["method"], row["variant"], row["model"]) == ("ignore", "", "last")
    ]
    Results(rows).write_csv(elsewhere / "coco18" / "results" / "probe.csv")
    kept = facts.Kept("coco18", "main", probe=True)
    assert kept.methods[-1] == "probe"
    assert "| linear probe | both |" in kept.map()
    assert "| linear probe | | | | 47.7 | | |" in writer.readme()
    assert "The linear probe has 41.4, 47.7," in writer.page()


def pretend(folder: Path, experiment: str, grid: str, gains: dict[str, float], wanted: str = "*") -> None:
    """Write results of the runs of a grid that were never run: 50 mAP, and so much more where a run's name has a part.

    Runs differ from each other by chance, by some tenths.
    """
    runs = choose_runs(read_grid(folder / experiment / f"{grid}.yaml").runs(), [wanted])
    chance = np.random.default_rng(7)
    rows = []
    for grid_run in runs:
        name = f"{grid_run.method}:{grid_run.variant}" if grid_run.variant else grid_run.method
        mean = 50.0 + 20.0 * grid_run.proportion + sum(gain for part, gain in gains.items() if part in name)
        place = {"method": grid_run.method, "proportion": grid_run.proportion, "seed": grid_run.seed}
        place |= {"variant": grid_run.variant, "run": grid_run.name, "status": "done", "split": "test"}
        quality = {"pseudo_precision": 60.0, "pseudo_recall": 30.0}
        quality |= {"pseudo_precision_micro": 80.0, "pseudo_recall_micro": 50.0}
        measured = {"mAP": mean + 0.2 * float(chance.standard_normal()), "OF1": mean, "CF1": mean}
        rows += [{**place, **quality, **measured, "model": model} for model in ("last", "best")]
    Results(rows).write_csv(folder / experiment / "results" / f"{grid}.csv")


LATER = ("tuning_baselines", "controls", "rules", "drl", "tuning_plus", "plus")


@pytest.mark.parametrize("experiment", ["coco18", "coco2014"])
def test_sections_appear_with_their_results(writer: ModuleType, elsewhere: Path, experiment: str) -> None:
    grids = [grid for grid in LATER if (elsewhere / experiment / f"{grid}.yaml").is_file()]
    for grid in grids:
        (elsewhere / experiment / "results" / f"{grid}.csv").unlink(missing_ok=True)
        assert f"experiments/{experiment}/{grid}.yaml --out" not in writer.page()
    for grid in grids:
        pretend(
            elsewhere, experiment, grid, {"tuned": 1.0, "alike+": 2.0, "satl+": 8.0, "sate": 3.0, "drl": 0.0}
        )
    page = writer.page()
    for grid in grids:
        assert f"experiments/{experiment}/{grid}.yaml --out" in page
    assert "| SST, tuned | both |" in page
    below = " ".join(page[page.index(f"experiments/{experiment}/rules.yaml") :].split())
    rules = re.search(r"- With 10 % known `sate` is significantly higher than ([^.]*)\.", below)
    assert rules is not None
    assert "`fixed`" in rules[1]
    assert "lower" not in rules[1]
    assert re.search(
        r"\*\*SATE against the other rules\*\* in SST's framework, of \d+: with", " ".join(page.split())
    )
    trial = page[page.index(f"experiments/{experiment}/drl.yaml") :]
    assert "is significantly better here" in trial.split("\n## ")[0]


def test_one_seed_of_a_section_is_labelled_so(writer: ModuleType, elsewhere: Path) -> None:
    pretend(elsewhere, "coco2014", "rules", {"sate": 3.0}, "sst-p10-s0-*")
    page = writer.page()
    section = page[page.index("experiments/coco2014/rules.yaml") :]
    assert "(n = 1)" in section
    text = " ".join(section.split())
    assert "With 10 % known `sate` is of one seed beside" in text
    assert "The highest mean of the last epoch is that of `sate` (" in text


def test_a_rule_that_is_better_than_sate_is_named(writer: ModuleType, elsewhere: Path) -> None:
    pretend(elsewhere, "coco18", "rules", {"precision": 4.0, "fixed": -4.0}, "sst-p10-*")
    text = " ".join(writer.page().split())
    outcomes = r"significantly higher than ([^.]*), significantly lower than ([^.]*), not significantly different from"
    found = re.search(rf"With 10 % known `sate` is {outcomes}", text)
    assert found is not None
    assert (found[1], found[2]) == ("`fixed`", "`precision`")
    assert "The highest mean of the last epoch is that of `precision` (" in text


def test_a_ranking_loss_that_helps_is_named(writer: ModuleType, elsewhere: Path) -> None:
    pretend(elsewhere, "coco18", "drl", {"sst+drl:image1": 3.0})
    text = " ".join(writer.page().split())
    assert (
        "Significantly better: SST+DRL, image1 against SST at 10 %; SST+DRL, image10 against SST at 10 %."
        in text
    )


@pytest.mark.parametrize("file", KEPT, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_kept_results_are_of_runs_of_the_grid(file: Path) -> None:
    rows = read_results(file).rows
    assert {row["status"] for row in rows} == {"done"}
    folder = file.parents[1]
    grid = folder / f"{file.stem}.yaml"
    if file.stem == "probe":  # no run of a grid
        assert {row["method"] for row in rows} == {"probe"}
        assert {row["split"] for row in rows} == {"test"}
        return
    configs = {
        grid_run.name: config for grid_run, config in run_configs(read_grid(grid), folder, str(grid)).items()
    }
    # What settings are chosen by has seen no test image.
    assert all(not config.data.use_test for config in configs.values()) == ("tuning" in file.stem)
    for row in rows:
        assert row["split"] == ("test" if configs[row["run"]].data.use_test else "val")


def test_values_that_change_nothing_are_the_plain_runs(facts: ModuleType) -> None:
    alone, others = (facts.Kept("coco18", name).source for name in ("sweeps", "others"))
    kept = facts.Kept("coco18", "sweeps", borrow=["others"])
    usual = [own for own, _, base in kept.sweep_rows() if not base]
    assert usual == [
        "hst+sate:rate=0.9",
        "sst+sate:negative_quantile=0.999",
        "sst+sate:positive_quantile=0.1",
    ]
    borrowed = kept.source.values("hst+sate", 0.2, "rate=0.9")
    assert borrowed == others.values("hst+sate", 0.2)
    assert len(borrowed) == 3
    # Another value is never taken from there, and what the sweep itself ran is what counts.
    assert not kept.source.values("hst+sate", 0.5, "rate=0.7")
    assert kept.source.values("hst+sate", 0.2, "rate=0.7") == alone.values("hst+sate", 0.2, "rate=0.7")


def test_a_sweep_shows_only_proportions_it_was_run_at(facts: ModuleType) -> None:
    for experiment, shown in (("coco18", [0.2]), ("scenes", [0.2, 0.5])):
        kept = facts.Kept(experiment, "sweeps", borrow=["others"])
        assert kept.proportions_of(kept.sweep_rows()) == shown


def test_there_are_kept_results() -> None:
    assert len(KEPT) >= 10
