from __future__ import annotations

import codecs
import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satl.errors import EncodingError, TableError
from satl.labels import LabelTable, mask_table, open_table, read_table, truth_path, write_table
from satl.labels.io import FORMATS, Format, TableFile, find_format, register_format

EXTENSIONS = ("csv", "tsv", "parquet", "jsonl", "npz")

# ---------------------------------------------------------------------------------------------- round trips

text = st.text(
    st.characters(blacklist_categories=("Cc", "Cs"))
    | st.sampled_from([",", '"', "'", ";", "\u2028", "\ufeff"]),
    min_size=1,
    max_size=12,
).filter(lambda s: s == s.strip())


@st.composite
def tables(draw: st.DrawFn, truth: bool = False) -> LabelTable:
    images = draw(st.lists(text, min_size=1, max_size=6, unique=True))
    plain = text.filter(lambda s: s.lower() not in ("image", "split", "label", "labels", "tags", "positives"))
    classes = draw(st.lists(plain, min_size=1, max_size=5, unique=True))
    shape = (len(images), len(classes))
    row = st.lists(st.sampled_from([-1, 0, 1]), min_size=shape[1], max_size=shape[1])
    grid = st.lists(row, min_size=shape[0], max_size=shape[0])
    split = draw(st.none() | st.lists(text, min_size=shape[0], max_size=shape[0]))
    return LabelTable(
        tuple(images),
        tuple(classes),
        np.array(draw(grid)),
        None if split is None else np.array(split),
        np.array(draw(grid)) if truth else None,
        encoding="signed",
    )


@pytest.mark.parametrize("extension", EXTENSIONS)
@settings(max_examples=50, deadline=None, derandomize=True)
@given(table=tables())
def test_round_trip_without_any_option(extension: str, table: LabelTable) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{extension}"
        assert write_table(table, path) == (path,)
        assert read_table(path) == table
        assert [p.name for p in Path(folder).iterdir()] == [path.name]


