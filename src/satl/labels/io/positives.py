"""Lists of positives: CSV ``image[,split],labels`` where ``labels`` is a comma-separated list, in quotes.

::

    image,labels
    a.jpg,"cat,dog"
    b.jpg,

What is listed is present; everything else is unknown, because such a file cannot say absent. The classes are
all names that occur, sorted. A name that contains ``,``, ``;``, ``|`` or a quote is itself in quotes.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from satl.errors import TableError
from satl.labels.cells import NameIndex
from satl.labels.encodings import Encoding, only_values, refuse_encoding
from satl.labels.io.compressed import new_text
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.text_files import csv_field
from satl.labels.io.wide import (
    IMAGE_COLUMN,
    LIST_COLUMNS,
    SPLIT_COLUMN,
    build,
    check_header,
    image_ids,
    other_columns,
    split_names,
)
from satl.labels.io.wide_csv import EXTENSIONS, csv_columns, csv_header, delimiter_of
from satl.labels.table import ABSENT, PRESENT, LabelTable

_LISTS = "lists what is present by name"
_OTHER_MARKS = (";", "|")
_SEPARATORS = ",;|"


def read_positives(path: Path, encoding: str | None) -> TableFile:
    """Read a list of positives; it names what is present, so no encoding applies."""
    refuse_encoding(encoding, _LISTS, path)
    header, columns = csv_columns(path)
    image_at, split_at = check_header(header, path)
    images = image_ids(columns[image_at], path, header[image_at])
    split = None if split_at is None else split_names(columns[split_at].to_pylist(), images, path)
    labels_at = next(i for i in range(len(header)) if i not in (image_at, split_at))
    lists = [str(text) for text in columns[labels_at].to_pylist()]
    if only_values(set(lists)):
        raise TableError(
            f"{path}: its column {header[labels_at]!r} holds only values such as {lists[0]!r}, so it may be a wide "
            f"table with one class: rename this column."
        )
    named = [_names(text, row, images[row], path) for row, text in enumerate(lists)]
    classes = sorted({name for names in named for name in names})
    cells = np.zeros((len(images), len(classes)), dtype=np.int8)
    rows = np.repeat(np.arange(len(images)), [len(names) for names in named])
    cells[rows, NameIndex(classes).find([name for names in named for name in names])] = PRESENT
    table = build(
        path, images, tuple(classes), cells, None if split is None else np.array(split, dtype=np.str_)
    )
    return TableFile(table, path, "positives", None, False, {"positive": int((cells == PRESENT).sum())})


def write_positives(table: LabelTable, path: Path, encoding: Encoding | None) -> None:
    """Write a list of positives, or refuse a table that says more than such a list can."""
    refuse_encoding(None if encoding is None else encoding.name, _LISTS)
    absent = int((table.cells == ABSENT).sum())
    if absent:
        raise TableError(
            f"a list of positives cannot say absent, and {absent:,} cells are absent: "
            f"write .csv, .parquet, .jsonl or .npz."
        )
    empty = np.flatnonzero(~(table.cells == PRESENT).any(axis=0))
    if len(empty):
        raise TableError(
            f"a list of positives cannot name a class without a positive, such as {table.classes[empty[0]]!r}: "
            f"write .csv, .parquet, .jsonl or .npz."
        )
    mark = delimiter_of(path)
    names = [csv_field(name, _SEPARATORS) for name in table.classes]
    lists = [",".join(names[i] for i in np.flatnonzero(row == PRESENT)) for row in table.cells]
    if only_values(set(lists)):
        raise TableError(
            f"a list of positives whose only entries are values such as {lists[0]!r} would not read back: "
            f"rename the class, or write .jsonl or .npz."
        )
    splits = None if table.split is None else table.split.tolist()
    with new_text(path) as stream:
        header = [IMAGE_COLUMN, *([SPLIT_COLUMN] if splits else []), LIST_COLUMNS[0]]
        stream.write(mark.join(header) + "\n")
        for row, image in enumerate(table.images):
            fields = [image, *([splits[row]] if splits else []), lists[row]]
            stream.write(mark.join(csv_field(field, mark) for field in fields) + "\n")


def _names(text: str, row: int, image: str, path: Path) -> list[str]:
    """Split one list, or raise an error where a name cannot be separated from the others."""
    if '"' in text:
        try:
            names = next(iter(csv.reader([text], strict=True, skipinitialspace=True)), [])
        except csv.Error as error:
            raise TableError(
                f"{path}: row {row + 1} (image {image!r}): its list cannot be read ({error}): check its quotes."
            ) from None
        return [name.strip() for name in names if name.strip()]
    for mark in _OTHER_MARKS:
        if mark in text:
            raise TableError(
                f"{path}: row {row + 1} (image {image!r}) has {mark!r} in its list {text!r}: separate the names with "
                f"commas, or put a name that contains it in quotes."
            )
    return [name.strip() for name in text.split(",") if name.strip()]


def _recognises(path: Path) -> bool:
    others = other_columns(csv_header(path))
    return others is not None and len(others) == 1 and others <= set(LIST_COLUMNS)


register_format(
    Format("positives", EXTENSIONS, read_positives, write_positives, encoded=False, recognises=_recognises)
)
