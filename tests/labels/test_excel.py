"""Excel files: round trips, sheets of people, damage, and files that unpack to more than memory."""

from __future__ import annotations

import datetime
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from satl.errors import TableError
from satl.labels import LabelTable, open_table, read_table, write_table
from satl.labels.io import excel, write_alike

IMAGES, CLASSES = ("a.jpg", "=1+1", "0012", "#N/A!"), ("cat", "@dog")
TABLE = LabelTable(
    IMAGES, CLASSES, np.array([[1, 0], [-1, 1], [0, 0], [1, 1]]), np.array(["train", "val", "1", "train"])
)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    sentence = re.escape(
        "t.xlsx: Excel files need the package openpyxl; run `pip install 'satl[excel]'`, or save the table as .csv."
    )
    with pytest.raises(TableError, match=sentence):
        read_table(tmp_path / "t.xlsx")
    with pytest.raises(TableError, match=r"satl\[excel\]"):
        write_table(TABLE, tmp_path / "new.xlsx")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.xlsx"]


openpyxl = pytest.importorskip("openpyxl")


def save(file: Path, *rows: tuple[Any, ...], **others: list[tuple[Any, ...]]) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for title, content in others.items():
        sheet = book.create_sheet(title)
        for row in content:
            sheet.append(row)
    book.save(file)
    return file


