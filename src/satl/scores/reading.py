"""Scores of any model, read from a file and brought into the order of a label table.

Wide CSV or Parquet (``image,<class>...``), the long CSV that ``satl predict`` writes (``image,label,probability``)
or its folder of Parquet files, or ``.npz`` with ``scores`` and, as far as they are there, ``images``, ``names``,
``labels``, ``held_out`` or ``in_sample``, ``fold``. Files are read in blocks of rows straight into one array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from satl.errors import TableError, nearest
from satl.labels import LabelTable, TableFile
from satl.labels.encodings import NOT_A_LABEL, array_codes
from satl.labels.io.arrays import ArrayFile
from satl.labels.io.wide import Coded, decode_coded, not_a_label, unique_images
from satl.scores.score_target import BoolMatrix, Scores, ScoreTarget

_IMAGES = ("images", "image", "ids", "filenames")
_CLASSES = ("names", "classes", "class_names")
_LABELS = ("labels", "cells")
_PARQUET = (".parquet", ".pq")


def read_scores(path: str | Path, table: LabelTable) -> Scores:
    """Read scores for the cells of ``table``; images and classes are matched by name.

    Images or classes that the file lacks have no score, and those that the table lacks are passed over; both are
    told in ``notes``. A file that has nothing to do with the table is an error.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "scores.csv"
    >>> _ = file.write_text("image,dog,cat\\nb.jpg,0.9,0.1\\nz.jpg,0.5,0.5\\n")
    >>> table = LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), np.array([[1, 0], [-1, 1]]))
    >>> scores = read_scores(file, table)
    >>> scores.values.round(2).tolist()
    [[nan, nan], [0.1..., 0.8...]]
    >>> scores.notes
    ("1 of 2 images has no score, such as 'a.jpg': its cells stay unknown.", '1 image of the scores is not in ...')
    """
    from satl.scores.prediction_folder import is_prediction_folder
    from satl.scores.score_files import csv_blocks, folder_blocks, parquet_blocks

    if is_prediction_folder(Path(path)):
        return _gathered(table, Path(path), *folder_blocks(Path(path), table.classes))
    file = _require_file(path)
    extension = file.suffix.lower()
    if extension == ".npz":
        with ArrayFile(file) as arrays:
            return _from_arrays(arrays, file, table)
    if extension in _PARQUET:
        return _gathered(table, file, *parquet_blocks(file, table.classes))
    if extension in (".csv", ".tsv"):
        return _gathered(table, file, *csv_blocks(file, table.classes))
    raise TableError(
        f"{file}: scores are read from .csv, .tsv, .parquet or .npz files, not from '{extension}': convert it."
    )


def read_bundle(path: str | Path, encoding: str | None = None) -> tuple[TableFile, Scores]:
    """Read one ``.npz`` file that holds labels and scores: ``scores``, ``labels``, ``names``, ``images``.

    Without ``images`` the rows are called by their number, from 1; without ``names``, classes are.
    """
    file = _require_file(path)
    if file.suffix.lower() != ".npz":
        raise TableError(f"{file} holds scores alone: give the label table with --labels TABLE.")
    with ArrayFile(file) as arrays:
        rows, columns = _shape(arrays, file)
        key = arrays.first(_LABELS)
        if key is None:
            raise TableError(
                f"{file} holds no 'labels' ({arrays.listed}): add them, or give the label table with --labels TABLE."
            )
        images = _names(arrays, _IMAGES, rows, file) or tuple(str(row + 1) for row in range(rows))
        classes = _names(arrays, _CLASSES, columns, file) or tuple(f"class {c + 1}" for c in range(columns))
        labels = arrays.read(key)
        if labels.shape != (rows, columns) or labels.dtype.kind not in "iufbU":
            raise TableError(
                f"{file}: {key!r} is {labels.dtype} of shape {labels.shape}, but the scores have the shape "
                f"{(rows, columns)}: give one label per score."
            )
        codes = array_codes(labels)
        wrong = codes == NOT_A_LABEL
        if wrong.any():
            row, column = (int(i) for i in np.argwhere(wrong)[0])
            raise TableError(not_a_label(file, row, images[row], classes[column], labels[row, column]))
        del labels, wrong
        stated = str(arrays.read("encoding")) if "encoding" in arrays else None
        coded = Coded(unique_images(images, file), classes, codes)
        opened = decode_coded(coded, file, "npz", encoding, stated)
        return opened, _from_arrays(arrays, file, opened.table)


def _from_arrays(arrays: ArrayFile, file: Path, table: LabelTable) -> Scores:
    rows, columns = _shape(arrays, file)
    images = _names(arrays, _IMAGES, rows, file)
    classes = _names(arrays, _CLASSES, columns, file)
    notes = []
    if images is None:
        if rows != table.num_images:
            raise TableError(
                f"{file} holds no 'images' and {rows:,} rows, but the table has {table.num_images:,}: "
                "add the image ids to it."
            )
        notes.append("The scores name no images: their rows were taken in the order of the table.")
        images = table.images
    if classes is None:
        if columns != table.num_classes:
            raise TableError(
                f"{file} holds no 'names' and {columns:,} columns, but the table has {table.num_classes:,} classes: "
                "add the class names to it."
            )
        notes.append("The scores name no classes: their columns were taken in the order of the table.")
        classes = table.classes
    target = ScoreTarget(table, file, classes)
    for first, block in arrays.row_blocks("scores"):
        target.put(images[first : first + len(block)], block)
    out_of_sample = _mask(arrays, file, table, target, images, (rows, columns))
    folds = 0
    if "fold" in arrays:
        fold = arrays.read("fold")
        if fold.shape not in ((rows,), (rows, columns)) or fold.dtype.kind not in "iu":
            raise TableError(
                f"{file}: 'fold' is {fold.dtype} of shape {fold.shape}: give one whole number per image or cell."
            )
        folds = len(np.unique(fold))
    result = target.finished()
    return Scores(result.values, out_of_sample, folds, (*notes, *result.notes))


def _mask(
    arrays: ArrayFile,
    file: Path,
    table: LabelTable,
    target: ScoreTarget,
    images: Sequence[str],
    shape: tuple[int, int],
) -> BoolMatrix | None:
    """Return the cells out of sample in the order of the table, or None where the file does not say."""
    given = [name for name in ("held_out", "in_sample") if name in arrays]
    if not given:
        return None
    if len(given) == 2:
        raise TableError(f"{file} holds both 'held_out' and 'in_sample': leave one of them out.")
    mask = arrays.read(given[0])
    if mask.dtype.kind not in "biu" or mask.shape not in (shape, shape[:1]):
        raise TableError(
            f"{file}: {given[0]!r} is {mask.dtype} of shape {mask.shape}: give one boolean per image or per cell."
        )
    said = mask.astype(np.bool_) if given[0] == "held_out" else mask == 0
    if said.ndim == 1:
        said = np.broadcast_to(said[:, np.newaxis], shape)
    result = np.zeros((table.num_classes, table.num_images), dtype=np.bool_).T
    rows = target.rows_of(images)
    kept = rows >= 0
    for position, column in target.columns:
        result[rows[kept], column] = said[kept, position]
    return result


def _shape(arrays: ArrayFile, file: Path) -> tuple[int, int]:
    if "scores" not in arrays:
        raise TableError(f"{file} holds no 'scores' ({arrays.listed}): save them under that name.")
    shape, kind = arrays.shape("scores"), arrays.kind("scores")
    if len(shape) != 2 or kind not in "fiu":
        raise TableError(f"{file}: 'scores' must be numbers of the shape (images, classes), not {shape}.")
    return shape[0], shape[1]


def _names(arrays: ArrayFile, keys: tuple[str, ...], count: int, file: Path) -> tuple[str, ...] | None:
    key = arrays.first(keys)
    if key is None:
        return None
    values = arrays.read(key)
    if values.ndim != 1 or values.dtype.kind not in "Ui" or len(values) != count:
        raise TableError(
            f"{file}: {key!r} must be {count:,} texts, one for each of the scores' "
            f"{'rows' if keys is _IMAGES else 'columns'}, not {values.dtype} of shape {values.shape}."
        )
    return tuple(map(str, values.tolist()))


def _gathered(
    table: LabelTable, file: Path, classes: Sequence[str], blocks: Iterator[tuple[Sequence[str], Any]]
) -> Scores:
    target = ScoreTarget(table, file, classes)
    for images, block in blocks:
        target.put(images, block)
    return target.finished()


def _require_file(path: str | Path) -> Path:
    file = Path(path)
    if not file.exists():
        siblings = [p.name for p in file.parent.iterdir()] if file.parent.is_dir() else []
        raise TableError(
            f"{file} does not exist{nearest(file.name, siblings)}: check the path of the scores."
        )
    if file.is_dir():
        raise TableError(f"{file} is a folder: name the file of scores in it.")
    return file
