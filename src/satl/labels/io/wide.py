"""Shared by formats with one row per image and one column per class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import Argument, Sentence, TableError, nearest
from satl.labels.encodings import (
    NOT_A_LABEL,
    VALUES,
    decode,
    describe_counts,
    detect_encoding,
    find_encoding,
    pass_encoding,
    readings,
    refuse_encoding,
    value_code,
    value_counts,
)
from satl.labels.io.registry import TableFile
from satl.labels.table import Cells, LabelTable

IMAGE_COLUMN = "image"
IMAGE_COLUMN_NAMES = (
    "image",
    "filename",
    "file_name",
    "file",
    "path",
    "id",
    "image_id",
    "image_path",
    "name",
)
"""Names under which the first column is taken for the image, where no column is called ``image``."""
SPLIT_COLUMN = "split"
LONG_COLUMNS = ("label", "value")
"""Columns that, alone beside the image and the split, make a table long: one row per image and class."""
LIST_COLUMNS = ("labels", "tags", "positives")
"""A column that, alone beside the image and the split, makes a table a list of positives."""


def other_columns(header: Sequence[str]) -> set[str] | None:
    """Return the lower-case names beside image and split, or None where no column names the image."""
    lowered = [name.strip().lower() for name in header]
    if not lowered or len(set(lowered)) != len(lowered):
        return None
    image = IMAGE_COLUMN if IMAGE_COLUMN in lowered else lowered[0]
    if image not in IMAGE_COLUMN_NAMES:
        return None
    return set(lowered) - {image, SPLIT_COLUMN}


@dataclass(frozen=True)
class Coded:
    """A wide table before its encoding is applied: uint8 (N, C) positions in ``VALUES``."""

    images: tuple[str, ...]
    classes: tuple[str, ...]
    codes: npt.NDArray[np.uint8]
    split: list[str] | None = None
    truth: npt.NDArray[np.uint8] | None = None


def check_names(header: Sequence[str], path: Path) -> None:
    """Refuse unnamed and repeated columns."""
    first: dict[str, int] = {}
    for number, name in enumerate((name.strip() for name in header), start=1):
        if not name:
            hint = " (from pandas: write with index=False)" if number == 1 else ""
            raise TableError(f"{path}: column {number} has no name{hint}: name or remove it.")
        if name in first:
            raise TableError(
                f"{path}: columns {first[name]} and {number} are both called {name!r}: rename or remove one."
            )
        first[name] = number


def other_separator(header: Sequence[str], delimiter: str = ",") -> str | None:
    """Return the mark that seems to stand between the columns of a file whose header was split at ``delimiter``.

    >>> other_separator(['image;cat;"dog', ' large"']), other_separator(["image", "cat;dog"])
    (';', None)
    >>> other_separator(["image,cat,dog"], "\\t")
    ','
    """
    for mark in (";", "\t", "|", ","):
        first, found, _ = header[0].partition(mark)
        named = mark != "," and first.strip().strip('"').lower() in IMAGE_COLUMN_NAMES
        if mark != delimiter and found and (len(header) == 1 or named):
            return mark
    return None


def image_position(names: Iterable[Any]) -> int | None:
    """Return which column names the images: ``image``, or the first where it is called like one; None: no column does.

    >>> image_position(["cat", "Image"]), image_position(["path", "cat"]), image_position(["cat", "path"])
    (1, 0, None)
    """
    lowered = [name.strip().lower() if isinstance(name, str) else "" for name in names]
    if IMAGE_COLUMN in lowered:
        return lowered.index(IMAGE_COLUMN)
    return 0 if lowered and lowered[0] in IMAGE_COLUMN_NAMES else None


def check_header(header: Sequence[str], path: Path) -> tuple[int, int | None]:
    """Return the positions of the image and split columns, after refusing unnamed and repeated columns."""
    check_names(header, path)
    if not header:
        raise TableError(f"{path} has no columns: write a column 'image' and one column per class.")
    plain = [name.strip() for name in header]
    lowered = [name.lower() for name in plain]
    image = image_position(plain)
    if image is None:
        shown = ", ".join(repr(name) for name in plain[:8]) + (", ..." if len(plain) > 8 else "")
        mark = other_separator(plain) if len(plain) == 1 else None
        if mark is not None:
            raise TableError(
                f"{path}: one column holds all the others ({shown}): split it at every {mark!r}."
            )
        raise TableError(f"{path}: no column names the image (columns: {shown}): call that column 'image'.")
    split = lowered.index(SPLIT_COLUMN) if SPLIT_COLUMN in lowered else None
    if len(plain) == 1 + (split is not None):
        raise TableError(
            f"{path}: there is no class column beside {plain[image]!r}: add one column per class."
        )
    return image, split


def column_codes(column: Any) -> npt.NDArray[np.uint8]:
    """Return the codes uint8 (N,) of one Arrow column of numbers, booleans, text or nothing."""
    import pyarrow as pa

    codes = np.empty(len(column), dtype=np.uint8)
    start = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        words = ["" if word is None else str(word) for word in encoded.dictionary.to_pylist()]
        lookup = np.array([*(value_code(word) for word in words), value_code("")], dtype=np.uint8)
        indices = encoded.indices.fill_null(len(words)) if encoded.indices.null_count else encoded.indices
        codes[start : start + len(chunk)] = lookup[indices.to_numpy(zero_copy_only=False)]
        start += len(chunk)
    return codes


def without_ignored(header: Sequence[str], ignore: Sequence[str], path: Path) -> list[int]:
    """Return the positions of the columns that are left without those called ``ignore``."""
    plain = [name.strip() for name in header]
    for name in ignore:
        if name.strip() not in plain:
            raise TableError(
                f"there is no column {name!r} to ignore{nearest(name, plain)}",
                where=path,
                remedy=Sentence("correct {ignore}", ignore=Argument("ignore_columns")),
            )
    passed = {name.strip() for name in ignore}
    return [i for i, name in enumerate(plain) if name not in passed]


def code_columns(
    header: Sequence[str], columns: Sequence[Any], path: Path, *, ignorable: bool = True
) -> Coded:
    """Turn the named Arrow columns of a wide file into codes, or say which row and column is wrong.

    Args:
        ignorable: whether the user can pass a column over.
    """
    image_at, split_at = check_header(header, path)
    images = image_ids(columns[image_at], path, header[image_at], header)
    split = None if split_at is None else split_names(columns[split_at].to_pylist(), images, path)
    at = [i for i in range(len(header)) if i not in (image_at, split_at)]
    classes = tuple(header[i].strip() for i in at)
    # Columns are decoded one by one into the memory order of a column, and turned round once.
    codes = np.empty((len(classes), len(images)), dtype=np.uint8)
    for position, source in enumerate(at):
        codes[position] = column_codes(columns[source])
        wrong = codes[position] == NOT_A_LABEL
        if wrong.any():
            row = int(np.argmax(wrong))
            value = columns[source][row].as_py()
            name = classes[position]
            other = Sentence(
                ", or remove the column if {name} is not a class"
                + (" (or pass {ignore})" if ignorable else ""),
                name=repr(name),
                ignore=Argument("ignore_columns", name),
            )
            raise not_a_label(path, row, images[row], name, value, other)
    return Coded(images, classes, np.ascontiguousarray(codes.T), split)


def not_a_label(
    path: Path, row: int, image: str, column: str, value: object, other: Sentence | str = ""
) -> TableError:
    """Return the error of a value that no encoding reads.

    Args:
        path: the file.
        row: of the value, from 0.
        image, column: that the value is about.
        value: as it was read.
        other: what else helps, as the end of a sentence.
    """
    write = "write 1, 0, -1, present, absent, unknown or nothing"
    return TableError(
        f"row {row + 1} (image {image!r}), column {column!r}: {str(value)!r} is not a label",
        where=path,
        remedy=Sentence(write + other.text, **other.parts) if isinstance(other, Sentence) else write + other,
    )


def image_ids(column: Any, path: Path, name: str, header: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the ids of the image column, unique and not empty; whole numbers are taken as text.

    ``header`` are the names of all columns, by which a long table with further columns is told.
    """
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        if column.null_count == len(column):
            raise TableError(f"{path}: row 1 has no image in column {name!r}: fill it or remove the row.")
        raise TableError(f"{path}: column {name!r} must name the images as text, not as {kind}.")
    ids = tuple("" if value is None else str(value).strip() for value in column.to_pylist())
    return unique_images(ids, path, header)


