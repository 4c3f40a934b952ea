"""Scores in text and Parquet files, in blocks of rows; only the columns that are wanted are converted."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from satl.errors import TableError
from satl.labels.io.wide import check_header, check_names

Blocks = tuple[list[str], Iterator[tuple[Sequence[str], npt.NDArray[np.float32]]]]
"""Class names, and image ids with scores (n, classes) at a time."""

_LONG_SCORES = ("score", "probability")
_ROWS_AT_ONCE = 16_384
_CSV_BLOCK = 8 << 20
_PARQUET_BUFFER = 1 << 16


def csv_blocks(path: Path, classes: Sequence[str]) -> Blocks:
    """Read a wide CSV of scores, or a long one with columns ``image``, ``label`` and ``score``."""
    text = _read_header(path)
    lowered = [name.strip().lower() for name in text.header]
    value = next((name for name in _LONG_SCORES if name in lowered), None)
    if value is not None and {"image", "label"} <= set(lowered) and value not in classes:
        places = tuple(lowered.index(name) for name in ("image", "label", value))
        return _long(text, classes, places)
    image_at, wanted, names = _wanted(text.header, classes, path)

    def blocks() -> Iterator[tuple[Sequence[str], npt.NDArray[np.float32]]]:
        import pyarrow as pa

        try:
            with _open_csv(text, {image_at: pa.string()}, wanted) as reader:
                for batch in reader:
                    yield _texts(batch.column(0), path), _matrix(batch.columns[1:])
        except pa.ArrowInvalid as error:
            raise _explained(text, wanted, error) from None

    return names, blocks()


def parquet_blocks(path: Path, classes: Sequence[str]) -> Blocks:
    """Read a wide Parquet file of scores."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        # Pages are read as they are needed: a row group may hold the whole table.
        file = pyarrow.parquet.ParquetFile(path, buffer_size=_PARQUET_BUFFER, pre_buffer=False)
    except (pa.ArrowInvalid, pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")[:160]
        raise TableError(f"{path} is not a readable Parquet file ({reason}): save it again.") from None
    header = list(file.schema_arrow.names)
    image_at, wanted, names = _wanted(header, classes, path)
    for position in wanted:
        kind = file.schema_arrow.field(position).type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise TableError(
                f"{path}: column {header[position]!r} holds {kind}, not scores: store numbers there."
            )

    def blocks() -> Iterator[tuple[Sequence[str], npt.NDArray[np.float32]]]:
        columns = [header[image_at], *(header[position] for position in wanted)]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            ordered = batch.select(columns)
            yield _texts(ordered.column(0), path), _matrix(ordered.columns[1:])
        file.close()
        pa.default_memory_pool().release_unused()

    return names, blocks()


def folder_blocks(folder: Path, classes: Sequence[str]) -> Blocks:
    """Read the folder of Parquet files that ``satl predict`` writes; all of them have the same columns."""
    from satl.scores.prediction_folder import PRESENT, part_files

    first, *others = part_files(folder)
    names, blocks = parquet_blocks(first, classes)

    def all_blocks() -> Iterator[tuple[Sequence[str], npt.NDArray[np.float32]]]:
        yield from blocks
        for file in others:
            yield from parquet_blocks(file, classes)[1]

    return [name for name in names if name != PRESENT], all_blocks()


def _wanted(header: Sequence[str], classes: Sequence[str], path: Path) -> tuple[int, list[int], list[str]]:
    """Return where the image is, which columns to convert, and the names of all columns that may be classes.

    Columns to convert come first in the names, so that positions agree; a column that is no class of the table
    may hold anything.
    """
    check_names(header, path)
    image_at, split_at = check_header(header, path)
    known = set(classes)
    wanted, others = [], []
    for position, name in enumerate(header):
        if position == image_at:
            continue
        if name.strip() in known:
            wanted.append(position)
        elif position != split_at and not name.startswith("__index_level_"):
            others.append(name.strip())
    return image_at, wanted, [*(header[position].strip() for position in wanted), *others]


def _matrix(columns: Sequence[Any]) -> npt.NDArray[np.float32]:
    """Arrow columns as (n, classes); a gap is NaN."""
    if not columns:
        return np.empty((0, 0), dtype=np.float32)
    result = np.empty((len(columns), len(columns[0])), dtype=np.float32)
    for place, column in enumerate(columns):
        result[place] = column.to_numpy(zero_copy_only=False)
    return result.T


def _texts(column: Any, path: Path) -> list[str]:
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise TableError(f"{path}: the column of images must hold text, not {kind}.")
    return ["" if value is None else str(value).strip() for value in column.to_pylist()]


class _Text(NamedTuple):
    """A CSV file: where it is, what separates its columns, their names, and the lines these take."""

    path: Path
    delimiter: str
    header: list[str]
    lines: int


def _read_header(path: Path) -> _Text:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, delimiter=delimiter, strict=True)
            header = next((row for row in rows if row), [])
            lines = rows.line_num
            empty = next((row for row in rows if row), None) is None
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise TableError(f"{path} cannot be read as UTF-8 CSV ({error}): save it again.") from None
    if empty:
        raise TableError(f"{path} is empty: write a header 'image,<class>,...' and one row per image.")
    return _Text(path, delimiter, header, lines)


