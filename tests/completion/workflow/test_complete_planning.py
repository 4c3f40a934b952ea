from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from completion.drawn import Drawn
from satl.completion.outputs.hand_labels import read_answers, read_audit, write_audit, write_plan
from satl.completion.statistics.audit import draw_audit, estimate_audit
from satl.completion.workflow.case import with_plan
from satl.completion.workflow.complete import Completion, complete
from satl.completion.workflow.from_scores import case_from_scores
from satl.completion.workflow.plan_from_folder import plan_from_folder
from satl.errors import RunError, TableError
from satl.labels import LabelTable, read_table

Row = dict[str, str]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    """Few labels: some classes are short of a certificate."""
    return Drawn(4000, ("boat", "猫, cat"), known=0.025, prevalence=(0.3, 0.3))


@pytest.fixture(scope="module")
def folder(drawn: Drawn, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("short")
    drawn.write(path, scores="s.npz")
    return path


@pytest.fixture(scope="module")
def done(folder: Path) -> Completion:
    return complete(case_from_scores(folder / "s.npz", folder / "labels.csv"), folder / "out")


def edit(path: Path, change: Callable[[Row], None]) -> Path:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        change(row)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def answer_from(table: LabelTable, truth: np.ndarray) -> Callable[[Row], None]:
    """A person who knows the truth."""

    def change(row: Row) -> None:
        value = truth[table.images.index(row["image"]), table.classes.index(row["label"])]
        row["value"] = "present" if value > 0 else "no"

    return change


def test_a_plan_brings_the_certificates_that_were_missing(
    drawn: Drawn, folder: Path, done: Completion, tmp_path: Path
) -> None:
    lacking = [entry["name"] for entry in done.report["classes"] if not entry["present"]["certified"]]
    assert lacking
    plan, table = plan_from_folder(done.folder.path, budget=300)
    assert table == drawn.table
    assert (table.cells[plan.row, plan.column] == 0).all()
    write_plan(plan, table, tmp_path / "plan.csv")
    edit(tmp_path / "plan.csv", answer_from(table, drawn.truth))
    case = case_from_scores(folder / "s.npz", folder / "labels.csv", plan=tmp_path / "plan.csv")
    np.testing.assert_array_equal(case.planned, plan.planned(table.cells.shape))
    expected = plan.zones(table.num_classes)
    np.testing.assert_array_equal(case.zones, expected)
    again = complete(case, tmp_path / "out")
    assert any(entry["present"]["certified"] for entry in again.report["classes"] if entry["name"] in lacking)
    # The answers are known cells now, and the evidence that is kept for later does not contain them.
    after = read_table(again.folder.completed)
    np.testing.assert_array_equal(after.cells[plan.row, plan.column], drawn.truth[plan.row, plan.column])
    tested = again.folder.read_tested(again.folder.read_labels())
    np.testing.assert_array_equal(tested, table.known)
    assert f"{len(plan)} that a plan picked by their score" in again.report["model"]
    for entry, column in zip(again.report["classes"], range(2), strict=True):
        for side, value in (("present", 1), ("absent", -1)):
            filled = (table.cells[:, column] == 0) & (after.cells[:, column] == value)
            assert not entry[side]["certified"] or (drawn.truth[filled, column] == value).mean() > 0.93


def test_plans_that_cannot_be_read_are_told(drawn: Drawn, done: Completion, tmp_path: Path) -> None:
    plan, table = plan_from_folder(done.folder.path, budget=20)
    path = tmp_path / "plan.csv"

    def fresh() -> Path:
        path.unlink(missing_ok=True)
        write_plan(plan, table, path)
        return path

    def refused(message: str) -> None:
        with pytest.raises(TableError, match=message) as error:
            read_answers(path, table)
        assert "\n" not in str(error.value)

    assert len(read_answers(fresh(), table).value) == 0
    edit(fresh(), lambda row: row.update(value="?"))
    assert len(read_answers(path, table).value) == 0
    edit(fresh(), lambda row: row.update(value="0"))
    refused(r"row 1 \(image .*\): '0' is not an answer; write present, absent, or \? if nobody can tell")
    edit(fresh(), lambda row: row.update(value="presnt"))
    refused("did you mean 'present'")
    edit(fresh(), lambda row: row.update(label="ghost"))
    refused("row 1: the table has no class 'ghost'")
    edit(fresh(), lambda row: row.update(zone=""))
    refused("row 1 has lost its aim, zone or score")
    lines = fresh().read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[1].replace(",,", ",absent,", 1)]))
    refused(rf"row {len(lines)} repeats a cell: remove it")
    path.write_text("image,label\na,b\n")
    refused("has no column 'value'")
    path.write_text("image;label;value;score;aim;zone\n", encoding="utf-8")
    refused("has no column 'image': separate its columns with commas, not ';'")
    path.unlink()
    refused("cannot be read")
    with pytest.raises(TableError, match=r"end the name in \.csv"):
        write_plan(plan, table, tmp_path / "plan.xlsx")


def test_answers_of_a_person_are_not_overwritten(done: Completion, tmp_path: Path) -> None:
    plan, table = plan_from_folder(done.folder.path, budget=5)
    path = tmp_path / "plan.csv"
    for _ in range(2):  # nobody has written into it
        write_plan(plan, table, path)
    edit(path, lambda row: row.update(value="present"))
    answered = path.read_bytes()
    with pytest.raises(
        TableError, match=r"plan\.csv exists already and may hold a person's answers: choose another"
    ):
        write_plan(plan, table, path)
    assert path.read_bytes() == answered
    other = tmp_path / "mine.csv"
    other.write_text("image,note\na.jpg,keep\n")
    with pytest.raises(TableError, match="exists already"):
        write_plan(plan, table, other)


