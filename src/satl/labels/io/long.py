"""Long tables: one row per image and class, ``image,label,value[,split]``, as CSV, Parquet or Arrow.

A pair of image and class without a row is unknown. Images and classes come in the order in which they
first appear. Files of OpenImages (``ImageID,Source,LabelName,Confidence``) are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError
from satl.files import file_ending
from satl.labels.encodings import (
    ENCODINGS,
    NOT_A_LABEL,
    VALUES,
    Encoding,
    default_encoding,
    detect_encoding,
    find_encoding,
    only_values,
    require_writable,
    value_code,
    value_counts,
)
from satl.labels.io.arrow_files import (
    ARROW_ENDINGS,
    ENCODING_KEY,
    arrow_columns,
    arrow_errors,
    arrow_header,
    arrow_kind,
    write_arrow,
)
from satl.labels.io.compressed import new_text
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.text_files import csv_field
from satl.labels.io.wide import (
    IMAGE_COLUMN,
    LONG_COLUMNS,
    SPLIT_COLUMN,
    Coded,
    column_codes,
    decode_coded,
    not_a_label,
    other_columns,
)
from satl.labels.io.wide_csv import EXTENSIONS, csv_columns, csv_header, delimiter_of
from satl.labels.table import UNKNOWN, LabelTable

OPENIMAGES_HEADER = ("imageid", "source", "labelname", "confidence")
_BLANK = value_code("")
_MISSING = len(VALUES)
MAX_CELLS = 8 << 30
"""More cells than this are refused: they would not fit into the memory of an ordinary machine."""


@dataclass(frozen=True)
class LongRows:
    """R rows about N images and C classes.

    Attributes:
        image, label: int64 (R,), positions in ``images`` and ``classes``. codes: uint8 (R,), positions in ``VALUES``.
    """

    images: list[str]
    classes: list[str]
    image: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    codes: npt.NDArray[np.uint8]
    split: list[str] | None = None


def read_long(path: Path, encoding: str | None) -> TableFile:
    """Read a long table; without an encoding its values must leave one reading, as in a wide table."""
    with arrow_errors(path, arrow_kind(path)):
        rows, stated = read_rows(path)
    if encoding is None and only_values(rows.classes):
        raise TableError(
            f"{path}: its column 'label' holds {', '.join(map(repr, rows.classes))}, so it may be a wide table with "
            f"classes called 'label' and 'value': rename these columns."
        )
    codes = to_cells(rows, path)
    missing = codes == _MISSING
    # For the choice of the encoding a pair without a row is the same as a blank: neither is known.
    codes[missing] = _BLANK
    counts = value_counts(codes)
    named = encoding or stated
    chosen = detect_encoding(counts, str(path)) if named is None else find_encoding(named)
    codes[missing] = value_code(chosen.writes.get(UNKNOWN, ""))
    coded = Coded(tuple(rows.images), tuple(rows.classes), codes, rows.split)
    opened = decode_coded(coded, path, "long", encoding or (chosen.name if stated is None else None), stated)
    return replace(opened, detected=named is None, counts=counts)


def read_rows(path: Path) -> tuple[LongRows, str | None]:
    """Return the rows of a long table and the encoding that it states, or None."""
    if file_ending(path) in ARROW_ENDINGS:
        header, columns, stated = arrow_columns(path)
    else:
        (header, columns), stated = csv_columns(path), None
    lowered = [name.strip().lower() for name in header]
    if set(lowered) == set(OPENIMAGES_HEADER):
        image_at, label_at, value_at = (lowered.index(n) for n in ("imageid", "labelname", "confidence"))
        split_at = None
    else:
        image_at = lowered.index(IMAGE_COLUMN) if IMAGE_COLUMN in lowered else 0
        label_at, value_at = (lowered.index(name) for name in LONG_COLUMNS)
        split_at = lowered.index(SPLIT_COLUMN) if SPLIT_COLUMN in lowered else None
    if len(columns[image_at]) == 0:
        raise TableError(f"{path} is empty: it has no row; add one row per image and class.")
    images, image = _numbered(columns[image_at], path, header[image_at])
    classes, label = _numbered(columns[label_at], path, header[label_at])
    codes = _value_codes(columns[value_at], path, header[value_at])
    wrong = codes == NOT_A_LABEL
    if wrong.any():
        row = int(np.argmax(wrong))
        value = columns[value_at][row].as_py()
        remedy = ", or remove the row"
        raise not_a_label(path, row, images[image[row]], header[value_at].strip(), value, remedy)
    split = None
    if split_at is not None:
        split = _image_splits(columns[split_at], image, images, path, header[split_at])
    return LongRows(images, classes, image, label, codes, split), stated


def to_cells(rows: LongRows, path: Path, *, conflicts: str = "error") -> npt.NDArray[np.uint8]:
    """Return the codes as uint8 (N, C), with the code ``len(VALUES)`` where there is no row.

    Args:
        conflicts: two rows that say different things about one pair are an ``"error"``, or count as no row
            (``"unknown"``).
    """
    shape = len(rows.images), len(rows.classes)
    if shape[0] * shape[1] > MAX_CELLS:
        raise TableError(
            f"{path}: {shape[0]:,} images x {shape[1]:,} classes are too many cells for memory: "
            f"choose fewer classes or images."
        )
    cells = np.full(shape[0] * shape[1], _MISSING, dtype=np.uint8)
    place = rows.image * shape[1] + rows.label
    cells[place] = rows.codes
    differs = cells[place] != rows.codes
    if differs.any():
        if conflicts == "error":
            row = int(np.argmax(differs))
            other = int(np.flatnonzero((place == place[row]) & (rows.codes != rows.codes[row]))[0])
            raise TableError(
                f"{path}: rows {row + 1} and {other + 1} say different things about image "
                f"{rows.images[rows.image[row]]!r} and class {rows.classes[rows.label[row]]!r}: remove one."
            )
        cells[place[differs]] = _MISSING
    return cells.reshape(shape)


def write_long(table: LabelTable, path: Path, encoding: Encoding | None) -> None:
    """Write the known cells of a long table, one row each, image by image.

    The first image has a row for every class, and an image without known cells has one: so images and classes
    keep their order, and none is lost.
    """
    stating = file_ending(path) in ARROW_ENDINGS
    chosen = encoding or (ENCODINGS["blank"] if stating else default_encoding(table.cells))
    require_writable(table.cells, chosen)
    if only_values(table.classes):
        raise TableError(
            f"a long table whose classes are all called like values, such as {table.classes[0]!r}, would not read "
            f"back: write .jsonl or .npz."
        )
    wanted = table.known.copy()
    wanted[~wanted.any(axis=1), 0] = True
    wanted[0] = True
    at = np.argwhere(wanted)
    states = table.cells[wanted]
    if stating:
        _write_arrow(table, path, chosen, at, states)
        return
    mark = delimiter_of(path)
    images = [csv_field(name, mark) for name in table.images]
    classes = [csv_field(name, mark) for name in table.classes]
    splits = None if table.split is None else [csv_field(name, mark) for name in table.split.tolist()]
    with new_text(path) as stream:
        stream.write(mark.join([IMAGE_COLUMN, *LONG_COLUMNS, *([SPLIT_COLUMN] if splits else [])]) + "\n")
        for (row, column), state in zip(at.tolist(), states.tolist(), strict=True):
            fields = [images[row], classes[column], chosen.writes[state]]
            stream.write(mark.join([*fields, splits[row]] if splits else fields) + "\n")


def _write_arrow(
    table: LabelTable, path: Path, chosen: Encoding, at: npt.NDArray[np.int64], states: npt.NDArray[np.int8]
) -> None:
    import pyarrow as pa

    def words(indices: npt.NDArray[Any], values: Sequence[str]) -> Any:
        return pa.DictionaryArray.from_arrays(
            pa.array(indices, pa.int32()), pa.array(list(values), pa.string())
        )

    texts = [chosen.writes.get(state, "") for state in (-1, 0, 1)]
    if chosen.name == "words":
        value = words(states + 1, texts)
    else:
        numbers = np.array([int(text or 0) for text in texts], dtype=np.int8)
        gaps = chosen.writes.get(UNKNOWN) == ""
        value = pa.array(numbers[states + 1], pa.int8(), mask=(states == UNKNOWN) if gaps else None)
    columns = [words(at[:, 0], table.images), words(at[:, 1], table.classes), value]
    names = [IMAGE_COLUMN, *LONG_COLUMNS]
    if table.split is not None:
        columns.append(pa.array(table.split[at[:, 0]].tolist(), pa.string()).dictionary_encode())
        names.append(SPLIT_COLUMN)
    arrow = pa.table(columns, names=names).replace_schema_metadata({ENCODING_KEY: chosen.name.encode()})
    write_arrow(arrow, path)


def _value_codes(column: Any, path: Path, name: str) -> npt.NDArray[np.uint8]:
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        raise TableError(
            f"{path}: column {name!r} holds {column.type}, not labels: store numbers or words there."
        )
    return column_codes(column)


def _numbered(column: Any, path: Path, name: str) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct texts of a column in order of appearance, and the position of every row's."""
    numbers: dict[str, int] = {}
    found = np.empty(len(column), dtype=np.int64)
    start = 0
    for chunk in _chunks(column, path, name):
        words = [str(word).strip() for word in chunk.dictionary.to_pylist()]
        indices = chunk.indices.to_numpy(zero_copy_only=False)
        # A chunk may list words that it does not use, or in another order than it uses them.
        used, first = np.unique(indices, return_index=True)
        lookup = np.zeros(len(words), dtype=np.int64)
        for at in used[np.argsort(first)].tolist():
            lookup[at] = numbers.setdefault(words[at], len(numbers))
        found[start : start + len(indices)] = lookup[indices]
        start += len(indices)
    if "" in numbers:
        row = int(np.argmax(found == numbers[""])) + 1
        raise TableError(f"{path}: row {row} has nothing in column {name!r}: fill it in or remove the row.")
    return list(numbers), found