@pytest.mark.parametrize("extension", EXTENSIONS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(table=tables(truth=True))
def test_round_trip_with_truth(extension: str, table: LabelTable) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{extension}"
        files = write_table(table, path)
        if extension == "npz":
            assert files == (path,)
            assert read_table(path) == table
        else:
            assert files == (path, truth_path(path))
            assert read_table(path, truth=files[1]) == table


@pytest.mark.parametrize(
    ("extension", "encoding"),
    [(e, name) for e in ("csv", "parquet") for name in ("blank", "signed", "csl", "chexpert", "words")]
    + [("npz", "signed"), ("npz", "csl")],
)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(table=tables())
def test_round_trip_in_a_named_encoding(extension: str, encoding: str, table: LabelTable) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{extension}"
        write_table(table, path, encoding)
        assert read_table(path, encoding) == table


@pytest.fixture
def pets() -> LabelTable:
    return LabelTable(
        ("a.jpg", "b.jpg"), ("cat", "dog"), np.array([[1, 0], [-1, 1]]), np.array(["train", "val"])
    )


def write(path: Path, content: str | bytes) -> Path:
    if isinstance(content, str):
        content = content.encode()
    path.write_bytes(content)
    return path


# --------------------------------------------------------------------------------------------------- writing


def test_what_is_written(tmp_path: Path, pets: LabelTable) -> None:
    expected = {
        None: "image,split,cat,dog\na.jpg,train,1,\nb.jpg,val,0,1\n",
        "signed": "image,split,cat,dog\na.jpg,train,1,0\nb.jpg,val,-1,1\n",
        "csl": "image,split,cat,dog\na.jpg,train,1,-1\nb.jpg,val,0,1\n",
        "words": "image,split,cat,dog\na.jpg,train,present,unknown\nb.jpg,val,absent,present\n",
    }
    for encoding, content in expected.items():
        write_table(pets, tmp_path / "t.csv", encoding)
        assert (tmp_path / "t.csv").read_bytes().decode() == content
    write_table(pets, tmp_path / "t.jsonl")
    assert (tmp_path / "t.jsonl").read_text().splitlines() == [
        '{"classes": ["cat", "dog"]}',
        '{"image": "a.jpg", "positive": ["cat"], "negative": [], "split": "train"}',
        '{"image": "b.jpg", "positive": ["dog"], "negative": ["cat"], "split": "val"}',
    ]


def test_a_complete_table_is_written_in_words_so_that_it_reads_back(tmp_path: Path) -> None:
    table = LabelTable(("a",), ("cat", "dog"), np.array([[1, -1]]))
    write_table(table, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "image,cat,dog\na,present,absent\n"
    write_table(table, tmp_path / "t.csv", "complete")
    assert (tmp_path / "t.csv").read_text() == "image,cat,dog\na,1,0\n"
    with pytest.raises(EncodingError):
        read_table(tmp_path / "t.csv")


def test_many_rows_cross_the_blocks_of_the_writer(tmp_path: Path) -> None:
    cells = np.random.RandomState(0).randint(-1, 2, (40_000, 3))
    table = LabelTable(tuple(f"{i}.jpg" for i in range(40_000)), ("a", "b", "c"), cells, encoding="signed")
    for extension in ("csv", "parquet"):
        write_table(table, tmp_path / f"t.{extension}")
        assert read_table(tmp_path / f"t.{extension}") == table


def test_writing_refused_leaves_nothing(tmp_path: Path, pets: LabelTable) -> None:
    with pytest.raises(
        TableError, match=r"t\.csv: the table does not fit encoding 'complete'.*1 cells are unknown"
    ):
        write_table(pets, tmp_path / "t.csv", "complete")
    with pytest.raises(EncodingError, match=r"t\.jsonl: .*leave out encoding"):
        write_table(pets, tmp_path / "t.jsonl", "signed")
    with pytest.raises(TableError, match=r"t\.npz: an \.npz table holds numbers, not 'words'"):
        write_table(pets, tmp_path / "t.npz", "words")
    for name in ("split", "Image"):
        odd = LabelTable(("a",), (name,), np.array([[1]]), encoding="signed")
        for extension in ("csv", "parquet"):
            with pytest.raises(TableError, match=f"class called '{name}'.*write .jsonl or .npz"):
                write_table(odd, tmp_path / f"t.{extension}")
        write_table(odd, tmp_path / "fine" / "t.jsonl")
    for names in (("Label", "value"), ("tags",)):
        odd = LabelTable(("a",), names, np.ones((1, len(names))), encoding="signed")
        for extension in ("csv", "parquet"):
            with pytest.raises(TableError, match=r"would read back as another kind of table: write \.jsonl"):
                write_table(odd, tmp_path / f"t.{extension}")
    with pytest.raises(TableError, match=r"satl writes \.arrow, \.csv, .*\.jsonl.*not '\.ods' files"):
        write_table(pets, tmp_path / "t.ods")
    with pytest.raises(TableError, match="both the table and its truth"):
        write_table(
            pets.with_truth(pets.cells, encoding="signed"), tmp_path / "t.csv", truth=tmp_path / "t.csv"
        )
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match="cannot be written"):
        write_table(pets, tmp_path / "file" / "t.csv")
    with pytest.raises(TableError, match="cannot be written"):
        write_table(pets, tmp_path / "folder.csv")
    with pytest.raises(TableError, match=r"t\.json: COCO json cannot say unknown, and 1 cells are unknown"):
        write_table(pets.with_truth(abs(pets.cells), encoding="signed"), tmp_path / "t.json", format="coco")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "fine", "folder.csv"]


# ------------------------------------------------------------------------------------------- CSV that is fine


@pytest.mark.parametrize(
    "content",
    [
        "image,cat,dog\na.jpg,1,\nb.jpg,0,1\n",
        "image,cat,dog\r\na.jpg,1,\r\nb.jpg,0,1\r\n",
        "image,cat,dog\ra.jpg,1,\rb.jpg,0,1\r",
        "\ufeffimage,cat,dog\na.jpg,1,\nb.jpg,0,1",
        '\ufeff"image","cat","dog"\n"a.jpg","1",""\n"b.jpg","0","1"\n',
        "\n\nimage, cat , dog\n\na.jpg,1,\n\n\nb.jpg,0,1\n\n",
        "cat,dog,image\n1,,a.jpg\n0,1,b.jpg\n",
        "Filename,cat,dog\na.jpg,1.0,nan\nb.jpg,0.0,1.0\n",
        "image_id,cat,dog\na.jpg,True,NA\nb.jpg,False,True\n",
        "path,cat,dog\na.jpg,yes,unknown\nb.jpg,No,PRESENT\n",
        "image,cat,dog\n a.jpg , 1 ,\nb.jpg,0,1\n",
    ],
)
def test_csv_variants(tmp_path: Path, content: str) -> None:
    table = read_table(write(tmp_path / "t.csv", content))
    assert table == LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), np.array([[1, 0], [-1, 1]]))


