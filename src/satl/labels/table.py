"""The label table: which image shows which class, as far as anybody has looked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import as_array, signed_array
from satl.checks.label_meanings import ABSENT, PRESENT, UNKNOWN
from satl.errors import ArrayError, TableError, nearest
from satl.labels.cells import CellIndex

if TYPE_CHECKING:
    from satl.labels.frames import FrameKind

__all__ = ["ABSENT", "PRESENT", "UNKNOWN", "Cells", "LabelTable", "aligned_cells", "split_role"]

Cells = npt.NDArray[np.int8]

# Control characters would need quoting rules of their own in every text format; no class or file needs them.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

_ROLES = {"training": "train", "validation": "val", "valid": "val", "dev": "val", "testing": "test"}


def split_role(name: str) -> str:
    """Return what a split is for, however it is spelled; other names stay, in lower case.

    >>> split_role("Train"), split_role(" validation"), split_role("Held back")
    ('train', 'val', 'held back')
    """
    lowered = str(name).strip().lower()
    return _ROLES.get(lowered, lowered)


@dataclass(frozen=True, eq=False, repr=False)
class LabelTable:
    """What is known about N images and C classes; immutable.

    Attributes:
        images: N unique ids, usually a path relative to the image folder.
        classes: C unique class names.
        cells: int8 (N, C); +1 present, -1 absent, 0 unknown.
        split: str (N,) such as "train", "val", "test", or None.
        truth: int8 (N, C) hidden ground truth, for measuring pseudo-labels and never for training,
            0 where the truth is unknown too; or None.

    Arrays are copied and made read-only. They are given with +1, -1 and 0, or as the further argument ``encoding`` says
    (of both ``cells`` and ``truth``; see :data:`satl.labels.ENCODINGS`). An array with 0 and without -1 can be read in
    two ways and is refused unless an encoding is named; NaN is unknown.

    >>> table = LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), np.array([[1, 0], [-1, 1]]))
    >>> table
    LabelTable(2 images, 2 classes: 2 present, 1 absent, 1 unknown)
    >>> table.known.tolist()
    [[True, False], [True, True]]
    >>> table.select([1]).images
    ('b.jpg',)
    >>> LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), np.eye(2), encoding="complete")
    LabelTable(2 images, 2 classes: 2 present, 2 absent, 0 unknown)
    """

    images: tuple[str, ...]
    classes: tuple[str, ...]
    cells: Cells
    split: npt.NDArray[np.str_] | None = None
    truth: Cells | None = None
    encoding: InitVar[str | None] = None

    def __post_init__(self, encoding: str | None) -> None:
        images = _names(self.images, "image")
        classes = _names(self.classes, "class")
        shape = (len(images), len(classes))
        _set(self, "images", images)
        _set(self, "classes", classes)
        _set(self, "cells", _kept(_read_cells(self.cells, shape, "cells", images, classes, encoding)))
        if self.truth is not None:
            _set(self, "truth", _kept(_read_cells(self.truth, shape, "truth", images, classes, encoding)))
        if self.split is not None:
            _set(self, "split", _split_array(self.split, images))

    @classmethod
    def from_frame(
        cls, frame: Any, encoding: str | None = None, *, ignore_columns: Sequence[str] = ()
    ) -> LabelTable:
        """Read a pandas or polars frame or an Arrow table by the rule of files: nothing is guessed.

        Args:
            frame: a column ``image`` (or an index of that name), optionally ``split``, and one column per class: 1
                present, 0 absent, a gap or NaN unknown. Or a column ``labels`` with lists of what is present.
            encoding: a name in ``ENCODINGS``; without it the values must leave only one reading.
            ignore_columns: columns that are not classes.

        Raises:
            EncodingError: the values can be read in several ways; says which encoding to pass.
            TableError: a column or a value is no label.

        >>> import pyarrow as pa
        >>> LabelTable.from_frame(pa.table({"image": ["a.jpg", "b.jpg"], "cat": [1, None], "dog": [0, 1]}))
        LabelTable(2 images, 2 classes: 2 present, 1 absent, 1 unknown)
        >>> LabelTable.from_frame(pa.table({"image": ["a.jpg", "b.jpg"], "cat": [1, 0]}))
        Traceback (most recent call last):
        satl.errors.EncodingError: the frame: can be read in 2 ways (1 in 1 cell, 0 in 1 cell); pass encoding=...
        """
        from satl.labels.frames import table_from_frame

        return table_from_frame(frame, encoding, ignore_columns=ignore_columns)

    def to_frame(self, kind: FrameKind | None = None, encoding: str = "blank") -> Any:
        """Return the table as a frame: ``image``, ``split`` where there is one, and one column per class.

        :meth:`from_frame` reads it back, with the same encoding where nothing is unknown. A hidden truth is left out.

        Args:
            kind: "pandas", "polars" or "arrow"; None: that of pandas or polars, whichever is in use or installed, else
                Arrow.
            encoding: how present, absent and unknown are written; by default 1, 0 and a gap.

        >>> LabelTable(("a.jpg",), ("cat", "dog"), np.array([[1, 0]]), encoding="signed").to_frame("arrow").to_pydict()
        {'image': ['a.jpg'], 'cat': [1], 'dog': [None]}
        """
        from satl.labels.frames import table_to_frame

        return table_to_frame(self, kind, encoding)

    @cached_property
    def index(self) -> CellIndex:
        """Finds rows and columns by image id and class name."""
        return CellIndex(self.images, self.classes)

    @property
    def num_images(self) -> int:
        """Number of rows, N."""
        return len(self.images)

    @property
    def num_classes(self) -> int:
        """Number of columns, C."""
        return len(self.classes)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Bool (N, C): the cells somebody has looked at."""
        return self.cells != UNKNOWN

    @property
    def positive_only(self) -> bool:
        """Whether something is known to be present and nothing is known to be absent.

        Such a table (a list of tags, say) cannot tell "absent" from "nobody looked", so a threshold
        has no known negatives to learn from.
        """
        return not bool((self.cells == ABSENT).any()) and bool((self.cells == PRESENT).any())

    @property
    def splits(self) -> dict[str, int]:
        """Number of images of every split, in order of first appearance; empty where there is no split."""
        if self.split is None:
            return {}
        names, first, counts = np.unique(self.split, return_index=True, return_counts=True)
        order = np.argsort(first)
        return {str(names[i]): int(counts[i]) for i in order}

    def select(self, rows: npt.ArrayLike) -> LabelTable:
        """Return the table of the given rows: a bool mask (N,) or indices in the wanted order."""
        index = np.asarray(rows)
        if index.dtype == np.bool_:
            if index.shape != (self.num_images,):
                raise ArrayError(
                    f"a mask over {self.num_images} images must have shape ({self.num_images},), "
                    f"not {index.shape}."
                )
            index = np.flatnonzero(index)
        if index.size == 0:
            raise TableError("no image is selected: a label table needs at least one image.")
        return LabelTable(
            tuple(self.images[i] for i in index.tolist()),
            self.classes,
            self.cells[index],
            None if self.split is None else self.split[index],
            None if self.truth is None else self.truth[index],
            "signed",
        )

    def where_split(self, name: str) -> LabelTable:
        """Return the rows of one split, e.g. ``table.where_split("train")``."""
        return self.select(self.split_mask(name))

    def split_mask(self, name: str) -> npt.NDArray[np.bool_]:
        """Bool (N,): the rows of one split; an unknown one is an error that lists the splits."""
        if self.split is None:
            raise TableError(f"the table has no split column, so it has no '{name}' images: add one.")
        mask = self.split == name
        if not mask.any():
            present = list(self.splits)
            raise TableError(
                f"no image belongs to split '{name}'{nearest(name, present)}; "
                f"the table has {', '.join(repr(p) for p in present)}."
            )
        return np.asarray(mask, dtype=np.bool_)

    def train_rows(self) -> npt.NDArray[np.int64]:
        """Return the rows to train on: all of a table without a split, else those that :func:`split_role` calls so."""
        if self.split is None:
            return np.arange(self.num_images)
        names = [name for name in self.splits if split_role(name) == "train"]
        # Without any, the error of split_mask names the splits that there are.
        return np.flatnonzero(np.isin(self.split, names) if names else self.split_mask("train"))

    def with_cells(self, cells: npt.ArrayLike, encoding: str | None = None) -> LabelTable:
        """Return the same table with other cells (N, C), read as the constructor reads them."""
        own = _read_cells(cells, self.cells.shape, "cells", self.images, self.classes, encoding)
        return LabelTable(self.images, self.classes, own, self.split, self.truth, "signed")

    def with_split(self, split: Iterable[str] | None) -> LabelTable:
        """Return the same table with another split (N,), or none."""
        new = None if split is None else np.asarray(list(split), dtype=np.str_)
        return LabelTable(self.images, self.classes, self.cells, new, self.truth, "signed")

    def with_truth(self, truth: npt.ArrayLike | None, encoding: str | None = None) -> LabelTable:
        """Return the same table with another hidden truth (N, C), read as the constructor reads it, or none."""
        new = None
        if truth is not None:
            new = _read_cells(truth, self.cells.shape, "truth", self.images, self.classes, encoding)
        return LabelTable(self.images, self.classes, self.cells, self.split, new, "signed")

    def __eq__(self, other: object) -> bool:
        """Compare by content."""
        if not isinstance(other, LabelTable):
            return NotImplemented
        return (
            self.images == other.images
            and self.classes == other.classes
            and np.array_equal(self.cells, other.cells)
            and _same(self.split, other.split)
            and _same(self.truth, other.truth)
        )

    # Content may be large, so a table cannot be a dictionary key.
    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, so that a copy in another process is read-only as well.
        return LabelTable, (self.images, self.classes, self.cells, self.split, self.truth, "signed")

    def __repr__(self) -> str:
        present = int((self.cells == PRESENT).sum())
        absent = int((self.cells == ABSENT).sum())
        unknown = self.cells.size - present - absent
        parts = [
            f"{self.num_images:,} image{'s' * (self.num_images != 1)}, "
            f"{self.num_classes:,} class{'es' * (self.num_classes != 1)}: "
            f"{present:,} present, {absent:,} absent, {unknown:,} unknown"
        ]
        if self.split is not None:
            parts.append("split " + ", ".join(f"{name} {count:,}" for name, count in self.splits.items()))
        if self.truth is not None:
            parts.append("with truth")
        return f"LabelTable({'; '.join(parts)})"