def test_a_plan_tests_only_the_model_that_drew_it(
    drawn: Drawn, folder: Path, done: Completion, tmp_path: Path
) -> None:
    plan, table = plan_from_folder(done.folder.path, budget=5)
    write_plan(plan, table, tmp_path / "plan.csv")
    edit(tmp_path / "plan.csv", lambda row: row.update(value="present"))
    case = case_from_scores(folder / "s.npz", folder / "labels.csv", plan=tmp_path / "plan.csv")
    assert case.source["planned"] == 5
    # The same model, but it was trained on a cell of the plan.
    plain = case_from_scores(folder / "s.npz", folder / "labels.csv")
    basis = plain.basis.copy()
    basis[plan.row[2], plan.column[2]] = 1
    run = replace(plain, basis=basis, tested=plain.basis != 0, source={**plain.source, "kind": "run"})
    with pytest.raises(
        TableError, match=r"the run was trained on 1 of its cells, such as image .*; leave the plan out"
    ):
        with_plan(run, tmp_path / "plan.csv")
    edit(tmp_path / "plan.csv", lambda row: row.update(score=str(float(row["score"]) + 0.5)))
    with pytest.raises(
        TableError, match=r"was drawn by other scores: image .* a plan can only test the model"
    ):
        case_from_scores(folder / "s.npz", folder / "labels.csv", plan=tmp_path / "plan.csv")


def test_a_plan_may_not_contradict_the_table(folder: Path, done: Completion, tmp_path: Path) -> None:
    plan, table = plan_from_folder(done.folder.path, budget=1)
    write_plan(plan, table, tmp_path / "plan.csv")
    with pytest.raises(TableError, match="no answer yet"):
        case_from_scores(folder / "s.npz", folder / "labels.csv", plan=tmp_path / "plan.csv")
    row, column = np.argwhere(table.cells == 1)[0]
    edit(
        tmp_path / "plan.csv",
        lambda one: one.update(image=table.images[row], label=table.classes[column], value="absent"),
    )
    with pytest.raises(TableError, match=r"is known to be present, but .* says absent; correct one of them"):
        case_from_scores(folder / "s.npz", folder / "labels.csv", plan=tmp_path / "plan.csv")


def test_scores_that_have_moved_are_asked_for(drawn: Drawn, tmp_path: Path) -> None:
    labels, scores = drawn.write(tmp_path, scores="s.npz")
    done = complete(case_from_scores(scores, labels), tmp_path / "out")
    scores.rename(tmp_path / "elsewhere.npz")
    with pytest.raises(RunError, match="are not there any more; name the file with scores"):
        plan_from_folder(done.folder.path)
    plan, _ = plan_from_folder(done.folder.path, scores=tmp_path / "elsewhere.npz")
    assert len(plan)


@pytest.mark.parametrize("by", ["class", "table"])
def test_an_audit_finds_the_truth(by: str, drawn: Drawn, done: Completion, tmp_path: Path) -> None:
    table = drawn.table
    bands = done.folder.read_bands(table)
    sample = draw_audit(bands, 40, by, 3)  # type: ignore[arg-type]
    write_audit(sample, table, tmp_path / "audit.csv", size=40, seed=3)
    with (tmp_path / "audit.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["image", "label", "value", "draw"]  # neither score nor band
    with pytest.raises(TableError, match="no answer yet"):
        read_audit(tmp_path / "audit.csv", table, bands)
    edit(tmp_path / "audit.csv", answer_from(table, drawn.truth))
    again, answers, without = read_audit(tmp_path / "audit.csv", table, bands)
    assert without == 0
    np.testing.assert_array_equal(again.row, sample.row)
    np.testing.assert_array_equal(answers, drawn.truth[sample.row, sample.column])
    result = estimate_audit(again, answers)
    unknown = bands != 0
    if by == "table":
        share = (drawn.truth[unknown] == 1).mean()
        assert result.prevalence.low[0] <= share <= result.prevalence.high[0]
    else:
        shares = [(drawn.truth[unknown[:, c], c] == 1).mean() for c in range(2)]
        assert (result.prevalence.low <= shares).all()
        assert (shares <= result.prevalence.high).all()


def test_an_audit_that_was_tampered_with_is_refused(drawn: Drawn, done: Completion, tmp_path: Path) -> None:
    table = drawn.table
    bands = done.folder.read_bands(table)
    path = tmp_path / "audit.csv"
    write_audit(draw_audit(bands, 10), table, path, size=10, seed=0)
    edit(path, answer_from(table, drawn.truth))
    good = path.read_text(encoding="utf-8")
    lines = good.splitlines(keepends=True)

    def refused(text: str, message: str) -> None:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(TableError, match=message):
            read_audit(path, table, bands)

    refused("".join(lines[:-2]), "lacks 2 of the cells drawn")
    refused(good + lines[1], "repeats a cell")
    refused(good.replace("class/10/0", "class/10/1"), "cells drawn")
    refused(good.replace("class/10/0", ""), "does not say how it was drawn")
    path.write_text(good, encoding="utf-8")
    edit(path, lambda row: row.update(value="" if row["label"] == "boat" else row["value"]))
    sample, answers, without = read_audit(path, table, bands)
    assert without == int((sample.column == 0).sum())
    assert (answers[sample.column == 0] == 0).all()
