"""Ratios and means where some values are undefined (NaN)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


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
    numerator: npt.NDArray[Any], denominator: npt.NDArray[Any], empty: float
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
