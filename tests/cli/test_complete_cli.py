from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from completion.drawn import Drawn, write_scores
from satl.labels import read_table, write_table
from satl.review.database import DecisionRequest, ReviewStore
from training.tiny import tiny_config, train

Satl = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return Drawn(1500, ("boat", "猫, cat"), prevalence=(0.4, 0.2))


@pytest.fixture
def files(drawn: Drawn, tmp_path: Path) -> Path:
    drawn.write(tmp_path, scores="scores.parquet")
    return tmp_path


def from_scores(files: Path, out: Path) -> tuple[object, ...]:
    return ("complete", "--scores", files / "scores.parquet", "--labels", files / "labels.csv", "-o", out)


@pytest.fixture
def out(files: Path, satl: Satl) -> Path:
    code, _, err = satl(*from_scores(files, files / "out"))
    assert (code, err) == (0, "")
    return files / "out"


def refused(satl: Satl, folder: Path, *arguments: object, parts: tuple[str, ...]) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    code, out, err = satl(*arguments)
    assert (code, out) == (2, ""), (out, err)
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_from_scores_to_a_completed_table(files: Path, drawn: Drawn, satl: Satl) -> None:
    code, out, err = satl(
        *("complete", "--scores", files / "scores.parquet", "--labels", files / "labels.csv"),
        *(
            "-o",
            files / "out",
            "--precision",
            "0.9",
            "--confidence",
            "0.9",
            "--family-wise",
            "--images",
            "photos",
        ),
    )
    assert (code, err) == (0, "")
    assert "With 90 % confidence for all classes at once, at least 90 % of the cells" in out
    assert f"Table   {files / 'out' / 'completed.csv'}" in out
    assert f"satl review {files / 'out'}" in out
    after = read_table(files / "out" / "completed.csv")
    np.testing.assert_array_equal(after.cells[drawn.table.known], drawn.table.cells[drawn.table.known])
    report = json.loads((files / "out" / "report.json").read_text(encoding="utf-8"))
    assert (report["target_precision"], report["family"], report["images"]) == (0.9, "table", "photos")