def _open_csv(text: _Text, texts: dict[int, Any], numbers: Sequence[int]) -> Any:
    """Return a reader of batches with the columns ``texts`` (position -> type), then ``numbers``."""
    import pyarrow as pa
    import pyarrow.csv

    types = {str(position): kind for position, kind in texts.items()}
    types |= {str(position): pa.float32() for position in numbers}
    return pyarrow.csv.open_csv(
        text.path,
        # Columns are called by position: their names were checked and may be anything.
        read_options=pyarrow.csv.ReadOptions(
            column_names=[str(position) for position in range(len(text.header))],
            skip_rows=text.lines,
            block_size=_CSV_BLOCK,
            use_threads=False,
        ),
        parse_options=pyarrow.csv.ParseOptions(delimiter=text.delimiter),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(types)),
    )


def _long(text: _Text, classes: Sequence[str], places: tuple[int, ...]) -> Blocks:
    """Turn a long file, one row per image and class, into one block of whole images."""
    import pyarrow as pa

    words = pa.dictionary(pa.int32(), pa.string())
    images: dict[str, int] = {}
    labels: dict[str, int] = {}
    parts: list[tuple[Any, ...]] = []
    image_at, label_at, value_at = places
    try:
        with _open_csv(text, {image_at: words, label_at: words}, [value_at]) as reader:
            for batch in reader:
                values = batch.column(2).to_numpy(zero_copy_only=False)
                parts.append((_numbers(batch.column(0), images), _numbers(batch.column(1), labels), values))
    except pa.ArrowInvalid as error:
        raise _explained(text, [value_at], error) from None
    row, label, score = (np.concatenate(part) for part in zip(*parts, strict=True))
    place = row * len(labels) + label
    order = np.argsort(place, kind="stable")
    twice = np.flatnonzero(np.diff(place[order]) == 0)
    if len(twice):
        first = int(order[twice[0]])
        raise TableError(
            f"{text.path}: image {list(images)[row[first]]!r} has two scores for {list(labels)[label[first]]!r}: "
            "remove one of them."
        )
    matrix = np.full((len(images), len(labels)), np.nan, dtype=np.float32)
    matrix[row, label] = score
    known = set(classes)
    wanted = [position for name, position in labels.items() if name in known]
    names = [name for name in labels if name in known]
    others = [name for name in labels if name not in known]
    return [*names, *others], iter([(list(images), matrix[:, wanted])])


def _numbers(column: Any, numbered: dict[str, int]) -> npt.NDArray[np.int64]:
    names = [str(name).strip() for name in column.dictionary.to_pylist()]
    lookup = np.array([numbered.setdefault(name, len(numbered)) for name in names], dtype=np.int64)
    return lookup[column.indices.to_numpy(zero_copy_only=False)]


def _explained(text: _Text, wanted: Sequence[int], error: Exception) -> TableError:
    """Find what is wrong with a CSV file; slow and exact, for a file known to be wrong."""
    path, delimiter, header, _ = text
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = (row for row in csv.reader(stream, delimiter=delimiter) if row)
            next(rows, None)
            for number, row in enumerate(rows, start=1):
                if len(row) != len(header):
                    return TableError(
                        f"{path}: row {number} (image {row[0]!r}) has {len(row)} columns, but the header has "
                        f"{len(header)}: add or remove a {'comma' if delimiter == ',' else 'tab'}."
                    )
                for position in wanted:
                    if not _is_number(row[position]):
                        return TableError(
                            f"{path}: row {number} (image {row[0]!r}), column {header[position]!r}: "
                            f"{row[position]!r} is no score: write a number or nothing."
                        )
    except (csv.Error, UnicodeDecodeError):
        pass
    reason = str(error).splitlines()[0].rstrip(".")[:200]
    return TableError(f"{path} cannot be read as CSV ({reason}): check its quotes.")


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return text.strip().lower() in ("na", "n/a", "null", "#n/a", "<na>")
    return True
