"""Read the features of any embedding from a file: in the order of the file, or in that of a list of ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError
from satl.features.feature_reader import FeatureFile, find_feature_reader
from satl.features.feature_table import FeatureTable, IntArray
from satl.features.half_arrays import HalfArray, as_half, first_not_finite, not_finite
from satl.labels.cells import ImageIndex
from satl.labels.io.wide import unique_images

_BYTES_AT_ONCE = 32 << 20


def read_features(
    path: str | Path, ids: Sequence[str] | None = None, *, limit_bytes: int | None = None
) -> FeatureTable:
    """Read a file of features.

    Files are ``.npz`` with ``features`` and ``images``; ``.npy`` with the ids in a text or CSV file beside it;
    ``.parquet``, ``.arrow`` or a Hugging Face data set on disk with a column of lists; or a folder of features. Rows
    are float16 in memory, whatever the file holds, and found by id, with or without the extension of an image.

    Args:
        path: the file or folder.
        ids: give the features of these pictures, in this order; None: all, in the order of the file.
        limit_bytes: features that take more than this stay in the file and are read when they are asked for, where
            the file can be mapped into memory (``.npy``, a folder of features); None: no limit.

    Raises:
        TableError: the file cannot be read, says something impossible, or lacks some of the ids.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "features.npz"
    >>> np.savez(file, images=["a.jpg", "b.jpg"], features=np.arange(6.0).reshape(2, 3))
    >>> read_features(file, ["b"]).take(np.array([0])).tolist()
    [[[3.0, 4.0, 5.0]]]
    """
    file = Path(path)
    with find_feature_reader(file).open(file) as opened:
        names = unique_images(tuple(opened.ids), file)
        rows = None if ids is None else _find_rows(names, ids, file)
        wanted = names if ids is None else tuple(ids)
        return _Reading(file, opened, names, wanted, rows).read(limit_bytes)


def _find_rows(names: tuple[str, ...], ids: Sequence[str], file: Path) -> IntArray:
    """Return the row of each id in the file."""
    try:
        found = ImageIndex(names).find_distinct(ids)
    except TableError as error:
        raise error.at(file) from None
    missing = np.flatnonzero(found < 0)
    if len(missing):
        which = f"{len(missing):,} of {len(ids):,} images have" if len(ids) > 1 else "the image has"
        raise TableError(
            f"{which} no features, the first is {ids[int(missing[0])]!r}",
            where=file,
            remedy=f"use the ids of the file, such as {names[0]!r}, or add the missing features or remove the rows",
        )
    return found


class _Reading:
    """One file while it is read."""

    def __init__(
        self,
        path: Path,
        opened: FeatureFile,
        names: tuple[str, ...],
        wanted: tuple[str, ...],
        rows: IntArray | None,
    ) -> None:
        self.path, self.opened, self.names, self.wanted, self.rows = path, opened, names, wanted, rows
        self.inner: tuple[int, ...] = ()
        self.digest = hashlib.sha256()

    def read(self, limit_bytes: int | None) -> FeatureTable:
        """Read the features into memory, or check them where they are."""
        rows, wanted = self.rows, self.wanted
        place: IntArray | None = None
        if rows is not None:
            place = np.full(len(self.names), -1, dtype=np.int64)
            place[rows] = np.arange(len(rows))
        values: HalfArray | None = None
        kept: list[npt.NDArray[Any]] = []
        stays = False
        first = 0
        for block in self.opened.blocks:
            features = self._checked(block, first)
            if not kept and values is None:  # the first block
                needed = len(wanted) * int(np.prod(self.inner)) * 2
                stays = self.opened.mapped and limit_bytes is not None and needed > limit_bytes
                if not stays:
                    if self.opened.verify is not None:
                        self.opened.verify()
                    values = np.empty((len(wanted), *self.inner), dtype=np.float16)
            if stays:
                kept.append(features)
            for begin, half, at in self._chunks(features, place, first):
                if values is None:
                    continue
                if place is None:
                    values[begin : begin + len(half)] = half
                else:
                    values[at] = half
            first += len(features)
        if first != len(self.names):
            raise TableError(
                f"there are {len(self.names):,} ids and {first:,} rows of features",
                where=self.path,
                remedy="write one id for each row",
            )
        digest = self.digest.hexdigest()
        made_by = self.opened.made_by
        if values is None:
            return FeatureTable(self.path, wanted, kept, rows, digest, made_by)
        return FeatureTable(self.path, wanted, [values], None, digest, made_by)

    def _checked(self, block: npt.NDArray[Any], first: int) -> npt.NDArray[Any]:
        """Return a block as (n, V, D), after a look at its kind and shape."""
        if block.dtype.kind != "f":
            raise TableError(
                f"the features are {block.dtype}, not floating-point numbers",
                where=self.path,
                remedy="store them as float16 or float32",
            )
        features = block[:, None] if block.ndim == 2 else block
        if features.ndim != 3 or 0 in features.shape[1:]:
            raise TableError(
                f"the features have the shape {block.shape}",
                where=self.path,
                remedy="give (rows, numbers), or (rows, views, numbers)",
            )
        if self.inner and features.shape[1:] != self.inner:
            raise TableError(
                f"from row {first + 1} on the features have {_size(features.shape[1:])}, before it "
                f"{_size(self.inner)}",
                where=self.path,
                remedy="give every row the same number of features",
            )
        self.inner = features.shape[1:]
        if first + len(features) > len(self.names):
            raise TableError(
                f"there are {len(self.names):,} ids and at least {first + len(features):,} rows of features",
                where=self.path,
                remedy="write one id for each row",
            )
        return features

    def _chunks(
        self, features: npt.NDArray[Any], place: IntArray | None, first: int
    ) -> Iterator[tuple[int, HalfArray, IntArray]]:
        """Yield the wanted rows of a block in pieces: their first row in the file, themselves, their places."""
        at_once = max(1, _BYTES_AT_ONCE // (int(np.prod(self.inner)) * features.itemsize))
        for begin in range(0, len(features), at_once):
            chunk = features[begin : begin + at_once]
            number = np.arange(first + begin, first + begin + len(chunk))
            at = number if place is None else place[number]
            wanted = at >= 0
            if not wanted.all():
                chunk, at, number = chunk[wanted], at[wanted], number[wanted]
            half = as_half(chunk)
            wrong = first_not_finite(half)
            if wrong is not None:
                row = int(number[wrong])
                raise not_finite(self.path, self.names[row], row, chunk[wrong])
            self.digest.update(half.data)
            yield first + begin, half, at


def _size(inner: tuple[int, ...]) -> str:
    views, dim = inner
    return f"{dim:,} numbers" if views == 1 else f"{views} views of {dim:,} numbers"