def _chunks(column: Any, path: Path, name: str) -> Iterator[Any]:
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise TableError(f"{path}: column {name!r} holds {kind}, not names: store text there.")
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        text = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        if text.indices.null_count or None in text.dictionary.to_pylist():
            text = text.cast(pa.string()).fill_null("").dictionary_encode()
        yield text


def _image_splits(
    column: Any, image: npt.NDArray[np.int64], images: list[str], path: Path, name: str
) -> list[str]:
    names, number = _numbered(column, path, name)
    of_image = np.full(len(images), -1)
    of_image[image[::-1]] = number[::-1]
    differs = of_image[image] != number
    if differs.any():
        row = int(np.argmax(differs))
        raise TableError(
            f"{path}: row {row + 1} puts image {images[image[row]]!r} into split {names[number[row]]!r}, another row "
            f"into {names[of_image[image[row]]]!r}: give it one split."
        )
    return [names[at] for at in of_image.tolist()]


def _recognises(path: Path) -> bool:
    header = arrow_header(path) if file_ending(path) in ARROW_ENDINGS else csv_header(path)
    lowered = {name.strip().lower() for name in header}
    return other_columns(header) == set(LONG_COLUMNS) or lowered == set(OPENIMAGES_HEADER)


register_format(Format("long", (*EXTENSIONS, *ARROW_ENDINGS), read_long, write_long, recognises=_recognises))
