"""NumPy ``.npz``: ``scores`` (images, classes) and whatever else the file holds about them.

``images``, ``classes`` (or ``names``); ``labels`` (or ``cells``) with ``truth`` and ``encoding``; ``held_out`` or
``in_sample``, one boolean per image or per cell; ``fold``, the model of cross-fitting; ``uncertainty``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from satl.errors import TableError
from satl.labels.io.arrays import ArrayFile
from satl.labels.io.npz import CELL_KEYS, CLASS_KEYS, IMAGE_KEYS, read_label_arrays
from satl.labels.io.wide import unique_images
from satl.scores.score_reader import SCORE_KEYS, Block, ScoreFile, ScoreReader, has_extension, register_reader


@contextmanager
def open_npz(path: Path, classes: Sequence[str] | None) -> Iterator[ScoreFile]:
    """Open an ``.npz`` file; the matrix is read in blocks of rows, all its columns."""
    with ArrayFile(path) as arrays:
        key = arrays.first(SCORE_KEYS)
        if key is None:
            raise TableError(
                f"there is no array 'scores' ({arrays.listed})",
                where=path,
                remedy="save them under that name",
            )
        shape = arrays.shape(key)
        if len(shape) != 2 or 0 in shape or arrays.kind(key) not in "fiu":
            raise TableError(
                f"{key!r} must hold numbers of shape (images, classes), not {shape}.", where=path
            )
        rows, columns = shape
        images = _names(arrays, IMAGE_KEYS, rows)
        names = _names(arrays, CLASS_KEYS, columns)

        def blocks() -> Iterator[Block]:
            for first, block in arrays.row_blocks(key):
                yield None if images is None else images[first : first + len(block)], block

        labels = arrays.first(CELL_KEYS)
        yield ScoreFile(
            classes=names,
            columns=columns,
            blocks=blocks(),
            rows=rows,
            held_out=_held_out(arrays, (rows, columns)),
            folds=_folds(arrays, (rows, columns)),
            read_uncertainty=(lambda: _uncertainty(arrays, shape)) if "uncertainty" in arrays else None,
            read_labels=None
            if labels is None
            else lambda images, classes, encoding: read_label_arrays(
                arrays, labels, unique_images(images, path), classes, encoding
            ),
        )


def _names(arrays: ArrayFile, keys: tuple[str, ...], count: int) -> tuple[str, ...] | None:
    key = arrays.first(keys)
    if key is None:
        return None
    values = arrays.read(key)
    if values.shape != (count,) or values.dtype.kind not in "Ui":
        raise TableError(
            f"{key!r} must be {count:,} texts, one for each {'row' if keys is IMAGE_KEYS else 'column'} of the "
            f"scores, not {values.dtype} of shape {values.shape}.",
            where=arrays.path,
        )
    return tuple(str(value).strip() for value in values.tolist())


def _held_out(arrays: ArrayFile, shape: tuple[int, int]) -> npt.NDArray[np.bool_] | None:
    given = [name for name in ("held_out", "in_sample") if name in arrays]
    if not given:
        return None
    if len(given) == 2:
        raise TableError(
            "holds both 'held_out' and 'in_sample'", where=arrays.path, remedy="leave one of them out"
        )
    mask = arrays.read(given[0])
    if mask.dtype.kind not in "biu" or mask.shape not in (shape, shape[:1]):
        raise TableError(
            f"{given[0]!r} is {mask.dtype} of shape {mask.shape}",
            where=arrays.path,
            remedy="give one boolean per image or per cell",
        )
    return mask.astype(np.bool_) if given[0] == "held_out" else mask == 0


def _folds(arrays: ArrayFile, shape: tuple[int, int]) -> int:
    if "fold" not in arrays:
        return 0
    fold = arrays.read("fold")
    if fold.shape not in (shape, shape[:1]) or fold.dtype.kind not in "iu":
        raise TableError(
            f"'fold' is {fold.dtype} of shape {fold.shape}",
            where=arrays.path,
            remedy="give one whole number per image or per cell",
        )
    return len(np.unique(fold))


def _uncertainty(arrays: ArrayFile, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    values = arrays.read("uncertainty")
    if values.shape != shape or values.dtype.kind not in "fiu":
        raise TableError(
            f"'uncertainty' must hold numbers of the shape {shape} of the scores.", where=arrays.path
        )
    return values.astype(np.float32)


register_reader(ScoreReader(".npz", has_extension(".npz"), open_npz))