@pytest.mark.parametrize("encoding", [None, "blank", "signed", "csl", "words"])
def test_round_trip(encoding: str | None, tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.xlsx", encoding)
    opened = open_table(tmp_path / "t.xlsx", encoding)
    assert (opened.format, opened.table) == ("excel", TABLE)
    write_alike(opened, opened.table, tmp_path / "again.xlsx")
    assert read_table(tmp_path / "again.xlsx", encoding) == TABLE


def test_names_are_text_and_never_formulas(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "t.xlsx").active
    assert {sheet.cell(row, 1).data_type for row in range(1, 6)} == {"s"}


def test_values_as_people_write_them(tmp_path: Path) -> None:
    file = save(
        tmp_path / "t.xlsx",
        (None, None),
        ("image", "cat", "dog", None),
        (1, 1.0, True),
        (),
        ("b", 0.0, None, None),
        (3.0, " ", False),
    )
    table = read_table(file)
    assert table.images == ("1", "b", "3")
    assert table.cells.tolist() == [[1, 1], [-1, 0], [0, -1]]


def test_columns_that_are_no_classes(tmp_path: Path) -> None:
    file = save(tmp_path / "t.xlsx", ("image", "age", "cat"), ("a", 12, 1), ("b", 30, None))
    assert read_table(file, ignore_columns=["age"]).classes == ("cat",)


def test_the_only_sheet_with_a_table_is_read(tmp_path: Path) -> None:
    file = save(
        tmp_path / "t.xlsx", ("Notes",), ("by hand",), labels=[("image", "cat"), ("a", 1), ("b", None)]
    )
    assert read_table(file).images == ("a", "b")


REFUSED: dict[str, tuple[tuple[tuple[Any, ...], ...], dict[str, Any], str]] = {
    "two tables": (
        (("image", "cat"), ("a", 1)),
        {"more": [("image", "dog"), ("a", 1)]},
        r"2 of them have a column 'image' \('Sheet', 'more'\); keep",
    ),
    "no table": ((("x", "y"),), {"more": [("z", "w")]}, r"2 of them have none \('Sheet', 'more'\)"),
    "nothing": ((), {}, "is empty"),
    "a header alone": ((("image", "cat"),), {}, "no row below its header"),
    "a word": ((("image", "cat"), ("a", 1), ("b", "so so")), {}, r"row 2 \(image 'b'\), column 'cat': 'so so'"),
    "two ways": ((("image", "cat"), ("a", 1), ("b", 0)), {}, "can be read in 2 ways"),
    "a nameless column": ((("image", "cat"), ("a", 1, 1)), {}, "row 2 of sheet 'Sheet' has the value '1' in column C"),
    "an error": ((("image", "cat"), ("a", "#REF!")), {}, r"row 2 of sheet 'Sheet', column B \('cat'\) holds the error"),
    "a date": ((("image", "cat"), (datetime.date(2020, 1, 2), 1)), {}, r"column A \('image'\) holds the date or time"),
    "a formula": ((("image", "cat"), ("a", 1), ("b", "=1-1")), {}, "row 3 of sheet 'Sheet', column B holds a formula"),
    "a long table": ((("image", "label", "value"), ("a", "cat", 1)), {}, "one column per class"),
    "a list": ((("image", "labels"), ("a", "cat,dog")), {}, "one column per class"),
    "the same twice": ((("image", "cat"), ("a", 1), ("a", None)), {}, "rows 1 and 2 are both about image 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(REFUSED))
def test_refused(case: str, tmp_path: Path) -> None:
    rows, others, sentence = REFUSED[case]
    file = save(tmp_path / "t.xlsx", *rows, **others)
    with pytest.raises(TableError, match=sentence) as caught:
        read_table(file)
    assert "t.xlsx" in str(caught.value)


def test_merged_cells_are_refused(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (("image", "cat"), ("a", 1), ("b", None)):
        book.active.append(row)
    book.active.merge_cells("B2:B3")
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(TableError, match="cell B2 of sheet 'Sheet' is merged with others"):
        read_table(tmp_path / "t.xlsx")


def changed(file: Path, part: str, change: Any) -> Path:
    with zipfile.ZipFile(file) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries[part] = change(entries[part])
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return file


SHEET = "xl/worksheets/sheet1.xml"


def test_a_formula_with_its_value_is_read(tmp_path: Path) -> None:
    file = save(tmp_path / "t.xlsx", ("image", "cat"), ("a", "=2-1"), ("b", None))
    changed(file, SHEET, lambda text: re.sub(rb"(<f>[^<]*</f>)<v ?/?>(</v>)?", rb"\1<v>1</v>", text))
    assert read_table(file).cells.tolist() == [[1], [0]]


def test_every_cut_is_refused(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.xlsx")
    whole = (tmp_path / "t.xlsx").read_bytes()
    for size in range(0, len(whole), 97):
        (tmp_path / "t.xlsx").write_bytes(whole[:size])
        with pytest.raises(TableError, match="is not a readable Excel file"):
            read_table(tmp_path / "t.xlsx")


@pytest.mark.parametrize(
    "part", [SHEET, "xl/workbook.xml", "xl/_rels/workbook.xml.rels", "[Content_Types].xml"]
)
def test_broken_parts_are_refused(part: str, tmp_path: Path) -> None:
    file = save(tmp_path / "t.xlsx", ("image", "cat"), ("a", 1), ("b", None))
    changed(file, part, lambda text: text[: len(text) // 2])
    with pytest.raises(TableError, match=r"t\.xlsx"):
        read_table(file)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save(tmp_path / "t.xlsx", ("image", "cat"), ("a", 1), ("b", None))
    changed(file, SHEET, lambda text: text + b" " * (8 << 20))
    assert file.stat().st_size < 100_000
    assert read_table(file).num_images == 2
    monkeypatch.setattr(excel, "MAX_UNPACKED", 4 << 20)
    with pytest.raises(TableError, match="unpacks to more than 4 MiB"):
        read_table(file)


@pytest.mark.parametrize("part", ["xl/theme/theme1.xml", "[Content_Types].xml", SHEET])
def test_a_part_that_claims_more_packed_bytes_than_the_file_has(part: str, tmp_path: Path) -> None:
    """zipfile would take two gigabytes of memory for the part, and then find the file at its end."""
    file = save(tmp_path / "t.xlsx", ("image", "cat"), ("a", 1), ("b", None))
    content = bytearray(file.read_bytes())
    name = content.rindex(part.encode())  # in the list of parts at the end of the file
    assert content[name - 46 : name - 42] == b"PK\x01\x02"
    content[name - 26 : name - 22] = (2**31 - 1).to_bytes(4, "little")
    file.write_bytes(content)
    with zipfile.ZipFile(file) as archive:
        assert archive.getinfo(part).compress_size == 2**31 - 1
    with pytest.raises(TableError, match="claims to be longer than the file"):
        read_table(file)


@pytest.mark.parametrize("number", [1 << 21, 10**12])
def test_a_row_beyond_the_sheet(number: int, tmp_path: Path) -> None:
    file = save(tmp_path / "t.xlsx", ("image", "cat"), ("a", 1), ("b", None))
    place = f'<row r="{number}"><c r="A{number}"><v>7</v></c></row></sheetData>'.encode()
    changed(file, SHEET, lambda text: text.replace(b"</sheetData>", place))
    with pytest.raises(TableError, match=r"t\.xlsx: has more than .* rows"):
        read_table(file)


def test_too_many_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save(tmp_path / "t.xlsx", ("image", "cat"), ("a", 1), ("b", None))
    monkeypatch.setattr(excel, "MAX_CELLS", 3)
    with pytest.raises(TableError, match="has more than 3 cells"):
        read_table(file)


@pytest.mark.parametrize("name", ["a\uffffb", "x" * 40_000, "#REF!"])
def test_names_that_a_sheet_cannot_hold(name: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="cannot hold the name"):
        write_table(LabelTable((name,), ("cat",), np.array([[1]])), tmp_path / "t.xlsx")
    assert list(tmp_path.iterdir()) == []
