"""Arrays of features: mapped from files, in half precision, finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError, first_line
from satl.labels.io.arrays import BROKEN, map_array_file

HalfArray = npt.NDArray[np.float16]


def map_array(file: Path) -> npt.NDArray[Any]:
    """Map the array of an ``.npy`` file into memory; Python objects are never loaded.

    Raises:
        TableError: it is missing, holds no plain array, or is shorter than it says.
    """
    try:
        return map_array_file(file)
    except FileNotFoundError:
        raise unreadable(file, "is missing") from None
    except BROKEN as error:
        raise unreadable(file, f"is not a readable .npy file ({first_line(error)})") from None


def as_half(features: npt.NDArray[Any]) -> HalfArray:
    """Return features as float16; a number that is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(features, dtype=np.float16)


def first_not_finite(half: HalfArray) -> int | None:
    """Return the first row with a NaN or an infinite number, or None.

    >>> first_not_finite(np.array([[1, 2], [3, np.inf]], dtype=np.float16))
    1
    """
    # By their bits: NumPy converts half precision one number at a time.
    wrong = (half.view(np.uint16) & 0x7C00) == 0x7C00
    return int(np.argmax(wrong.reshape(len(half), -1).any(axis=1))) if wrong.any() else None


def not_finite(path: Path, image: str, row: int, features: npt.NDArray[Any]) -> TableError:
    """Return the error about a row, counted from 0, with a number that is not finite in half precision."""
    flat = features.reshape(-1)
    with np.errstate(over="ignore"):
        at = int(np.argmax(~np.isfinite(flat.astype(np.float16))))
    where = f"{path}: row {row + 1} (image {image!r})"
    if np.isfinite(flat[at]):
        return TableError(
            f"number {at + 1} is {flat[at]:g}, and half precision, in which features are kept, ends at 65,504",
            where=where,
            remedy="divide all features by the same number",
        )
    return TableError(
        f"number {at + 1} is {flat[at]}",
        where=where,
        remedy="look for a network that overflows in half precision, or leave this row out",
    )


def unreadable(file: Path, what: str) -> TableError:
    """Return the error about a file of features that is not as it was written."""
    return TableError(what, where=file, remedy="make the features again, or restore them from a copy")
