"""Known cells that training must not see: chosen once, from a seed, and kept in a file."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import BoolMatrix, LabelMatrix, as_array, as_labels
from satl.errors import ArrayError, RunError, SatlError, TableError
from satl.evaluation.confidence_bounds import FloatArray, labels_needed
from satl.files import atomic_path
from satl.labels.io.arrays import ArrayFile

# Never less of a class than this is held out, where anything is, and never more.
SMALLEST_FRACTION = 0.1
LARGEST_FRACTION = 0.3

_FORMAT = 1
# Streams of random numbers of one seed: which cells are held out, and which fold a cell belongs to.
_HELD_OUT_STREAM, _FOLD_STREAM = 1, 2


def as_held_out(held_out: npt.ArrayLike, labels: LabelMatrix) -> BoolMatrix:
    """Check that a held-out mask has the shape of the labels and marks known cells only."""
    mask = np.asarray(held_out)
    if mask.dtype != np.bool_ or mask.shape != labels.shape:
        raise ArrayError(
            f"held_out must be booleans of the shape {labels.shape}, not {mask.dtype} of {mask.shape}."
        )
    unknown = mask & (labels == 0)
    if unknown.any():
        row, column = np.argwhere(unknown)[0]
        raise ArrayError(
            f"held_out marks the unknown cell at row {row + 1}, class {column + 1}: "
            "only known cells can be held out; choose them anew with hold_out."
        )
    return mask


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Which known cells are held out.

    Attributes:
        mask: (N, C) booleans, read-only.
        fraction: (C,) chance with which each known cell of the class was chosen.
        seed: the draw was made with it.
    """

    mask: BoolMatrix
    fraction: FloatArray
    seed: int

    def save(self, path: str | Path, images: Sequence[str], classes: Sequence[str]) -> None:
        """Write the choice to an ``.npz`` file; the same choice gives the same bytes.

        The names are kept as a digest only, to recognise a table with other rows or columns.
        """
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            np.savez_compressed(
                stream,
                format=np.int64(_FORMAT),
                seed=np.int64(self.seed),
                shape=np.array(self.mask.shape, dtype=np.int64),
                fraction=self.fraction,
                mask=np.packbits(self.mask),
                names=np.frombuffer(_digest(images, classes), dtype=np.uint8),
            )

    @staticmethod
    def is_file(path: str | Path) -> bool:
        """Tell whether :meth:`save` wrote the file; any other ``.npz`` file is a label table."""
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            return {"mask.npy", "fraction.npy"} <= set(archive.namelist())

    @classmethod
    def load(cls, path: str | Path, images: Sequence[str], classes: Sequence[str]) -> HeldOut:
        """Read a choice back, refusing one that was made for other images or classes."""
        where = Path(path)
        try:
            with ArrayFile(where) as stored:
                keys = ("format", "seed", "shape", "fraction", "mask", "names")
                content = {key: stored.read(key) for key in keys}
            rows, columns = (int(size) for size in content["shape"])
            if not 0 <= rows * columns <= 8 * content["mask"].size:  # before memory is taken for them
                raise ValueError(f"it does not hold {rows} x {columns} cells")
            mask = (
                np.unpackbits(content["mask"], count=rows * columns).astype(np.bool_).reshape(rows, columns)
            )
            version, seed = int(content["format"]), int(content["seed"])
            if content["fraction"].dtype.kind != "f" or content["fraction"].shape not in ((), (columns,)):
                raise ValueError("its shares are not one number a class")
        except (TableError, KeyError, ValueError, TypeError, OverflowError) as error:
            raise RunError(f"{where} is not a file of held-out cells ({error}): choose them anew.") from error
        if version != _FORMAT:
            raise RunError(f"{where} was written by another version of satl: choose the held-out cells anew.")
        if content["names"].tobytes() != _digest(images, classes):
            raise RunError(
                f"{where} was made for other images or classes ({rows} x {columns} cells): give it the table "
                f"it was made for, or choose the held-out cells anew."
            )
        return cls(_read_only(mask), content["fraction"], seed)


def hold_out_fraction(
    positives: npt.ArrayLike,
    negatives: npt.ArrayLike,
    precision: float = 0.95,
    confidence: float = 0.95,
    guard: float = 0.9,
) -> FloatArray:
    """Share of the known cells of each class to hold out, (C,).

    The rule: with n the number of error-free labels a certificate needs, take the share that gives 2 n cells of
    the rarer sign, but at least a tenth and at most three tenths, so training keeps seven cells of ten. A
    class in which even three tenths could not bring a certificate for present or for absent (n cells of
    that sign, and as many of the other as the guard needs) keeps all its cells for training.

    Args:
        positives, negatives: (C,) known cells of each sign.
        precision, confidence, guard: as for :func:`satl.completion.certify`.

    >>> hold_out_fraction([10_000, 500, 200, 40, 20, 900], [10_000, 9_000, 9_000, 9_000, 9_000, 0])
    array([0.1  , 0.236, 0.3  , 0.3  , 0.   , 0.   ])
    """
    present, absent = np.asarray(positives, dtype=np.float64), np.asarray(negatives, dtype=np.float64)
    needed, for_guard = _tested_cells(precision, confidence, guard)

    def possible(same: FloatArray, other: FloatArray) -> npt.NDArray[np.bool_]:
        return (LARGEST_FRACTION * same >= needed) & (LARGEST_FRACTION * other >= for_guard)

    rarer = np.maximum(np.minimum(present, absent), 1)
    fraction = np.clip(2 * needed / rarer, SMALLEST_FRACTION, LARGEST_FRACTION)
    return np.where(possible(present, absent) | possible(absent, present), fraction, 0.0)


