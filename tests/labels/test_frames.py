"""Frames in memory are read by the rule of files, and tables come back from them as they were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from satl.errors import ConfigError, EncodingError, TableError
from satl.labels import ENCODINGS, LabelTable, write_table
from satl.labels.frames import make_frame

KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
TABLE = LabelTable(
    ("a.jpg", "b.jpg", "c.jpg"),
    ("cat", "dog, large"),
    np.array([[1, 0], [-1, 1], [0, -1]]),
    np.array(["train", "train", "test"]),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if name != "complete"])
@pytest.mark.parametrize("split", [True, False])
def test_a_table_comes_back_from_every_frame(kind: str, encoding: str, split: bool) -> None:
    table = TABLE if split else TABLE.with_split(None)
    frame = table.to_frame(kind, encoding)
    assert isinstance(frame, pa.Table if kind == "arrow" else KINDS[kind])
    assert LabelTable.from_frame(frame, encoding) == table


@pytest.mark.parametrize("kind", KINDS)
def test_random_tables_come_back(kind: str) -> None:
    draw = np.random.default_rng(0)
    for number in range(20):
        cells = draw.integers(-1, 2, size=(draw.integers(1, 40), draw.integers(1, 6)))
        cells[0, 0] = 0  # a gap shows that 0 is absent
        images = tuple(f"{number}/{row}.png" for row in range(len(cells)))
        table = LabelTable(images, tuple(f"c{column}" for column in range(cells.shape[1])), cells)
        assert LabelTable.from_frame(table.to_frame(kind)) == table


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_and_ones_alone_are_refused_with_the_argument_to_pass(kind: str) -> None:
    frame = KINDS[kind]({"image": ["a", "b"], "cat": [1, 0]})
    with pytest.raises(EncodingError, match=r"pass encoding='complete' .* or encoding='signed'"):
        LabelTable.from_frame(frame)
    assert LabelTable.from_frame(frame, "complete").cells.tolist() == [[1], [-1]]
    assert LabelTable.from_frame(frame, "signed").cells.tolist() == [[1], [0]]


@pytest.mark.parametrize(
    "column",
    [[1, None, 0], [1.0, float("nan"), 0.0], [True, None, False], ["yes", None, "no"], ["1", "", "0"]],
)
def test_gaps_are_unknown_however_they_are_written(column: list[object]) -> None:
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        frame = make({"image": ["a", "b", "c"], "cat": column})
        assert LabelTable.from_frame(frame).cells.tolist() == [[1], [0], [-1]]


def test_a_named_index_of_pandas_is_a_column_and_row_numbers_are_not() -> None:
    frame = pd.DataFrame({"filename": ["x", "y"], "cat": [1, None]}).set_index("filename")
    assert LabelTable.from_frame(frame).images == ("x", "y")
    shuffled = pd.DataFrame({"image": ["x", "y"], "cat": [1, None]}).iloc[[1, 0]]
    assert LabelTable.from_frame(shuffled).images == ("y", "x")


def test_no_other_index_of_pandas_is_a_class() -> None:
    columns = {"image": ["x", "y"], "cat": [1, None]}
    for index in (
        pd.Index([0, 1], name="row"),
        pd.Index([1, 0], name="id"),  # not where a column names the images
        pd.MultiIndex.from_tuples([(0, 1), (1, 0)], names=["fold", "n"]),
    ):
        assert LabelTable.from_frame(pd.DataFrame(columns, index=index)).classes == ("cat",)
    folds = pd.MultiIndex.from_tuples([("x", 0), ("y", 1)], names=["image", "fold"])
    table = LabelTable.from_frame(pd.DataFrame({"cat": [1, None]}, index=folds))
    assert (table.images, table.classes) == (("x", "y"), ("cat",))
    doubled = pd.DataFrame(columns, index=[1, 0])
    assert LabelTable.from_frame(pa.Table.from_pandas(doubled)).classes == ("cat",)


def test_paths_name_images() -> None:
    frame = pd.DataFrame({"image": [Path("photos/x.jpg"), Path("y.jpg")], "cat": [1, None]})
    assert LabelTable.from_frame(frame).images == ("photos/x.jpg", "y.jpg")
    assert isinstance(frame["image"][0], Path)  # the caller's own frame is left alone


def test_lists_of_names_are_positives_and_nothing_else() -> None:
    frame = pl.DataFrame({"image": ["a", "b", "c"], "labels": [["dog", "cat"], [], ["dog"]]})
    table = LabelTable.from_frame(frame)
    assert table.classes == ("cat", "dog")
    assert table.cells.tolist() == [[1, 1], [0, 0], [0, 1]]
    with pytest.raises(EncodingError, match="leave out encoding"):
        LabelTable.from_frame(frame, "blank")
    with pytest.raises(EncodingError, match="may be numbers of classes or one value for each class"):
        LabelTable.from_frame(pl.DataFrame({"image": ["a"], "labels": [[1, 0]]}))


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (
            pd.DataFrame({"image": ["a", "b"], "cat": [1, "yes"]}),
            "mixes values of several kinds .* column cat",
        ),
        (pd.DataFrame({"image": ["a", "b"], 3: [1, 1]}), "a column is called 3, which is not text"),
        (
            pd.DataFrame({"image": ["a"], "cat": [2]}),
            r"row 1 \(image 'a'\), column 'cat': '2' is not a label",
        ),
        (pd.DataFrame([["a", 1, 1]], columns=["image", "cat", "cat"]), "are both called 'cat'"),
        (pd.DataFrame({"image": ["a", "a"], "cat": [1, None]}), "'a'"),
        (pd.DataFrame(), "has no column"),
        (pd.DataFrame({"cat": [1, None]}), "no column names the image"),
        (pd.DataFrame({"image;cat": ["a;1"]}), r"one column holds all the others .*: split it at every ';'"),
        (pa.table({"image": ["a"], "label": ["cat"], "value": [1]}), "one row per image and class"),
        (pl.DataFrame({"image": ["a"], "cat": [1]}).lazy(), r"not computed yet; call its collect\(\)"),
        (pa.table({"image": ["a"], "boxes": [[1.0]]}), "pass ignore_columns='boxes'"),
        ({"image": ["a"], "cat": [1]}, "a builtins.dict is no table"),
        (pd.Series([1, None], name="cat"), r"a pandas\..*Series is no table"),
        (
            pd.DataFrame({"image": ["a", "b"], "cat": pd.arrays.SparseArray([1.0, np.nan])}),
            "a column that cannot be read .*convert it",
        ),
    ],
)
def test_what_is_no_table_ends_in_a_sentence(frame: object, told: str) -> None:
    with pytest.raises(TableError, match=told):
        LabelTable.from_frame(frame)


def test_columns_that_are_no_classes_are_passed_over() -> None:
    frame = pd.DataFrame({"image": ["a", "b"], "cat": [1, None], "when": ["monday", "tuesday"]})
    assert LabelTable.from_frame(frame, ignore_columns=["when"]).classes == ("cat",)
    assert LabelTable.from_frame(frame, ignore_columns="when").classes == ("cat",)


def test_an_arrow_table_of_a_parquet_file_states_its_encoding(tmp_path) -> None:
    complete = LabelTable(("a", "b"), ("cat",), np.array([[1], [-1]]))
    write_table(complete, tmp_path / "t.parquet")
    import pyarrow.parquet

    assert LabelTable.from_frame(pyarrow.parquet.read_table(tmp_path / "t.parquet")) == complete


def test_frames_of_pandas_keep_whole_numbers() -> None:
    assert str(TABLE.to_frame("pandas")["cat"].dtype) == "Int8"
    assert make_frame({"n": [1, None]}, "pandas")["n"].tolist()[0] == 1


def test_unknown_kinds_and_encodings_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"kind='panda': there is no such kind of frame \(did you mean 'pandas'"
    ):
        TABLE.to_frame("panda")
    with pytest.raises(TableError, match="cells are unknown"):
        TABLE.to_frame("arrow", "complete")


def test_without_the_packages_arrow_still_works_and_the_others_end_in_a_sentence() -> None:
    code = """
from importlib.machinery import PathFinder
found, gone = PathFinder.find_spec, ("pandas", "polars", "narwhals")
PathFinder.find_spec = staticmethod(lambda name, *rest: None if name in gone else found(name, *rest))
import pyarrow as pa
from satl.errors import ConfigError
from satl.labels import LabelTable
table = LabelTable.from_frame(pa.table({"image": ["a"], "cat": [1]}))
print(type(table.to_frame()).__module__)
for wrong in (lambda: table.to_frame("pandas"), lambda: LabelTable.from_frame(object())):
    try:
        wrong()
    except ConfigError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "pyarrow.lib",
        "frames of this kind need the package pandas; run `pip install 'satl[frames]'`.",
        "frames of this kind need the package narwhals; run `pip install 'satl[frames]'`.",
    ]
