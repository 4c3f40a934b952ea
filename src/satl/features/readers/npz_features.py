"""NumPy ``.npz``: ``features`` (images, numbers) or (images, views, numbers), and ``images``, their ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from satl.errors import TableError
from satl.features.feature_reader import FEATURE_NAMES, FeatureFile, FeatureReader, register_feature_reader
from satl.labels.io.arrays import ArrayFile
from satl.labels.io.npz import IMAGE_KEYS
from satl.scores.score_reader import has_extension


@contextmanager
def open_npz(path: Path) -> Iterator[FeatureFile]:
    """Open an ``.npz`` file; its features are read in blocks of rows."""
    with ArrayFile(path) as arrays:
        key, images = arrays.first(FEATURE_NAMES), arrays.first(IMAGE_KEYS)
        if key is None or images is None:
            lacks = "'features'" if key is None else "'images' with their ids"
            raise TableError(
                f"there is no array {lacks} ({arrays.listed})",
                where=path,
                remedy="save both, numpy.savez(file, images=ids, features=values)",
            )
        ids, shape = arrays.read(images), arrays.shape(key)
        if ids.ndim != 1 or ids.dtype.kind not in "Ui":
            raise TableError(
                f"{images!r} is {ids.dtype} of shape {ids.shape}",
                where=path,
                remedy="give one text for each row",
            )
        if len(shape) not in (2, 3) or shape[0] != len(ids):
            raise TableError(
                f"{key!r} has the shape {shape} for {len(ids):,} ids",
                where=path,
                remedy="give (rows, numbers), or (rows, views, numbers), a row for each id",
            )
        names = [str(name).strip() for name in ids.tolist()]
        yield FeatureFile(names, (block for _, block in arrays.row_blocks(key)))


register_feature_reader(FeatureReader(".npz", has_extension(".npz"), open_npz))
