"""Wide CSV: ``image[,split],<class>...``, comma separated (``.tsv``: by tabs), UTF-8."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from satl.errors import TableError
from satl.labels.encodings import Encoding, default_encoding, require_writable
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.wide import check_header, code_columns, decode_coded, wide_header
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, LabelTable

_BOM = b"\xef\xbb\xbf"
_ROWS_AT_ONCE = 16_384
_OTHER_KINDS = {b"PAR1": "a Parquet file", b"PK\x03\x04": "a zip or Excel file", b"\x1f\x8b": "a gzip file"}


def delimiter_of(path: Path) -> str:
    """Return the character between columns."""
    return "\t" if path.suffix.lower() == ".tsv" else ","


def read_csv(path: Path, encoding: str | None) -> TableFile:
    """Read a wide CSV file."""
    import pyarrow as pa
    import pyarrow.csv

    data = path.read_bytes()
    _check_text(data, path)
    body_at, header = _read_header(data, path)
    check_header(header, path)
    body = pa.py_buffer(data)[body_at:]
    # Columns are called by position: the names were checked above and may be anything.
    names = [str(i) for i in range(len(header))]
    image_type, cell_type = pa.string(), pa.dictionary(pa.int32(), pa.string())
    types = {
        name: image_type if header[i].strip().lower() in ("image", "split") or i == 0 else cell_type
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
        raise TableError(f"{path} cannot be read as CSV ({_one_line(error)}): check its quotes.") from None
    coded = code_columns(header, arrow.columns, path)
    return decode_coded(coded, path, "csv", encoding)


def write_csv(table: LabelTable, path: Path, encoding: Encoding | None) -> None:
    """Write a wide CSV file; without an encoding, in the one that reads back without an option."""
    chosen = encoding or default_encoding(table.cells)
    require_writable(table.cells, chosen)
    delimiter = delimiter_of(path)
    # Every cell takes a field of the same width, filled up with NUL bytes that are dropped from each row.
    fields = {state: (delimiter + text).encode() for state, text in chosen.writes.items()}
    width = max(map(len, fields.values()))
    lookup = np.zeros((3, width), dtype=np.uint8)
    for state in (PRESENT, ABSENT, UNKNOWN):
        field = fields.get(state, b"")
        lookup[state + 1, : len(field)] = np.frombuffer(field, dtype=np.uint8)
    with path.open("wb") as stream:
        header = wide_header(table)
        stream.write(delimiter.join(_quoted(name, delimiter) for name in header).encode() + b"\n")
        for start in range(0, table.num_images, _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            cells = lookup[table.cells[block] + 1].reshape(-1, table.num_classes * width)
            splits = None if table.split is None else table.split[block].tolist()
            lines = []
            for row, image in enumerate(table.images[block]):
                prefix = _quoted(image, delimiter)
                if splits is not None:
                    prefix += delimiter + _quoted(splits[row], delimiter)
                lines.append(prefix.encode() + cells[row].tobytes().translate(None, b"\0"))
            stream.write(b"\n".join(lines) + b"\n")


def _quoted(text: str, delimiter: str) -> str:
    if '"' in text or delimiter in text:
        return '"' + text.replace('"', '""') + '"'
    return text


def _check_text(data: bytes, path: Path) -> None:
    """Refuse what is no UTF-8 text, saying what it is where that can be told."""
    if not data.removeprefix(_BOM).strip():
        raise TableError(f"{path} is empty: write a header 'image,<class>,...' and one row per image.")
    for magic, kind in _OTHER_KINDS.items():
        if data.startswith(magic):
            raise TableError(f"{path} is {kind}, not CSV: give it its right extension or save it as CSV.")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TableError(f"{path} is UTF-16 text: save it as UTF-8.")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError(
            f"{path}: line {line} is not UTF-8 text (byte 0x{data[error.start]:02x}): save the file as UTF-8."
        ) from None


def _read_header(data: bytes, path: Path) -> tuple[int, list[str]]:
    """Return where the rows begin, in bytes, and the names of the columns."""
    start = len(_BOM) if data.startswith(_BOM) else 0
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


def _explain_ragged(data: bytes, columns: int, path: Path) -> None:
    """Find the row with too many or too few columns; slow and exact, for a file known to be wrong."""
    text = data.removeprefix(_BOM).decode("utf-8")
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(path)) if row]
    except csv.Error:
        return
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != columns:
            raise TableError(
                f"{path}: row {number} (image {row[0]!r}) has {len(row)} columns, "
                f"but the header has {columns}: add or remove a "
                f"{'comma' if delimiter_of(path) == ',' else 'tab'}, or quote a value that contains one."
            )


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")[:200]


register_format(Format("csv", (".csv", ".tsv"), read_csv, write_csv))
