"""``satl compare``: runs side by side, as their folders have them."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.tiny import metrics

Satl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def runs(tiny_run: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A run, and one that seems to have been trained with another learning rate and other results."""
    first, second = (Path(shutil.copytree(tiny_run, tmp_path / name)) for name in ("first", "second"))
    config = yaml.safe_load((second / "config.yaml").read_text())
    config["training"] |= {"lr": 0.5, "epochs": 9}
    config["images"]["workers"] = 3
    config["method"]["losses"]["pseudo"]["weight"] = 7.5
    (second / "config.yaml").write_text(yaml.safe_dump(config))
    scores = (0.25, 0.75, 0.5)
    change_metrics(second, lambda row: row["val"].update(mAP=scores[row["epoch"]]))
    union = {"emitted": 12, "expected": 40.5, "macro_precision": None, "micro_precision": 0.375}
    change_metrics(second, lambda row: row["pseudo_labels"].get("union", {}).update(union))
    for run, value in ((first, 0.125), (second, 0.625)):
        write_evaluation(run, mAP=value)
    return first, second


def change_metrics(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        change(row)
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_evaluation(run: Path, **content: Any) -> None:
    facts = {"split": "test", "checkpoint": "best", "thresholds": "0.5 for every class"}
    (run / "evaluation-test.json").write_text(json.dumps({**facts, **content}))


def test_json_holds_what_the_folders_hold(satl: Satl, runs: tuple[Path, Path]) -> None:
    code, out, err = satl("compare", *runs, "--json")
    assert (code, err) == (0, "")
    first, second = json.loads(out)["runs"]
    assert (first["run"], second["run"]) == tuple(map(str, runs))
    # What changes no result, as workers, is not among the settings; what is equal is not either.
    assert first["settings"].keys() == second["settings"].keys()
    assert set(second["settings"]) == {"training.lr", "training.epochs", "method.losses.pseudo.weight"}
    assert (first["settings"]["training.lr"], second["settings"]["training.lr"]) == (0.003, 0.5)
    assert (first["epochs"], second["epochs"]) == ({"done": 3, "asked": 3}, {"done": 3, "asked": 9})
    assert (second["last"]["epoch"], second["last"]["mAP"]) == (3, 0.5)
    assert (second["best"]["epoch"], second["best"]["mAP"]) == (2, 0.75)
    row = metrics(runs[0])[-1]
    assert first["last"] == {
        "epoch": 3,
        **{key: row["val"][key] for key in ("mAP", "mAP_rare", "OF1", "CF1")},
    }
    found = second["pseudo_labels"]
    assert (found["emitted"], found["expected"]) == (12, 40.5)
    assert (found["macro_precision"], found["micro_precision"]) == (None, 0.375)
    assert first["pseudo_labels"]["emitted"] == row["pseudo_labels"]["union"]["emitted"]
    assert second["evaluations"]["test"]["mAP"] == 0.625
    assert second["evaluations"]["test"]["checkpoint"] == "best"
    lines = (runs[0] / "metrics.jsonl").read_text().splitlines()
    seconds = sum(json.loads(line)["train_seconds"] for line in lines)
    assert first["train_seconds"] == pytest.approx(seconds, abs=1e-3)


def test_csv_has_a_row_for_each_run(satl: Satl, runs: tuple[Path, Path]) -> None:
    code, out, err = satl("compare", *runs, "--csv")
    assert (code, err) == (0, "")
    first, second = csv.DictReader(out.splitlines())
    assert (first["run"], second["run"]) == tuple(map(str, runs))
    assert (first["settings.training.lr"], second["settings.training.lr"]) == ("0.003", "0.5")
    assert (second["best.epoch"], second["best.mAP"]) == ("2", "0.75")
    assert (first["evaluations.test.mAP"], second["evaluations.test.mAP"]) == ("0.125", "0.625")


def lines_of(table: str) -> dict[str, list[str]]:
    """Return the cells of a printed table by the first of their line."""
    rows = ([cell.strip() for cell in line.strip("│").split("│")] for line in table.splitlines())
    return {row[0]: row[1:] for row in rows if len(row) > 1}


def test_the_table_has_percentages_and_dashes(
    satl: Satl, runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    (runs[0] / "evaluation-test.json").unlink()
    code, out, err = satl("compare", *runs)
    assert (code, err) == (0, "")
    shown = lines_of(out)
    assert shown["training.lr"] == ["0.003", "0.5"]
    assert shown["epochs asked"] == ["3", "9"]
    assert shown["best epoch"][1] == "2"
    assert shown["best epoch: mAP"][1] == "75.00"
    assert shown["pseudo-labels: emitted"][1] == "12"
    assert shown["pseudo-labels: micro precision"][1] == "37.50"
    assert shown["test: mAP"] == ["-", "62.50"]


def test_runs_with_the_same_settings_are_called_so(satl: Satl, tiny_run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_run, tmp_path / "copy"))
    (copy / "metrics.jsonl").unlink()  # a run that was just started
    code, out, err = satl("compare", tiny_run, copy)
    assert (code, err) == (0, "")
    assert "All settings that can change a result are the same." in out
    code, out, _ = satl("compare", tiny_run, copy, "--json")
    entry = json.loads(out)["runs"][1]
    assert (entry["last"], entry["best"], entry["pseudo_labels"]) == ({}, {}, {})
    assert (entry["epochs"]["done"], entry["train_seconds"]) == (0, 0.0)


def test_settings_of_one_run_alone_are_shown(satl: Satl, runs: tuple[Path, Path]) -> None:
    config = yaml.safe_load((runs[1] / "config.yaml").read_text())
    config["method"]["losses"]["extra"] = {"weight": 2}
    (runs[1] / "config.yaml").write_text(yaml.safe_dump(config))
    first, second = json.loads(satl("compare", *runs, "--json")[1])["runs"]
    assert second["settings"]["method.losses.extra.weight"] == 2
    assert "method.losses.extra.weight" not in first["settings"]


# A few hundred characters that stand for half a billion settings.
REFERENCES = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 10))
MANY = f"method: {{name: sst}}\ntraining: {{epochs: 1}}\nx0: &x0 [a]\n{REFERENCES}"


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("metrics.jsonl", '{"epoch": 0}\n', "metrics.jsonl: cannot be read; restore it"),
        ("metrics.jsonl", '{"epoch": 0, "train_seconds": 1, "val": [1]}\n', "metrics.jsonl: cannot be read"),
        ("metrics.jsonl", '{"epoch": 0, "train_seconds": "1"}\n', "metrics.jsonl: cannot be read"),
        (
            "metrics.jsonl",
            '{"epoch": 0, "train_seconds": 1, "val": {"mAP": "a"}}\n',
            "metrics.jsonl: cannot be read",
        ),
        ("metrics.jsonl", '{"epoch": 5, "train_seconds": 1}\n', "metrics.jsonl: cannot be read"),
        ("evaluation-val.json", "[1, 2]", "evaluation-val.json: cannot be read; evaluate the run again"),
        ("evaluation-val.json", '{"mAP": "high"}', "evaluation-val.json: cannot be read"),
        ("evaluation-val.json", '{"doubts": 3}', "evaluation-val.json: cannot be read"),
        ("evaluation-val.json", "{", "evaluation-val.json: cannot be read"),
        (
            "config.yaml",
            "method: {name: sst}\ntraining: {lr: 1}\n",
            "config.yaml: cannot be read; restore it",
        ),
        ("config.yaml", "method: {name: sst}\ntraining: {epochs: many}\n", "config.yaml: cannot be read"),
        ("config.yaml", MANY, "config.yaml: cannot be read"),
    ],
)
def test_what_no_run_writes_ends_in_one_sentence(
    satl: Satl, runs: tuple[Path, Path], file: str, content: str, said: str
) -> None:
    (runs[1] / file).write_text(content)
    code, out, err = satl("compare", *runs)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_mistakes_end_in_one_sentence(satl: Satl, tiny_run: Path, tmp_path: Path) -> None:
    for arguments, said in (
        ((tiny_run,), "at least two runs are needed to compare; give their folders."),
        ((tiny_run, tiny_run.parent / "." / tiny_run.name), "is given twice; give each run once."),
        ((tiny_run, tmp_path), "holds no config.yaml, so it is not a run"),
        ((tiny_run, tmp_path / "none"), "is not a folder"),
        ((tiny_run, tmp_path, "--json", "--csv"), "--json and --csv exclude each other."),
    ):
        code, out, err = satl("compare", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err