def test_unicode_commas_quotes_and_line_breaks_in_quotes(tmp_path: Path) -> None:
    content = 'image,split,"chat, noir","5"" Bild",犬\n"dir, a/é.jpg",train,1,0,\nb 🐈.jpg,tëst,,1,1\n'
    table = read_table(write(tmp_path / "t.csv", content))
    assert table.classes == ("chat, noir", '5" Bild', "犬")
    assert table.images == ("dir, a/é.jpg", "b 🐈.jpg")
    assert table.splits == {"train": 1, "tëst": 1}
    with pytest.raises(TableError, match="control character"):
        read_table(write(tmp_path / "t.csv", 'image,"c\nat"\na,1\n'))


def test_columns_that_are_no_classes_are_named_not_guessed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "image,Sex,cat,Age , dog\na,F,1,70,\nb,M,0,2,1\n")
    expected = LabelTable(("a", "b"), ("cat", "dog"), np.array([[1, 0], [-1, 1]]))
    assert read_table(path, ignore_columns=("Age", "Sex")) == expected
    parquet(
        tmp_path / "t.parquet",
        image=["a", "b"],
        when=pa.array([0, 1], pa.date32()),
        cat=[1, 0],
        dog=[None, 1],
    )
    with pytest.raises(TableError, match=r"column 'when' holds date32.*ignore_columns='when'"):
        read_table(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", ignore_columns=("when",)) == expected
    assert read_table(tmp_path / "t.parquet", ignore_columns="when") == expected
    with pytest.raises(
        TableError, match=r"no column 'sex' to ignore \(did you mean 'Sex'\?\); correct ignore_columns"
    ):
        read_table(path, ignore_columns=("sex",))
    with pytest.raises(TableError, match="no column names the image"):
        read_table(path, ignore_columns=("image",))
    for name in ("t.jsonl", "t.npz"):
        write_table(expected, tmp_path / name)
        with pytest.raises(TableError, match="leave out ignore_columns"):
            read_table(tmp_path / name, ignore_columns=("Sex",))


def test_long_values_beyond_one_block_of_the_parser(tmp_path: Path) -> None:
    rows = "".join(f"{'x' * 200}{i},1,\n" for i in range(20_000))
    table = read_table(write(tmp_path / "t.csv", "image,cat,dog\n" + rows))
    assert table.num_images == 20_000
    assert (table.cells == [1, 0]).all()


def test_what_was_read_is_told(tmp_path: Path) -> None:
    source = open_table(write(tmp_path / "t.csv", "image,cat,dog\na,1,\nb,0,\n"))
    assert (source.format, source.encoding, source.detected) == ("csv", "blank", True)
    assert source.counts == {"": 2, "1": 1, "0": 1}
    assert not open_table(tmp_path / "t.csv", "blank").detected


def test_one_file_two_meanings(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "image,cat,dog\na,1,0\nb,-1,0\n")
    assert read_table(path, "signed").cells.tolist() == [[1, 0], [-1, 0]]
    assert read_table(path, "csl").cells.tolist() == [[1, -1], [0, -1]]
    with pytest.raises(
        EncodingError, match=r"t\.csv: can be read in 2 ways \(0 in 2 cells, .*encoding='csl'"
    ):
        read_table(path)


def test_positive_only_is_readable_and_says_so(tmp_path: Path) -> None:
    assert read_table(write(tmp_path / "t.csv", "image,cat,dog\na,1,\nb,,1\n")).positive_only


# -------------------------------------------------------------------------------------------- CSV that is not


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: write a header"),
        ("\ufeff\n", "is empty: write a header"),
        ("image,cat\n", "is empty: it has no row below its header"),
        ("image,cat\n\n  \n", "is empty: it has no row below its header"),
        ("image\na.jpg\n", "there is no class column beside 'image'"),
        ("image,split\na.jpg,train\n", "there is no class column beside 'image'"),
        ("cat,dog\n1,0\n", "no column names the image .columns: 'cat', 'dog'.: call that column 'image'"),
        (
            "image;cat\na;1\n",
            r"separated by semicolons, not by commas: save it as \.xlsx, or as CSV with commas",
        ),
        ("\ufeffPhoto;split;cat\na;train;1,0\n", "separated by semicolons, not by commas"),
        ("image;cat\na;1,0\nb;0,0\n", "separated by semicolons, not by commas"),
        ("image\tcat\na\t1\n", r"separated by tabs, not by commas: give it the extension \.tsv"),
        ("image|cat\na|1\n", "separated by '|', not by commas: save it with commas between its columns"),
        (
            'image;"dog, large";cat\na;1;0\n',
            "separated by semicolons, not by commas.*quotes around what holds one",
        ),
        ("\ufeffimage;dog, large;cat\na;1,0;0\n", "separated by semicolons, not by commas"),
        (",image,cat\n0,a,1\n", r"column 1 has no name \(from pandas: write with index=False\)"),
        ("image,cat,\na,1,\n", "column 3 has no name: name or remove it"),
        ("image,cat,dog,cat\na,1,0,1\n", "columns 2 and 4 are both called 'cat'"),
        ("image,cat,cat \na,1,0\n", "columns 2 and 3 are both called 'cat'"),
        ("image,cat,dog\na,1,\nb,1\n", r"row 2 \(image 'b'\) has 2 columns, but the header has 3"),
        ("image,cat,dog\na,1,\nb,1", r"its last row, 2 \(image 'b'\), has 2 of 3 columns.*only in part"),
        ("image,cat,dog\na,1,\n\nb,1,0,0\n", r"row 2 \(image 'b'\) has 4 columns, but the header has 3"),
        ("image,cat\na,1\nb,\na,0\n", "rows 1 and 3 are both about image 'a'"),
        ("image,cat\na,1\n,0\n", "row 2 has no image"),
        (
            "image,cat,dog\na,1,\nb,1,2\n",
            r"row 2 \(image 'b'\), column 'dog': '2' is not a label; write 1, 0, -1",
        ),
        ("image,cat,dog\na,1,maybe\n", r"row 1 \(image 'a'\), column 'dog': 'maybe' is not a label"),
        ("image,sex,cat\na,Female,1\n", "column 'sex': 'Female' is not a label.*ignore_columns='sex'"),
        ("image,split,cat\na,train,1\nb,,0\n", r"row 2 \(image 'b'\) has no split"),
        ('image,"cat\na,1\n', "header cannot be read as CSV"),
        ('image,cat\n"a,1\nb,0\n', "row 1|check its quotes"),
        (b"image,cat\nb\xe9b\xe9.jpg,1\n", r"line 2 is not UTF-8 text \(byte 0xe9\): save the file as UTF-8"),
        (codecs.BOM_UTF16_LE + "image,cat\na,1\n".encode("utf-16-le"), "is UTF-16 text: save it as UTF-8"),
        (gzip.compress(b"image,cat\na,1\n", mtime=0), "is a gzip file, not CSV: unpack it first"),
        ("<!DOCTYPE html><html></html>", "is a web page or XML, not CSV"),
        (b"PAR1....", "is a Parquet file, not CSV"),
        (b"PK\x03\x04...", "is a zip or Excel file, not CSV"),
        ("image,cat\na\x00b,1\nc,\n", "control character"),
    ],
)
def test_csv_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path / "bad.csv", content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tables_that_were_separated_in_another_way_say_what_helps(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.tsv", "image,cat\na,1\nb,0\n")
    with pytest.raises(TableError, match=r"by commas, not by tabs: give it the extension \.csv"):
        read_table(path)
    path = write(tmp_path / "bad.tsv", "image;cat\na;1\nb;0\n")
    with pytest.raises(TableError, match="by semicolons, not by tabs: save it with tabs between its columns"):
        read_table(path)


def test_a_value_outside_the_named_encoding(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "image,cat,dog\na,1,0\nb,-1,0\n")
    with pytest.raises(TableError) as caught:
        read_table(path, "blank")
    assert "row 2 (image 'b'), column 'cat': -1 has no meaning in encoding 'blank'" in str(caught.value)
    assert str(caught.value).endswith("pass encoding='signed', or encoding='csl'.")
    path = write(tmp_path / "t.csv", "image,cat,dog\na,1,\nb,0,0\n")
    with pytest.raises(TableError, match="column 'dog': a blank has no meaning in encoding 'complete'"):
        read_table(path, "complete")


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_files_that_are_not_there_or_not_files(tmp_path: Path, extension: str) -> None:
    write(tmp_path / f"labels.{extension}", "")
    with pytest.raises(
        TableError, match=rf"lables\.{extension} does not exist \(did you mean 'labels\.{extension}'"
    ):
        read_table(tmp_path / f"lables.{extension}")
    (tmp_path / f"folder.{extension}").mkdir()
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path / f"folder.{extension}")
    with pytest.raises(TableError, match="does not exist"):
        read_table(tmp_path / "nowhere" / f"labels.{extension}")
    with pytest.raises(TableError, match=r"empty|not a readable"):
        read_table(tmp_path / f"labels.{extension}")


