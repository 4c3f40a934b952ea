"""Checks of arrays: scores and labels of images and classes, as metrics and certificates take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks import LABELS
from satl.errors import ArrayError

FloatMatrix = npt.NDArray[np.floating[Any]]
LabelMatrix = npt.NDArray[np.int8]
BoolMatrix = npt.NDArray[np.bool_]


def as_real_matrix(scores: npt.ArrayLike, name: str = "scores") -> FloatMatrix:
    """Return ``scores`` as a floating-point (N, C) array; NaN is allowed.

    Half precision becomes single precision and integers become double precision (both exact for what they hold),
    because NumPy sorts those much faster.

    Raises:
        ArrayError: the array has another shape, or holds no real numbers.

    >>> as_real_matrix([[1, float("nan")]])
    array([[ 1., nan]])
    """
    array = np.asarray(scores)
    if array.ndim != 2:
        raise ArrayError(f"{name} must have the shape (images, classes), not {array.shape}.")
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    elif not np.issubdtype(array.dtype, np.floating):
        if not (np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_):
            raise ArrayError(f"{name} must be real numbers, not {array.dtype}.")
        array = array.astype(np.float64)
    return array


def as_scores(scores: npt.ArrayLike, name: str = "scores") -> FloatMatrix:
    """Return ``scores`` as a floating-point (N, C) array without NaN, see :func:`as_real_matrix`.

    Raises:
        ArrayError: the array has another shape, holds no real numbers, or NaN.

    >>> as_scores([[1, 2]]).dtype
    dtype('float64')
    """
    array = as_real_matrix(scores, name)
    missing = np.isnan(array)
    if missing.any():
        row, column = np.argwhere(missing)[0]
        raise ArrayError(
            f"{name} hold {int(missing.sum())} NaN, the first at row {row + 1}, class {column + 1}, which cannot be "
            "ranked",
            remedy="look for a diverged model or a division by zero",
        )
    return array


def as_labels(labels: npt.ArrayLike, shape: tuple[int, ...], name: str = "labels") -> LabelMatrix:
    """Return ``labels`` as an int8 array of ``shape`` with values +1 present, -1 absent, 0 unknown.

    Raises:
        ArrayError: the array has another shape or other values, or is of a type that cannot hold all three.

    >>> as_labels([[1.0, -1.0, 0.0]], (1, 3))
    array([[ 1, -1,  0]], dtype=int8)
    """
    array = np.asarray(labels)
    if array.shape != shape:
        raise ArrayError(f"The shape of {name} is {array.shape} instead of {shape}, that of the scores.")
    if array.dtype.kind in "US":
        raise ArrayError(f"{name} are texts", remedy=LABELS)
    # In an unsigned type 0 is absent as a rule, and would count as unknown.
    if array.dtype == np.bool_ or np.issubdtype(array.dtype, np.unsignedinteger):
        raise ArrayError(
            f"{name} must be of a signed type, got {array.dtype}, which cannot hold -1 (absent)",
            remedy=f"{LABELS} (np.where({name} > 0, 1, -1) when every label is known)",
        )
    if array.dtype == np.int8:
        wrong = array.size > 0 and (array.min() < -1 or array.max() > 1)
        converted = array
    else:
        converted = np.sign(np.nan_to_num(array)).astype(np.int8)
        wrong = bool((converted != array).any())
    if wrong:
        row, column = np.argwhere(~np.isin(array, (-1, 0, 1)))[0]
        raise ArrayError(
            f"{name} hold {array[row, column]} at row {row + 1}, class {column + 1}", remedy=LABELS
        )
    return converted
