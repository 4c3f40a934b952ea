"""COCO and LVIS annotation files: which categories have an annotation in which image.

Both hold ``images``, ``annotations`` and ``categories``. In a COCO file every image was searched for every
category, so what is not annotated is absent. In an LVIS file each image names the categories that are
known to be absent (``neg_category_ids``); everything else that is not annotated is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError
from satl.labels.io.cache import Arrays, cached_arrays, fingerprint
from satl.labels.io.json_stream import json_elements
from satl.labels.io.wide import complete_splits, unique_images
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, Cells

_KIND = "instances 1"
_KEYS = ("images", "annotations", "categories")


@dataclass(frozen=True)
class Instances:
    """The labels of an annotation file of N images and C categories.

    Attributes:
        images: the file name of every image, in the order of the file.
        splits: the ``split`` of every image where the file has them, else None.
        categories: (id, name), by ascending id.
        positive, negative: int64, sorted positions ``row * C + column`` of cells with an annotation, and of cells
            that the file says are absent.
        complete: whether every cell without an annotation is absent (COCO), not unknown (LVIS).
    """

    path: Path
    images: tuple[str, ...]
    splits: tuple[str, ...] | None
    categories: tuple[tuple[int, str], ...]
    positive: npt.NDArray[np.int64]
    negative: npt.NDArray[np.int64]
    complete: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The C names of the categories."""
        return tuple(name for _, name in self.categories)

    def cells(self) -> Cells:
        """Int8 (N, C)."""
        cells = np.full(
            len(self.images) * len(self.categories), ABSENT if self.complete else UNKNOWN, np.int8
        )
        cells[self.negative] = ABSENT
        cells[self.positive] = PRESENT
        return cells.reshape(len(self.images), len(self.categories))

    def labelled(self) -> npt.NDArray[np.bool_]:
        """Bool (N,): the images with at least one annotation."""
        found = np.zeros(len(self.images), dtype=np.bool_)
        found[self.positive // len(self.categories)] = True
        return found


def read_instances(path: Path) -> Instances:
    """Read an annotation file, or what the cache kept of it."""
    state = fingerprint(path)
    return _read_state(path, state["size"], state["changed_ns"], state["sample"])


@lru_cache(maxsize=2)
def _read_state(path: Path, *state: object) -> Instances:
    """Remember the last files: a format is recognised by reading it, and then it is read."""
    return _from_arrays(path, cached_arrays(path, _KIND, lambda: _to_arrays(_parse(path))))


def _to_arrays(found: Instances) -> Arrays:
    texts = json.dumps(
        {
            "images": found.images,
            "splits": found.splits,
            "categories": found.categories,
            "complete": found.complete,
        }
    )
    return {
        "texts": np.frombuffer(texts.encode("utf-8"), dtype=np.uint8),
        "positive": found.positive,
        "negative": found.negative,
    }


def _from_arrays(path: Path, arrays: Arrays) -> Instances:
    texts = json.loads(arrays["texts"].tobytes())
    return Instances(
        path,
        tuple(texts["images"]),
        None if texts["splits"] is None else tuple(texts["splits"]),
        tuple((number, name) for number, name in texts["categories"]),
        arrays["positive"],
        arrays["negative"],
        texts["complete"],
    )


class _Columns:
    """What is kept of an annotation file while it passes by."""

    def __init__(self) -> None:
        self.image_ids: list[Any] = []
        self.file_names: list[str] = []
        self.splits: list[str | None] = []
        self.absent: list[list[Any] | None] = []
        self.present: list[list[Any] | None] = []
        self.annotated_image: list[Any] = []
        self.annotated_category: list[Any] = []
        self.categories: dict[int, str] = {}


def _parse(path: Path) -> Instances:
    """Read an annotation file itself."""
    columns = _Columns()
    seen: set[str] = set()
    number = dict.fromkeys(_KEYS, 0)
    for key, element in json_elements(path, _KEYS, seen):
        number[key] += 1
        try:
            if key == "annotations":
                columns.annotated_image.append(element["image_id"])
                columns.annotated_category.append(element["category_id"])
            elif key == "images":
                _add_image(columns, element, path)
            else:
                _add_category(columns, element, path)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise TableError(_fault(path, key, number[key], element)) from None
    return _assemble(path, columns, seen)


def _fault(path: Path, key: str, number: int, element: Any) -> str:
    wanted = {
        "annotations": "'image_id' and 'category_id'",
        "images": "'id' and 'file_name'",
        "categories": "a whole number 'id' and a text 'name'",
    }[key]
    has = ", ".join(map(repr, element)) if isinstance(element, dict) else type(element).__name__
    return (
        f"{path}: entry {number} of {key!r} needs {wanted} but has {has}: "
        f"use a file of object instances such as instances_train2014.json."
    )


def _add_image(columns: _Columns, element: Any, path: Path) -> None:
    if not isinstance(element["id"], (int, str)):
        raise TypeError
    columns.image_ids.append(element["id"])
    name = element.get("file_name")
    if name is None:
        # LVIS names images by address only; its last two parts are folder and file of the COCO 2017 images.
        name = "/".join(element["coco_url"].rsplit("/", 2)[1:])
    if not isinstance(name, str):
        raise TypeError
    columns.file_names.append(name)
    split = element.get("split")
    columns.splits.append(None if split is None else str(split))
    for key, lists in (
        ("neg_category_ids", columns.absent),
        ("not_exhaustive_category_ids", columns.present),
    ):
        ids = element.get(key)
        if ids is not None and not isinstance(ids, list):
            raise TableError(
                f"{path}: entry {len(columns.image_ids)} of 'images' has {ids!r} as {key!r}: make it a list of ids."
            )
        lists.append(ids)


def _add_category(columns: _Columns, element: Any, path: Path) -> None:
    number, name = element["id"], element["name"]
    if type(number) is not int or not isinstance(name, str):
        raise TypeError
    if number in columns.categories:
        raise TableError(f"{path}: two 'categories' have the id {number}: remove or renumber one.")
    if name in columns.categories.values():
        raise TableError(f"{path}: two 'categories' are called {name!r}: rename one.")
    columns.categories[number] = name


def _assemble(path: Path, columns: _Columns, seen: set[str]) -> Instances:
    for key in ("images", "categories"):
        if not (columns.image_ids if key == "images" else columns.categories):
            raise TableError(
                f"{path} lists no {key!r}: use a file of object instances such as instances_train2014.json."
            )
    if "annotations" not in seen:
        raise TableError(
            f"{path} has no 'annotations', only a list of images: use a file of object instances."
        )
    rows = _numbered(columns.image_ids, path)
    unique_images(tuple(columns.file_names), path)
    categories = tuple(sorted(columns.categories.items()))
    column = {number: at for at, (number, _) in enumerate(categories)}
    complete = all(ids is None for ids in columns.absent)
    positive = _positions(path, columns, rows, column)
    if not complete:
        extra = _listed(path, columns.present, column, "not_exhaustive_category_ids")
        positive = _distinct(np.concatenate([positive, extra]))
    negative = _listed(path, columns.absent, column, "neg_category_ids")
    both = np.intersect1d(positive, negative, assume_unique=True)
    if len(both):
        row, at = divmod(int(both[0]), len(categories))
        raise TableError(
            f"{path}: image {columns.file_names[row]!r} has {categories[at][1]!r} both annotated and in its "
            f"'neg_category_ids': remove one."
        )
    splits = complete_splits(columns.splits, columns.file_names, path, "entry")
    return Instances(
        path,
        tuple(columns.file_names),
        None if splits is None else tuple(splits.tolist()),
        categories,
        positive,
        negative,
        complete,
    )


def _numbered(ids: Sequence[Any], path: Path) -> dict[Any, int]:
    rows: dict[Any, int] = {}
    for row, number in enumerate(ids):
        if rows.setdefault(number, row) != row:
            raise TableError(
                f"{path}: entries {rows[number] + 1} and {row + 1} of 'images' have the same id {number!r}: "
                f"remove or renumber one."
            )
    return rows


def _positions(
    path: Path, columns: _Columns, rows: dict[Any, int], column: dict[int, int]
) -> npt.NDArray[np.int64]:
    found = []
    for ids, index, key, where in (
        (columns.annotated_image, rows, "image_id", "images"),
        (columns.annotated_category, column, "category_id", "categories"),
    ):
        try:
            found.append(np.array([index[number] for number in ids], dtype=np.int64))
        except (KeyError, TypeError):
            at = next(i for i, n in enumerate(ids) if not isinstance(n, (int, str)) or n not in index)
            raise TableError(
                f"{path}: entry {at + 1} of 'annotations' has {key} {ids[at]!r}, which {where!r} lacks: "
                f"download the file again, or remove the annotation."
            ) from None
    return _distinct(found[0] * len(column) + found[1])


def _listed(
    path: Path, lists: Sequence[list[Any] | None], column: dict[int, int], key: str
) -> npt.NDArray[np.int64]:
    found: list[int] = []
    for row, ids in enumerate(lists):
        for number in ids or ():
            if not isinstance(number, int) or number not in column:
                raise TableError(
                    f"{path}: entry {row + 1} of 'images' has {number!r} in its {key!r}, "
                    f"which 'categories' lacks: download the file again, or correct it."
                )
            found.append(row * len(column) + column[number])
    return _distinct(np.array(found, dtype=np.int64))


def _distinct(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sort and drop repetitions; ``numpy.unique`` builds a hash table, several times slower on sorted millions."""
    ordered = np.sort(positions, kind="stable")
    return ordered[np.diff(ordered, prepend=-1) > 0]