def test_extensions_that_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(
        TableError, match=r"satl reads \.arrow, \.csv, .*not '\.ods' files.*convert to one of those"
    ):
        read_table(write(tmp_path / "t.ods", "PK"))
    with pytest.raises(TableError, match="not a file without extension"):
        read_table(write(tmp_path / "table", "image,cat"))
    with pytest.raises(EncodingError, match="encoding='blanc': is not an encoding"):
        read_table(write(tmp_path / "t.csv", "image,cat\na,1\n"), "blanc")


# --------------------------------------------------------------------------------------------------- Parquet


def parquet(path: Path, **columns: object) -> Path:
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 0, None], pa.int64()),
        pa.array([1.0, 0.0, float("nan")]),
        pa.array([1.0, 0.0, None], pa.float32()),
        pa.array([True, False, None]),
        pa.array(["1", "0", ""]),
        pa.array(["yes", "no", None]),
        pa.array(["present", "absent", "unknown"]).dictionary_encode(),
        pa.chunked_array([pa.array(["yes"]), pa.array(["no", None])]),
    ],
)
def test_parquet_column_types(tmp_path: Path, column: object) -> None:
    path = parquet(tmp_path / "t.parquet", image=["a", "b", "c"], cat=column, __index_level_0__=[5, 6, 7])
    table = read_table(path)
    assert table.classes == ("cat",)
    assert table.cells[:, 0].tolist() == [1, -1, 0]


