"""What is read for an export: known cells from one place, suggestions from another, and nothing mixed up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from review.synthetic import Completed, draw_table, small_folder, write_changes, write_folder
from satl.errors import ImageError, RunError, TableError
from satl.export import read_source
from satl.labels import LabelTable, write_table


@pytest.fixture
def completed(tmp_path: Path) -> Completed:
    return small_folder(tmp_path / "out")


def expected(completed: Completed, *bands: str) -> list[tuple[str, str, int, float, str]]:
    """What changes.csv says, by image and class in the order of the table."""
    at = {name: i for i, name in enumerate((*completed.table.images, *completed.table.classes))}
    rows = [(r[0], r[1], int(r[2]), float(r[3]), r[5]) for r in completed.rows if r[5] in bands]
    return sorted(rows, key=lambda row: (at[row[0]], at[row[1]]))


def found(source: object) -> list[tuple[str, str, int, float, str]]:
    table, bands = source.table, ("accepted", "review")
    return [
        (table.images[r], table.classes[c], v, s, bands[b]) for r, c, v, s, b in source.suggestions.entries()
    ]


def test_a_folder_gives_known_cells_and_suggestions(completed: Completed) -> None:
    source = read_source(completed.out)
    assert source.table == completed.table
    assert source.model == "satl 0.1.0"
    assert found(source) == expected(completed, "accepted", "review")
    assert {row[5] for row in completed.rows} == {"accepted", "review", "left"}
    for band in ("accepted", "review"):
        assert found(read_source(completed.out, bands=[band])) == expected(completed, band)


def test_images_are_given_one_by_one(completed: Completed) -> None:
    source = read_source(completed.out)
    entries = source.suggestions.entries()
    for row, image in enumerate(source.images()):
        assert (image.row, image.image, image.file) == (
            row,
            source.table.images[row],
            source.table.images[row],
        )
        assert image.present == np.flatnonzero(source.table.cells[row] == 1).tolist()
        assert image.absent == np.flatnonzero(source.table.cells[row] == -1).tolist()
        assert image.suggested == [entry[1:] for entry in entries if entry[0] == row]


def test_a_table_has_known_cells_only_and_its_truth_stays_hidden(tmp_path: Path) -> None:
    table = LabelTable(
        ("a", "b"), ("x",), np.array([[1], [0]]), truth=np.array([[1], [1]]), encoding="signed"
    )
    write_table(table, tmp_path / "t.npz")
    source = read_source(tmp_path / "t.npz")
    assert source.suggestions is None
    assert source.table == table.with_truth(None)


def test_decisions_of_a_review_leave_their_suggestions_out(completed: Completed, tmp_path: Path) -> None:
    before = read_source(completed.out)
    open_cells = [e for e in before.suggestions.entries() if before.table.cells[e[0], e[1]] == 0]
    error = next(e for e in before.suggestions.entries() if before.table.cells[e[0], e[1]] != 0)
    row, column, *_ = open_cells[3]
    cells = np.array(before.table.cells)
    cells[row, column] = -1
    # Another order of rows and columns, as a table that somebody sorted.
    decided = before.table.with_cells(cells, encoding="signed")
    order = list(range(decided.num_images))[::-1]
    shuffled = LabelTable(
        tuple(decided.images[i] for i in order), decided.classes[::-1], decided.cells[order][:, ::-1]
    )
    write_table(shuffled, tmp_path / "new.csv")
    source = read_source(completed.out, labels=tmp_path / "new.csv")
    assert source.table == shuffled
    gone = {(r[0], r[1]) for r in found(before)} - {(r[0], r[1]) for r in found(source)}
    assert gone == {(before.table.images[row], before.table.classes[column])}
    # A known cell that the model contradicts is no decision: it stays.
    assert (before.table.images[error[0]], before.table.classes[error[1]]) in {r[:2] for r in found(source)}
    # Corrected, it says what was proposed.
    cells[error[0], error[1]] = error[2]
    write_table(before.table.with_cells(cells, encoding="signed"), tmp_path / "corrected.csv")
    source = read_source(completed.out, labels=tmp_path / "corrected.csv")
    assert len(found(source)) == len(found(before)) - 2
    write_table(shuffled.select(range(3)), tmp_path / "less.csv")
    with pytest.raises(TableError, match=r"labels=.*less\.csv': has no cell of image .*give the table"):
        read_source(completed.out, labels=tmp_path / "less.csv")


def test_suggestions_only(tmp_path: Path) -> None:
    table = draw_table([f"{i}.jpg" for i in range(6)], ["a", "b"])
    rows = [
        ("4.jpg", "b", "1", "0.700000", "", "review", "model", ""),
        ("1.jpg", "a", "-1", "0.010000", "0.020000", "accepted", "certificate", "0.95"),
    ]
    write_folder(tmp_path / "out", table, rows=rows)
    source = read_source(tmp_path / "out", suggestions_only=True)
    assert source.table.images == source.files == ("1.jpg", "4.jpg")
    assert not source.table.known.any()
    assert source.suggestions.entries() == [(0, 0, -1, 0.01, 0), (1, 1, 1, 0.7, 1)]
    write_table(table, tmp_path / "t.csv")
    with pytest.raises(TableError, match=r"suggestions_only=True: .*is not the folder of a completion"):
        read_source(tmp_path / "t.csv", suggestions_only=True)
    write_folder(tmp_path / "none", table, rows=[])
    with pytest.raises(TableError, match=r"suggestions_only=True: .*holds no suggestion"):
        read_source(tmp_path / "none", suggestions_only=True)


def test_image_files_are_found_and_get_their_extension(tmp_path: Path) -> None:
    (tmp_path / "images" / "sub").mkdir(parents=True)
    Image.new("RGB", (5, 4)).save(tmp_path / "images" / "sub" / "b.c.jpg")
    Image.new("RGB", (5, 4)).save(tmp_path / "images" / "a.png")
    write_table(
        LabelTable(("sub/b.c", "a.png"), ("x",), np.array([[1], [0]]), encoding="signed"), tmp_path / "t.csv"
    )
    source = read_source(tmp_path / "t.csv", images=tmp_path / "images")
    assert source.files == ("sub/b.c.jpg", "a.png")
    (tmp_path / "images" / "a.png").unlink()
    with pytest.raises(ImageError, match=r"a\.png.*row 2"):
        read_source(tmp_path / "t.csv", images=tmp_path / "images")


def test_wrong_sources_end_in_one_sentence(completed: Completed, tmp_path: Path) -> None:
    write_table(completed.table, tmp_path / "t.csv")
    with pytest.raises(RunError, match=r"has no report\.json"):
        read_source(tmp_path)
    with pytest.raises(TableError, match="does not exist"):
        read_source(tmp_path / "nothing.csv")
    with pytest.raises(TableError, match=r"bands='acepted': .*did you mean 'accepted'"):
        read_source(completed.out, bands=["acepted"])
    with pytest.raises(TableError, match=r"labels=.*: belongs to the folder of a completion"):
        read_source(tmp_path / "t.csv", labels=tmp_path / "t.csv")
    row = completed.rows[0]
    write_changes(completed.out / "changes.csv", [row, row])
    with pytest.raises(RunError, match="come twice"):
        read_source(completed.out)
    write_changes(completed.out / "changes.csv", [("no.jpg", *row[1:])])
    with pytest.raises(RunError, match=r"has no image 'no\.jpg'"):
        read_source(completed.out)
