"""Data in memory: frames, Hugging Face data sets and torch data sets as a label table and its pictures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import as_array
from satl.errors import Argument, ArrayError, Sentence, TableError, first_of
from satl.inference.pictures import is_picture
from satl.labels.encodings import NOT_A_LABEL, array_codes
from satl.labels.frames import FrameKind, arrow_from_frame, frame_kind, table_from_frame
from satl.labels.io.wide import (
    IMAGE_COLUMN,
    IMAGE_COLUMN_NAMES,
    SPLIT_COLUMN,
    Coded,
    decode_coded,
    image_position,
)
from satl.labels.table import PRESENT, LabelTable

DATA_SET = Path("the data set")
"""What messages call a data set in memory, which has no path."""

KeepPicture = Callable[[str, Any], None]
"""Takes the id of an image and its picture: a Pillow image, an array, or ``{"bytes": ..., "path": ...}``."""


@dataclass(frozen=True, eq=False)
class MemoryData:
    """What was found in memory.

    Attributes:
        table: the labels.
        features: (N, D) or (N, views, D) in the order of the table, where the items of a torch data set are vectors.
        pictures: whether pictures were handed on; without them the ids of the table are paths.
        kind: whose frame it was.
    """

    table: LabelTable
    features: npt.NDArray[Any] | None = None
    pictures: bool = False
    kind: FrameKind | None = None


def read_memory(
    data: Any,
    keep: KeepPicture,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    classes: Sequence[str] | None = None,
) -> MemoryData:
    """Read data in memory by the rule of files: what can be read in several ways is refused.

    Args:
        data: a label table, a frame, an Arrow table, a Hugging Face data set or a dictionary of its splits, or a torch
            data set of (picture, labels).
        keep: is called with each picture, once its id is known.
        encoding: how present, absent and unknown are written.
        ignore_columns: columns of a frame or a Hugging Face data set that are not classes.
        classes: names of the classes, for data whose labels are one vector an image; by default those that the data
            set itself has as ``classes``.
    """
    if isinstance(data, LabelTable):
        _refuse(encoding, ignore_columns, classes, "a label table says itself what is present")
        return MemoryData(data)
    if is_hugging_face(data):
        return _read_hugging_face(data, keep, encoding, ignore_columns, classes)
    if is_torch_data_set(data):
        _refuse(None, ignore_columns, None, "a torch data set has no columns")
        return _read_torch(data, keep, encoding, classes)
    if classes is not None:
        _refuse(None, (), classes, "a frame names its classes")
    plain, pictures = _without_pictures(data)
    table = table_from_frame(plain, encoding, ignore_columns=ignore_columns)
    for image_id, picture in zip(table.images, pictures or (), strict=bool(pictures)):
        keep(image_id, picture)
    return MemoryData(table, pictures=pictures is not None, kind=frame_kind(data))


def is_hugging_face(data: Any) -> bool:
    """Whether it is a data set of Hugging Face, or a dictionary of such."""
    return type(data).__module__.partition(".")[0] == "datasets"


def is_torch_data_set(data: Any) -> bool:
    """Whether it is a torch data set; torch is not loaded for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.utils.data.Dataset)


def pictures_of(data: Any) -> tuple[tuple[str, ...], Iterable[Any]]:
    """Return the ids and pictures, or paths, of a frame or a data set whose labels are of no interest."""
    if is_hugging_face(data):
        parts = _parts(data)
        column = _picture_column(parts[0][1])
        if column is None:
            return _named_paths(parts)
        ids = tuple(name for _, part in parts for name in _ids(part, column))
        return ids, (picture for _, part in parts for picture in _undecoded(part, column))
    if is_torch_data_set(data):
        number = _length(data)
        items = (data[row] for row in range(number))
        pictures = (item[0] if isinstance(item, tuple | list) else item for item in items)
        return tuple(f"{row:06d}" for row in range(number)), pictures
    plain, pictures_found = _without_pictures(data)
    arrow = arrow_from_frame(plain)
    ids = tuple(str(name) for name in arrow.column(_image_column(arrow.schema.names)).to_pylist())
    return ids, ids if pictures_found is None else pictures_found


