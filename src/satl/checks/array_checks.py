"""Checks of arrays: scores and labels of images and classes, as metrics and certificates take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks import LABELS
from satl.checks.label_meanings import (
    ABSENT,
    BLANK,
    ENCODINGS,
    PRESENT,
    Encoding,
    find_encoding,
    pass_encoding,
    readings,
    refusal,
)
from satl.errors import ArrayError, Sentence

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
    array = as_array(scores)
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


def as_labels(
    labels: npt.ArrayLike, shape: tuple[int, ...], name: str = "labels", encoding: str | None = None
) -> LabelMatrix:
    """Return ``labels`` as an int8 array of ``shape`` with values +1 present, -1 absent, 0 unknown.

    Args:
        labels: numbers or booleans; a tensor is copied to the host.
        shape: what it must be.
        name: of the array, for messages.
        encoding: what its values mean; None: what they leave no doubt of, see :func:`signed_array`.

    Raises:
        ArrayError: the array has another shape or other values, or can be read in several ways.

    >>> as_labels([[1.0, -1.0, 0.0]], (1, 3))
    array([[ 1, -1,  0]], dtype=int8)
    >>> as_labels([[1, 0, 0]], (1, 3), encoding="complete")
    array([[ 1, -1, -1]], dtype=int8)
    """
    array = as_array(labels)
    if array.shape != shape:
        raise ArrayError(f"The shape of {name} is {array.shape} instead of {shape}, that of the scores.")
    return signed_array(array, name, encoding)


def as_array(values: Any) -> npt.NDArray[Any]:
    """Return an array of anything like one; a tensor of any device, or a list of such, is copied to the host."""
    if isinstance(values, list | tuple) and values and hasattr(values[0], "detach"):
        return np.array([as_array(one) for one in values])
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":  # NumPy has no such type
            values = values.float()
    return np.asarray(values)


def signed_array(
    array: npt.NDArray[Any],
    name: str = "labels",
    encoding: str | None = None,
    place: Callable[[int, int], str] = "row {}, class {}".format,
) -> LabelMatrix:
    """Read an array of labels (N, C): int8 with +1 present, -1 absent, 0 unknown.

    Without an encoding an array that holds -1 is read as ``signed``, which is what satl's own arrays are; any other is
    read as a file is: 1 with NaN, or 1, 0 and NaN, as ``blank``, and 0 without NaN is refused, since it may be absent
    or unknown. NaN is the blank of files: unknown, or refused by encodings that have no blank.

    Args:
        array: (N, C) numbers or booleans.
        name: for messages.
        encoding: the name of an encoding, or None.
        place: says where a cell is, from its row and column, counted from 1.

    Raises:
        ArrayError: the array can be read in several ways, or holds something that the encoding does not read.

    >>> signed_array(np.array([[1.0, 0.0, np.nan]]))
    array([[ 1, -1,  0]], dtype=int8)
    >>> signed_array(np.array([[1, 0, 0]]))
    Traceback (most recent call last):
    satl.errors.ArrayError: labels: can be read in 2 ways (0 in 2 cells, 1 in 1 cell); pass encoding='complete' ...
    """
    if array.dtype.kind not in "biuf":
        raise ArrayError(f"{name} must be numbers, not {array.dtype}", remedy=LABELS)
    chosen = _only_reading(array, name) if encoding is None else find_encoding(encoding)
    if (
        array.dtype == np.int8
        and chosen.name == "signed"
        and (not array.size or (array.min() >= ABSENT and array.max() <= PRESENT))
    ):
        return array
    result = np.zeros(array.shape, dtype=np.int8)
    read = np.zeros(array.shape, dtype=np.bool_)
    for value, state in chosen.reads.items():
        if value in _NUMBERS:
            where = array == _NUMBERS[value]
        elif value == BLANK and array.dtype.kind == "f":
            where = np.isnan(array)
        else:
            continue
        read |= where
        result[where] = state
    if not read.all():
        row, column = (int(index) for index in np.argwhere(~read)[0])
        raise ArrayError(
            f"{name} hold {array[row, column]} at {place(row + 1, column + 1)}, which encoding '{chosen.name}' does "
            f"not read ({chosen.summary})",
            remedy=_remedy(array, chosen),
        )
    return result


def shows_signed(array: npt.NDArray[Any], name: str = "labels") -> bool:
    """Whether a batch shows that its labels are +1, -1 and 0 for unknown, by a -1; one of a kind alone shows nothing.

    Raises:
        ArrayError: 0 stands beside 1 or NaN, and no -1 says what it means.

    >>> shows_signed(np.array([[1, -1]])), shows_signed(np.array([[0, 0]]))
    (True, False)
    """
    if array.dtype.kind in "if" and bool((array == ABSENT).any()):
        return True
    counts = _value_counts(array)
    if "0" in counts and len(counts) > 1:
        raise refusal(counts, name, ArrayError)
    return False


_NUMBERS = {"1": 1, "0": 0, "-1": -1}


def _only_reading(array: npt.NDArray[Any], name: str) -> Encoding:
    """Return the encoding of an array that nobody named one for, or refuse to guess."""
    if array.dtype.kind in "if" and array.size and bool((array == ABSENT).any()):
        return ENCODINGS["signed"]
    counts = _value_counts(array)
    if "0" in counts and BLANK not in counts:
        raise refusal(counts, name, ArrayError)
    return ENCODINGS["blank"]


def _value_counts(array: npt.NDArray[Any]) -> dict[str, int]:
    """Count 1, 0, -1 and blank (NaN), most frequent first; what is not there is left out."""
    found = {value: int(np.count_nonzero(array == number)) for value, number in _NUMBERS.items()}
    if array.dtype.kind == "f":
        found[BLANK] = int(np.count_nonzero(np.isnan(array)))
    return dict(sorted(((v, n) for v, n in found.items() if n), key=lambda item: -item[1]))


def _remedy(array: npt.NDArray[Any], chosen: Encoding) -> str | Sentence:
    """Name the encodings that read all of an array, where the one chosen does not."""
    counts = _value_counts(array)
    if sum(counts.values()) != array.size:
        return LABELS if chosen.name == "signed" else f"write {chosen.summary}"
    return pass_encoding((encoding, f" ({encoding.summary})") for encoding, _ in readings(counts))
