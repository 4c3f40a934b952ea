from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from satl.labels import LabelTable, inspect_table, open_table
from satl.labels.inspection import MIN_NEGATIVES, MIN_POSITIVES


def column(positive: int, negative: int, rows: int = 1500) -> np.ndarray:
    cells = np.zeros(rows, dtype=int)
    cells[:positive] = 1
    cells[positive : positive + negative] = -1
    return cells


def table_of(**columns: np.ndarray) -> LabelTable:
    cells = np.stack(list(columns.values()), axis=1)
    return LabelTable(tuple(f"{i}.jpg" for i in range(len(cells))), tuple(columns), cells, encoding="signed")


def test_coverage_and_thin_classes() -> None:
    report = inspect_table(
        table_of(
            good=column(100, 1200),
            loose=column(60, 500),
            few_positives=column(9, 1000),
            few_negatives=column(10, 99),
            no_positives=column(0, 1000),
            no_negatives=column(50, 0),
            nothing=column(0, 0),
        )
    )
    good = report.classes[0]
    assert (good.name, good.positive, good.negative, good.unknown) == ("good", 100, 1200, 200)
    assert [c.name for c in report.classes if not c.thin] == ["good", "loose"]
    assert [c.name for c in report.thin_classes][:2] == ["nothing", "no_positives"]
    problems = {c.name: " | ".join(c.problems) for c in report.classes}
    assert f"only 9 known positives (want {MIN_POSITIVES})" in problems["few_positives"]
    assert f"only 99 known negatives (want {MIN_NEGATIVES}): about 1 %" in problems["few_negatives"]
    assert "no known positive: cannot be learned" in problems["no_positives"]
    assert "no known negative" in problems["no_negatives"]
    assert "nothing known" in problems["nothing"]
    text = " ".join(report.notes)
    assert "5 of 7 classes are thin" in text
    assert "1 class has 100 to 999 known negatives" in text
    assert "5 classes have fewer than 59 known positives" in text
    assert not report.positive_only
    assert report.positive + report.negative + report.unknown == 1500 * 7


def test_a_healthy_table_has_no_notes() -> None:
    report = inspect_table(table_of(cat=column(60, 1440), dog=column(100, 1400)))
    assert report.notes == ()
    assert report.known_proportion == 1


def test_positive_only_and_nothing_known() -> None:
    report = inspect_table(table_of(cat=column(60, 0)))
    assert report.positive_only
    assert report.notes[0].startswith("Positive-only table: no cell is known to be absent")
    assert inspect_table(table_of(cat=column(0, 0))).notes[0].startswith("Nothing is known at all")


def test_splits_that_training_leaves_out_are_told() -> None:
    table = table_of(a=column(1, 1, rows=4))
    report = inspect_table(table.with_split(["train", "Validation", "tarin", "tset"]))
    assert (
        "2 images have a split that is none of train, val and test ('tarin', 'tset'): training leaves them out."
    ) in report.notes
    assert not any("split" in note for note in inspect_table(table.with_split(["Train"] * 4)).notes)


def test_classes_are_counted_over_the_train_rows() -> None:
    table = LabelTable(
        ("a", "b", "c"), ("x",), np.array([[1], [0], [-1]]), np.array(["train", "train", "test"])
    )
    report = inspect_table(table)
    assert (report.counted, report.counted_images) == ("train", 2)
    assert (report.positive, report.negative, report.unknown) == (1, 0, 1)
    assert report.unlabelled == ("b",)
    assert report.positive_only, "the negatives of the test rows are not there to learn from"
    spelled = inspect_table(table.with_split(["Train", "training", "TEST"]))
    assert (spelled.counted, spelled.counted_images, spelled.positive, spelled.negative) == ("train", 2, 1, 0)
    everywhere = inspect_table(table.with_split(["one", "two", "two"]))
    assert (everywhere.counted, everywhere.counted_images) == (None, 3)


def test_truth_is_summed_up() -> None:
    table = LabelTable(
        ("a", "b"), ("x", "y"), np.array([[1, 0], [-1, 1]]), truth=np.array([[-1, 1], [-1, 0]])
    )
    report = inspect_table(table)
    assert (report.truth_known, report.truth_contradicted) == (3, 1)
    assert "1 known cell differs from the hidden truth." in report.notes
    assert inspect_table(table.with_truth(None)).truth_known is None


def test_reading_is_part_of_the_report(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("image,cat,dog\na,1,\nb,0,\n")
    data = inspect_table(open_table(path)).as_dict()
    assert data["encoding"] == "blank"
    assert data["encoding_detected"] is True
    assert data["values"] == {"blank": 2, "1": 1, "0": 1}
    assert data["path"] == str(path)


@pytest.mark.parametrize(("count", "precision"), [(14, 0.8), (29, 0.9), (59, 0.95), (299, 0.99)])
def test_reachable_precision_has_the_published_counts(count: int, precision: float) -> None:
    enough, short = inspect_table(table_of(a=column(count, 0), b=column(count - 1, 0))).classes
    assert enough.reachable_precision >= precision > short.reachable_precision