def test_parquet_states_its_encoding(tmp_path: Path) -> None:
    table = LabelTable(("a", "b"), ("cat",), np.array([[1], [-1]]))
    write_table(table, tmp_path / "t.parquet")
    source = open_table(tmp_path / "t.parquet")
    assert source.table == table
    assert (source.encoding, source.detected) == ("blank", False)
    assert read_table(tmp_path / "t.parquet", "blank") == table
    with pytest.raises(
        EncodingError, match="states that its encoding is 'blank', so encoding 'signed' does not apply"
    ):
        read_table(tmp_path / "t.parquet", "signed")


def test_parquet_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(EncodingError, match="can be read in 2 ways"):
        read_table(parquet(path, image=["a", "b"], cat=[1, 0]))
    with pytest.raises(TableError, match=r"row 2 \(image 'b'\), column 'cat': '7' is not a label"):
        read_table(parquet(path, image=["a", "b"], cat=[1, 7]))
    with pytest.raises(TableError, match="no column names the image"):
        read_table(parquet(path, cat=[1, 0]))
    with pytest.raises(TableError, match="must name the images as text, not as double"):
        read_table(parquet(path, image=[0.5, 1.5], cat=[1, None]))
    with pytest.raises(TableError, match=r"column 'cat' holds list<.*>, not labels"):
        read_table(parquet(path, image=["a"], cat=[[1, 2]]))
    with pytest.raises(TableError, match="row 2 has no image"):
        read_table(parquet(path, image=["a", None], cat=[1, None]))
    with pytest.raises(TableError, match="row 1 has no image"):
        read_table(parquet(path, image=[None, None], cat=[1, None]))
    with pytest.raises(TableError, match="is empty: it has no row"):
        read_table(parquet(path, image=pa.array([], pa.string()), cat=pa.array([], pa.int8())))
    with pytest.raises(TableError, match="not a readable Parquet file"):
        read_table(write(path, "image,cat\n"))
    assert read_table(parquet(path, image=[139, 285], cat=[1, None])).images == ("139", "285")


# ----------------------------------------------------------------------------------------------------- JSONL


