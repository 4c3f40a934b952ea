"""Features and scores in memory: arrays and tensors in the order of a table, or frames whose rows are named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import as_array
from satl.errors import Argument, ArrayError
from satl.labels.frames import frame_kind
from satl.labels.io.wide import IMAGE_COLUMN_NAMES, SPLIT_COLUMN, image_position


@dataclass(frozen=True, eq=False)
class Numbers:
    """Numbers, and what their rows and columns are about.

    Attributes:
        values: (N, D), or (N, views, D).
        ids: of the images, where a column or the index of a frame names them; None: they stand in the order of a table.
        names: of the columns of a frame, where all of them are text.
    """

    values: npt.NDArray[Any]
    ids: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None


def numbers_of(data: Any, argument: str, beside: Any = None) -> Numbers:
    """Return the numbers of an array, a tensor of any device and precision, or a frame.

    A frame has one number in a column, or one column of vectors. What names its images, a column as in a label table or
    an index of pandas that is text, says which row is whose.

    Args:
        data: the numbers.
        argument: what messages call them.
        beside: the table that they are given with, where it is in memory.

    Raises:
        ArrayError: a column of a frame holds something else, or its row numbers are those of the table in another
            order.

    >>> import pyarrow as pa
    >>> found = numbers_of(pa.table({"image": ["a.jpg", "b.jpg"], "cat": [0.5, 1.0], "dog": [0.0, 0.25]}), "scores")
    >>> found.values.tolist(), found.ids, found.names
    ([[0.5, 0.0], [1.0, 0.25]], ('a.jpg', 'b.jpg'), ('cat', 'dog'))
    """
    columns = columns_of(data)
    if columns is None:
        return Numbers(as_array(data))
    image = image_position(name for name, _ in columns)
    ids = _index_ids(data) if image is None else tuple(str(one) for one in columns[image][1])
    if ids is None:
        _refuse_other_order(data, beside, argument)
    kept = [
        column for at, column in enumerate(columns) if at != image and _lowered(column[0]) != SPLIT_COLUMN
    ]
    if not kept:
        raise ArrayError(
            "the frame has no column of numbers", where=Argument(argument), remedy="give it some"
        )
    arrays = [_column(name, values, argument) for name, values in kept]
    texts = tuple(name for name, _ in kept if isinstance(name, str))
    if len(arrays) == 1 and arrays[0].ndim > 1:
        return Numbers(arrays[0], ids)
    if any(array.ndim != 1 for array in arrays):
        raise ArrayError(
            "the frame has several columns, and one of them holds vectors",
            where=Argument(argument),
            remedy="give one column of vectors, or one number in each column",
        )
    return Numbers(np.column_stack(arrays), ids, texts if len(texts) == len(kept) else None)


def columns_of(frame: Any) -> list[tuple[Any, Any]] | None:
    """Return the columns of a frame with their names, or None for what is no frame."""
    kind = frame_kind(frame)
    if kind == "arrow" and hasattr(frame, "column_names"):
        return list(zip(frame.column_names, (one.to_pylist() for one in frame.columns), strict=True))
    if kind == "pandas" and hasattr(frame, "iloc") and hasattr(frame, "columns"):
        return [(name, frame.iloc[:, at]) for at, name in enumerate(frame.columns)]
    if kind == "polars" and hasattr(frame, "get_columns"):
        return [(one.name, one) for one in frame.get_columns()]
    return None


def _lowered(name: Any) -> str:
    return name.strip().lower() if isinstance(name, str) else ""


def _index_ids(frame: Any) -> tuple[str, ...] | None:
    """Return the ids that the index of a pandas frame holds: a level of such a name, or text."""
    if frame_kind(frame) != "pandas":
        return None
    for level, name in enumerate(frame.index.names):
        if _lowered(name) in IMAGE_COLUMN_NAMES:
            return tuple(str(one) for one in frame.index.get_level_values(level))
    values = list(frame.index) if frame.index.nlevels == 1 and frame.index.dtype.kind not in "iufbM" else []
    return tuple(values) if values and all(isinstance(one, str) for one in values) else None


def _refuse_other_order(frame: Any, beside: Any, argument: str) -> None:
    """Refuse row numbers of pandas that are those of the table in another order: which one counts is not certain."""
    if frame_kind(frame) != "pandas" or frame_kind(beside) != "pandas" or not hasattr(beside, "columns"):
        return
    if len(frame) == len(beside) and not frame.index.equals(beside.index):
        rows = set(frame.index)
        if len(rows) == len(frame) and rows == set(beside.index):
            raise ArrayError(
                "its rows have the numbers of the table in another order",
                where=Argument(argument),
                remedy="name the images in a column 'image', or give both frames reset_index(drop=True)",
            )


def _column(name: Any, values: Any, argument: str) -> npt.NDArray[Any]:
    """Return a column of numbers (N,), or of vectors (N, D); a gap is NaN."""
    array = np.asarray(values)
    if array.dtype.kind in "fiub" and array.ndim == 1:
        return array
    listed = list(values)
    try:
        if listed and all(hasattr(one, "__len__") and not isinstance(one, str) for one in listed):
            return np.stack([as_array(one) for one in listed])
        if any(isinstance(one, str) for one in listed):
            raise TypeError
        # Gaps are None, NaN or an NA, which is no number.
        return np.array([np.nan if one is None or one != one else float(one) for one in listed])  # noqa: PLR0124
    except (TypeError, ValueError):
        raise ArrayError(
            f"column {name!r} of the frame holds something else than numbers",
            where=Argument(argument),
            remedy="leave it out",
        ) from None
