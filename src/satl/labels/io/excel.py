"""Wide tables in the sheet of an Excel file (``.xlsx``); needs openpyxl."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from satl.errors import TableError, first_line
from satl.labels.encodings import Encoding, default_encoding, require_writable
from satl.labels.io.compressed import most_bytes, too_large
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.wide import (
    LIST_COLUMNS,
    LONG_COLUMNS,
    check_header,
    code_columns,
    decode_coded,
    other_columns,
    wide_header,
    without_ignored,
)
from satl.labels.table import LabelTable

MAX_ROWS, MAX_COLUMNS, LONGEST_TEXT = 1 << 20, 1 << 14, (1 << 15) - 1
"""What a sheet of Excel can hold."""
MAX_UNPACKED = 1 << 30
"""Bytes of an unpacked file that are read at most."""
MAX_CELLS = 1 << 26
"""Cells that are read at most: a sheet of a few kilobytes can speak of seventeen thousand million."""
HEADER_WITHIN = 100
"""Rows in which the header must be."""
_ANOTHER = "save the table as .csv or .parquet"
_BLOCK = 1 << 20
_OVERLAP = 4096
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?\bref=["\']([A-Z]{1,3}[0-9]{1,7})')
_FORMULA = re.compile(rb"<(?:\w+:)?f[\s/>]")
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ERRORS = ("#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A")


def read_excel(path: Path, encoding: str | None, ignore: Sequence[str] = ()) -> TableFile:
    """Read a wide table from an Excel file: its only sheet, or the only one that holds a table."""
    import pyarrow as pa

    header, rows = _read_sheet(path)
    kept = without_ignored(header, ignore, path)
    names = [header[i] for i in kept]
    check_header(names, path)
    others = other_columns(names)
    if others is not None and (
        others == set(LONG_COLUMNS) or (len(others) == 1 and others <= set(LIST_COLUMNS))
    ):
        raise TableError(
            "an Excel file holds one column per class, not a list", where=path, remedy="save it as .csv"
        )
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in kept]
    return decode_coded(code_columns(names, columns, path), path, "excel", encoding)


def write_excel(table: LabelTable, path: Path, encoding: Encoding | None) -> None:
    """Write a wide table as the only sheet of an Excel file; names are text there, never formulas."""
    openpyxl = _openpyxl(None)
    from openpyxl.cell import WriteOnlyCell

    chosen = encoding or default_encoding(table.cells)
    require_writable(table.cells, chosen)
    header = wide_header(table)
    if table.num_images + 1 > MAX_ROWS or len(header) > MAX_COLUMNS:
        raise TableError(
            f"a sheet of Excel holds {MAX_ROWS:,} rows and {MAX_COLUMNS:,} columns, and the table has more: {_ANOTHER}."
        )
    splits = None if table.split is None else table.split.tolist()
    for name in (*header, *table.images, *(splits or ())):
        if _NOT_XML.search(name) or len(name) > LONGEST_TEXT or name in _ERRORS:
            raise TableError(f"an Excel file cannot hold the name {name[:60]!r}: rename it, or {_ANOTHER}.")
    values = {
        state: text if chosen.name == "words" else int(text) if text else None
        for state, text in chosen.writes.items()
    }
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("labels")

    def named(text: str) -> Any:
        cell = WriteOnlyCell(sheet, value=text)
        cell.data_type = "s"  # also where it begins like a formula or looks like an error
        return cell

    sheet.append([named(name) for name in header])
    for row, image in enumerate(table.images):
        start = [named(image), *([named(splits[row])] if splits is not None else [])]
        sheet.append([*start, *(values[state] for state in table.cells[row].tolist())])
    book.save(path)


def _openpyxl(path: Path | None) -> Any:
    try:
        import openpyxl
    except ImportError:
        raise TableError(
            "Excel files need the package openpyxl",
            where=path,
            remedy="run `pip install 'satl[excel]'`, or save the table as .csv",
        ) from None
    return openpyxl


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn what openpyxl raises about a damaged file into one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and extensions that it passes over
            yield
    except (TableError, PermissionError):
        raise
    except Exception as error:
        # Damage takes any form: zip, XML, missing parts, numbers out of range.
        raise TableError(
            f"is not a readable Excel file ({first_line(error) or type(error).__name__})",
            where=path,
            remedy="open it in a spreadsheet and save it again, or save it as .csv",
        ) from None


def _read_sheet(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows below it as text, without blank rows."""
    openpyxl = _openpyxl(path)
    with _damage(path):
        _check_size(path)
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            sheet, header, at = _choose(book, path)
            merged, formulas = _scan(path, sheet)
            if merged is not None:
                raise TableError(
                    f"cell {merged} of sheet {sheet.title!r} is merged with others, so it is not clear which cells its "
                    "value is about",
                    where=path,
                    remedy="take the merged cells apart and fill in each",
                )
            if formulas:
                _check_formulas(openpyxl, path, sheet, len(header))
            rows = _rows(sheet, header, at, path)
        finally:
            book.close()
    if not rows:
        raise TableError(f"{path} is empty: it has no row below its header; add one row per image.")
    return header, rows