def doubted(folder: Path) -> dict[tuple[str, str], int]:
    """Return the suspected label errors of a completion, and what is proposed in their place."""
    with (folder / "changes.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["image"], row["label"]): int(row["value"]) for row in rows if row["source"] == "label-error"}


def test_labels_that_a_person_confirmed_are_not_doubted_again(files: Path, out: Path, satl: Satl) -> None:
    errors = doubted(out)
    assert len(errors) >= 4
    confirmed, corrected, skipped, *_ = errors
    with ReviewStore(out) as store:
        store.refresh()
        store.decide("t", "1", [DecisionRequest(*confirmed, -errors[confirmed], None)])
        store.decide("t", "2", [DecisionRequest(*corrected, errors[corrected], None)])
        store.decide("t", "3", [DecisionRequest(*skipped, 0, None)])
    table = files / "labels-2.csv"
    assert satl("merge", out, files / "labels.csv", "-o", table, "--replace-known")[0] == 0
    again = (
        "complete",
        "--scores",
        files / "scores.parquet",
        "--labels",
        table,
        "--certify-on",
        files / "labels.csv",
    )
    assert satl(*again, "-o", files / "without")[0] == 0
    assert doubted(files / "without").keys() == errors.keys() - {corrected}
    code, printed, err = satl(*again, "-o", files / "with", "--reviewed", out)
    assert (code, err) == (0, "")
    assert "Note: 2 labels that a person decided in an earlier review are not suspected again." in printed
    assert doubted(files / "with").keys() == errors.keys() - {corrected, confirmed}
    # Certificates do not depend on it.
    first, second = (files / name / "thresholds.csv" for name in ("without", "with"))
    assert first.read_bytes() == second.read_bytes()
    # What was decided and not merged is still open: the table says something else.
    assert satl(*again[:4], files / "labels.csv", "-o", files / "open", "--reviewed", out)[0] == 0
    assert doubted(files / "open").keys() == errors.keys() - {confirmed}


def test_a_review_that_says_nothing_about_the_table_is_refused(files: Path, out: Path, satl: Satl) -> None:
    command = from_scores(files, files / "again")
    refused(satl, files, *command, "--reviewed", out, parts=(f"{out}: holds no decision of a person",))
    refused(satl, files, *command, "--reviewed", files, parts=(str(files), "satl complete"))
    (image, label), value = next(iter(doubted(out).items()))
    with ReviewStore(out) as store:
        store.refresh()
        store.decide("t", "1", [DecisionRequest(image, label, -value, None)])
    text = (files / "labels.csv").read_text(encoding="utf-8")
    (files / "labels.csv").write_text(text.replace(image, "other.jpg"), encoding="utf-8")
    code, printed, err = satl(*command, "--reviewed", out)  # which opens the file of the review
    assert (code, printed, err.count("\n")) == (2, "", 1)
    assert f"the table: has none of the cells decided in {out} (such as image {image!r}" in err
    assert not (files / "again").exists()


def test_one_file_for_everything(drawn: Drawn, tmp_path: Path, satl: Satl) -> None:
    labels = np.where(drawn.table.cells == 0, np.nan, drawn.table.cells > 0)
    bundle = write_scores(tmp_path / "all.npz", drawn.table, drawn.scores, labels=labels)
    code, out, err = satl(
        "complete", "--scores", bundle, "-o", tmp_path / "out", "--list-all", "--precision", "0.999"
    )
    assert (code, err) == (0, "")
    assert "counted as out of sample, because nothing says otherwise" in out
    assert read_table(tmp_path / "out" / "completed.npz").images == drawn.table.images
    text = (tmp_path / "out" / "changes.csv").read_text(encoding="utf-8")
    assert ",left,model," in text


def test_what_is_doubtful_is_said_aloud(drawn: Drawn, tmp_path: Path, satl: Satl) -> None:
    other = Drawn(4000, ("boat", "car"), known=0.3, prevalence=(0.4, 0.4))
    unknown = other.table.cells[:, 0] == 0
    other.scores[unknown, 0] = other.scores[unknown, 0] * 0.5 + 0.3
    other.scores[:10, 1] = np.nan
    labels, scores = other.write(tmp_path)
    folder = tmp_path / "my out"
    code, out, _ = satl("complete", "--scores", scores, "--labels", labels, "-o", folder)
    assert code == 0
    assert f"satl review '{folder}'" in out  # to be copied
    assert (
        "Note: Unknown cells of 'boat' do not look like the known ones: do not trust its thresholds." in out
    )
    assert "Note: 10 scores are NaN or blank: such cells stay unknown." in out


def test_a_second_time_needs_force_and_keeps_the_review(out: Path, files: Path, satl: Satl) -> None:
    again = ("complete", "--scores", files / "scores.parquet", "--labels", files / "labels.csv", "-o", out)
    refused(satl, files, *again, parts=("holds a completion already", "--force"))
    (out / "review.sqlite").write_bytes(b"decisions")
    code, _, err = satl(*again, "--force", "--precision", "0.8")
    assert (code, err) == (0, "")
    assert (out / "review.sqlite").read_bytes() == b"decisions"


def test_mistakes_are_one_sentence_and_write_nothing(files: Path, drawn: Drawn, satl: Satl) -> None:
    scores, labels = files / "scores.parquet", files / "labels.csv"
    both = ("complete", "--scores", scores, "--labels", labels)
    new = ("-o", files / "new")
    for arguments, parts in (
        (("complete", *new), ("RUN, or --scores FILE",)),
        (("complete", files, "--scores", scores, *new), ("give one of them",)),
        (both, ("-o OUT",)),
        (("complete", "--scores", scores, *new), ("scores alone", "with --labels")),
        ((*both, *new, "--precision", "1"), ("--precision 1", "for example 0.95")),
        ((*both, *new, "--confidence", "0"), ("--confidence 0",)),
        ((*both, *new, "--transfer", "prevalense"), ("did you mean 'prevalence'",)),
        ((*both, "-o", files), ("no completion wrote", "--out")),
        (("complete", "--scores", files / "scors.parquet", "--labels", labels, *new), ("did you mean",)),
        (("complete", files / "none", *new), ("is not a folder",)),
        (("complete", files / "none", "--held-out", labels, *new), ("belong to --scores",)),
        ((*both, *new, "--held-out", files / "none.csv"), ("does not exist",)),
        ((*both, *new, "--plan", files / "none.csv"), ("cannot be read",)),
        ((*both, *new, "--plan", labels, "--transfer", "prevalence"), ("leave out one of the two",)),
        (("complete", files / "none", "--encoding", "signed", *new), ("--labels TABLE",)),
    ):
        refused(satl, files, *arguments, parts=parts)


def test_encodings_that_are_not_certain_are_asked_for(files: Path, drawn: Drawn, satl: Satl) -> None:
    write_table(drawn.table, files / "signed.csv", "signed")
    arguments = ("complete", "--scores", files / "scores.parquet", "--labels", files / "signed.csv")
    refused(satl, files, *arguments, "-o", files / "new", parts=("--encoding signed",))
    code, _, _ = satl(*arguments, "-o", files / "new", "--encoding", "signed")
    assert code == 0
    assert read_table(files / "new" / "completed.csv", "signed").images == drawn.table.images


def test_positive_only_labels_need_the_explicit_mode(files: Path, drawn: Drawn, satl: Satl) -> None:
    write_table(
        drawn.table.with_cells(np.maximum(drawn.table.cells, 0), encoding="signed"), files / "tags.csv"
    )
    arguments = ("complete", "--scores", files / "scores.parquet", "--labels", files / "tags.csv")
    refused(satl, files, *arguments, "-o", files / "new", parts=("positive-only", "--review-only"))
    code, out, _ = satl(*arguments, "-o", files / "new", "--review-only")
    assert code == 0
    assert "so nothing is promised" in out


def test_a_run_is_completed(tmp_path: Path, satl: Satl) -> None:
    settings = (
        "data.holdout=true",
        "data.holdout_fraction=0.4",
        "training.epochs=1",
        "training.stage1_epochs=1",
    )
    train(tmp_path / "run", tiny_config(*settings))
    code, out, err = satl("complete", tmp_path / "run", "-o", tmp_path / "out", "--quiet")
    assert (code, err) == (0, "")
    assert "trained without the" in out
    assert (tmp_path / "out" / "scores.npz").is_file()
    code, out, err = satl("plan", tmp_path / "out", "-o", tmp_path / "plan.csv", "-n", "30")
    assert (code, err) == (0, "")


def answered(path: Path, drawn: Drawn) -> Path:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        place = drawn.table.images.index(row["image"]), drawn.table.classes.index(row["label"])
        row["value"] = "present" if drawn.truth[place] > 0 else "absent"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_an_audit_is_drawn_and_read(out: Path, files: Path, drawn: Drawn, satl: Satl) -> None:
    audit = files / "audit.csv"
    code, text, err = satl("audit", out, "draw", "-n", "20", "-o", audit)
    assert (code, err) == (0, "")
    assert f"satl audit {out} read {audit}" in text
    refused(satl, files, "audit", out, "read", audit, parts=("has no answer yet",))
    answered(audit, drawn)
    code, text, err = satl("audit", out, "read", audit)
    assert (code, err) == (0, "")
    assert "accepted as present that are present" in text
    assert "boat" in text
    code, text, _ = satl("audit", out, "read", audit, "--json")
    content = json.loads(text)
    assert code == 0
    assert content == json.loads((out / "audit.json").read_text(encoding="utf-8"))
    assert [entry["name"] for entry in content["entries"]] == ["boat", "猫, cat"]
    share = content["entries"][0]["prevalence"]
    unknown = drawn.table.cells[:, 0] == 0
    assert share["low"] <= (drawn.truth[unknown, 0] > 0).mean() <= share["high"]


def test_audit_and_plan_say_what_is_missing(out: Path, files: Path, satl: Satl) -> None:
    for arguments, parts in (
        (("audit", out, "draw"), ("-o audit.csv",)),
        (("audit", out, "read"), ("read audit.csv",)),
        (("audit", out, "drow", "-o", files / "a.csv"), ("did you mean 'draw'",)),
        (("audit", out, "draw", "-o", files / "a.txt"), (".csv",)),
        (
            ("audit", out, "draw", "--by", "clas", "-o", files / "a.csv"),
            ("--by clas: ", "did you mean 'class'"),
        ),
        (
            ("audit", files, "draw", "-o", files / "a.csv"),
            ("not the folder of a completion", "`satl complete`"),
        ),
        (("plan", files, "-o", files / "p.csv"), ("not the folder of a completion", "`satl complete`")),
    ):
        refused(satl, files, *arguments, parts=parts)


def test_a_plan_is_written_and_counted(files: Path, satl: Satl) -> None:
    few = Drawn(4000, ("boat", "猫, cat"), known=0.025, prevalence=(0.3, 0.3))
    labels, scores = few.write(files, labels="few.csv", scores="few.npz")
    base = ("complete", "--scores", scores, "--labels", labels)
    assert satl(*base, "-o", files / "first")[0] == 0
    code, text, err = satl("plan", files / "first", "-o", files / "plan.csv", "-n", "300")
    assert (code, err) == (0, "")
    assert "cells to label" in text
    assert f"--plan {files / 'plan.csv'}" in text
    answered(files / "plan.csv", few)
    code, text, err = satl(*base, "--plan", files / "plan.csv", "-o", files / "second")
    assert (code, err) == (0, "")
    assert "that a plan picked by their score" in text