def _named_paths(parts: list[tuple[str | None, Any]]) -> tuple[tuple[str, ...], Iterable[Any]]:
    names: list[str] = []
    for _, part in parts:
        names += [str(name) for name in part[_image_column(part.column_names)]]
    return tuple(names), names


def _refuse(
    encoding: str | None, ignore_columns: Sequence[str], classes: Sequence[str] | None, why: str
) -> None:
    for name, value in (("encoding", encoding), ("ignore_columns", ignore_columns), ("classes", classes)):
        if value is not None and len(value):
            raise TableError(
                f"{why}, so {name} does not apply",
                remedy=Sentence("leave out {argument}", argument=Argument(name)),
            )


def names_images(frame: Any) -> bool:
    """Whether a frame has a column that names images, and is not a frame of numbers alone."""
    names = frame.column_names if hasattr(frame, "column_names") else frame.columns
    return image_position(names) is not None


def _image_column(names: Sequence[str]) -> str:
    """Return the column that names the images: ``image``, or the first where it is called like one."""
    if (position := image_position(names)) is not None:
        return names[position]
    raise TableError(
        f"no column names the image (columns: {first_of([*map(repr, names)], 8)})",
        remedy="call that column 'image'",
    )


def _numbered(count: int) -> list[str]:
    return [f"{row:06d}" for row in range(count)]


def _without_pictures(frame: Any) -> tuple[Any, list[Any] | None]:
    """Return a frame whose column of pictures is one of ids, and the pictures, or None where it has none."""
    if frame_kind(frame) not in ("pandas", "polars") or not hasattr(frame, "columns"):
        return frame, None
    names = [name for name in frame.columns if isinstance(name, str)]
    like_images = [name for name in names if name.strip().lower() in IMAGE_COLUMN_NAMES]
    for name in like_images:
        if name not in names or list(frame.columns).count(name) > 1:
            continue
        if (
            "object" not in str(frame[name].dtype).lower()
        ):  # the kind in which both keep what they do not know
            continue
        values = list(frame[name])
        if not any(is_picture(value) for value in values):
            continue
        missing = [row for row, value in enumerate(values) if not is_picture(value)]
        if missing:
            raise TableError(
                f"row {missing[0] + 1} has no picture in column {name!r}, and others have one",
                remedy="fill it or remove the row",
            )
        rest = arrow_from_frame(
            frame.drop(columns=[name]) if frame_kind(frame) == "pandas" else frame.drop(name)
        )
        others = [other for other in like_images if other != name]
        import pyarrow as pa

        ids = rest.column(others[0]) if others else pa.array(_numbered(len(values)))
        rest = rest.drop_columns([others[0]]) if others else rest
        return rest.add_column(0, IMAGE_COLUMN, ids), values
    return frame, None


def _parts(data: Any) -> list[tuple[str | None, Any]]:
    """Return the splits of a Hugging Face data set with their names; one that is none has no name."""
    parts: list[tuple[str | None, Any]] = [(None, data)]
    if isinstance(data, dict):
        parts = [(str(name), part) for name, part in data.items()]
    if not parts or not all(hasattr(part, "__len__") for _, part in parts):
        raise TableError(
            "a data set that is streamed, or empty, has no rows to come back to",
            remedy="load it without streaming, or save it to disk first",
        )
    return parts


def _picture_column(part: Any) -> str | None:
    """Return the column of a Hugging Face data set that holds pictures, or None."""
    found = [name for name, feature in part.features.items() if type(feature).__name__ == "Image"]
    if len(found) > 1:
        raise TableError(
            f"the columns {first_of([*map(repr, found)])} hold pictures",
            where=DATA_SET,
            remedy="remove all but one of them",
        )
    return found[0] if found else None


