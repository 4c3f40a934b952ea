"""A run whose loss grows, or whose stage 2 makes next to no pseudo-labels, says so wherever its results show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.conftest import call
from experiments.grids import results_of, row, write_grid
from satl.evaluation.pseudo_quality import expected_positives, next_to_none
from satl.experiments.results import read_results
from satl.reports.experiment_report import silent_sentence
from satl.runs.reading import save_config
from satl.training.display import Display
from satl.training.log import remarks as said
from training.tiny import KillAt, Killed, metrics, resume, tiny_config, train

SILENT = ("method.name=sst", "method.thresholds.start=1.0", "method.thresholds.end=1.0")
FIRST = "epoch 3: next to no pseudo-labels, 0 where"
END = "next to no pseudo-labels in 2 of the 2 epochs of stage 2: the run learned from the known cells alone"


GROWN = ("method.name=ignore", "training.optimiser=sgd", "training.lr=1000")


class Remarks(Display):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def remark(self, text: str) -> None:
        self.texts.append(text)


def test_expected_positives_are_those_of_the_loops() -> None:
    cells = np.random.default_rng(0).integers(-1, 2, (40, 5))
    cells[:, 0] = 0
    cells[:, 1] = -1
    expected = 0.0
    for c in range(5):
        known = [int(cell) for cell in cells[:, c] if cell]
        if known:
            expected += (40 - len(known)) * known.count(1) / len(known)
    assert expected_positives(cells) == pytest.approx(expected)
    assert not next_to_none({"emitted": 0, "expected": 0.0})  # nothing is unknown
    assert not next_to_none({"emitted": 0})  # a run of an earlier version does not say


def test_it_is_said_once_when_it_begins_and_at_the_end(tmp_path: Path) -> None:
    remarks = Remarks()
    trainer = train(tmp_path / "run", tiny_config(*SILENT), remarks)
    first, end = remarks.texts
    assert first.startswith(FIRST)
    assert end.startswith(END)
    log = (tmp_path / "run" / "train.log").read_text()
    assert (log.count(FIRST), log.count(END)) == (1, 1)
    counts = metrics(tmp_path / "run")[-1]["pseudo_labels"]["union"]
    rows = trainer.data.rows("train")
    assert counts["expected"] == pytest.approx(expected_positives(trainer.data.table.cells[rows]), abs=0.06)


def test_a_resumed_run_says_it_as_often(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(tmp_path / "run", tiny_config(*SILENT), KillAt(epoch=3, step=1))
    remarks = Remarks()
    resume(tmp_path / "run", remarks)
    (end,) = remarks.texts  # the first was said before
    assert end.startswith(END)


def test_a_run_with_pseudo_labels_says_nothing(tmp_path: Path) -> None:
    remarks = Remarks()
    train(
        tmp_path / "run",
        tiny_config("method.name=sst", "method.thresholds.start=0", "method.thresholds.end=0"),
        remarks,
    )
    assert not remarks.texts
    assert "next to no" not in (tmp_path / "run" / "train.log").read_text()


def test_the_command_line_and_the_report_of_an_experiment_say_it(tmp_path: Path) -> None:
    save_config(tiny_config(*SILENT), tmp_path / "tiny.yaml")
    done = call("train", tmp_path / "tiny.yaml", "--out", tmp_path / "run")
    assert f"Note: {FIRST}" in done.err
    assert f"Note: {END}" in done.err
    grid = write_grid(
        tmp_path / "grid.yaml",
        methods=["ignore", "sst"],
        seeds=[0],
        method_settings={"sst": ["method.thresholds.start=1.0", "method.thresholds.end=1.0"]},
    )
    call("experiment", grid, "--out", tmp_path / "experiment", "--quiet")
    results = read_results(tmp_path / "experiment")
    assert {one["method"]: one["pseudo_share"] for one in results.rows} == {"ignore": None, "sst": 0.0}
    assert results.silent() == [("sst", "", 0.3, 1, 1)]
    page = (tmp_path / "experiment" / "report.html").read_text(encoding="utf-8")
    assert "Next to no pseudo-labels" in page
    assert "SST at 30 % (1 of 1 runs)" in page
    union = json.loads((tmp_path / "experiment" / "runs" / "sst-p30-s0" / "result.json").read_text())
    assert union["pseudo_labels"]["expected"] > 0


def test_the_sentence_of_the_report_counts_runs() -> None:
    rows = [
        *(
            row("sst", 0.1, seed, 50.0, pseudo_share=share, model="last")
            for seed, share in enumerate((0.0, 0.5, 30.0))
        ),
        row("hst", 0.2, 0, 50.0, pseudo_share=0.99, model="last", variant="tuned"),
        row("hst", 0.2, 0, 50.0, pseudo_share=1.0, model="last"),
    ]
    assert silent_sentence(results_of(*rows)) == "HST, tuned at 20 % (1 of 1 runs); SST at 10 % (2 of 3 runs)"
    assert silent_sentence(results_of(rows[-1])) == ""


def test_a_loss_that_grew_is_said_when_it_begins_and_at_the_end(tmp_path: Path) -> None:
    remarks = Remarks()
    train(tmp_path / "run", tiny_config(*GROWN), remarks)
    rows = metrics(tmp_path / "run")
    first = rows[0]["first_losses"]["total"]
    times = [row["losses"]["total"] / first for row in rows]
    assert max(times) > 10  # it has grown, and no number of it is infinite
    begins = next(epoch for epoch, one in enumerate(times, start=1) if one >= 10)
    assert remarks.texts[0].startswith(f"epoch {begins}: the loss has grown to ")
    assert remarks.texts[-1].startswith(f"the loss ended at {times[-1]:,.0f} times that of the first step")
    assert len(remarks.texts) == 2
    log = (tmp_path / "run" / "train.log").read_text()
    assert all(log.count(text) == 1 for text in remarks.texts)
    assert all("first_losses" not in row for row in rows[1:])


def test_a_run_that_was_cut_off_in_its_first_epoch_compares_with_the_same_step(tmp_path: Path) -> None:
    settings = (*GROWN, "training.checkpoint_steps=1")
    train(tmp_path / "whole", tiny_config(*settings))
    with pytest.raises(Killed):
        train(tmp_path / "cut", tiny_config(*settings), KillAt(epoch=0, step=2))
    remarks = Remarks()
    resume(tmp_path / "cut", remarks)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    assert len(remarks.texts) == 2


def test_a_loss_that_falls_or_grows_a_little_says_nothing() -> None:
    def row(epoch: int, total: float, **more: float) -> dict[str, Any]:
        losses = {"total": total + sum(more.values()), "known": total, **more}
        return {"epoch": epoch, "stage": 1 + bool(more), "losses": losses, "pseudo_labels": {}}

    start = {**row(0, 0.7), "first_losses": {"total": 0.7, "known": 0.7}}
    assert not list(said([start, row(1, 6.9)], last=True))
    assert not list(
        said([start, row(1, 0.5, ranking=90.0)], last=True)
    )  # a term that the first step did not have
    assert not list(said([row(0, 0.7), row(1, 700.0)], last=True))  # a run of an earlier version
    begins, end = said([start, row(1, 70.0)], last=True)
    assert "100 times that of the first step (0.7)" in begins
    assert "100 times" in end
    again = said([start, row(1, 70.0), row(2, 80.0)], last=False)
    assert not list(again)  # it was said before
