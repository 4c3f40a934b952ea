"""Decisions come back into the table: all of them, nothing else, and never over what is known unless told so."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from review.synthetic import Completed, draw_table, write_folder
from satl.cli import add_commands
from satl.errors import RunError, TableError
from satl.labels import LabelTable, open_table, read_table, write_table
from satl.review.database import DecisionRequest, ReviewStore
from satl.review.merge import merge_review

IMAGES = ("a.jpg", "sub/b, c.jpg", 'd "e".jpg', "ü.jpg")
CLASSES = ("boat", "猫, cat", "traffic light")


def suggestions(table: LabelTable, band: str = "review") -> list[tuple[str, ...]]:
    """A suggestion for every cell: present where it is unknown, the contrary where it is known."""
    return [
        (image, label, str(-cell or 1), "0.6", "", band, "label-error" if cell else "model", "")
        for label, column in zip(table.classes, table.cells.T.tolist(), strict=True)
        for image, cell in zip(table.images, column, strict=True)
    ]


def reviewed(out: Path, table: LabelTable, decisions: dict[tuple[str, str], int], **options: str) -> Path:
    """A completed folder in which a person decided these cells."""
    completed = write_folder(out, table, rows=suggestions(table, **options))
    with ReviewStore(completed.out) as store:
        store.refresh()
        for number, ((image, label), value) in enumerate(decisions.items()):
            store.decide("tab", str(number), [DecisionRequest(image, label, value, None)])
    return completed.out


@pytest.fixture
def table() -> LabelTable:
    cells = np.array([[1, 0, 0], [0, -1, 0], [0, 0, 0], [-1, 0, 1]])
    return LabelTable(IMAGES, CLASSES, cells, encoding="signed")


DECISIONS = {
    ("a.jpg", "猫, cat"): 1,
    ("a.jpg", "traffic light"): -1,
    ("sub/b, c.jpg", "boat"): -1,
    ('d "e".jpg', "boat"): 0,
    ("ü.jpg", "boat"): -1,
}
MERGED = [[1, 1, -1], [-1, -1, 0], [0, 0, 0], [-1, 0, 1]]


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("t.csv", "blank"),
        ("t.csv", "signed"),
        ("t.csv", "csl"),
        ("t.csv", "words"),
        ("t.tsv", "blank"),
        ("t.parquet", "blank"),
        ("t.parquet", "csl"),
        ("t.npz", "signed"),
        ("t.npz", "csl"),
        ("t.jsonl", None),
    ],
)
def test_the_table_keeps_its_shape_and_encoding(
    tmp_path: Path, table: LabelTable, name: str, encoding: str | None
) -> None:
    source = tmp_path / name
    write_table(table, source, encoding)
    out = reviewed(tmp_path / "out", table, DECISIONS)
    stated = None if encoding in (None, "blank", "words") or source.suffix != ".csv" else encoding
    new = tmp_path / f"new{source.suffix}"
    report = merge_review(out, source, new, encoding=stated)
    opened = open_table(new, stated)
    assert opened.table == table.with_cells(MERGED, encoding="signed")
    assert opened.encoding == encoding
    assert (report.present, report.absent, report.confirmed, report.skipped) == (1, 2, 1, 1)
    assert (report.overwritten, report.elsewhere, report.included) == (0, 0, 0)
    assert (report.known, report.cells) == (7, 12)
    assert read_table(source, stated) == table


def test_columns_that_are_no_classes_can_be_passed_over(tmp_path: Path, table: LabelTable) -> None:
    source, new = tmp_path / "t.csv", tmp_path / "new.csv"
    write_table(table, source)
    head, *lines = source.read_text(encoding="utf-8").splitlines()
    aged = [f"{head},Age", *(f"{line},{40 + row}" for row, line in enumerate(lines))]
    source.write_text("\n".join(aged) + "\n", encoding="utf-8")
    out = reviewed(tmp_path / "out", table, DECISIONS)
    with pytest.raises(TableError, match="ignore_columns='Age'"):
        merge_review(out, source, new)
    app = typer.Typer()
    add_commands(app, "review", "merge")
    done = CliRunner().invoke(app, ["merge", str(out), str(source), "-o", str(new), "--ignore-column", "Age"])
    assert done.exit_code == 0, done.output
    assert "is without 'Age', which is not a class" in done.output
    assert read_table(new) == table.with_cells(MERGED, encoding="signed")


def test_a_long_table_stays_long(tmp_path: Path, table: LabelTable) -> None:
    source = tmp_path / "long.csv"
    lines = [
        f'"{image.replace(chr(34), chr(34) * 2)}","{label}",{cell}'
        for image, row in zip(table.images, table.cells.tolist(), strict=True)
        for label, cell in zip(table.classes, row, strict=True)
    ]
    source.write_text("image,label,value\n" + "\n".join(lines) + "\n", encoding="utf-8")
    assert open_table(source, "signed").format == "long"
    out = reviewed(tmp_path / "out", table, DECISIONS)
    merge_review(out, source, tmp_path / "new.csv", encoding="signed")
    opened = open_table(tmp_path / "new.csv", "signed")
    assert opened.format == "long"
    cells = {
        (i, c): v for i, row in zip(IMAGES, MERGED, strict=True) for c, v in zip(CLASSES, row, strict=True)
    }
    for row, image in enumerate(opened.table.images):
        for column, label in enumerate(opened.table.classes):
            assert opened.table.cells[row, column] == cells[image, label]


def test_another_extension_is_another_format(tmp_path: Path, table: LabelTable) -> None:
    write_table(table, tmp_path / "t.csv", "signed")
    out = reviewed(tmp_path / "out", table, DECISIONS)
    merge_review(out, tmp_path / "t.csv", tmp_path / "new.jsonl", encoding="signed")
    assert read_table(tmp_path / "new.jsonl") == table.with_cells(MERGED, encoding="signed")
    np.savez(
        tmp_path / "odd.npz",
        images=IMAGES,
        classes=CLASSES,
        cells=np.where(table.cells, table.cells > 0, np.nan),
    )
    merge_review(out, tmp_path / "odd.npz", tmp_path / "new.npz")
    assert read_table(tmp_path / "new.npz") == table.with_cells(MERGED, encoding="signed")


def test_split_and_truth_stay(tmp_path: Path, table: LabelTable) -> None:
    full = table.with_split(["train", "train", "val", "test"]).with_truth(
        np.where(table.cells, table.cells, 1), encoding="signed"
    )
    write_table(full, tmp_path / "t.npz")
    out = reviewed(tmp_path / "out", table, DECISIONS)
    merge_review(out, tmp_path / "t.npz", tmp_path / "new.npz")
    assert read_table(tmp_path / "new.npz") == full.with_cells(MERGED, encoding="signed")


def test_a_known_cell_is_not_overwritten_without_being_told(tmp_path: Path, table: LabelTable) -> None:
    write_table(table, tmp_path / "t.csv")
    out = reviewed(
        tmp_path / "out", table, {**DECISIONS, ("ü.jpg", "traffic light"): -1, ("a.jpg", "boat"): -1}
    )
    with pytest.raises(TableError) as caught:
        merge_review(out, tmp_path / "t.csv", tmp_path / "new.csv")
    for part in ("t.csv", "'ü.jpg' (row 4)", "'traffic light'", "known to be present", "says absent"):
        assert part in str(caught.value)
    assert "(and 1 more cell)" in str(caught.value)
    assert str(caught.value).endswith("pass replace_known=True to overwrite what is known.")
    assert not (tmp_path / "new.csv").exists()
    report = merge_review(out, tmp_path / "t.csv", tmp_path / "new.csv", replace_known=True)
    cells = np.array(MERGED)
    cells[3, 2] = cells[0, 0] = -1
    assert np.array_equal(read_table(tmp_path / "new.csv").cells, cells)
    assert (report.overwritten, report.confirmed, report.present, report.absent) == (2, 1, 1, 2)


def test_accepted_cells_come_along_when_asked_for_and_yield_to_everything(
    tmp_path: Path, table: LabelTable
) -> None:
    write_table(table, tmp_path / "t.csv")
    out = reviewed(tmp_path / "out", table, DECISIONS, band="accepted")
    report = merge_review(out, tmp_path / "t.csv", tmp_path / "new.csv", include_accepted=True)
    cells = np.array(MERGED)
    looked_at = np.zeros((4, 3), dtype=bool)
    looked_at[2, 0] = True  # skipped by a person: it stays open although it was accepted
    filled = (cells == 0) & ~looked_at
    cells[filled] = 1
    assert np.array_equal(read_table(tmp_path / "new.csv").cells, cells)
    assert report.included == filled.sum() == 4


def test_accepted_cells_alone_need_no_review(tmp_path: Path, table: LabelTable) -> None:
    write_table(table, tmp_path / "t.csv")
    out = write_folder(tmp_path / "out", table, rows=suggestions(table, "accepted")).out
    report = merge_review(out, tmp_path / "t.csv", tmp_path / "new.npz", include_accepted=True)
    assert report.included == (table.cells == 0).sum()
    assert read_table(tmp_path / "new.npz") == table.with_cells(
        np.where(table.cells, table.cells, 1), encoding="signed"
    )
    assert not (out / "review.sqlite").exists()


def test_only_some_rows_of_the_table_are_left(tmp_path: Path, table: LabelTable) -> None:
    write_table(table.select([0, 2]), tmp_path / "t.csv")
    out = reviewed(tmp_path / "out", table, DECISIONS)
    report = merge_review(out, tmp_path / "t.csv", tmp_path / "new.csv")
    assert np.array_equal(read_table(tmp_path / "new.csv").cells, np.array(MERGED)[[0, 2]])
    assert (report.elsewhere, report.first_elsewhere) == (2, ("sub/b, c.jpg", "boat"))


def test_refusals(tmp_path: Path, table: LabelTable, completed: Completed) -> None:
    write_table(table, tmp_path / "t.csv")
    out = reviewed(tmp_path / "o", table, DECISIONS)
    with pytest.raises(TableError, match=r"t\.csv belongs to the inputs of this command"):
        merge_review(out, tmp_path / "t.csv", tmp_path / "t.csv")
    with pytest.raises(TableError, match=r"satl writes .*not '.ods'"):
        merge_review(out, tmp_path / "t.csv", tmp_path / "new.ods")
    with pytest.raises(RunError, match=r"holds no decision of a person yet; run review\("):
        merge_review(completed.out, tmp_path / "t.csv", tmp_path / "new.csv")
    with pytest.raises(RunError, match="is not a folder"):
        merge_review(tmp_path / "nowhere", tmp_path / "t.csv", tmp_path / "new.csv")
    write_table(draw_table(["x.jpg"], ["other"], known=1.0), tmp_path / "other.npz")
    with pytest.raises(TableError, match="has none of the cells decided in"):
        merge_review(out, tmp_path / "other.npz", tmp_path / "new.csv")
    assert not (tmp_path / "new.csv").exists()


@settings(max_examples=25)
@given(
    cells=st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=3), min_size=1, max_size=5),
    decided=st.dictionaries(st.integers(0, 14), st.sampled_from([-1, 0, 1]), max_size=15),
)
def test_what_a_person_decided_is_known_afterwards_and_nothing_else_moves(
    cells: list[list[int]], decided: dict[int, int]
) -> None:
    table = LabelTable(
        tuple(f"{i}.png" for i in range(len(cells))), CLASSES, np.array(cells), encoding="signed"
    )
    at = {k: v for k, v in decided.items() if k < table.cells.size}
    wanted = {(table.images[k // 3], CLASSES[k % 3]): v for k, v in at.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out = reviewed(folder / "out", table, wanted)
        write_table(table, folder / "t.npz")
        expected = np.array(table.cells)
        for k, value in at.items():
            if value:
                expected.flat[k] = value
        if not any(at.values()):
            with pytest.raises(RunError, match="no decision"):
                merge_review(out, folder / "t.npz", folder / "new.npz")
            return
        merge_review(out, folder / "t.npz", folder / "new.npz", replace_known=True)
        merged = read_table(folder / "new.npz")
        assert np.array_equal(merged.cells, expected)
        # Merging again, now into the merged table, changes nothing and contradicts nothing.
        report = merge_review(out, folder / "new.npz", folder / "again.npz")
        assert read_table(folder / "again.npz") == merged
        assert (report.present, report.absent, report.overwritten) == (0, 0, 0)
        assert report.confirmed == sum(value != 0 for value in at.values())