def _undecoded(part: Any, column: str) -> Iterator[Any]:
    """Yield the pictures of a column as they are stored, so that nothing is compressed a second time."""
    import datasets

    stored = part.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    return (row[column] for row in stored)


def _ids(part: Any, column: str, first: int = 0) -> list[str]:
    """Return ids for the pictures of a column: from another column that names images, or numbers."""
    names = [name for name in part.column_names if name != column and name.lower() in IMAGE_COLUMN_NAMES]
    if names:
        return [str(name) for name in part[names[0]]]
    return [f"{first + row:06d}" for row in range(len(part))]


def _read_hugging_face(
    data: Any,
    keep: KeepPicture,
    encoding: str | None,
    ignore_columns: Sequence[str],
    classes: Sequence[str] | None,
) -> MemoryData:
    import pyarrow as pa

    parts = _parts(data)
    column = _picture_column(parts[0][1])
    tables, first = [], 0
    for split, part in parts:
        ids = _ids(part, column, first) if column is not None else None
        first += len(part)
        plain = _plain_columns(part, [] if column is None else [column])
        if ids is not None:
            named = [name for name in plain.column_names if name.lower() in IMAGE_COLUMN_NAMES]
            plain = plain.drop_columns(named[:1]).add_column(0, IMAGE_COLUMN, pa.array(ids))
        if split is not None and SPLIT_COLUMN not in plain.column_names:
            plain = plain.append_column(SPLIT_COLUMN, pa.array([split] * len(part)))
        tables.append(plain)
    whole = pa.concat_tables(tables, promote_options="default")
    table = _table_of_columns(whole, parts[0][1], encoding, ignore_columns, classes)
    if column is not None:
        pictures = (picture for _, part in parts for picture in _undecoded(part, column))
        for image_id, picture in zip(table.images, pictures, strict=True):
            keep(image_id, picture)
    return MemoryData(table, pictures=column is not None)


def _plain_columns(part: Any, without: list[str]) -> Any:
    """Return the other columns as Arrow, numbers of classes as their names."""
    import pyarrow as pa

    arrow = part.remove_columns(without).with_format("arrow")[:].replace_schema_metadata(None)
    for at, name in enumerate(arrow.column_names):
        feature = part.features[name]
        if type(feature).__name__ == "ClassLabel":
            named = [
                None if value is None else feature.int2str(value) for value in arrow.column(name).to_pylist()
            ]
            arrow = arrow.set_column(at, name, pa.array(named, pa.string()))
    return arrow


def _table_of_columns(
    arrow: Any, part: Any, encoding: str | None, ignore_columns: Sequence[str], classes: Sequence[str] | None
) -> LabelTable:
    """Read lists of class numbers, vectors of one value for each class, or one column per class."""
    image, ignored = (
        _image_column(arrow.column_names),
        {ignore_columns} if isinstance(ignore_columns, str) else set(ignore_columns),
    )
    others = [name for name in arrow.column_names if name not in (image, SPLIT_COLUMN, *ignored)]
    inner = getattr(part.features.get(others[0]), "feature", None) if len(others) == 1 else None
    if inner is None:
        if classes is not None:
            _refuse(None, (), classes, "the data set has one column per class, which names it")
        return table_from_frame(arrow, encoding, ignore_columns=ignore_columns)
    images = tuple(str(name) for name in arrow.column(image).to_pylist())
    split = (
        np.array(arrow.column(SPLIT_COLUMN).to_pylist(), dtype=np.str_)
        if SPLIT_COLUMN in arrow.column_names
        else None
    )
    lists = arrow.column(others[0]).to_pylist()
    if type(inner).__name__ == "ClassLabel":
        if encoding is not None:
            _refuse(encoding, (), None, f"column {others[0]!r} lists what is present")
        names = tuple(inner.names)
        cells = np.zeros((len(images), len(names)), dtype=np.int8)
        for row, present in enumerate(lists):
            cells[row, present or []] = PRESENT
        return LabelTable(images, names, cells, split, encoding="signed")
    if getattr(part.features[others[0]], "length", -1) in (-1, None) and classes is None:
        # Lists of names, or of numbers that may be classes or values, which is refused.
        return table_from_frame(arrow, encoding, ignore_columns=ignore_columns)
    return table_of_vectors(images, lists, classes, encoding, split)


