"""The checks every metric makes of its input, so that all of them refuse in the same words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import SatlError

FloatMatrix = npt.NDArray[np.floating[Any]]
LabelMatrix = npt.NDArray[np.int8]
BoolMatrix = npt.NDArray[np.bool_]


def as_real_matrix(scores: npt.ArrayLike, name: str = "scores") -> FloatMatrix:
    """Return ``scores`` as a floating-point (N, C) array, NaN included, refusing other shapes and kinds.

    >>> as_real_matrix([[1, float("nan")]])
    array([[ 1., nan]])
    """
    array = np.asarray(scores)
    if array.ndim != 2:
        raise SatlError(f"{name} must have the shape (images, classes), not {array.shape}.")
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    elif not np.issubdtype(array.dtype, np.floating):
        if not (np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_):
            raise SatlError(f"{name} must be real numbers, not {array.dtype}.")
        array = array.astype(np.float64)
    return array


def as_scores(scores: npt.ArrayLike, name: str = "scores") -> FloatMatrix:
    """Return ``scores`` as a floating-point (N, C) array, refusing NaN and other shapes.

    Half precision becomes single precision and integers become double precision (both exact for what
    they hold), because NumPy sorts those much faster.

    >>> as_scores([[1, 2]]).dtype
    dtype('float64')
    """
    array = as_real_matrix(scores, name)
    missing = np.isnan(array)
    if missing.any():
        row, column = np.argwhere(missing)[0]
        raise SatlError(
            f"{name} hold {int(missing.sum())} NaN, the first at row {row + 1}, class {column + 1}: "
            "a metric cannot rank them; look for a diverged model or a division by zero."
        )
    return array


def as_labels(labels: npt.ArrayLike, shape: tuple[int, ...], name: str = "labels") -> LabelMatrix:
    """Return ``labels`` as an int8 array of ``shape`` with values +1 present, -1 absent, 0 unknown.

    >>> as_labels([[1.0, -1.0, 0.0]], (1, 3))
    array([[ 1, -1,  0]], dtype=int8)
    """
    array = np.asarray(labels)
    if array.shape != shape:
        raise SatlError(f"The shape of {name} is {array.shape} instead of {shape}, that of what is measured.")
    if array.dtype == np.bool_:
        raise SatlError(
            f"{name} are booleans, which cannot say unknown: use +1 present, -1 absent, 0 unknown "
            "(np.where(labels, 1, -1) when every label is known)."
        )
    if array.dtype.kind in "US":
        raise SatlError(f"{name} must be +1 present, -1 absent and 0 unknown as numbers, not words.")
    if np.issubdtype(
        array.dtype, np.unsignedinteger
    ):  # their 0 is absent as a rule, and would count as unknown
        raise SatlError(
            f"{name} are {array.dtype}, which cannot say absent: use +1 present, -1 absent, 0 unknown "
            "(np.where(labels > 0, 1, -1) when every label is known)."
        )
    if array.dtype == np.int8:
        wrong = array.size > 0 and (array.min() < -1 or array.max() > 1)
        converted = array
    else:
        converted = np.sign(np.nan_to_num(array)).astype(np.int8)
        wrong = bool((converted != array).any())
    if wrong:
        row, column = np.argwhere(~np.isin(array, (-1, 0, 1)))[0]
        raise SatlError(
            f"{name} hold {array[row, column]} at row {row + 1}, class {column + 1}: "
            "only +1 present, -1 absent and 0 unknown are allowed."
        )
    return converted


def mean_of_defined(values: npt.NDArray[np.float64]) -> float:
    """Mean of the entries that are not NaN; NaN (without a warning) when there is none.

    >>> mean_of_defined(np.array([1.0, np.nan, 0.0]))
    0.5
    >>> mean_of_defined(np.array([np.nan]))
    nan
    """
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else float("nan")


def ratio(
    numerator: npt.NDArray[np.int64], denominator: npt.NDArray[np.int64], empty: float
) -> npt.NDArray[np.float64]:
    """Element-wise ``numerator / denominator`` with ``empty`` where the denominator is 0.

    >>> ratio(np.array([1, 0]), np.array([2, 0]), empty=0.0)
    array([0.5, 0. ])
    """
    result = np.full(denominator.shape, empty, dtype=np.float64)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def finite_or_none(value: float) -> float | None:
    """Return a number as JSON can hold it: NaN and infinities become None.

    >>> finite_or_none(0.5), finite_or_none(float("nan"))
    (0.5, None)
    """
    return float(value) if np.isfinite(value) else None
