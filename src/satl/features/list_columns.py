"""Features in an Arrow column of lists, whatever the file: which columns they are, and their rows as an array."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError
from satl.features.feature_reader import FEATURE_NAMES
from satl.labels.io.wide import IMAGE_COLUMN_NAMES

_ID_NAMES = (*IMAGE_COLUMN_NAMES, "images", "ids", "file_path", "key")


def find_columns(schema: Any, path: Path) -> tuple[str, str]:
    """Return the names of the column of ids and of the column of features.

    Raises:
        TableError: there is no such column, or several may be meant.
    """
    lists = [field.name for field in schema if _is_list(_storage(field.type))]
    named = [name for wanted in FEATURE_NAMES for name in lists if name.lower() == wanted]
    shown = ", ".join(f"{field.name!r} ({field.type})" for field in list(schema)[:6])
    if not named and len(lists) != 1:
        what = "several columns of lists" if lists else "no column of lists"
        raise TableError(
            f"has {what} (columns: {shown})",
            where=path,
            remedy="call the column of features 'features'; each row is a list of numbers",
        )
    texts = [field.name for field in schema if _is_name(field.type)]
    ids = [name for wanted in _ID_NAMES for name in texts if name.lower() == wanted]
    if not ids:
        raise TableError(
            f"no column of texts names the image (columns: {shown})",
            where=path,
            remedy="add a column 'image' with the ids of the table",
        )
    return ids[0], (named or lists)[0]


def column_ids(columns: Iterator[Any]) -> list[str]:
    """Return the ids of a column that comes in pieces; whole numbers are taken as text, a gap is empty."""
    return ["" if name is None else str(name).strip() for part in columns for name in part.to_pylist()]


def list_blocks(columns: Iterator[Any], path: Path) -> Iterator[npt.NDArray[Any]]:
    """Yield a column of lists that comes in pieces as arrays (n, D), or (n, V, D) for lists of lists."""
    first = 0
    for column in columns:
        if len(column):
            yield _rows(column, path, first)
        first += len(column)


def _rows(column: Any, path: Path, first: int) -> npt.NDArray[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if column.null_count:
        row = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise TableError(f"row {row + 1} has no features", where=path, remedy="fill it in or remove the row")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if (lengths != lengths[0]).any():
        at = int(np.argmax(lengths != lengths[0]))
        raise TableError(
            f"row {first + at + 1} has {lengths[at]:,} numbers, row {first + 1} has {lengths[0]:,}",
            where=path,
            remedy="give every row the same number of features",
        )
    values = column.flatten()
    if _is_list(_storage(values.type)):
        inner = _rows(values, path, first * int(lengths[0]))
        return inner.reshape(len(column), int(lengths[0]), -1)
    if not (pa.types.is_floating(values.type) or pa.types.is_null(values.type)):
        raise TableError(
            f"the features are lists of {values.type}, not of floating-point numbers",
            where=path,
            remedy="store them as float16 or float32",
        )
    numbers: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return numbers.reshape(len(column), -1)


def _storage(kind: Any) -> Any:
    return getattr(kind, "storage_type", kind)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return False
    inner = _storage(kind.value_type)
    return pa.types.is_floating(inner) or pa.types.is_integer(inner) or _is_list(inner)


def _is_name(kind: Any) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind))
