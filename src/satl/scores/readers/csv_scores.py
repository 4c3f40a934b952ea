"""Text: ``.csv`` and ``.tsv``, wide or long, read in blocks of rows; only the columns that are wanted are converted."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from satl.errors import TableError, first_line
from satl.labels.io.wide_csv import delimiter_of
from satl.scores.arrow_columns import open_columns
from satl.scores.score_reader import ScoreFile, ScoreReader, has_extension, register_reader

_BYTES_AT_ONCE = 8 << 20


class _Text(NamedTuple):
    """A CSV file: where it is, what separates its columns, their names, and the lines these take."""

    path: Path
    delimiter: str
    header: list[str]
    lines: int


@contextmanager
def open_csv(path: Path, classes: Sequence[str] | None) -> Iterator[ScoreFile]:
    """Open a CSV file of scores."""
    text = _read_header(path)

    def read(texts: Sequence[int], numbers: Sequence[int]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.csv

        # Ids stay as they are written: 0012 is not 12. In a long file each is there once for every class.
        kind = pa.string() if len(texts) == 1 else pa.dictionary(pa.int32(), pa.string())
        types = dict.fromkeys(map(str, texts), kind) | dict.fromkeys(map(str, numbers), pa.float32())
        try:
            with pyarrow.csv.open_csv(
                path,
                # Columns are called by position: their names were checked and may be anything.
                read_options=pyarrow.csv.ReadOptions(
                    column_names=[str(position) for position in range(len(text.header))],
                    skip_rows=text.lines,
                    block_size=_BYTES_AT_ONCE,
                    use_threads=False,
                ),
                parse_options=pyarrow.csv.ParseOptions(delimiter=text.delimiter),
                convert_options=pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(types)),
            ) as batches:
                yield from batches
        except pa.ArrowInvalid as error:
            raise _explained(text, numbers, error) from None

    yield open_columns(path, text.header, read, classes)


def _read_header(path: Path) -> _Text:
    delimiter = delimiter_of(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, delimiter=delimiter, strict=True)
            header = next((row for row in rows if row), [])
            lines = rows.line_num
            empty = next((row for row in rows if row), None) is None
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise TableError(
            f"cannot be read as UTF-8 CSV ({error})", where=path, remedy="save it again"
        ) from None
    if empty:
        what = "it has no row below its header" if header else "it has no header"
        raise TableError(
            f"is empty: {what}",
            where=path,
            remedy="write a header 'image,<class>,...' and one row per image",
        )
    return _Text(path, delimiter, header, lines)


def _explained(text: _Text, numbers: Sequence[int], error: Exception) -> TableError:
    """Find what is wrong with a CSV file; slow and exact, for a file known to be wrong."""
    path, delimiter, header, _ = text
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = (row for row in csv.reader(stream, delimiter=delimiter) if row)
            next(rows, None)
            for number, row in enumerate(rows, start=1):
                where = f"{path}: row {number} (image {row[0]!r})"
                if len(row) != len(header):
                    return TableError(
                        f"has {len(row)} columns, but the header has {len(header)}",
                        where=where,
                        remedy=f"add or remove a {'comma' if delimiter == ',' else 'tab'}",
                    )
                for position in numbers:
                    if not _is_number(row[position]):
                        return TableError(
                            f"{row[position]!r} is not a number",
                            where=f"{where}, column {header[position]!r}",
                            remedy="write a score or nothing, or remove the column if it is not a class",
                        )
    except (csv.Error, UnicodeDecodeError):
        pass
    return TableError(f"cannot be read as CSV ({first_line(error)})", where=path, remedy="check its quotes")


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return text.strip().lower() in ("na", "n/a", "null", "#n/a", "<na>")
    return True


register_reader(ScoreReader(".csv", has_extension(".csv"), open_csv))
register_reader(ScoreReader(".tsv", has_extension(".tsv"), open_csv))