def fewest_known_cells(
    precision: float = 0.95, confidence: float = 0.95, guard: float = 0.9
) -> tuple[int, int]:
    """Return how many known cells of one value, and of the other, :func:`hold_out_fraction` asks of a class.

    >>> fewest_known_cells(), hold_out_fraction([30, 29], [197, 10_000])
    ((197, 30), array([0.3, 0. ]))
    """
    needed, for_guard = _tested_cells(precision, confidence, guard)
    return math.ceil(needed / LARGEST_FRACTION), math.ceil(for_guard / LARGEST_FRACTION - 1e-9)


def hold_out(
    labels: npt.ArrayLike,
    seed: int = 0,
    *,
    fraction: npt.ArrayLike | None = None,
    encoding: str | None = None,
) -> HeldOut:
    """Choose the known cells to hold out, stratified by class and sign.

    Positives and negatives of a class are held out at the same rate: holding out more of one sign would give
    the tested cells another mix of labels than the table has, and with it another precision. Where the rate
    does not give a whole number of cells, chance rounds it, so every known cell of a class has the same chance.
    The draw for a class depends on the seed, its column and its labels only.

    Args:
        labels: (N, C) in {+1 present, -1 absent, 0 unknown}.
        seed: of the draw.
        fraction: share to hold out, one number or (C,); None: as :func:`hold_out_fraction` says for certificates of
            95 % precision.
        encoding: how ``labels`` are written, if not +1, -1, 0. Labels with 0 and without -1 are refused unless one is
            named.

    >>> labels = np.where(np.random.default_rng(0).random((2000, 1)) < 0.5, 1, -1)
    >>> chosen = hold_out(labels)
    >>> int(chosen.mask.sum()), int(chosen.mask[labels == 1].sum()), chosen.fraction.round(3)
    (238, 120, array([0.119]))
    """
    known = _as_label_matrix(labels, encoding)
    if fraction is None:
        positives, negatives = (np.count_nonzero(known == sign, axis=0) for sign in (1, -1))
        share = hold_out_fraction(positives, negatives)
    else:
        share = np.broadcast_to(np.asarray(fraction, dtype=np.float64), known.shape[1:]).copy()
        if not ((share >= 0) & (share < 1)).all():
            raise SatlError("The fraction to hold out must be at least 0 and below 1.")
    mask = np.zeros(known.shape, dtype=np.bool_)
    for column in np.flatnonzero(share > 0):
        random = _random(seed, _HELD_OUT_STREAM, int(column))
        values = known[:, column]
        for sign in (1, -1):
            rows = np.flatnonzero(values == sign)
            wanted = int(share[column] * len(rows) + random.random())
            mask[random.permutation(rows)[:wanted], column] = True
    return HeldOut(_read_only(mask), share, int(seed))


def _tested_cells(precision: float, confidence: float, guard: float) -> tuple[int, float]:
    """Return how many tested cells of one value a certificate takes, and how many of the other its guard takes."""
    needed = int(labels_needed(precision, confidence))
    return needed, max(1.0, float(np.ceil(guard / (1 - guard) - 1e-9)))


def assign_folds(
    labels: npt.ArrayLike, folds: int = 5, seed: int = 0, *, encoding: str | None = None
) -> npt.NDArray[np.int8]:
    """Give every cell one of ``folds`` folds, balanced within class and sign; int8 (N, C).

    For cross-fitting: model k is trained without the known cells of fold k and scores the cells of fold k,
    known and unknown. Then every known cell has a score from a model that has not seen it, and tested and unknown
    cells are scored by the same models in the same proportions, so :func:`satl.completion.certify` may use
    all known cells. Its statement is about these scores. A final model trained on all known cells is usually
    a little better, but no promise is made for it. ``encoding`` says what the labels mean, as in :func:`hold_out`.

    >>> folds = assign_folds([[1], [1], [-1], [-1], [0], [0]], folds=2)
    >>> [sorted(folds[part, 0].tolist()) for part in (slice(0, 2), slice(2, 4), slice(4, 6))]
    [[0, 1], [0, 1], [0, 1]]
    """
    if not 2 <= folds <= 100:
        raise SatlError(f"Cross-fitting needs 2 to 100 folds, not {folds}.")
    known = _as_label_matrix(labels, encoding)
    result = np.empty(known.shape, dtype=np.int8)
    for column in range(known.shape[1]):
        random = _random(seed, _FOLD_STREAM, column)
        values = known[:, column]
        for sign in (1, -1, 0):
            rows = np.flatnonzero(values == sign)
            # A random first fold, or the first folds would get the left-over cells of every class.
            turn = (np.arange(len(rows)) + random.integers(folds)) % folds
            result[random.permutation(rows), column] = turn
    return result


def _as_label_matrix(labels: npt.ArrayLike, encoding: str | None) -> LabelMatrix:
    array = as_array(labels)
    if array.ndim != 2:
        raise ArrayError(f"labels must have the shape (images, classes), not {array.shape}.")
    return as_labels(array, array.shape, encoding=encoding)


def _random(*key: int) -> np.random.Generator:
    return np.random.default_rng([int(part) for part in key])


def _digest(images: Sequence[str], classes: Sequence[str]) -> bytes:
    """Digest of the names and their order; each name with its length, so that no two lists look alike."""
    result = hashlib.sha256()
    for names in (images, classes):
        result.update(f"{len(names)};".encode())
        for name in names:
            text = str(name).encode()
            result.update(f"{len(text)}:".encode() + text)
    return result.digest()


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array
