from __future__ import annotations

import pickle

import numpy as np
import pytest

from satl.errors import ArrayError, TableError
from satl.labels import LabelTable


def make(**changes: object) -> LabelTable:
    given: dict[str, object] = {
        "images": ("a.jpg", "b.jpg", "c.jpg"),
        "classes": ("cat", "dog"),
        "cells": np.array([[1, 0], [-1, 1], [0, 0]]),
        "split": np.array(["train", "train", "val"]),
        "truth": np.array([[1, -1], [-1, 1], [1, 0]]),
        "encoding": "signed",
    }
    return LabelTable(**{**given, **changes})  # type: ignore[arg-type]


def test_sizes_and_known() -> None:
    table = make()
    assert (table.num_images, table.num_classes) == (3, 2)
    assert table.cells.dtype == np.int8
    assert table.truth is not None
    assert table.truth.dtype == np.int8
    assert table.known.tolist() == [[True, False], [True, True], [False, False]]
    assert table.splits == {"train": 2, "val": 1}


def test_arrays_are_copies_and_read_only() -> None:
    cells = np.zeros((3, 2), dtype=np.int8)
    table = make(cells=cells)
    cells[0, 0] = 1
    assert table.cells[0, 0] == 0
    for array in (table.cells, table.truth, table.split):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    with pytest.raises(AttributeError):
        table.images = ("x",)  # type: ignore[misc]


def test_equality_is_by_content() -> None:
    assert make() == make()
    assert make() != make(cells=np.zeros((3, 2)))
    assert make() != make(split=None)
    assert make() != make(truth=None)
    assert make() != make(images=("a.jpg", "b.jpg", "d.jpg"))
    assert make() != make(classes=("cat", "bird"))
    assert make() != "a table"
    with pytest.raises(TypeError):
        hash(make())


def test_a_pickled_table_is_equal_and_still_read_only() -> None:
    copy = pickle.loads(pickle.dumps(make()))
    assert copy == make()
    assert not copy.cells.flags.writeable


def test_repr_is_short() -> None:
    assert repr(make()) == (
        "LabelTable(3 images, 2 classes: 2 present, 1 absent, 3 unknown; split train 2, val 1; with truth)"
    )


def test_select_by_mask_by_indices_and_by_split() -> None:
    table = make()
    assert table.select([2, 0]).images == ("c.jpg", "a.jpg")
    assert table.select(np.array([False, True, False])).cells.tolist() == [[-1, 1]]
    val = table.where_split("val")
    assert val.images == ("c.jpg",)
    assert val.truth is not None
    assert val.truth.tolist() == [[1, 0]]


def test_with_methods_replace_one_thing() -> None:
    table = make()
    assert table.with_cells(table.cells * 0, encoding="signed").known.sum() == 0
    assert table.with_split(None).split is None
    assert table.with_split(["x", "y", "z"]).splits == {"x": 1, "y": 1, "z": 1}
    assert table.with_truth(None).truth is None
    assert table.with_truth(table.cells, encoding="signed").truth is not None
    assert table == make(), "the original stays as it was"


def test_positive_only() -> None:
    assert make(cells=[[1, 0], [0, 1], [0, 0]]).positive_only
    assert not make().positive_only
    assert not make(cells=np.zeros((3, 2))).positive_only


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": ()}, "the table is empty: it has no images"),
        ({"classes": ()}, "the table is empty: it has no classes"),
        ({"images": "abc"}, "not the single text 'abc'"),
        ({"images": ("a", "b", "a")}, r"image 'a' appears twice \(as number 1 and number 3\)"),
        ({"classes": ("cat", "cat")}, "class 'cat' appears twice"),
        ({"classes": ("cat", "")}, r"class 2 \(''\) is empty"),
        ({"classes": ("cat", " dog")}, "begins or ends with white space"),
        ({"classes": ("cat", "dog\u00a0")}, "begins or ends with white space"),
        ({"classes": ("cat", "do\ng")}, "control character"),
        ({"classes": ("cat", "do\x85g")}, "control character"),
        ({"classes": ("cat", "\ud800")}, "not valid Unicode"),
        ({"images": ("a", "b", 3)}, r"image 3 \(3\) is not text but int"),
        ({"split": ["train", "", "val"]}, r"the split '' of image 'b.jpg' \(row 2\) is empty"),
    ],
)
def test_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TableError, match=message):
        make(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cells": np.zeros((2, 2))}, r"cells must have shape \(3, 2\)"),
        ({"truth": np.zeros((3, 3))}, r"truth must have shape \(3, 2\)"),
        (
            {"cells": [[1, 0], [0, 2], [0, 0]]},
            r"cells hold 2 at image 'b.jpg' \(row 2\), class 'dog', which encoding 'signed' does not read",
        ),
        ({"cells": [[1, 0], [0, np.nan], [0, 0]], "encoding": "csl"}, "cells hold nan at image 'b.jpg'"),
        ({"cells": [[1, 0], [0.5, 0], [0, 0]]}, r"cells hold 0\.5 at image 'b.jpg' \(row 2\), class 'cat'"),
        ({"cells": [["1", "0"]] * 3}, "must be numbers"),
        ({"cells": np.eye(3, 2, dtype=bool), "encoding": None}, "cells: can be read in 2 ways"),
        ({"truth": np.eye(3, 2, dtype=np.int8), "encoding": None}, "truth: can be read in 2 ways"),
        ({"split": ["train"]}, "one split per image"),
        ({"split": [1, 2, 3]}, "split must be text"),
    ],
)
def test_wrong_arrays(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        make(**changes)


def test_selecting_nothing_or_a_split_that_is_not_there() -> None:
    table = make()
    with pytest.raises(TableError, match="no image is selected"):
        table.select(np.zeros(3, dtype=bool))
    with pytest.raises(ArrayError, match=r"shape \(3,\)"):
        table.select(np.zeros(4, dtype=bool))
    with pytest.raises(
        TableError, match=r"split 'trian' \(did you mean 'train'\?\); the table has 'train', 'val'"
    ):
        table.where_split("trian")
    with pytest.raises(TableError, match="no split column"):
        make(split=None).where_split("train")


def test_numpy_text_becomes_plain_text() -> None:
    table = make(images=np.array(["a", "b", "c"]))
    assert all(type(name) is str for name in table.images)