def test_jsonl_classes_are_sorted_without_a_first_line(tmp_path: Path) -> None:
    lines = (
        '\ufeff{"image": "a", "positive": ["dog"], "source": "x"}\r\n'
        '\r\n{"image": 7, "negative": ["cat"], "positive": []}'
    )
    table = read_table(write(tmp_path / "t.jsonl", lines))
    assert table == LabelTable(("a", "7"), ("cat", "dog"), np.array([[0, 1], [-1, 0]]))


def lines(*rows: object) -> str:
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: write one JSON object per image"),
        (lines({"classes": ["cat"]}), "is empty"),
        (lines({"image": "a", "positive": ["cat"]}, "{oops"), "line 2 is not JSON"),
        (lines([1, 2]), "line 1 is not a JSON object"),
        (lines({"positive": ["cat"]}), r"line 1 has no 'image' \(keys: 'positive'\)"),
        (lines({"image": "", "positive": ["cat"]}), "line 1 has no 'image'"),
        (
            lines({"image": "a", "positives": ["cat"]}),
            "line 1 has neither 'positive' nor 'negative'.*'positives'",
        ),
        (lines({"image": "a", "positive": "cat"}), "line 1: 'positive' must be a list of class names"),
        (lines({"image": "a", "positive": [1]}), "line 1: 'positive' must be a list of class names"),
        (lines({"image": "a", "positive": [["cat"]]}), "must be a list of class names"),
        (lines({"image": "a", "positive": [" "]}), "'positive' has an empty class name"),
        (lines({"image": "a", "positive": ["x"], "negative": ["x"]}), "'x' is both positive and negative"),
        (
            lines({"classes": ["cat", "dog"]}, {"image": "a", "positive": ["dgo"]}),
            r"row 1 \(image 'a'\) names class 'dgo', which its 'classes' line lacks \(did you mean 'dog'\?\)",
        ),
        (
            lines({"image": "a", "positive": ["x"]}, {"classes": ["x"]}),
            "line 2 lists the classes again or too late",
        ),
        (lines({"classes": ["x", "x"]}, {"image": "a", "positive": ["x"]}), "class 'x' appears twice"),
        (lines({"image": "a", "positive": []}), "names no class"),
        (
            lines({"image": "a", "positive": ["x"]}, {"image": "a", "positive": []}),
            "rows 1 and 2 are both about",
        ),
        (lines({"image": "a", "positive": ["x"], "split": 3}), "'split' must be a name"),
        (
            lines({"image": "a", "positive": ["x"], "split": "train"}, {"image": "b", "positive": []}),
            r"row 2 \(image 'b'\) has no split, but others have",
        ),
        (b'{"image": "\xff"}', "is not UTF-8"),
    ],
)
def test_jsonl_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path / "bad.jsonl", content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


def test_jsonl_takes_no_encoding(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", '{"image": "a", "positive": ["x"]}')
    with pytest.raises(EncodingError, match="leave out encoding"):
        read_table(path, "signed")


# ------------------------------------------------------------------------------------------------------- npz


def test_npz_of_others(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    labels = np.array([[1, 0, np.nan], [0, 1, np.nan]])
    np.savez(path, images=["a", "b"], names=["x", "y", "z"], labels=labels, scores=np.zeros((2, 3)))
    assert read_table(path).cells.tolist() == [[1, -1, 0], [-1, 1, 0]]
    np.savez(path, images=["a", "b"], names=["x"], labels=np.array([[1], [-1]]))
    with pytest.raises(EncodingError, match=r"encoding='signed' .*encoding='csl'"):
        read_table(path)
    assert read_table(path, "csl").cells.tolist() == [[1], [0]]


def test_npz_truth_is_read_in_the_encoding_of_the_cells(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, images=["a"], classes=["x", "y"], cells=[[1.0, np.nan]], truth=[[1.0, 0.0]])
    table = read_table(path)
    assert table.truth is not None
    assert table.truth.tolist() == [[1, -1]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": None}, "no array called 'images' or .*arrays: 'classes', 'cells'"),
        ({"classes": None}, "no array called 'classes' or 'names'"),
        ({"cells": None}, "no array called 'cells' or 'labels'"),
        ({"cells": [[1, 0]]}, r"'cells' must hold labels of the shape \(2, 2\), not \w+ \(1, 2\)"),
        ({"truth": [[1, 0]]}, r"'truth' must hold labels of the shape"),
        ({"cells": [[1, 5], [0, 0]]}, r"row 1 \(image 'a'\), column 'y': '5' is not a label"),
        ({"truth": [[1, 0], [3, 0]]}, r"row 2 \(image 'b'\), column 'x': '3' is not a label"),
        ({"images": ["a", "a"]}, "rows 1 and 2 are both about image 'a'"),
        ({"images": np.array(["a", "b"], dtype=object)}, "Python objects.*dtype=str"),
        ({"images": [0.5, 1.5]}, "'images' must be a list of texts"),
        ({"classes": ["x", "x"]}, "class 'x' appears twice"),
        ({"cells": np.array([[1j, 0], [0, 0]])}, "'cells' must hold labels of the shape .*, not complex128"),
        ({"split": ["train"]}, r"'split' has shape \(1,\)"),
        ({"encoding": "odd"}, "encoding='odd': is not an encoding"),
        ({"truth": [["1", ""], ["0", "0"]], "encoding": "csl"}, "its truth has values without a meaning"),
    ],
)
def test_npz_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    arrays = {"images": ["a", "b"], "classes": ["x", "y"], "cells": [[1, 0], [0, -1]], **changes}
    np.savez(tmp_path / "t.npz", **{k: v for k, v in arrays.items() if v is not None})  # type: ignore[arg-type]
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / "t.npz", None if "encoding" in changes else "signed")