def _check_size(path: Path) -> None:
    most = min(MAX_UNPACKED, most_bytes())
    with zipfile.ZipFile(path) as archive:
        # A part never unpacks to more than it says here: what is beyond is not read.
        if sum(part.file_size for part in archive.infolist()) > most:
            raise too_large(path, most)
        # Memory is taken for as many packed bytes as a part claims, before they are read.
        size = path.stat().st_size
        for part in archive.infolist():
            if part.compress_size > size:
                raise zipfile.BadZipFile(f"{part.filename} claims to be longer than the file")


def _choose(book: Any, path: Path) -> tuple[Any, list[str], int]:
    """Return the sheet that holds the table, its header, and the number of the header's row."""
    found = []
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # the file may state wrong ones
        header, at = _header(sheet)
        if header:
            found.append((sheet, header, at))
    if not found:
        raise TableError(f"{path} is empty: write a header 'image,<class>,...' and one row per image.")
    tables = [entry for entry in found if other_columns(entry[1])] if len(found) > 1 else found
    if len(tables) != 1:
        titles = ", ".join(repr(sheet.title) for sheet, _, _ in (tables or found)[:8])
        what = "have a column 'image'" if tables else "have none"
        raise TableError(
            f"has several sheets, and {len(tables or found)} of them {what} ({titles})",
            where=path,
            remedy="keep the sheet with the table alone in the file",
        )
    return tables[0]


def _header(sheet: Any) -> tuple[list[str], int]:
    """Return the first row that is not blank, and its number; nothing for an empty sheet."""
    for number, row in enumerate(sheet.iter_rows(max_row=HEADER_WITHIN, values_only=True), start=1):
        names = ["" if value is None else _text(value).strip() for value in row]
        while names and not names[-1]:
            names.pop()
        if names:
            return names, number
    return [], 0


def _rows(sheet: Any, header: Sequence[str], header_at: int, path: Path) -> list[list[str]]:
    rows: list[list[str]] = []
    width = len(header)
    # One column more than the header has, to see values that belong to no class.
    cells = sheet.iter_rows(min_row=header_at + 1, max_row=MAX_ROWS + 1, max_col=width + 1, values_only=True)
    for number, values in enumerate(cells, start=header_at + 1):
        blank = all(value is None for value in values)
        filled = (len(rows) + 1) * width
        if number > MAX_ROWS or filled > MAX_CELLS or number * width > 4 * MAX_CELLS:
            raise TableError(
                f"has more than {MAX_CELLS:,} cells or {MAX_ROWS:,} rows", where=path, remedy=_ANOTHER
            )
        if blank:
            continue
        if len(values) > width and values[width] is not None:
            raise TableError(
                f"row {number} of sheet {sheet.title!r} has the value {str(values[width])[:60]!r} in column "
                f"{_letters(width + 1)}, which has no name",
                where=path,
                remedy="name the column or clear the cell",
            )
        for at, value in enumerate(values[:width]):
            if value in _ERRORS or not isinstance(value, str | int | float | None):
                place = f"row {number} of sheet {sheet.title!r}, column {_letters(at + 1)} ({header[at]!r})"
                what = f"holds the error {value}" if value in _ERRORS else f"holds the date or time {value}"
                raise TableError(f"{place} {what}", where=path, remedy="correct or clear the cell")
        row = ["" if value is None else _text(value) for value in values[:width]]
        rows.append(row + [""] * (width - len(row)))
    return rows


def _text(value: Any) -> str:
    """Return a cell as text: a whole number without a fraction, so that an id stays what the sheet shows."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def _scan(path: Path, sheet: Any) -> tuple[str | None, bool]:
    """Return the first cell of a sheet that is merged with others, or None, and whether there are formulas.

    A sheet that is read row by row does not tell, so that its text is searched.
    """
    formulas, end = False, b""
    with zipfile.ZipFile(path) as archive, archive.open(sheet._worksheet_path.removeprefix("/")) as stream:
        while block := stream.read(_BLOCK):
            text = end + block
            found = _MERGED.search(text)
            if found:
                return found[1].decode(), formulas
            formulas = formulas or _FORMULA.search(text) is not None
            end = text[-_OVERLAP:]
    return None, formulas


def _check_formulas(openpyxl: Any, path: Path, sheet: Any, width: int) -> None:
    """Refuse a formula whose value the file lacks: it would read as a blank."""
    book = openpyxl.load_workbook(path, read_only=True, data_only=False, keep_links=False)
    try:
        written = book[sheet.title]
        written.reset_dimensions()
        limits = {"max_row": MAX_ROWS, "max_col": width}
        for shown, row in zip(sheet.iter_rows(**limits), written.iter_rows(**limits), strict=False):
            for value, cell in zip(shown, row, strict=False):
                if cell.data_type == "f" and value.value is None:
                    raise TableError(
                        f"row {cell.row} of sheet {sheet.title!r}, column {_letters(cell.column)} holds a formula "
                        "without a value",
                        where=path,
                        remedy="open the file in a spreadsheet and save it again, or replace the formula by its value",
                    )
    finally:
        book.close()


def _letters(column: int) -> str:
    from openpyxl.utils import get_column_letter

    return str(get_column_letter(column))


register_format(Format("excel", (".xlsx",), read_excel, write_excel, ignores_columns=True))
