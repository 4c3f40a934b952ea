"""Read the scores of any model from a file: in the order of the file, or in that of a label table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from satl.errors import TableError
from satl.labels import LabelTable
from satl.labels.io.wide import unique_images
from satl.scores.alignment import ScoreAlignment
from satl.scores.score_reader import ScoreFile, find_reader
from satl.scores.score_table import ScoreTable, unnamed


def read_scores(
    path: str | Path, table: LabelTable | None = None, *, encoding: str | None = None
) -> ScoreTable:
    """Read a file of scores.

    Files are ``.csv``, ``.tsv``, ``.parquet`` or ``.arrow`` with a column ``image`` and one column per class, or with
    the three columns ``image``, ``label`` and ``score`` (or ``probability``); ``.npz`` with ``scores`` and, as far as
    they are there, ``images``, ``classes``, ``labels``, ``held_out`` and more (:mod:`satl.scores.readers.npz_scores`);
    or a folder of predictions. They are read in blocks of rows straight into one array.

    Args:
        path: the file.
        table: give the scores in the order of this table, images and classes matched by name; images or classes that
            the file lacks have no score, and those that the table lacks are ignored; ``notes`` says so. Only
            columns of its classes are read. None: all scores in the order of the file, with the labels and the
            uncertainty that it holds.
        encoding: of the labels in the file, where they can be read in several ways.

    Raises:
        TableError: the file cannot be read, says something impossible, or has nothing in common with ``table``.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "scores.csv"
    >>> _ = file.write_text("image,dog,cat\\nb.jpg,0.75,0.25\\nz.jpg,0.5,0.5\\n")
    >>> read_scores(file).values.tolist()
    [[0.75, 0.25], [0.5, 0.5]]
    >>> table = LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), np.array([[1, 0], [-1, 1]]))
    >>> scores = read_scores(file, table)
    >>> scores.values.tolist()
    [[nan, nan], [0.25, 0.75]]
    >>> scores.notes
    ("1 of 2 images has no score, such as 'a.jpg': its cells stay unknown.", '1 image of the scores is not in ...')
    """
    file = Path(path)
    with find_reader(file).open(file, None if table is None else table.classes) as opened:
        classes = opened.classes or ()
        if len(set(classes)) < len(classes):
            twice = next(name for name in classes if list(classes).count(name) > 1)
            raise TableError(
                f"two of its columns are called {twice!r}", where=file, remedy="rename or remove one"
            )
        return (
            _in_own_order(opened, file, encoding) if table is None else _in_table_order(opened, file, table)
        )


def _in_own_order(opened: ScoreFile, file: Path, encoding: str | None) -> ScoreTable:
    blocks, rows = opened.blocks, opened.rows
    if rows is None:
        listed = list(blocks)
        blocks, rows = iter(listed), sum(len(block) for _, block in listed)
    values = np.empty((opened.columns, rows), dtype=np.float32).T
    names: list[str] = []
    first = 0
    for images, block in blocks:
        with np.errstate(over="ignore"):  # what becomes infinite is refused with its place
            values[first : first + len(block)] = block
        first += len(block)
        names.extend(images or ())
    images_named = bool(names) or not rows
    found_images = (
        unique_images(tuple(names), file) if images_named else tuple(str(row + 1) for row in range(rows))
    )
    classes = (
        tuple(f"class {column + 1}" for column in range(opened.columns))
        if opened.classes is None
        else tuple(opened.classes)
    )
    held_out = opened.held_out
    if held_out is not None and held_out.ndim == 1:
        held_out = np.broadcast_to(held_out[:, np.newaxis], values.shape)
    found = ScoreTable(
        path=file,
        images=found_images,
        classes=classes,
        values=values,
        held_out=held_out,
        folds=opened.folds,
        labels=None if opened.read_labels is None else opened.read_labels(found_images, classes, encoding),
        uncertainty=None if opened.read_uncertainty is None else opened.read_uncertainty(),
        images_named=images_named,
        classes_named=opened.classes is not None,
    )
    return replace(found, notes=tuple(_check_values(found)))


def _in_table_order(opened: ScoreFile, file: Path, table: LabelTable) -> ScoreTable:
    notes = []
    if opened.classes is None:
        if opened.columns != table.num_classes:
            raise unnamed(file, "classes", opened.columns, f"the table has {table.num_classes:,}")
        notes.append("The scores name no classes: their columns were taken in the order of the table.")
    alignment = ScoreAlignment(table, file, opened.classes or table.classes)
    images_named = True
    for images, block in opened.blocks:
        if images is None:
            images_named = False
            if opened.rows != table.num_images:
                raise unnamed(file, "images", opened.rows or 0, f"the table has {table.num_images:,}")
        alignment.put(images or table.images[alignment.read : alignment.read + len(block)], block)
    if not images_named:
        notes.insert(0, "The scores name no images: their rows were taken in the order of the table.")
    notes.extend(alignment.notes())
    found = ScoreTable(
        path=file,
        images=table.images,
        classes=table.classes,
        values=alignment.values,
        held_out=None if opened.held_out is None else alignment.aligned_mask(opened.held_out),
        folds=opened.folds,
        images_named=images_named,
        classes_named=opened.classes is not None,
    )
    gaps = _check_values(found, alignment.has_row, (column for _, column in alignment.columns))
    return replace(found, notes=(*notes, *gaps))


def _check_values(
    found: ScoreTable, rows: Any = slice(None), columns: Iterable[int] | None = None
) -> list[str]:
    """Refuse infinite scores and say how many are missing in the rows and columns that the file has."""
    gaps = 0
    for column in range(len(found.classes)) if columns is None else columns:
        values = found.values[:, column]
        infinite = np.isinf(values)
        if infinite.any():
            row = int(np.argmax(infinite))
            raise TableError(
                f"the score of image {found.images[row]!r}, class {found.classes[column]!r} is {values[row]}",
                where=found.path,
                remedy="write a finite number in single precision, or nothing",
            )
        gaps += int(np.count_nonzero(np.isnan(values[rows])))
    if not gaps:
        return []
    return [f"{gaps:,} score{'s are' if gaps != 1 else ' is'} NaN or blank: such cells stay unknown."]