def unique_images(ids: tuple[str, ...], path: Path, header: Sequence[str] = ()) -> tuple[str, ...]:
    """Return ``ids``, or name the row without an image, or both rows of an image that comes twice."""
    if not ids:
        raise TableError(f"{path} is empty: it has no row below its header; add one row per image.")
    if "" in ids:
        raise TableError(f"{path}: row {ids.index('') + 1} has no image: fill it in or remove the row.")
    if len(set(ids)) != len(ids):
        first: dict[str, int] = {}
        for row, name in enumerate(ids, start=1):
            if name in first:
                both = f"{path}: rows {first[name]} and {row} are both about image {name!r}"
                if LONG_COLUMNS[0] in {column.strip().lower() for column in header}:
                    raise TableError(
                        f"{both}, and there is a column '{LONG_COLUMNS[0]}': a table with a row per image and class "
                        f"has the columns image,{','.join(LONG_COLUMNS)} (and split); rename or remove the others."
                    )
                raise TableError(f"{both}: remove or merge one.")
            first[name] = row
    return ids


def split_names(values: Sequence[object], images: Sequence[str], path: Path) -> list[str]:
    """Return the split of every row as text, or name the row that has none."""
    names = ["" if value is None else str(value).strip() for value in values]
    for row, name in enumerate(names, start=1):
        if not name:
            raise TableError(
                f"{path}: row {row} (image {images[row - 1]!r}) has no split: write train, val or test there."
            )
    return names


