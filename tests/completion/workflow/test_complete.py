from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from completion.drawn import CLASSES, Drawn, write_scores
from satl.completion import certify
from satl.completion.outputs.changes import ChangeFormat, Group, read_changes
from satl.completion.statistics.assessment import CompletionSettings, best_f1_threshold
from satl.completion.statistics.class_changes import histogram, ordered
from satl.completion.workflow.case import Case
from satl.completion.workflow.complete import Completion, complete
from satl.completion.workflow.from_scores import case_from_scores
from satl.errors import RunError, TableError
from satl.export.content import read_source
from satl.labels import LabelTable, open_table, read_table, write_table


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def run(drawn: Drawn, folder: Path, settings: CompletionSettings | None = None, **options: Any) -> Completion:
    folder.mkdir(parents=True, exist_ok=True)
    labels, scores = drawn.write(folder, scores="scores.npz")
    return complete(case_from_scores(scores, labels), folder / "out", settings, **options)


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return Drawn(2000)


@pytest.fixture(scope="module")
def done(drawn: Drawn, tmp_path_factory: pytest.TempPathFactory) -> Completion:
    """A completion with every cell listed; do not change it."""
    return run(drawn, tmp_path_factory.mktemp("done"), list_all=True)


def test_the_folder_holds_what_was_promised(done: Completion) -> None:
    assert sorted(file.name for file in done.folder.path.iterdir()) == [
        "changes.csv",
        "checksums.json",
        "completed.csv",
        "labels.npz",
        "report.html",
        "report.json",
        "thresholds.csv",
    ]
    assert [file.name for file in done.folder.path.parent.iterdir() if file.name.startswith(".")] == []
    assert json.loads(done.folder.report.read_text(encoding="utf-8")) == done.report
    header = done.folder.changes.read_text(encoding="utf-8").splitlines()[0]
    assert header == "image,label,value,score,threshold,band,source,precision_lower_bound"


def test_cells_are_accepted_beyond_the_thresholds_of_the_certificate(drawn: Drawn, done: Completion) -> None:
    table = drawn.table
    certification = certify(drawn.scores, table.cells)
    decided = certification.decide(drawn.scores, table.cells)
    completed = read_table(done.folder.completed)
    np.testing.assert_array_equal(completed.cells, np.where(table.known, table.cells, decided))
    assert done.folder.read_labels() == table
    assert (done.present, done.absent) == (int((decided == 1).sum()), int((decided == -1).sum()))
    assert min(done.present, done.absent) > 500
    for direction, value in (("present", 1), ("absent", -1)):
        for column, entry in enumerate(done.report["classes"]):
            assert entry[direction]["accepted"] == int((decided[:, column] == value).sum())
            right = drawn.truth[decided[:, column] == value, column] == value
            assert not len(right) or right.mean() > 0.94


def test_every_unknown_cell_has_one_band_and_rows_are_in_order(drawn: Drawn, done: Completion) -> None:
    table = drawn.table
    found = np.zeros(table.cells.shape, dtype=np.int64)
    row_of = {name: row for row, name in enumerate(table.images)}
    order = []
    for line in rows_of(done.folder.changes):
        row, column = row_of[line["image"]], table.classes.index(line["label"])
        value, score = int(line["value"]), float(line["score"])
        found[row, column] += 1
        assert score == pytest.approx(drawn.scores[row, column], abs=1e-6)
        known = int(table.cells[row, column])
        if line["source"] == "label-error":
            assert (known, line["band"]) == (-value, "review")
            continue
        assert known == 0
        if line["band"] == "accepted":
            assert value * score >= value * float(line["threshold"]) - 1e-6
            assert (line["source"], line["precision_lower_bound"]) == ("certificate", "0.95")
        else:
            assert (line["source"], line["precision_lower_bound"]) == ("model", "")
        order.append((column, ("accepted", "review", "left").index(line["band"]), -value, -value * score))
    assert ((found == 1) | table.known).all()
    assert found.max() == 1
    # Descending confidence: the left ones are ordered by how near they are to being proposed.
    assert [key[:3] for key in order] == sorted(key[:3] for key in order)
    accepted = [key for key in order if key[1] == 0]
    assert accepted == sorted(accepted)
    counts = done.report["counts"]
    assert counts["present"] + counts["absent"] + counts["review"] + counts["left"] == counts["unknown"]
    assert len(order) == counts["unknown"]


