"""Wide CSV: ``image[,split],<class>...``, comma separated (``.tsv``: by tabs), UTF-8; with ``.gz`` compressed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from satl.errors import TableError, first_line
from satl.files import file_ending
from satl.labels.encodings import Encoding, default_encoding, require_writable
from satl.labels.io.compressed import new_bytes, table_bytes, table_start
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.text_files import BOM, check_text, csv_field
from satl.labels.io.wide import (
    IMAGE_COLUMN,
    SPLIT_COLUMN,
    Coded,
    check_names,
    code_columns,
    decode_coded,
    other_separator,
    wide_header,
    without_ignored,
)
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, LabelTable

EXTENSIONS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_ROWS_AT_ONCE = 16_384


def delimiter_of(path: Path) -> str:
    """Return the character between columns."""
    return "\t" if file_ending(path).startswith(".tsv") else ","


def read_csv(path: Path, encoding: str | None, ignore: Sequence[str] = ()) -> TableFile:
    """Read a wide CSV file; the columns called ``ignore`` are left out."""
    return decode_coded(read_csv_codes(path, ignore), path, "csv", encoding)


def read_csv_codes(path: Path, ignore: Sequence[str] = (), *, ignorable: bool = True) -> Coded:
    """Read a wide CSV file up to the meaning of its values."""
    header, columns = csv_columns(path)
    kept = without_ignored(header, ignore, path)
    return code_columns([header[i] for i in kept], [columns[i] for i in kept], path, ignorable=ignorable)


def csv_columns(path: Path) -> tuple[list[str], list[Any]]:
    """Return the header of a CSV file and its columns as Arrow text, repeated words stored once."""
    import pyarrow as pa
    import pyarrow.csv

    data = table_bytes(path)
    if not data.removeprefix(BOM).strip():
        raise TableError(f"{path} is empty: write a header 'image,<class>,...' and one row per image.")
    check_text(data, path, "CSV")
    body_at, header = _read_header(data, path)
    mark = other_separator(header, delimiter_of(path))
    if mark is not None:
        raise _of_other_separator(path, mark)
    check_names(header, path)
    body = pa.py_buffer(data)[body_at:]
    if data.startswith(BOM, body_at):
        body = pa.py_buffer(BOM + data[body_at:])  # pyarrow takes the first mark for that of the file
    # Columns are called by position: the names were checked above and may be anything.
    names = [str(i) for i in range(len(header))]
    text, words = pa.string(), pa.dictionary(pa.int32(), pa.string())
    types = {
        name: text if i == 0 or header[i].strip().lower() in (IMAGE_COLUMN, SPLIT_COLUMN) else words
        for i, name in enumerate(names)
    }
    if not data[body_at : body_at + 4096].strip() and not data[body_at:].strip():
        raise TableError(f"{path} is empty: it has no row below its header; add one row per image.")
    try:
        arrow = pyarrow.csv.read_csv(
            pa.BufferReader(body),
            read_options=pyarrow.csv.ReadOptions(column_names=names),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter_of(path), newlines_in_values=b'"' in data
            ),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        _explain_ragged(data, len(header), path)
        raise TableError(f"{path} cannot be read as CSV ({first_line(error)}): check its quotes.") from None
    return header, arrow.columns


def csv_header(path: Path) -> list[str]:
    """Return the header of a file that may be CSV; empty where it is not."""
    start = table_start(path, 1 << 16)
    try:
        text = start.removeprefix(BOM).decode("utf-8", errors="ignore")
        rows = csv.reader(io.StringIO(text, newline=None), delimiter=delimiter_of(path))
        return next((row for row in rows if row), [])
    except csv.Error:
        return []


def write_csv(table: LabelTable, path: Path, encoding: Encoding | None) -> None:
    """Write a wide CSV file; without an encoding, in the one that reads back without an option."""
    chosen = encoding or default_encoding(table.cells)
    require_writable(table.cells, chosen)
    delimiter = delimiter_of(path)
    # Not pyarrow.csv, which puts every text in quotes, the header too, and takes 1.3 times as long (0.14 s against
    # 0.10 s for 80,000 images and 80 classes). Every cell takes a field of the same width, filled up with NUL bytes
    # that are dropped from each row.
    fields = {state: (delimiter + text).encode() for state, text in chosen.writes.items()}
    width = max(map(len, fields.values()))
    lookup = np.zeros((3, width), dtype=np.uint8)
    for state in (PRESENT, ABSENT, UNKNOWN):
        field = fields.get(state, b"")
        lookup[state + 1, : len(field)] = np.frombuffer(field, dtype=np.uint8)
    with new_bytes(path) as stream:
        header = wide_header(table)
        stream.write(delimiter.join(csv_field(name, delimiter) for name in header).encode() + b"\n")
        for start in range(0, table.num_images, _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            cells = lookup[table.cells[block] + 1].reshape(-1, table.num_classes * width)
            splits = None if table.split is None else table.split[block].tolist()
            lines = []
            for row, image in enumerate(table.images[block]):
                prefix = csv_field(image, delimiter)
                if splits is not None:
                    prefix += delimiter + csv_field(splits[row], delimiter)
                lines.append(prefix.encode() + cells[row].tobytes().translate(None, b"\0"))
            stream.write(b"\n".join(lines) + b"\n")


def _read_header(data: bytes, path: Path) -> tuple[int, list[str]]:
    """Return where the rows begin, in bytes, and the names of the columns."""
    start = len(BOM) if data.startswith(BOM) else 0
    stream = io.BytesIO(data)
    stream.seek(start)
    used = start

    def lines() -> Iterator[str]:
        nonlocal used
        for line in io.TextIOWrapper(stream, encoding="utf-8", newline=""):
            used += len(line.encode())
            yield line

    try:
        reader = csv.reader(lines(), delimiter=delimiter_of(path), strict=True)
        header = next(row for row in reader if row)
    except csv.Error as error:
        raise TableError(f"{path}: its header cannot be read as CSV ({error}): check its quotes.") from None
    return used, header


def _of_other_separator(path: Path, mark: str) -> TableError:
    """Return the error for a file with other marks between its columns; what it says must work in a spreadsheet."""
    names = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "'|'"}
    right = {",": ".csv", "\t": ".tsv"}.get(mark)
    if right is not None:
        remedy = f"give it the extension {right}"
    elif delimiter_of(path) == "," and mark == ";":  # Excel, where numbers are written with a comma
        remedy = (
            "save it as .xlsx, or as CSV with commas between its columns and quotes around what holds one"
        )
    else:
        remedy = f"save it with {names[delimiter_of(path)]} between its columns"
    return TableError(
        f"{path}: its columns are separated by {names[mark]}, not by {names[delimiter_of(path)]}: {remedy}."
    )


def _explain_ragged(data: bytes, columns: int, path: Path) -> None:
    """Find the row with too many or too few columns; slow and exact, for a file known to be wrong."""
    text = data.removeprefix(BOM).decode("utf-8")
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(path)) if row]
    except csv.Error:
        return
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != columns:
            if number == len(rows) - 1 and len(row) < columns and not text.endswith(("\n", "\r")):
                raise TableError(
                    f"{path}: its last row, {number} (image {row[0]!r}), has {len(row)} of {columns} columns and no "
                    f"line end: the file was copied or downloaded only in part, so download it again."
                )
            raise TableError(
                f"{path}: row {number} (image {row[0]!r}) has {len(row)} columns, "
                f"but the header has {columns}: add or remove a "
                f"{'comma' if delimiter_of(path) == ',' else 'tab'}, or quote a value that contains one."
            )


register_format(Format("csv", EXTENSIONS, read_csv, write_csv, ignores_columns=True))
