"""Files of scores, with or without labels, as other programs write them."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError, nearest
from satl.labels import LabelTable
from satl.labels.cells import without_extension
from satl.labels.encodings import NOT_A_LABEL, array_codes
from satl.labels.io.wide import (
    IMAGE_COLUMN_NAMES,
    Coded,
    check_header,
    check_names,
    decode_coded,
    not_a_label,
    unique_images,
)

FloatArray = npt.NDArray[np.float32]
# The first name is ours; the others are met in files of other projects.
_SCORES = ("scores", "probabilities")
_CLASSES = ("classes", "names", "class_names")
_IMAGES = ("images", "image", "ids", "filenames")
_LABELS = ("cells", "labels")
_LONG = ({"image", "label", "probability"}, {"image", "label", "score"})
"""Columns that make a table long: one row per image and class, as ``satl predict`` writes it."""


@dataclass(frozen=True)
class ScoreFile:
    """Scores in [0, 1] of N images and C classes, as read from a file.

    images, classes: ids and names, or None where the file has none.
    scores: float32 (N, C).
    table: the labels that the file holds itself, or None.
    uncertainty: float32 (N, C), or None.
    """

    path: Path
    images: tuple[str, ...] | None
    classes: tuple[str, ...] | None
    scores: FloatArray
    table: LabelTable | None = None
    uncertainty: FloatArray | None = None

    def labelled_by(self, table: LabelTable, origin: Path) -> LabelTable:
        """Return the rows of ``table`` in the order of the scores, and its classes in their order.

        Images of the table that have no score are left out; everything else must be in both.
        """
        for what, names in (("images", self.images), ("classes", self.classes)):
            if names is None:
                raise TableError(
                    f"{self.path}: there is no array '{what}' to find the labels of {origin} by: add it to the file."
                )
        assert self.images is not None
        assert self.classes is not None
        for name in self.classes:
            if name not in table.classes:
                raise TableError(
                    f"{origin}: has no class {name!r}{nearest(name, table.classes)}, which {self.path} scores: "
                    "add that column, or remove it from the scores."
                )
        for name in table.classes:
            if name not in self.classes:
                raise TableError(
                    f"{self.path}: has no scores of class {name!r}{nearest(name, self.classes)}, which {origin} "
                    "knows: add that column, or remove it from the labels."
                )
        row_of = {name: i for i, name in enumerate(table.images)}
        # A table may leave the extensions out, which `satl predict` writes; training finds the files all the same.
        row = {name: row_of.get(name, row_of.get(without_extension(name))) for name in self.images}
        missing = [name for name in self.images if row[name] is None]
        if missing:
            raise TableError(
                f"{origin}: has no row for {len(missing):,} of the {len(self.images):,} images of {self.path}, such as "
                f"{missing[0]!r}{nearest(missing[0], table.images[:1000])}: use the same image ids in both."
            )
        rows = np.array([row[name] for name in self.images], dtype=np.int64)
        if len(np.unique(rows)) < len(rows):
            twice = table.images[int(np.argmax(np.bincount(rows) > 1))]
            raise TableError(
                f"{self.path}: several of its images are {twice!r} of {origin}: write the ids there with their "
                "extensions."
            )
        columns = np.array([table.classes.index(name) for name in self.classes])
        place = np.ix_(rows, columns)
        truth = None if table.truth is None else table.truth[place]
        return LabelTable(self.images, self.classes, table.cells[place], None, truth)


def read_scores(path: Path, encoding: str | None = None) -> ScoreFile:
    """Read scores from ``.npz``, ``.csv``, ``.tsv`` or ``.parquet``, or the folder that ``satl predict`` wrote.

    An ``.npz`` file has an array ``scores`` (N, C) and, optionally, ``images``, ``classes`` (or ``names``),
    ``labels`` (or ``cells``), ``truth``, ``encoding`` and ``uncertainty``. The others have a column ``image`` and
    one column per class, or the three columns ``image``, ``label`` and ``probability`` (or ``score``).

    encoding: how the labels of an ``.npz`` file are to be read, where that can be done in several ways.

    Raises:
        TableError: the file cannot be read, or a score is not a number in [0, 1].
    """
    if not path.exists():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise TableError(
            f"{path} does not exist{nearest(path.name, siblings)}: check the path of the scores."
        )
    from satl.scores.prediction_folder import PRESENT, is_prediction_folder, part_files

    if is_prediction_folder(path):
        import pyarrow as pa

        parts = [_read_parquet(file) for file in part_files(path)]
        header = parts[0][0]
        at = [i for i, name in enumerate(header) if name != PRESENT]
        joined = [
            pa.chunked_array([chunk for _, part in parts for chunk in part[i].chunks], parts[0][1][i].type)
            for i in at
        ]
        return _read_columns([header[i] for i in at], joined, path)
    if path.is_dir():
        raise TableError(f"{path} is a folder: name the file of scores in it.")
    extension = path.suffix.lower()
    if extension == ".npz":
        return _read_npz(path, encoding)
    if extension in (".csv", ".tsv", ".parquet", ".pq"):
        header, columns = _read_csv(path) if extension in (".csv", ".tsv") else _read_parquet(path)
        return _read_columns(header, columns, path)
    raise TableError(
        f"{path}: scores are read from .npz, .csv, .tsv and .parquet: convert it to one of those."
    )


def _read_npz(path: Path, encoding: str | None) -> ScoreFile:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise ValueError("a single array")
        with loaded as file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile):
        raise TableError(
            f"{path} is not a readable .npz file of plain arrays: save it with numpy.savez, and names as text."
        ) from None
    key = next((name for name in _SCORES if name in arrays), None)
    if key is None:
        raise TableError(
            f"{path}: there is no array 'scores' (arrays: {', '.join(map(repr, arrays)) or 'none'}): add it."
        )
    shape = arrays[key].shape
    if len(shape) != 2 or 0 in shape or arrays[key].dtype.kind not in "fiu":
        raise TableError(
            f"{path}: {key!r} must hold numbers of shape (images, classes), not {arrays[key].dtype} {shape}."
        )
    images, classes = (_names(arrays, names, shape[i], path) for i, names in enumerate((_IMAGES, _CLASSES)))
    if images is not None:
        unique_images(images, path)
    shown_images = images or tuple(str(n) for n in range(1, shape[0] + 1))
    shown_classes = classes or tuple(f"class {c}" for c in range(1, shape[1] + 1))
    scores = _unit(arrays[key], path, shown_images, shown_classes)
    uncertainty = None
    if "uncertainty" in arrays:
        if arrays["uncertainty"].shape != shape or arrays["uncertainty"].dtype.kind not in "fiu":
            raise TableError(f"{path}: 'uncertainty' must hold numbers of the shape {shape} of the scores.")
        uncertainty = arrays["uncertainty"].astype(np.float32)
    table = None
    label_key = next((name for name in _LABELS if name in arrays), None)
    if label_key is not None:
        cells = _codes(arrays[label_key], label_key, shown_images, shown_classes, path)
        truth = (
            _codes(arrays["truth"], "truth", shown_images, shown_classes, path) if "truth" in arrays else None
        )
        stated = str(arrays["encoding"]) if "encoding" in arrays else None
        coded = Coded(shown_images, shown_classes, cells, None, truth)
        table = decode_coded(coded, path, "npz", encoding, stated).table
    return ScoreFile(path, images, classes, scores, table, uncertainty)


def _names(
    arrays: dict[str, npt.NDArray[Any]], names: tuple[str, ...], count: int, path: Path
) -> tuple[str, ...] | None:
    key = next((name for name in names if name in arrays), None)
    if key is None:
        return None
    values = arrays[key]
    if values.shape != (count,) or values.dtype.kind not in "Ui":
        raise TableError(
            f"{path}: {key!r} must be a list of {count} texts, as many as the scores say, not {values.dtype} "
            f"{values.shape}."
        )
    return tuple(str(value).strip() for value in values.tolist())


def _codes(
    values: npt.NDArray[Any], key: str, images: tuple[str, ...], classes: tuple[str, ...], path: Path
) -> npt.NDArray[np.uint8]:
    shape = (len(images), len(classes))
    if values.shape != shape or values.dtype.kind not in "iufbU":
        raise TableError(
            f"{path}: {key!r} must hold labels of the shape {shape} of the scores, not {values.dtype} {values.shape}."
        )
    codes = array_codes(values)
    wrong = codes == NOT_A_LABEL
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise TableError(not_a_label(path, row, images[row], classes[column], values[row, column]))
    return codes


def _read_csv(path: Path) -> tuple[list[str], list[Any]]:
    import pyarrow as pa
    import pyarrow.csv

    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next((row for row in csv.reader(file, delimiter=delimiter) if row), [])
        if not header:
            raise TableError(f"{path} is empty: write a header 'image,<class>,...' and one row per image.")
        check_names(header, path)
        # Ids stay as they are written: 0012 is not 12.
        texts = [name for name in header if name.strip().lower() in (*IMAGE_COLUMN_NAMES, "label", "split")]
        table = pyarrow.csv.read_csv(
            path,
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string())),
        )
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError, csv.Error) as error:
        reason = str(error).splitlines()[0].rstrip(".")[:160]
        raise TableError(f"{path} cannot be read as CSV ({reason}): save it again as UTF-8 text.") from None
    return header, table.columns


def _read_parquet(path: Path) -> tuple[list[str], list[Any]]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path).read()
    except (pa.ArrowInvalid, pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")[:160]
        raise TableError(f"{path} is not a readable Parquet file ({reason}): save it again.") from None
    # pandas stores the row numbers of a frame under this name: they are no class.
    kept = [i for i, name in enumerate(table.schema.names) if not name.startswith("__index_level_")]
    return [table.schema.names[i] for i in kept], [table.column(i) for i in kept]


def _read_columns(header: list[str], columns: list[Any], path: Path) -> ScoreFile:
    lowered = [name.strip().lower() for name in header]
    if any(names <= set(lowered) for names in _LONG):
        return _read_long(lowered, columns, path)
    image_at, split_at = check_header(header, path)
    images = unique_images(_texts(columns[image_at]), path)
    at = [i for i in range(len(header)) if i not in (image_at, split_at)]
    classes = tuple(header[i].strip() for i in at)
    values = [_numbers(columns[i], header[i], images.__getitem__, path) for i in at]
    return ScoreFile(path, images, classes, _unit(np.stack(values, axis=1), path, images, classes))


def _read_long(lowered: list[str], columns: list[Any], path: Path) -> ScoreFile:
    score_at = lowered.index("probability" if "probability" in lowered else "score")
    if not len(columns[0]):
        raise TableError(f"{path} is empty: it has no row below its header; add one row per image and class.")
    (images, rows), (classes, at) = (_numbered(columns[lowered.index(name)]) for name in ("image", "label"))
    values = _numbers(columns[score_at], lowered[score_at], lambda row: images[rows[row]], path)
    cell = rows * len(classes) + at
    counts = np.bincount(cell, minlength=len(images) * len(classes))
    wrong = int(np.argmax(counts != 1))
    if counts[wrong] != 1:
        image, label = images[wrong // len(classes)], classes[wrong % len(classes)]
        raise TableError(
            f"{path}: image {image!r} has {counts[wrong]} rows of class {label!r}: give each image one of every class."
        )
    scores = np.empty(len(cell))
    scores[cell] = values
    return ScoreFile(
        path, images, classes, _unit(scores.reshape(len(images), len(classes)), path, images, classes)
    )


def _texts(column: Any) -> tuple[str, ...]:
    return tuple("" if value is None else str(value).strip() for value in column.to_pylist())


def _numbered(column: Any) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Return the texts of a column, each once and in their order, and the number of the one in each row, (N,).

    A long file says every name many times; as one Python text for each row they would take most of the memory.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    coded = column.dictionary_encode(null_encoding="encode").unify_dictionaries()
    found = _texts(coded.chunk(0).dictionary)
    names = tuple(dict.fromkeys(found))  # fewer, where some differed by white space around them
    number = {name: at for at, name in enumerate(names)}
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in coded.chunks])
    return names, np.array([number[name] for name in found], dtype=np.int64)[codes]


def _numbers(column: Any, name: str, image_of: Callable[[int], str], path: Path) -> npt.NDArray[np.float64]:
    """Return a column as float64 (N,), or name the first row that is no number."""
    import pyarrow as pa

    if pa.types.is_floating(column.type):
        return np.asarray(column.to_numpy(), dtype=np.float64)  # a gap is NaN, which is refused later
    values = column.to_pylist()
    try:
        return np.array(values, dtype=np.float64)  # a gap becomes NaN, which is refused later
    except (TypeError, ValueError):
        pass
    for row, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError):
            raise TableError(
                f"{path}: row {row + 1} (image {image_of(row)!r}), column {name!r}: {value!r} is not a number: write a "
                "score between 0 and 1, or remove the column if it is no class."
            ) from None
    raise TableError(f"{path}: column {name!r} must hold numbers, not {column.type}: save it again.")


def _unit(
    values: npt.NDArray[Any], path: Path, images: tuple[str, ...], classes: tuple[str, ...]
) -> FloatArray:
    """Return scores as float32, or name the first that is not a number in [0, 1]."""
    scores = values.astype(np.float64)
    wrong = ~((scores >= 0.0) & (scores <= 1.0))
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        value = scores[row, column]
        place = f"{path}: row {row + 1} (image {images[row]!r}), class {classes[column]!r}"
        if np.isnan(value):
            raise TableError(f"{place}: the score is missing (NaN): give every image a score of every class.")
        raise TableError(
            f"{place}: the score {value:g} lies outside [0, 1]: write probabilities (the sigmoid of logits)."
        )
    return scores.astype(np.float32)
