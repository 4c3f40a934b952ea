"""Long tables and lists of positives, and the one property of all formats: what is written reads back."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import assume, given, settings

from labels.test_io import tables, write
from satl.errors import EncodingError, TableError
from satl.labels import LabelTable, open_table, read_table, truth_path, write_table
from satl.labels.encodings import NOT_A_LABEL, value_code
from satl.labels.io import FORMATS

# ---------------------------------------------------------------------------------------------- round trips


def fits(table: LabelTable, format: str) -> LabelTable:
    """Return the table without what ``format`` cannot say."""
    if format == "coco":
        return table.with_cells(np.where(table.cells == 0, -1, table.cells))
    if format == "positives":
        order = np.argsort(np.array(table.classes, dtype=object))
        cells = abs(table.cells[:, order])
        cells[0] = 1
        return LabelTable(
            table.images, tuple(sorted(table.classes)), cells, table.split, table.truth, encoding="signed"
        )
    return table


def called_like_values(table: LabelTable) -> bool:
    return all(value_code(name) != NOT_A_LABEL for name in table.classes)


@pytest.mark.parametrize(
    ("format", "extension"),
    sorted((format.name, extension) for format in FORMATS.values() for extension in format.extensions),
)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(table=tables())
def test_what_every_writer_writes_its_reader_reads(format: str, extension: str, table: LabelTable) -> None:
    if format == "excel":
        pytest.importorskip("openpyxl")
        splits = () if table.split is None else table.split.tolist()
        assume(not re.search("[\ufffe\uffff]", "".join((*table.images, *table.classes, *splits))))
    table = fits(table, format)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{extension}"
        if format in ("long", "positives") and called_like_values(table):
            with pytest.raises(TableError, match="would not read back"):
                write_table(table, path, format=format)
            return
        assert write_table(table, path, format=format) == (path,)
        opened = open_table(path)
        assert opened.format == format
        assert opened.table == table
        assert [p.name for p in Path(folder).iterdir()] == [path.name]


@pytest.mark.parametrize("extension", ["csv", "parquet"])
@pytest.mark.parametrize("encoding", ["blank", "signed", "csl", "chexpert", "words"])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(table=tables())
def test_a_long_table_reads_back_in_every_encoding(extension: str, encoding: str, table: LabelTable) -> None:
    if called_like_values(table):
        table = LabelTable(
            table.images,
            tuple(f"class {name}" for name in table.classes),
            table.cells,
            table.split,
            encoding="signed",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{extension}"
        write_table(table, path, encoding, format="long")
        assert read_table(path, encoding) == table


@pytest.mark.parametrize(
    ("format", "extension"), [("long", ".csv"), ("long", ".pq"), ("lvis", ".json"), ("coco", ".json")]
)
def test_the_truth_is_kept_in_a_table_of_the_same_format(tmp_path: Path, format: str, extension: str) -> None:
    table = LabelTable(
        ("a", "b"), ("x", "y"), np.array([[1, -1], [-1, 1]]), truth=np.array([[1, -1], [1, -1]])
    )
    path = tmp_path / f"t{extension}"
    assert write_table(table, path, format=format) == (path, truth_path(path))
    assert read_table(path, truth=truth_path(path)) == table
    assert open_table(truth_path(path)).format == format


# ------------------------------------------------------------------------------------------------ long tables


def test_what_is_written_long(tmp_path: Path) -> None:
    table = LabelTable(
        ("a.jpg", "b.jpg", "c.jpg"),
        ("dog", "cat"),
        np.array([[0, 1], [0, 0], [-1, 0]]),
        np.array(["train", "train", "val"]),
    )
    write_table(table, tmp_path / "t.csv", format="long")
    assert (tmp_path / "t.csv").read_text().splitlines() == [
        "image,label,value,split",
        "a.jpg,dog,,train",
        "a.jpg,cat,1,train",
        "b.jpg,dog,,train",
        "c.jpg,dog,0,val",
    ]


@pytest.mark.parametrize(
    "content",
    [
        "image,label,value\na,cat,1\nb,dog,0\n",
        "\ufeffImage,Label,Value\r\na,cat,1.0\r\n\r\nb,dog,0.0",
        "image,label,value\ra,cat,1\rb,dog,0\r",
        "value,label,image\nyes,cat,a\nno,dog,b\n",
        "path,label,value\na, cat ,present\nb,dog,absent\na,dog,unknown\n",
        '"filename","label","value"\n"a","cat","1"\n"b","dog","0"\n"b","dog","0"\n',
        "ImageID,Source,LabelName,Confidence\na,verification,cat,1\nb,verification,dog,0\n",
    ],
)
def test_long_variants(tmp_path: Path, content: str) -> None:
    opened = open_table(write(tmp_path / "t.csv", content))
    assert opened.format == "long"
    assert opened.table == LabelTable(("a", "b"), ("cat", "dog"), np.array([[1, 0], [0, -1]]))


def test_a_pair_without_a_row_is_a_blank_for_the_encoding(tmp_path: Path) -> None:
    opened = open_table(write(tmp_path / "t.csv", "image,label,value\na,cat,1\nb,dog,0\n"))
    assert (opened.encoding, opened.detected) == ("blank", True)
    assert opened.counts == {"": 2, "1": 1, "0": 1}
    whole = "image,label,value\na,cat,1\na,dog,0\n"
    with pytest.raises(EncodingError, match="can be read in 2 ways"):
        read_table(write(tmp_path / "t.csv", whole))
    assert read_table(tmp_path / "t.csv", "complete").cells.tolist() == [[1, -1]]
    signed = write(tmp_path / "t.csv", "image,label,value\na,cat,1\nb,dog,-1\n")
    with pytest.raises(EncodingError, match="encoding='signed'"):
        read_table(signed)
    assert read_table(signed, "signed").cells.tolist() == [[1, 0], [0, -1]]
    assert read_table(signed, "csl").cells.tolist() == [[1, 0], [0, 0]]
    with pytest.raises(TableError, match="a blank has no meaning in encoding 'complete'"):
        read_table(write(tmp_path / "t.csv", "image,label,value\na,cat,1\nb,dog,0\n"), "complete")


def test_long_parquet_of_others(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {
        "image": pa.chunked_array([["b"], ["a", "b"]]).dictionary_encode(),
        "label": pa.array(["x", "y", "y"]),
        "value": pa.array([1.0, float("nan"), 0.0]),
        "split": ["val", "train", "val"],
    }
    pyarrow.parquet.write_table(pa.table(columns), path)
    opened = open_table(path)
    assert opened.format == "long"
    assert opened.table == LabelTable(
        ("b", "a"), ("x", "y"), np.array([[1, -1], [0, 0]]), np.array(["val", "train"])
    )
    with pytest.raises(TableError, match="not a readable Parquet file"):
        read_table(write(path, path.read_bytes()[:-20]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,label,value\n", "is empty"),
        ("image,label,value\na,cat,1\na,dog", r"its last row, 2 \(image 'a'\), has 2 of 3 columns"),
        ("image,label,value\na,cat,1\na,dog\n", r"row 2 \(image 'a'\) has 2 columns, but the header has 3"),
        ("image,label,value\na,cat,2\n", r"row 1 \(image 'a'\), column 'value': '2' is not a label"),
        (
            "image,label,value\na,cat,0.7\n",
            r"row 1 \(image 'a'\), column 'value': '0.7' is not a label; .* or nothing, or remove the row\.$",
        ),
        ("image,label,value\na,cat,1\n,cat,1\n", "row 2 has nothing in column 'image'"),
        ("image,label,value\na,cat,1\nb,,1\n", "row 2 has nothing in column 'label'"),
        (
            "image,label,value\na,cat,1\nb,cat,1\na,cat,0\n",
            "rows 1 and 3 say different things about image 'a' and class 'cat'",
        ),
        (
            "image,label,value,split\na,cat,1,train\na,dog,1,val\n",
            "row 2 puts image 'a' into split 'val', another row into 'train'",
        ),
        ("image,label,value\na,1,0\nb,0,1\n", "may be a wide table with classes called 'label' and 'value'"),
        (b"image,label,value\nb\xe9,cat,1\n", "line 2 is not UTF-8"),
    ],
)
def test_long_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path / "bad.csv", content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "header",
    ["image,label,value,annotator", "image,label,probability,present", "Image,Label,value,date"],
)
def test_a_long_table_with_further_columns_is_told_from_repeated_rows(tmp_path: Path, header: str) -> None:
    path = write(tmp_path / "t.csv", f"{header}\na.jpg,cat,1,1\na.jpg,dog,0,1\n")
    with pytest.raises(TableError, match=r"the columns image,label,value \(and split\).*remove the others"):
        read_table(path)
    # A class may be called so.
    path = write(tmp_path / "t.csv", "image,label,cat\na.jpg,1,0\nb.jpg,,1\n")
    assert read_table(path).classes == ("label", "cat")


def test_more_cells_than_memory_holds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satl.labels.io.long.MAX_CELLS", 3)
    with pytest.raises(TableError, match="2 images x 2 classes are too many cells for memory: choose fewer"):
        read_table(write(tmp_path / "t.csv", "image,label,value\na,cat,1\nb,dog,0\n"))


# ------------------------------------------------------------------------------------------ lists of positives


@pytest.mark.parametrize(
    "content",
    [
        'image,labels\na.jpg,"dog,cat"\nb.jpg,\nc.jpg,cat\n',
        '\ufefffilename,Tags\r\na.jpg,"cat, dog"\r\n\r\nb.jpg,""\r\nc.jpg,"cat,"',
        'positives,image\n"cat,dog,cat",a.jpg\n,b.jpg\ncat,c.jpg\n',
    ],
)
def test_lists_of_positives(tmp_path: Path, content: str) -> None:
    opened = open_table(write(tmp_path / "t.csv", content))
    assert (opened.format, opened.encoding) == ("positives", None)
    assert opened.table == LabelTable(
        ("a.jpg", "b.jpg", "c.jpg"), ("cat", "dog"), np.array([[1, 1], [0, 0], [1, 0]]), encoding="signed"
    )
    assert opened.table.positive_only


def test_what_is_written_as_a_list(tmp_path: Path) -> None:
    cells = np.array([[1, 1, 1], [0, 0, 0], [0, 1, 0]])
    table = LabelTable(
        ("a", "b", "c"),
        ("big, red", "cat", "x;y"),
        cells,
        np.array(["train", "train", "val"]),
        encoding="signed",
    )
    write_table(table, tmp_path / "t.csv", format="positives")
    assert (tmp_path / "t.csv").read_text().splitlines() == [
        "image,split,labels",
        'a,train,"""big, red"",cat,""x;y"""',
        "b,train,",
        "c,val,cat",
    ]


def test_a_list_cannot_say_everything(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for cells, message in (
        ([[1, -1], [0, 1]], "cannot say absent, and 1 cells are absent: write"),
        ([[1, 0], [0, 0]], "cannot name a class without a positive, such as 'dog'"),
    ):
        with pytest.raises(TableError, match=message):
            write_table(
                LabelTable(("a", "b"), ("cat", "dog"), np.array(cells), encoding="signed"),
                path,
                format="positives",
            )
    with pytest.raises(EncodingError, match="leave out encoding"):
        write_table(
            LabelTable(("a",), ("cat",), np.array([[1]]), encoding="signed"),
            path,
            "blank",
            format="positives",
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,labels\n", "is empty"),
        (
            "image,labels\na,cat;dog\n",
            r"row 1 \(image 'a'\) has ';' in its list 'cat;dog': separate the names with",
        ),
        ("image,labels\na,cat|dog\n", "has '|' in its list"),
        ("image,labels\na,cat,dog\n", "row 1 .* has 3 columns, but the header has 2: .*quote a value"),
        ('image,labels\na,"""cat"\n', "its list cannot be read"),
        ("image,labels\na,cat\na,dog\n", "rows 1 and 2 are both about image 'a'"),
        ("image,labels\na,1\nb,0\n", "may be a wide table with one class: rename this column"),
        ("image,labels\na,\nb,\n", "may be a wide table with one class"),
        ("image,split,labels\na,train,cat\nb,,cat\n", r"row 2 \(image 'b'\) has no split"),
    ],
)
def test_lists_refused(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path / "bad.csv", content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    with pytest.raises(EncodingError, match="leave out encoding"):
        read_table(path, "blank")