def _set(table: LabelTable, name: str, value: object) -> None:
    object.__setattr__(table, name, value)


def _same(one: npt.NDArray[Any] | None, other: npt.NDArray[Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _names(values: Iterable[str], kind: str) -> tuple[str, ...]:
    """Check ids or class names: text, not empty, unique, writable in every format."""
    if isinstance(values, str):
        raise TableError(f"the {kind} names must be a sequence of names, not the single text {values!r}.")
    names = tuple(values)
    if not names:
        plural = "images" if kind == "image" else "classes"
        raise TableError(f"the table is empty: it has no {plural}.")
    if not _all_plain(names):
        for number, name in enumerate(names, start=1):
            problem = _name_problem(name)
            if problem:
                raise TableError(f"{kind} {number} ({name!r}) {problem}.")
    if len(set(names)) != len(names):
        first: dict[str, int] = {}
        for number, name in enumerate(names, start=1):
            if name in first:
                raise TableError(
                    f"{kind} {name!r} appears twice (as number {first[name]} and number {number}): "
                    f"remove or rename one."
                )
            first[name] = number
    # numpy's own text type would leak into JSON and comparisons of type.
    return tuple(str(name) for name in names)


def _all_plain(names: tuple[str, ...]) -> bool:
    """Whether all names are certainly valid, checked quickly; False means that each is checked."""
    if set(map(type, names)) != {str} or not "".join(names).isprintable():
        return False
    # The one printable white space is the space, so these four see every bad end and every empty name.
    joined = "\n" + "\n".join(names) + "\n"
    return not ("\n " in joined or " \n" in joined or "\n\n" in joined)


def _name_problem(name: object) -> str | None:
    if not isinstance(name, str):
        return f"is not text but {type(name).__name__}: convert it with str()"
    if not name:
        return "is empty: give it a name"
    if name[0].isspace() or name[-1].isspace():
        return "begins or ends with white space: remove it"
    if not name.isascii() or not name.isprintable():
        if _CONTROL.search(name):
            return "contains a control character: remove it"
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            return "is not valid Unicode: rename it"
    return None


def _read_cells(
    values: npt.ArrayLike,
    shape: tuple[int, ...],
    what: str,
    images: tuple[str, ...],
    classes: tuple[str, ...],
    encoding: str | None,
) -> Cells:
    given = as_array(values)
    if given.shape != shape:
        raise ArrayError(
            f"{what} must have shape {shape} (images, classes), but has {given.shape}: "
            f"give one row per image."
        )
    if given.dtype.kind not in "biuf":
        raise ArrayError(
            f"{what} must be numbers 1, -1 and 0, not {given.dtype}: read a file with read_table."
        )

    def place(row: int, column: int) -> str:
        return f"image {images[row - 1]!r} (row {row}), class {classes[column - 1]!r}"

    return signed_array(given, what, encoding, place)


def _kept(cells: Cells) -> Cells:
    """Return a copy that nobody can change."""
    copied = np.array(cells, dtype=np.int8, order="C", copy=True)
    copied.flags.writeable = False
    return copied


def _split_array(values: npt.ArrayLike, images: tuple[str, ...]) -> npt.NDArray[np.str_]:
    given = np.asarray(values)
    if given.shape != (len(images),):
        raise ArrayError(f"split must name one split per image ({len(images)}), but has shape {given.shape}.")
    if given.dtype.kind not in "UO":
        raise ArrayError(f"split must be text such as 'train', not {given.dtype}.")
    for name in set(given.tolist()):
        problem = _name_problem(name)
        if problem:
            row = next(i for i, value in enumerate(given.tolist()) if value == name)
            raise TableError(f"the split {name!r} of image {images[row]!r} (row {row + 1}) {problem}.")
    split = np.array(given, dtype=np.str_, copy=True)
    split.flags.writeable = False
    return split


def aligned_cells(
    other: LabelTable, table: LabelTable, origin: str | os.PathLike[str], *, all_classes: bool = False
) -> Cells:
    """Return the cells of ``other`` in the order of ``table``, int8 (N, C), 0 for what it lacks.

    Args:
        other: a further table of the same images.
        table: gives the order.
        origin: where ``other`` comes from, for messages.
        all_classes: refuse a table that lacks a class.

    Raises:
        TableError: the two have no image or no class in common.

    >>> table = LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), np.ones((2, 2)))
    >>> aligned_cells(LabelTable(("b.jpg",), ("dog",), np.array([[-1]])), table, "other.csv").tolist()
    [[0, 0], [0, -1]]
    """
    if other.images == table.images and other.classes == table.classes:
        return other.cells
    rows, columns = other.index.images.find_distinct(table.images), other.index.classes.find(table.classes)
    if all_classes and (columns < 0).any():
        name = table.classes[int(np.argmin(columns))]
        raise TableError(
            f"has no class {name!r}{nearest(name, other.classes)}", where=origin, remedy="add that column"
        )
    for found, kind, ours, theirs in (
        (rows, "images", table.images, other.images),
        (columns, "classes", table.classes, other.classes),
    ):
        if (found < 0).all():
            raise TableError(
                f"has none of the table's {kind} (such as {ours[0]!r}; it has {theirs[0]!r})",
                where=origin,
                remedy="use the same names in both",
            )
    cells = other.cells[np.maximum(rows, 0)[:, None], np.maximum(columns, 0)[None, :]]
    cells[rows < 0] = UNKNOWN
    cells[:, columns < 0] = UNKNOWN
    return cells
