"""Names are matched to rows and columns in one place, by one rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satl.errors import TableError
from satl.labels import LabelTable, aligned_cells
from satl.labels.cells import CellIndex, ImageIndex, NameIndex, without_extension

names = st.sampled_from(
    ["a", "a.jpg", "a.png", "b", "b.JPG", "scan", "scan.1", "f/a", "f/a.jpg", ".jpg", "f/.jpg"]
)


def slow_find(wanted: str, images: list[str]) -> int:
    """The rule, written out."""
    if wanted in images:
        return images.index(wanted)
    short = without_extension(wanted)
    if short != wanted:
        return images.index(short) if short in images else -1
    longer = [i for i, name in enumerate(images) if name != wanted and without_extension(name) == wanted]
    return longer[0] if len(longer) == 1 else -1


@given(st.lists(names, unique=True, max_size=8), st.lists(names, max_size=8), st.integers(0, 3))
def test_images_are_found_with_and_without_extension(
    images: list[str], wanted: list[str], start: int
) -> None:
    found = ImageIndex(images).find(wanted, start)
    assert found.dtype == np.int64
    assert found.tolist() == [slow_find(name, images) for name in wanted]


def test_a_name_that_is_only_an_extension_keeps_it() -> None:
    assert [without_extension(name) for name in (".jpg", "f/.jpg", "x.jpg.png")] == [
        ".jpg",
        "f/.jpg",
        "x.jpg",
    ]


def test_classes_are_found_by_their_exact_name() -> None:
    index = NameIndex(("cat", "cat.jpg"))
    assert index.find(["cat.jpg", "Cat", "cat"]).tolist() == [1, -1, 0]
    assert "cat" in index
    assert "dog" not in index


def test_cells_are_found_by_both_names() -> None:
    rows, columns = CellIndex(("a.jpg", "b.jpg"), ("cat", "dog")).find(
        np.array(["b", "x"], object), ["dog", "dog"]
    )
    assert (rows.tolist(), columns.tolist()) == ([1, -1], [1, 1])


def test_two_names_of_one_image_are_refused() -> None:
    with pytest.raises(TableError, match=r"'a\.png' and 'a\.jpg' may both be image 'a'"):
        ImageIndex(("a",)).find_distinct(("a.png", "x", "a.jpg"))


def table(images: tuple[str, ...], classes: tuple[str, ...], cells: list[list[int]]) -> LabelTable:
    return LabelTable(images, classes, np.array(cells), encoding="signed")


def test_cells_of_another_table_are_brought_into_order() -> None:
    ours = table(("a.jpg", "b.jpg", "c.jpg"), ("cat", "dog"), [[0, 0]] * 3)
    theirs = table(("c.jpg", "a"), ("dog", "cow", "cat"), [[1, 1, -1], [-1, 1, 1]])
    assert aligned_cells(theirs, ours, "t.csv").tolist() == [[1, -1], [0, 0], [-1, 1]]
    assert aligned_cells(ours, ours, "t.csv") is ours.cells


def test_tables_without_a_common_name_are_refused() -> None:
    ours = table(("a.jpg",), ("cat",), [[1]])
    with pytest.raises(
        TableError, match=r"t\.csv: has none of the table's images \(such as 'a\.jpg'; it has 'x'\)"
    ):
        aligned_cells(table(("x",), ("cat",), [[1]]), ours, "t.csv")
    with pytest.raises(TableError, match="has none of the table's classes"):
        aligned_cells(table(("a.jpg",), ("dog",), [[1]]), ours, "t.csv")
    with pytest.raises(TableError, match=r"has no class 'cat' \(did you mean 'cats'\?\)"):
        aligned_cells(table(("a.jpg",), ("cats",), [[1]]), ours, "t.csv", all_classes=True)
