"""Scores in Arrow columns, whatever the file: wide (``image,<class>,...``) or long (``image,label,score``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError
from satl.labels.io.wide import check_header, check_names
from satl.scores.score_reader import SCORE_COLUMNS, Block, ScoreFile

ReadColumns = Callable[[Sequence[int], Sequence[int]], Iterator[Any]]
"""Takes positions of text columns and of number columns; yields record batches with these columns, in this order."""


def open_columns(
    path: Path,
    header: Sequence[str],
    read: ReadColumns,
    classes: Sequence[str] | None,
    rows: int | None = None,
) -> ScoreFile:
    """Return the scores of a file with named columns.

    Args:
        path: the file, for messages.
        header: names of its columns.
        read: reads columns by their positions.
        classes: the classes that are wanted: only their columns are read, any other may hold anything; None: all.
        rows: number of rows, if it is known.
    """
    check_names(header, path)
    known = None if classes is None else frozenset(classes)
    lowered = [name.strip().lower() for name in header]
    value = next((name for name in SCORE_COLUMNS if name in lowered), None)
    if value is not None and {"image", "label"} <= set(lowered) and value not in (known or ()):
        image_at, label_at, value_at = (lowered.index(name) for name in ("image", "label", value))
        return _long(path, read([image_at, label_at], [value_at]), known)
    image_at, split_at = check_header(header, path)
    wanted: list[int] = []
    others: list[int] = []
    for position, name in enumerate(header):
        # pandas stores the row numbers of a frame in a column of that name.
        if position in (image_at, split_at) or name.startswith("__index_level_"):
            continue
        (wanted if known is None or name.strip() in known else others).append(position)

    def blocks() -> Iterator[Block]:
        for batch in read([image_at], wanted):
            yield _texts(batch.column(0), path), _matrix(batch.columns[1:])

    names = [header[position].strip() for position in (*wanted, *others)]
    return ScoreFile(names, len(names), blocks(), rows)


def require_numbers(field: Any, path: Path) -> None:
    """Refuse an Arrow column that holds no numbers."""
    import pyarrow as pa

    kind = field.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise TableError(
            f"column {field.name!r} holds {kind}, not scores", where=path, remedy="store numbers there"
        )


def _matrix(columns: Sequence[Any]) -> npt.NDArray[np.float32]:
    """Return Arrow columns as (n, columns); a gap is NaN."""
    if not columns:
        return np.empty((0, 0), dtype=np.float32)
    result = np.empty((len(columns), len(columns[0])), dtype=np.float32)
    with np.errstate(over="ignore"):  # what becomes infinite is refused with its place
        for place, column in enumerate(columns):
            result[place] = column.to_numpy(zero_copy_only=False)
    return result.T


def _texts(column: Any, path: Path) -> list[str]:
    """Return a column of names; whole numbers are taken as text, a gap is empty."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise TableError(f"the images and labels must be named by text, not by {kind}.", where=path)
    return ["" if value is None else str(value).strip() for value in column.to_pylist()]


def _long(path: Path, batches: Iterator[Any], known: frozenset[str] | None) -> ScoreFile:
    """Turn a long file, one row per image and class, into one block of whole images.

    Names are kept as numbers while the file is read: as one Python text for each row they would take most of the
    memory.
    """
    images: dict[str, int] = {}
    labels: dict[str, int] = {}
    parts: list[tuple[Any, ...]] = []
    for batch in batches:
        values = batch.column(2).to_numpy(zero_copy_only=False)
        parts.append(
            (_numbers(batch.column(0), images, path), _numbers(batch.column(1), labels, path), values)
        )
    if not images:
        raise TableError(
            "is empty: it has no row below its header", where=path, remedy="add one row per image and class"
        )
    row, label, score = (np.concatenate(part) for part in zip(*parts, strict=True))
    cell = row * len(labels) + label
    order = np.argsort(cell, kind="stable")
    twice = np.flatnonzero(np.diff(cell[order]) == 0)
    if len(twice):
        first = int(order[twice[0]])
        raise TableError(
            f"image {list(images)[row[first]]!r} has two scores for {list(labels)[label[first]]!r}",
            where=path,
            remedy="remove one of them",
        )
    matrix = np.full((len(images), len(labels)), np.nan, dtype=np.float32)
    with np.errstate(over="ignore"):
        matrix[row, label] = score
    wanted = [name for name in labels if known is None or name in known]
    others = [name for name in labels if known is not None and name not in known]
    block = matrix if len(wanted) == len(labels) else matrix[:, [labels[name] for name in wanted]]
    return ScoreFile([*wanted, *others], len(labels), iter([(list(images), block)]), len(images))


def _numbers(column: Any, numbered: dict[str, int], path: Path) -> npt.NDArray[np.int64]:
    """Return the number of the text in each row, (n,); a new text gets the next number."""
    import pyarrow as pa

    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if coded.null_count:
        raise TableError(
            f"row {int(np.argmax(coded.is_null().to_numpy(zero_copy_only=False))) + 1} names no image or no label",
            where=path,
            remedy="fill it in or remove the row",
        )
    names = _texts(coded.dictionary, path)
    lookup = np.array([numbered.setdefault(name, len(numbered)) for name in names], dtype=np.int64)
    return lookup[coded.indices.to_numpy(zero_copy_only=False)]