def test_left_cells_are_listed_only_on_request(drawn: Drawn, done: Completion, tmp_path: Path) -> None:
    short = run(drawn, tmp_path)
    bands = {line["band"] for line in rows_of(short.folder.changes)}
    assert bands == {"accepted", "review"}
    assert short.report["counts"] == done.report["counts"]
    kept = [line for line in rows_of(done.folder.changes) if line["band"] != "left"]
    assert rows_of(short.folder.changes) == kept


def test_too_many_absent_cells_are_not_listed_one_by_one(
    drawn: Drawn, done: Completion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from satl.completion.statistics import class_changes as cells

    monkeypatch.setattr(cells, "MOST_LISTED_ABSENT", done.absent)
    assert run(drawn, tmp_path / "all").report["source"]["lists_absent"]
    monkeypatch.setattr(cells, "MOST_LISTED_ABSENT", done.absent - 1)
    short = run(drawn, tmp_path / "short")
    assert not short.report["source"]["lists_absent"]
    done.folder.require_all_listed()
    with pytest.raises(RunError, match=r"completed\.\w+, or complete again with list_all=True"):
        short.folder.require_all_listed()
    with pytest.raises(RunError, match="leaves out the cells accepted as absent"):
        read_source(short.folder.path)
    assert any("but not one by one in changes.csv" in note for note in short.report["notes"])
    assert {
        (line["band"], line["value"])
        for line in rows_of(short.folder.changes)
        if line["source"] != "label-error"
    } == {
        ("accepted", "1"),
        ("review", "1"),
    }
    assert read_table(short.folder.completed) == read_table(done.folder.completed)
    np.testing.assert_array_equal(short.folder.read_bands(drawn.table), done.folder.read_bands(drawn.table))
    asked = run(drawn, tmp_path / "asked", list_all=True)
    assert asked.folder.changes.read_bytes() == done.folder.changes.read_bytes()


def test_thresholds_say_the_same_as_the_report(done: Completion) -> None:
    lines = rows_of(done.folder.thresholds)
    assert [(line["class"], line["direction"]) for line in lines] == [
        (name, direction) for name in CLASSES for direction in ("present", "absent")
    ]
    for line in lines:
        side = done.report["classes"][CLASSES.index(line["class"])][line["direction"]]
        assert (float(line["threshold"]) if line["threshold"] else None) == side["threshold"]
        assert line["reason"] == side["reason"]
        assert (line["target"], line["confidence"]) == ("0.95", "0.95")
        assert line["precision_lower_bound"] == ("0.95" if side["certified"] else "")
        assert int(line["held_out"]) == side["held_out"] >= int(line["errors"])
    rare = lines[6]
    assert rare["threshold"] == ""
    assert "has no threshold for present" in rare["reason"]
    umbrella = [line for line in lines if line["more_labels"]]
    assert all(int(line["more_labels"]) > 0 for line in umbrella)


def test_the_report_has_a_histogram_of_every_class(drawn: Drawn, done: Completion) -> None:
    for column, entry in enumerate(done.report["classes"]):
        counts = entry["histogram"]
        assert counts["edges"] == np.linspace(0, 1, 65).tolist()
        for kind, sign in (("positive", 1), ("negative", -1), ("unknown", 0)):
            chosen = drawn.scores[drawn.table.cells[:, column] == sign, column]
            expected, _ = np.histogram(chosen.astype(np.float64), counts["edges"])
            np.testing.assert_allclose(counts[kind], expected, atol=1)  # an edge may go either way
            assert sum(counts[kind]) == len(chosen)


def test_two_completions_of_the_same_are_the_same(drawn: Drawn, tmp_path: Path) -> None:
    one, two = run(drawn, tmp_path / "a"), run(drawn, tmp_path / "b")
    for name in ("changes.csv", "completed.csv", "thresholds.csv"):
        assert (one.folder.path / name).read_bytes() == (two.folder.path / name).read_bytes()


def test_without_a_mask_all_known_cells_are_tested_and_that_is_said(drawn: Drawn, done: Completion) -> None:
    assert done.report["source"]["tested"] == int(drawn.table.known.sum())
    assert "counted as out of sample, because nothing says otherwise" in done.report["model"]


def test_only_cells_out_of_sample_are_tested(drawn: Drawn, tmp_path: Path) -> None:
    labels, _ = drawn.write(tmp_path)
    table = drawn.table
    mask = np.random.default_rng(3).random(table.cells.shape) < 0.5
    marked = write_scores(tmp_path / "s.npz", table, drawn.scores, held_out=mask)
    one = complete(case_from_scores(marked, labels), tmp_path / "one")
    held = table.with_cells(np.where(mask, table.cells, 0), encoding="signed")
    write_table(held, tmp_path / "held.parquet")
    plain = write_scores(tmp_path / "p.npz", table, drawn.scores)
    two = complete(case_from_scores(plain, labels, held_out=tmp_path / "held.parquet"), tmp_path / "two")
    expected = certify(drawn.scores, table.cells, mask & table.known)
    for result in (one, two):
        for entry, threshold in zip(result.report["classes"], expected.present.threshold, strict=True):
            assert entry["present"]["threshold"] == (None if np.isnan(threshold) else threshold)
        assert result.report["source"]["tested"] == int((mask & table.known).sum())
        assert "count as out of sample" in result.report["model"]
        # What was tested is kept, so that a plan can be made later.
        np.testing.assert_array_equal(result.folder.read_tested(table), mask & table.known)
    nothing = write_scores(tmp_path / "n.npz", table, drawn.scores, held_out=table.cells == 0)
    with pytest.raises(TableError, match=r"n\.npz: no known cell is out of sample, so nothing can be tested"):
        case_from_scores(nothing, labels)


def test_the_hold_out_of_a_run_may_be_given(drawn: Drawn, tmp_path: Path) -> None:
    from satl.labels.holdout import hold_out

    labels, scores = drawn.write(tmp_path, scores="s.npz")
    chosen = hold_out(drawn.table.cells)
    chosen.save(tmp_path / "held_out.npz", drawn.table.images, drawn.table.classes)
    case = case_from_scores(scores, labels, held_out=tmp_path / "held_out.npz")
    np.testing.assert_array_equal(case.tested, chosen.mask)


def test_cross_fitting_is_told(drawn: Drawn, tmp_path: Path) -> None:
    labels, _ = drawn.write(tmp_path)
    scores = write_scores(tmp_path / "s.npz", drawn.table, drawn.scores, fold=np.arange(2000) % 5)
    done = complete(case_from_scores(scores, labels), tmp_path / "out")
    assert done.report["model"].startswith(
        "The scores come from 5 models, each for cells that it was not trained"
    )
    assert done.report["source"]["tested"] == int(drawn.table.known.sum())


def test_family_wise_and_prevalence_are_passed_on(drawn: Drawn, tmp_path: Path) -> None:
    settings = CompletionSettings(0.9, 0.9, "table", "prevalence")
    done = run(drawn, tmp_path, settings)
    expected = certify(
        drawn.scores, drawn.table.cells, precision=0.9, confidence=0.9, family="table", transfer="prevalence"
    )
    found = [entry["present"]["threshold"] for entry in done.report["classes"]]
    assert found == [None if np.isnan(value) else value for value in expected.present.threshold]
    assert "for all classes at once" in done.report["statement"]
    assert "only mixed in another proportion" in done.report["assumption"]


def test_a_class_whose_unknown_cells_look_different_is_not_accepted(tmp_path: Path) -> None:
    drawn = Drawn(4000, ("boat", "car"), known=0.3, prevalence=(0.4, 0.4))
    unknown = drawn.table.cells[:, 0] == 0
    drawn.scores[unknown, 0] = drawn.scores[unknown, 0] * 0.5 + 0.3
    done = run(drawn, tmp_path)
    boat, car = done.report["classes"]
    assert boat["shift"]["verdict"] == (
        "Unknown cells of 'boat' do not look like the known ones: do not trust its thresholds."
    )
    assert (boat["shift"]["code"], boat["shift"]["p_value"] < 0.02) == ("does_not_fit", True)
    for direction in ("present", "absent"):
        assert (boat[direction]["accepted"], boat[direction]["withheld"]) == (0, "shift")
        assert "would be accepted" in boat[direction]["reason"]
        assert car[direction]["accepted"] > 0
    assert boat["review"] > 0
    assert {line["label"] for line in rows_of(done.folder.changes) if line["band"] == "accepted"} == {"car"}
    page = done.folder.page.read_text(encoding="utf-8")
    assert "Unknown cells of &#39;boat&#39; do not look like the known ones" in page


def test_positives_that_are_rarer_among_the_unknown_are_not_accepted_as_promised(tmp_path: Path) -> None:
    drawn = Drawn(20_000, ("car",), known=0.5, separation=4.0, prevalence=(0.1,))
    cells = drawn.table.cells.copy()
    # Somebody looked for cars: most negatives were never written down.
    hidden = (cells == -1) & (np.random.default_rng(1).random(cells.shape) < 0.95)
    drawn.table = drawn.table.with_cells(np.where(hidden, 0, cells), encoding="signed")
    plain = run(drawn, tmp_path / "same", CompletionSettings(0.8))
    (entry,) = plain.report["classes"]
    assert entry["shift"]["code"] == "prevalence_differs"
    assert (entry["present"]["withheld"], entry["present"]["accepted"]) == ("prevalence", 0)
    assert entry["prevalence_unknown"] == pytest.approx(0.09, abs=0.04)
    adapted = run(drawn, tmp_path / "prevalence", CompletionSettings(0.8, transfer="prevalence"))
    (entry,) = adapted.report["classes"]
    assert entry["present"]["accepted"] > 0
    completed = read_table(adapted.folder.completed).cells
    filled = (completed == 1) & (drawn.table.cells == 0)
    assert (drawn.truth[filled] == 1).mean() >= 0.8


def test_label_errors_are_offered_and_never_changed(tmp_path: Path) -> None:
    drawn = Drawn(3000, ("a", "b"), prevalence=(0.5, 0.3), separation=6.0)
    cells = drawn.table.cells.copy()
    wrong = np.random.default_rng(2).choice(np.flatnonzero(cells[:, 0] != 0), 10, replace=False)
    cells[wrong, 0] *= -1
    drawn.table = drawn.table.with_cells(cells, encoding="signed")
    done = run(drawn, tmp_path)
    offered = {
        line["image"]: int(line["value"])
        for line in rows_of(done.folder.changes)
        if line["source"] == "label-error"
    }
    assert {drawn.table.images[row] for row in wrong} <= set(offered)
    for row in wrong:
        assert offered[drawn.table.images[row]] == -cells[row, 0]
    assert done.errors == len(offered)
    np.testing.assert_array_equal(read_table(done.folder.completed).cells[wrong, 0], cells[wrong, 0])
    assert {error["image"] for error in done.report["label_errors"]} <= set(offered)


@pytest.mark.parametrize(
    ("name", "encoding", "format"),
    [
        ("t.csv", "blank", "csv"),
        ("t.csv", "signed", "csv"),
        ("t.csv", "csl", "csv"),
        ("t.csv", "words", "csv"),
        ("t.tsv", "blank", "csv"),
        ("t.csv", "blank", "long"),
        ("t.parquet", "blank", "parquet"),
        ("t.parquet", "csl", "long"),
        ("t.jsonl", None, "jsonl"),
        ("t.json", None, "lvis"),
        ("t.npz", "signed", "npz"),
        ("t.npz", "csl", "npz"),
    ],
)
def test_shape_and_encoding_of_the_input_are_kept(
    name: str, encoding: str | None, format: str, tmp_path: Path
) -> None:
    drawn = Drawn(400, ("a", "猫, cat"), prevalence=(0.5, 0.4))
    table = drawn.table.with_split(["train"] * 300 + ["test"] * 100)
    write_table(table, tmp_path / name, encoding, format=format)
    drawn.scores[:40] = np.nan  # so that something stays unknown
    scores = write_scores(tmp_path / "scores.csv", table, drawn.scores)
    needed = encoding if encoding in ("signed", "csl") and name.endswith((".csv", ".tsv")) else None
    done = complete(
        case_from_scores(scores, tmp_path / name, encoding=needed), tmp_path / "out", CompletionSettings(0.9)
    )
    assert done.present + done.absent > 50
    opened = open_table(done.folder.completed, needed)
    assert done.folder.completed.name == f"completed{Path(name).suffix}"
    assert (opened.format, opened.encoding) == (format, encoding)
    assert opened.table.split is not None
    assert opened.table.split.tolist() == table.split.tolist()  # type: ignore[union-attr]
    assert (opened.table.cells[table.known] == table.cells[table.known]).all()
    assert int(opened.table.known.sum()) == int(table.known.sum()) + done.present + done.absent


def test_certificates_may_rest_on_an_earlier_table(drawn: Drawn, done: Completion, tmp_path: Path) -> None:
    """What was accepted, and what a person decided because of its score, is no evidence."""
    scores = write_scores(tmp_path / "s.npz", drawn.table, drawn.scores)
    filled = tmp_path / "filled.csv"
    write_table(read_table(done.folder.completed), filled)
    again = complete(case_from_scores(scores, filled, certify_on=done.folder.labels), tmp_path / "out")
    assert (again.present, again.absent) == (0, 0)
    assert [entry["present"]["threshold"] for entry in again.report["classes"]] == [
        entry["present"]["threshold"] for entry in done.report["classes"]
    ]
    assert read_table(again.folder.completed) == read_table(filled)
    assert "from before the table was filled further" in again.report["model"]
    assert again.report["statement"].endswith(
        "There are certified thresholds, but no unknown cell lies beyond them."
    )


@pytest.mark.parametrize("option", ["certify_on", "held_out"])
def test_a_further_table_may_have_the_columns_that_are_no_classes(
    drawn: Drawn, done: Completion, tmp_path: Path, option: str
) -> None:
    labels, scores = drawn.write(tmp_path)
    with_notes = tmp_path / "notes.csv"
    header, *rows = labels.read_text(encoding="utf-8").splitlines()
    with_notes.write_text(
        "\n".join([f"{header},notes", *(f"{row},ask Eva" for row in rows)]), encoding="utf-8"
    )
    # The further table is the one with the column, or the only one without it.
    for first, further in ((with_notes, with_notes), (with_notes, labels)):
        case = case_from_scores(scores, first, ignore_columns=["notes"], **{option: further})
        np.testing.assert_array_equal(case.basis, drawn.table.cells)


def test_positive_only_tables_are_refused_or_proposed_for(drawn: Drawn, tmp_path: Path) -> None:
    table = drawn.table.with_cells(np.maximum(drawn.table.cells, 0), encoding="signed")
    path = tmp_path / "tags.csv"
    write_table(table.with_cells(table.cells, encoding="signed"), path, format="positives")
    case = case_from_scores(write_scores(tmp_path / "s.npz", table, drawn.scores), path)
    with pytest.raises(TableError, match=r"positive-only labels.*review_only=True"):
        complete(case, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    done = complete(case, tmp_path / "out", CompletionSettings(review_only=True))
    assert (done.present, done.absent) == (0, 0)
    assert done.review > 100
    assert "nothing is promised" in done.report["statement"]
    assert read_table(done.folder.completed) == read_table(path)
    assert open_table(done.folder.completed).format == "positives"


def make_case(cells: np.ndarray, scores: np.ndarray, tmp_path: Path) -> Case:
    images = tuple(f"{i}.jpg" for i in range(len(cells)))
    table = LabelTable(images, tuple(f"c{i}" for i in range(cells.shape[1])), cells, encoding="signed")
    write_table(table, tmp_path / "t.npz")
    return case_from_scores(write_scores(tmp_path / "s.npz", table, scores), tmp_path / "t.npz")


def test_odd_tables_are_handled(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    scores = random.random((300, 3)).astype(np.float32)
    full = np.where(random.random((300, 3)) < 0.5, 1, -1)
    with pytest.raises(TableError, match="no cell is known, so nothing can be tested"):
        complete(make_case(np.zeros((300, 3), dtype=np.int8), scores, tmp_path), tmp_path / "none")
    done = complete(make_case(full, scores, tmp_path), tmp_path / "all")
    assert (done.present, done.absent, done.review, done.left) == (0, 0, 0, 0)
    done = complete(make_case(np.array([[1, -1, 0]]), scores[:1], tmp_path), tmp_path / "one")
    assert (done.present, done.absent, done.left + done.review) == (0, 0, 1)
    # One class without a known positive, one without a known negative, one with nothing known.
    lopsided = full.copy()
    lopsided[:, 0] = np.where(full[:, 0] > 0, 0, -1)
    lopsided[:, 1] = np.where(full[:, 1] < 0, 0, 1)
    lopsided[:, 2] = 0
    done = complete(make_case(lopsided, scores, tmp_path), tmp_path / "lopsided")
    assert (done.present, done.absent) == (0, 0)
    for entry, word in zip(done.report["classes"], ("present", "absent"), strict=False):
        assert f"no tested cell is known to be {word}" in entry["present"]["reason"]
    for direction in ("present", "absent"):
        assert "none of its cells is tested" in done.report["classes"][2][direction]["reason"]
    assert done.report["classes"][2]["review_from"] is None


def test_five_thousand_classes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    truth = np.where(random.random((60, 5000)) < 0.5, 1, -1)
    scores = ((truth > 0) * 0.5 + random.random(truth.shape) / 2).astype(np.float32)
    cells = np.where(random.random(truth.shape) < 0.5, truth, 0)
    done = complete(make_case(cells, scores, tmp_path), tmp_path / "out", CompletionSettings(0.8, 0.8))
    assert done.present > 25_000
    assert len(rows_of(done.folder.thresholds)) == 10_000
    assert done.folder.page.stat().st_size < 20e6


def test_logits_are_as_good_as_probabilities(drawn: Drawn, done: Completion, tmp_path: Path) -> None:
    logits = np.log(drawn.scores.astype(np.float64) / (1 - drawn.scores)).astype(np.float32)
    labels, _ = drawn.write(tmp_path)
    other = complete(
        case_from_scores(write_scores(tmp_path / "s.npz", drawn.table, logits), labels), tmp_path / "out"
    )
    assert read_table(other.folder.completed) == read_table(done.folder.completed)
    texts = {line["score"] for line in rows_of(other.folder.changes)}
    assert any(text.startswith("-0.") for text in texts)
    assert all(len(text.split(".")[1]) == 6 for text in texts)
    edges = other.report["classes"][0]["histogram"]["edges"]
    assert (edges[0], edges[-1]) == (float(logits[:, 0].min()), float(logits[:, 0].max()))


def test_out_is_written_as_a_whole_or_not_at_all(
    drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from satl.completion.outputs import report_files

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report_files, "render_report", fail)
    with pytest.raises(RunError, match=r"out: cannot be written \(No space left on device\)"):
        run(drawn, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["labels.csv", "scores.npz"]


@pytest.mark.parametrize("names", [("a.jpg", "bb.jpg"), ("a,b.jpg", 'say "hi".jpg'), ("ü.jpg", "日本.jpg")])
@pytest.mark.parametrize("scale", [1.0, -40.0, 1e12])
def test_changes_are_csv_that_reads_back(names: tuple[str, str], scale: float, tmp_path: Path) -> None:
    scores = np.sort(np.array([0.0, 1e-7, 0.5, 0.999999, 0.9999996, 1.0]) * scale)[::-1]
    rows = np.array([0, 1, 0, 1, 0, 1])
    group = Group("x, y", 1, rows, scores, 0.25, "review", "model", None)
    text = b"".join(ChangeFormat(names).blocks(group)).decode()
    found = list(csv.reader(text.splitlines()))
    assert found == [
        [
            names[row],
            "x, y",
            "1",
            f"{score + 0.0:.6f}".replace("-0.000000", "0.000000"),
            "0.250000",
            "review",
            "model",
            "",
        ]
        for row, score in zip(rows, scores, strict=True)
    ]
    (tmp_path / "changes.csv").write_bytes(
        b"image,label,value,score,threshold,band,source,precision_lower_bound\n" + text.encode()
    )
    table = LabelTable(names, ("other", "x, y"), np.zeros((len(names), 2)), encoding="signed")
    (block,) = read_changes(tmp_path / "changes.csv", table)
    assert block.row.tolist() == list(rows)
    assert set(block.column.tolist()) == {1}
    assert np.isnan(block.bound).all()


def test_rows_are_ordered_by_score_and_then_by_row() -> None:
    random = np.random.default_rng(0)
    scores = np.round(random.normal(size=1000), 1).astype(np.float32)
    which = random.random(1000) < 0.7
    rows = np.flatnonzero(which)
    assert ordered(which, scores, descending=True).tolist() == sorted(rows, key=lambda r: (-scores[r], r))
    assert ordered(which, scores, descending=False).tolist() == sorted(rows, key=lambda r: (scores[r], r))


def test_a_histogram_of_one_value_or_none_is_whole() -> None:
    labels = np.zeros(3, dtype=np.int8)
    same = histogram(np.full(3, 7.0), labels, (7.0, 7.0))
    assert (same["edges"][0], same["edges"][-1], sum(same["unknown"])) == (6.5, 7.5, 3)
    none = histogram(np.full(3, np.nan), labels, (np.inf, -np.inf))
    assert (none["edges"][0], none["edges"][-1], sum(none["unknown"])) == (0.0, 1.0, 0)


@pytest.mark.parametrize("prevalence", [np.nan, 0.02, 0.5, 0.9])
def test_the_best_guess_has_the_best_f1_of_all_thresholds(prevalence: float) -> None:
    random = np.random.default_rng(0)
    positive, negative = random.normal(1, 1, 30).round(1), random.normal(0, 1, 70).round(1)
    weight, other = (1.0, 1.0) if np.isnan(prevalence) else (prevalence / 0.3, (1 - prevalence) / 0.7)

    def f1(threshold: float) -> float:
        right = weight * (positive >= threshold).sum()
        return float(2 * right / (right + other * (negative >= threshold).sum() + weight * 30))

    best = max(f1(threshold) for threshold in (*positive.tolist(), *negative.tolist()))
    assert f1(best_f1_threshold(positive, negative, prevalence)) == pytest.approx(best)


def test_a_table_without_holes_says_how_it_is_to_be_read(tmp_path: Path) -> None:
    drawn = Drawn(400, ("a",), prevalence=(0.5,), separation=60.0)
    done = run(drawn, tmp_path, CompletionSettings(0.8, 0.8))
    assert done.left + done.review == 0
    assert any("say that its encoding is blank" in note for note in done.report["notes"])
    assert bool(read_table(done.folder.completed, "blank").known.all())