def complete_splits(
    splits: Sequence[str | None], images: Sequence[str], path: Path | str, unit: str = "row"
) -> npt.NDArray[np.str_] | None:
    """Return the splits (N,) of a file where each entry may name one: None if none does, an error if only some do.

    Args:
        unit: what the file calls an entry, for the message.
    """
    missing = [row for row, name in enumerate(splits) if name is None]
    if len(missing) == len(splits):
        return None
    if missing:
        row = missing[0]
        raise TableError(
            f"{path}: {unit} {row + 1} (image {images[row]!r}) has no split, but others have: add it."
        )
    return np.array(splits, dtype=np.str_)


def decode_coded(
    coded: Coded, path: Path, format: str, encoding: str | None, stated: str | None = None
) -> TableFile:
    """Apply an encoding: the one given or ``stated`` in the file, else the only one possible."""
    if encoding is not None and stated is not None and encoding != stated:
        refuse_encoding(encoding, f"states that its encoding is '{stated}'", path)
    counts = value_counts(coded.codes)
    named = encoding or stated
    chosen = detect_encoding(counts, str(path)) if named is None else find_encoding(named)
    cells = decode(coded.codes, chosen.reads)
    unread = cells == 2
    if unread.any():
        row, column = (int(i) for i in np.argwhere(unread)[0])
        value = VALUES[coded.codes[row, column]]
        choices = [(other, "") for other, _ in readings(counts)]
        raise TableError(
            f"row {row + 1} (image {coded.images[row]!r}), column {coded.classes[column]!r}: "
            f"{value or 'a blank'} has no meaning in encoding '{chosen.name}' ({chosen.summary}; "
            f"the file has {describe_counts(counts)})",
            where=path,
            remedy=pass_encoding(choices) if choices else "correct the values",
        )
    truth: Cells | None = None
    if coded.truth is not None:
        truth = decode(coded.truth, chosen.reads)
        if (truth == 2).any():
            raise TableError(f"{path}: its truth has values without a meaning in encoding '{chosen.name}'.")
    split = None if coded.split is None else np.array(coded.split, dtype=np.str_)
    table = build(path, coded.images, coded.classes, cells, split, truth)
    return TableFile(table, path, format, chosen.name, named is None, counts)


def build(
    path: Path,
    images: tuple[str, ...],
    classes: tuple[str, ...],
    cells: Cells,
    split: npt.NDArray[np.str_] | None,
    truth: Cells | None = None,
) -> LabelTable:
    """Make the table; an error names the file."""
    try:
        return LabelTable(images, classes, cells, split, truth, "signed")
    except TableError as error:
        raise error.at(path) from None


def wide_header(table: LabelTable) -> list[str]:
    """Return the header of a wide file, or refuse class names that would read back as another column."""
    for name in table.classes:
        if name.lower() in (IMAGE_COLUMN, SPLIT_COLUMN):
            raise TableError(
                f"a wide table cannot hold a class called {name!r}, which names a column of its own: "
                f"write .jsonl or .npz."
            )
    names = {name.lower() for name in table.classes}
    if names == set(LONG_COLUMNS) or (len(names) == 1 and names <= set(LIST_COLUMNS)):
        raise TableError(
            f"a wide table whose only classes are called {' and '.join(map(repr, table.classes))} would read back "
            f"as another kind of table: write .jsonl or .npz."
        )
    return [IMAGE_COLUMN, *([SPLIT_COLUMN] if table.split is not None else []), *table.classes]