def test_npz_that_is_no_npz(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"not a readable .npz file"):
        read_table(write(tmp_path / "t.npz", "image,cat\n"))
    with (tmp_path / "t.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(TableError, match=r"not a readable .npz file"):
        read_table(tmp_path / "t.npz")
    np.savez(tmp_path / "t.npz", images=["a"])
    whole = (tmp_path / "t.npz").read_bytes()
    with pytest.raises(TableError, match=r"not a readable .npz file"):
        read_table(write(tmp_path / "t.npz", whole[: len(whole) // 2]))


# ------------------------------------------------------------------------------------------------ the truth


def test_truth_is_matched_by_name_not_by_place(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "image,cat,dog\na,1,\nb,,1\nc,,\n")
    truth = write(tmp_path / "truth.csv", "image,dog,bird,cat\nb,yes,no,no\nz,no,no,no\na,no,no,yes\n")
    table = read_table(path, truth=truth)
    assert table.truth is not None
    assert table.truth.tolist() == [[1, -1], [-1, 1], [0, 0]]


def test_truth_in_another_format_and_the_same_encoding(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "image,cat\na,0\nb,1\n")
    truth = write(tmp_path / "truth.jsonl", '{"image": "a", "positive": [], "negative": ["cat"]}')
    assert read_table(path, "signed", truth=truth).truth is not None
    ambiguous = write(tmp_path / "truth.csv", "image,cat\na,0\nb,1\n")
    with pytest.raises(EncodingError, match=r"truth\.csv: can be read in 2 ways"):
        read_table(write(path, "image,cat\na,\nb,1\n"), truth=ambiguous)
    table = read_table(path, "blank", truth=ambiguous)
    assert table.truth is not None
    assert table.truth.tolist() == [[-1], [1]]


@pytest.mark.parametrize("encoding", ["blank", "signed", "csl", "chexpert", "words"])
def test_one_encoding_reads_table_and_truth(tmp_path: Path, encoding: str) -> None:
    table = LabelTable(
        ("a", "b"), ("x", "y"), np.array([[1, 0], [0, -1]]), truth=np.array([[1, -1], [1, -1]])
    )
    files = write_table(table, tmp_path / "t.csv", encoding)
    assert read_table(files[0], encoding, truth=files[1]) == table


def test_a_truth_that_states_its_encoding_is_not_misread(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "image,x,y\na,1,-1\nb,-1,0\n")
    hidden = LabelTable(("a", "b"), ("x", "y"), np.array([[1, -1], [1, -1]]))
    for name in ("truth.npz", "truth.parquet", "truth.jsonl", "truth.csv"):
        write_table(hidden, tmp_path / name)
        table = read_table(path, "csl", truth=tmp_path / name)
        assert table.cells.tolist() == [[1, 0], [0, -1]]
        assert table.truth is not None
        assert table.truth.tolist() == hidden.cells.tolist()
    # Numbers that could be detected are read as the user says all the same.
    numbers = write(tmp_path / "numbers.csv", "image,x,y\na,1,\nb,1,0\n")
    table = read_table(path, "signed", truth=numbers)
    assert table.truth is not None
    assert table.truth.tolist() == [[1, 0], [1, 0]]


def test_truth_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "image,cat\na,1\nb,\n")
    with pytest.raises(TableError, match=r"truth\.csv: has no class 'cat' \(did you mean 'cats'\?\)"):
        read_table(path, truth=write(tmp_path / "truth.csv", "image,cats\na,yes\n"))
    with pytest.raises(TableError, match=r"none of the table's images \(such as 'a'; it has 'x/a'\)"):
        read_table(path, truth=write(tmp_path / "truth.csv", "image,cat\nx/a,yes\n"))
    with pytest.raises(TableError, match="does not exist"):
        read_table(path, truth=tmp_path / "nothing.csv")


def test_masked_table_and_its_truth_come_back_from_every_format(tmp_path: Path) -> None:
    cells = np.where(np.random.RandomState(0).random_sample((30, 4)) < 0.3, 1, -1)
    table = LabelTable(tuple(f"{i}.jpg" for i in range(30)), ("a", "b", "c", "d"), cells, encoding="signed")
    masked = mask_table(table, 0.2)
    for extension in EXTENSIONS:
        files = write_table(masked, tmp_path / f"m.{extension}")
        truth = files[1] if len(files) > 1 else None
        assert read_table(files[0], truth=truth) == masked


# ---------------------------------------------------------------------------------------------- the registry


@pytest.fixture
def scratch_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satl.labels.io.registry.FORMATS", dict(FORMATS))


@pytest.mark.usefixtures("scratch_formats")
def test_a_new_format_is_one_call(tmp_path: Path) -> None:
    def read(path: Path, encoding: str | None) -> TableFile:
        names = path.read_text().split()
        return TableFile(
            LabelTable(tuple(names), ("cat",), np.ones((len(names), 1)), encoding="signed"), path, "list"
        )

    register_format(Format("list", (".txt",), read, encoded=False))
    path = write(tmp_path / "t.txt", "a b")
    assert read_table(path).images == ("a", "b")
    with pytest.raises(TableError, match="satl writes"):
        write_table(read_table(path), path)
    with pytest.raises(ValueError, match="exists already"):
        register_format(Format("list", (".lst",), read))


@pytest.mark.usefixtures("scratch_formats")
def test_formats_that_share_an_extension_are_told_apart_by_content(tmp_path: Path) -> None:
    def read(path: Path, encoding: str | None) -> TableFile:
        raise AssertionError

    for name in ("red", "blue"):
        register_format(
            Format(
                name, (".dat",), read, lambda *_: None, recognises=lambda p, name=name: name in p.read_text()
            )
        )
    assert find_format(write(tmp_path / "t.dat", "a blue file")).name == "blue"
    with pytest.raises(TableError, match="could be any of red, blue; rename"):
        find_format(write(tmp_path / "t.dat", "neither"))
    with pytest.raises(TableError, match=r"could be any of red, blue; pass format='red'"):
        find_format(tmp_path / "new.dat", writing=True)
    assert find_format(tmp_path / "new.dat", writing=True, name="red").name == "red"
    with pytest.raises(TableError, match=r"format='rde': is not a format \(did you mean 'red'\?\)"):
        find_format(tmp_path / "new.dat", writing=True, name="rde")
    with pytest.raises(TableError, match=r"new\.csv: format 'red' is for \.dat files"):
        find_format(tmp_path / "new.csv", writing=True, name="red")
    # One that recognises nothing is what the extension means otherwise, and what is written without a name.
    register_format(Format("plain", (".dat",), read, lambda *_: None))
    assert find_format(write(tmp_path / "t.dat", "neither")).name == "plain"
    assert find_format(write(tmp_path / "t.dat", "red")).name == "red"
    assert find_format(tmp_path / "new.dat", writing=True).name == "plain"


@pytest.mark.parametrize("name", ["table.csv", "table.tsv", "long.csv"])
def test_a_name_may_begin_with_a_byte_order_mark(name: str, tmp_path: Path) -> None:
    table = LabelTable(("\ufeffa.jpg", "b.jpg"), ("cat", "dog"), np.array([[1, 0], [-1, 1]], dtype=np.int8))
    format = "long" if name.startswith("long") else None
    write_table(table, tmp_path / name, format=format)
    assert read_table(tmp_path / name).images == table.images
