"""Label tables from frames in memory and back: pandas, polars, Arrow.

A frame is read by the rule of files: its values must leave one reading, or the encoding is named. pandas, polars and
narwhals, which speaks to both, are optional; an Arrow table needs none of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from satl.errors import Argument, ConfigError, EncodingError, Sentence, TableError, nearest
from satl.labels.cells import NameIndex
from satl.labels.encodings import find_encoding, refuse_encoding, require_writable
from satl.labels.io.arrow_files import ENCODING_KEY
from satl.labels.io.wide import (
    IMAGE_COLUMN,
    IMAGE_COLUMN_NAMES,
    LIST_COLUMNS,
    LONG_COLUMNS,
    SPLIT_COLUMN,
    build,
    check_header,
    check_names,
    code_columns,
    decode_coded,
    image_ids,
    other_columns,
    split_names,
    without_ignored,
)
from satl.labels.table import PRESENT, UNKNOWN, LabelTable

FrameKind = Literal["pandas", "polars", "arrow"]
"""Whose frame: pandas, polars, or an Arrow table."""

FRAME = Path("the frame")
"""What messages call a frame, which has no path."""

_PANDAS_INDEX = "__index_level_"


def table_from_frame(
    frame: Any, encoding: str | None = None, *, ignore_columns: Sequence[str] = ()
) -> LabelTable:
    """Read a label table from a frame; see :meth:`satl.LabelTable.from_frame`."""
    if encoding is not None:
        find_encoding(encoding)
    arrow = arrow_from_frame(frame)
    header, columns = arrow.schema.names, list(arrow.columns)
    names = (ignore_columns,) if isinstance(ignore_columns, str) else tuple(ignore_columns)
    kept = without_ignored(header, names, FRAME)
    header, columns = [header[at].strip() for at in kept], [columns[at] for at in kept]
    if not header:
        raise TableError("has no column", where=FRAME, remedy="give it 'image' and one column per class")
    image_at, split_at = check_header(header, FRAME)
    others = other_columns(header)
    if others == set(LONG_COLUMNS):
        raise TableError(
            "has one row per image and class (columns 'label' and 'value'), not one per image",
            where=FRAME,
            remedy="pivot it to one column per class, or write it to a file and read that",
        )
    if others is not None and len(others) == 1 and others <= set(LIST_COLUMNS):
        at = next(at for at in range(len(header)) if at not in (image_at, split_at))
        if _is_list(columns[at].type):
            return _table_of_lists(header, columns, (image_at, split_at, at), encoding)
    _refuse_what_is_no_label(header, columns, image_at)
    stated = (arrow.schema.metadata or {}).get(ENCODING_KEY)
    coded = code_columns(header, columns, FRAME)
    return decode_coded(coded, FRAME, "frame", encoding, stated.decode() if stated else None).table


def table_to_frame(table: LabelTable, kind: FrameKind | None = None, encoding: str = "blank") -> Any:
    """Return a label table as a frame; see :meth:`satl.LabelTable.to_frame`."""
    import pyarrow as pa

    chosen = find_encoding(encoding)
    require_writable(table.cells, chosen)
    for name in table.classes:
        if name.lower() in (IMAGE_COLUMN, SPLIT_COLUMN):
            raise TableError(
                f"a frame cannot hold a class called {name!r}, which names a column of its own",
                remedy="rename the class",
            )
    columns: dict[str, Any] = {IMAGE_COLUMN: pa.array(table.images, pa.string())}
    if table.split is not None:
        columns[SPLIT_COLUMN] = pa.array(table.split.tolist(), pa.string())
    texts = [chosen.writes.get(state, "") for state in (-1, 0, 1)]
    gaps = chosen.writes.get(UNKNOWN) == ""
    for name, column in zip(table.classes, np.ascontiguousarray(table.cells.T), strict=True):
        if chosen.name == "words":
            columns[name] = pa.array(np.array(texts)[column + 1].tolist(), pa.string())
        else:
            numbers = np.array([int(text or 0) for text in texts], dtype=np.int8)
            mask = column == UNKNOWN if gaps else None
            columns[name] = pa.array(numbers[column + 1], pa.int8(), mask=mask)
    arrow = pa.table(columns).replace_schema_metadata({ENCODING_KEY: chosen.name.encode()})
    return frame_from_arrow(arrow, kind)


def make_frame(columns: Mapping[str, Any], kind: FrameKind | None = None) -> Any:
    """Return columns as a frame.

    Args:
        columns: values by name, lists or NumPy arrays of one length; None is a gap.
        kind: whose frame; None: that of pandas or polars, whichever is in use or installed, else Arrow.

    >>> make_frame({"class": ["cat", "dog"], "AP": [0.5, None]}, "arrow").to_pydict()
    {'class': ['cat', 'dog'], 'AP': [0.5, None]}
    """
    import pyarrow as pa

    return frame_from_arrow(pa.table({name: pa.array(values) for name, values in columns.items()}), kind)


def frame_kind(frame: Any) -> FrameKind | None:
    """Return whose frame it is; None for frames of other libraries, and for what is none.

    >>> import pyarrow as pa
    >>> frame_kind(pa.table({"a": [1]})), frame_kind("labels.csv")
    ('arrow', None)
    """
    return {"pandas": "pandas", "polars": "polars", "pyarrow": "arrow"}.get(  # type: ignore[return-value]
        type(frame).__module__.partition(".")[0]
    )


def frame_from_arrow(arrow: Any, kind: FrameKind | None = None) -> Any:
    """Return an Arrow table as a frame; ``kind`` as in :func:`make_frame`."""
    kind = _default_kind() if kind is None else kind
    if kind not in get_args(FrameKind):
        raise ConfigError(
            f"there is no such kind of frame{nearest(str(kind), get_args(FrameKind))}",
            where=Argument("kind", kind),
            remedy="use pandas, polars or arrow",
        )
    if kind == "arrow":
        return arrow
    package = _require(kind)
    if kind == "polars":
        return package.from_arrow(arrow)
    # Whole numbers with gaps stay whole numbers, where pandas would make 1.0 of 1.
    import pyarrow as pa

    whole = {pa.int8(): package.Int8Dtype(), pa.int64(): package.Int64Dtype()}
    return arrow.replace_schema_metadata(None).to_pandas(types_mapper=whole.get)


def arrow_from_frame(frame: Any) -> Any:
    """Return a frame of any library that narwhals knows as an Arrow table.

    Raises:
        TableError: it is no frame, is not computed yet, or has columns without one kind of values.
        ConfigError: narwhals is needed and missing.
    """
    import pyarrow as pa

    if isinstance(frame, pa.Table | pa.RecordBatch):
        table = pa.table(frame)
        check_names(table.schema.names, FRAME)
        return table.select([name for name in table.schema.names if not name.startswith(_PANDAS_INDEX)])
    narwhals = _require("narwhals")
    of_pandas = frame_kind(frame) == "pandas" and hasattr(frame, "columns")
    if of_pandas:
        frame = _with_texts_of_paths(_with_named_index(frame))
    try:
        wrapped = narwhals.from_native(frame, eager_only=True)
        arrow = wrapped.to_arrow()
    except TypeError as error:
        if hasattr(frame, "collect"):
            raise TableError(
                "is not computed yet", where=FRAME, remedy="call its collect() and pass the result"
            ) from None
        if isinstance(error, pa.ArrowTypeError):
            raise _mixed(error) from None
        if of_pandas:
            raise TableError(
                f"has a column that cannot be read ({error})",
                where=FRAME,
                remedy="convert it to plain numbers with gaps, or to text",
            ) from None
        raise TableError(
            f"a {type(frame).__module__}.{type(frame).__qualname__} is no table",
            remedy="give a path, a pandas or polars frame, an Arrow table, a Hugging Face or a torch data set",
        ) from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _mixed(error) from None
    kept = [name for name in arrow.schema.names if not name.startswith(_PANDAS_INDEX)]
    return arrow.select(kept).replace_schema_metadata(None)


def _with_named_index(frame: Any) -> Any:
    """Return a pandas frame whose index, where it names images or splits, is a column; no other index is a class."""
    if any(not isinstance(name, str) for name in frame.columns):
        name = next(name for name in frame.columns if not isinstance(name, str))
        raise TableError(
            f"a column is called {name!r}, which is not text",
            where=FRAME,
            remedy="name the columns by text: frame.columns = [str(name) for name in frame.columns]",
        )
    check_names(list(frame.columns), FRAME)
    levels = {SPLIT_COLUMN}
    if IMAGE_COLUMN not in [name.strip().lower() for name in frame.columns]:
        levels |= {*IMAGE_COLUMN_NAMES}
    named = [name for name in frame.index.names if isinstance(name, str) and name.strip().lower() in levels]
    if any(name in frame.columns for name in named):
        raise TableError(
            f"its index and a column are both called {named[0]!r}", where=FRAME, remedy="rename one of them"
        )
    if named:
        frame = frame.reset_index(level=named)
    return frame.reset_index(drop=True)


def _with_texts_of_paths(frame: Any) -> Any:
    """Return a pandas frame in which paths are text, as :meth:`pathlib.Path.glob` leaves a column of them."""
    for at, name in enumerate(frame.columns):
        column = frame.iloc[:, at]
        if column.dtype == object and any(isinstance(value, os.PathLike) for value in column):
            frame = frame.assign(
                **{name: [os.fspath(one) if isinstance(one, os.PathLike) else one for one in column]}
            )
    return frame


def _mixed(error: Exception) -> TableError:
    return TableError(
        f"a column mixes values of several kinds ({'; '.join(str(part) for part in error.args)})",
        where=FRAME,
        remedy="give each column one kind: numbers with gaps, or text",
    )


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _table_of_lists(
    header: Sequence[str], columns: Sequence[Any], at: tuple[int, int | None, int], encoding: str | None
) -> LabelTable:
    """Read lists of what is present by name; everything else is unknown."""
    import pyarrow as pa

    image_at, split_at, labels_at = at
    kind = columns[labels_at].type.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise EncodingError(
            f"column {header[labels_at]!r} holds lists of {kind}, which may be numbers of classes or one value for "
            "each class",
            where=FRAME,
            remedy="give lists of class names, or one column per class",
        )
    refuse_encoding(encoding, "lists what is present by name", FRAME)
    images = image_ids(columns[image_at], FRAME, header[image_at])
    split = None if split_at is None else split_names(columns[split_at].to_pylist(), images, FRAME)
    lists = [[str(name).strip() for name in names or ()] for names in columns[labels_at].to_pylist()]
    classes = tuple(sorted({name for names in lists for name in names}))
    cells = np.zeros((len(images), len(classes)), dtype=np.int8)
    if classes:
        rows = np.repeat(np.arange(len(images)), [len(names) for names in lists])
        cells[rows, NameIndex(classes).find([name for names in lists for name in names])] = PRESENT
    return build(FRAME, images, classes, cells, None if split is None else np.array(split, dtype=np.str_))


def _refuse_what_is_no_label(header: Sequence[str], columns: Sequence[Any], image_at: int) -> None:
    """Refuse columns of lists and dates, whose text no encoding reads."""
    import pyarrow as pa

    for position, column in enumerate(columns):
        kind = column.type
        if position != image_at and (pa.types.is_nested(kind) or pa.types.is_temporal(kind)):
            raise TableError(
                f"column {header[position]!r} holds {kind}, not labels",
                where=FRAME,
                remedy=Sentence(
                    "remove it if it is not a class, or pass {ignore}",
                    ignore=Argument("ignore_columns", header[position]),
                ),
            )


def _default_kind() -> FrameKind:
    """Return the kind of frames that a user is likely to want: what is loaded, else what is installed."""
    kinds: tuple[FrameKind, ...] = ("pandas", "polars")
    loaded = [kind for kind in kinds if sys.modules.get(kind) is not None]
    return next(iter([*loaded, *(kind for kind in kinds if find_spec(kind) is not None)]), "arrow")


def _require(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise ConfigError(
            f"frames of this kind need the package {package}", remedy="run `pip install 'satl[frames]'`"
        ) from None