def table_of_vectors(
    images: Sequence[str],
    vectors: Sequence[Any],
    classes: Sequence[str] | None,
    encoding: str | None,
    split: npt.NDArray[np.str_] | None = None,
) -> LabelTable:
    """Return the table of one label vector an image.

    Args:
        images: ids.
        vectors: C values each.
        classes: C names; None: "class 0", "class 1" and so on.
        encoding: how present, absent and unknown are written; None: the values must leave only one reading.
        split: names of splits, or None.

    >>> table_of_vectors(["a", "b"], [[1, 0], [float("nan"), 1]], ["cat", "dog"], None).cells.tolist()
    [[1, -1], [0, 1]]
    """
    rows = [_vector(vector) for vector in vectors]
    if not rows:
        raise TableError("is empty", where=DATA_SET, remedy="give it at least one image")
    for row, vector in enumerate(rows):
        if vector.ndim != 1 or vector.shape != rows[0].shape:
            raise ArrayError(
                f"the labels of item {row + 1} have the shape {vector.shape}, those of the first {rows[0].shape}",
                where=DATA_SET,
                remedy="give each image one vector with a value for each class",
            )
    array = np.stack(rows)
    names = tuple(f"class {at}" for at in range(array.shape[1])) if classes is None else tuple(classes)
    if len(names) != array.shape[1]:
        raise ArrayError(
            f"there are {len(names)} names of classes, and label vectors have {array.shape[1]} values",
            where=Argument("classes"),
            remedy="give one name for each value",
        )
    codes = array_codes(array)
    wrong = codes == NOT_A_LABEL
    if wrong.any():
        row, column = (int(at) for at in np.argwhere(wrong)[0])
        raise TableError(
            f"item {row + 1}, class {names[column]!r}: {array[row, column]} is not a label",
            where=DATA_SET,
            remedy="give 1, 0, -1 or NaN",
        )
    splits = None if split is None else split.tolist()
    return decode_coded(Coded(tuple(images), names, codes, splits), DATA_SET, "frame", encoding, None).table


def _vector(values: Any) -> npt.NDArray[Any]:
    return as_array(
        [np.nan if value is None else value for value in values] if isinstance(values, list) else values
    )


def _length(data: Any) -> int:
    if not hasattr(data, "__len__"):
        raise TableError(
            "a torch data set that only iterates has no rows to come back to",
            remedy="give one with a length and rows by number",
        )
    return len(data)


def _read_torch(
    data: Any, keep: KeepPicture, encoding: str | None, classes: Sequence[str] | None
) -> MemoryData:
    """Read a torch data set item by item: pictures are kept, vectors are features, texts are paths."""
    ids: list[str] = []
    labels: list[Any] = []
    vectors: list[npt.NDArray[Any]] = []
    pictures = 0
    for row in range(_length(data)):
        item = data[row]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise TableError(
                f"item {row + 1} is no pair of a picture and its labels",
                where=DATA_SET,
                remedy="give a data set of (picture, label vector)",
            )
        shown, name = item[0], f"{row:06d}"
        if isinstance(shown, str | Path):
            name = str(shown)
        elif getattr(shown, "ndim", 3) == 1:
            vectors.append(_vector(shown))
        else:
            keep(name, shown)
            pictures += 1
        ids.append(name)
        labels.append(item[1])
    if max(pictures, len(vectors)) not in (0, len(ids)) or (pictures and vectors):
        raise TableError(
            "holds pictures, vectors and paths together", where=DATA_SET, remedy="give one kind of items"
        )
    named = getattr(data, "classes", None) if classes is None else classes
    table = table_of_vectors(ids, labels, named, encoding)
    return MemoryData(table, np.stack(vectors) if vectors else None, bool(pictures))
