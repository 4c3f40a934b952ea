"""The decision whether a class is present: one threshold per class on its probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NEVER = 2.0
"""Stored for a class without a threshold: no probability is as large."""


@dataclass(frozen=True, eq=False)
class DecisionThresholds:
    """Class c is present where its probability, in float32, is at least ``values[c]``.

    Attributes:
        values: float32 (C,), larger than 1 where a class is never present.
        source: where they come from, in words.
    """

    values: npt.NDArray[np.float32]
    source: str

    @property
    def never(self) -> npt.NDArray[np.bool_]:
        """(C,) classes that are never present."""
        return self.values > 1


ThresholdsOfClasses = Callable[[tuple[str, ...]], DecisionThresholds]
"""Gives the thresholds of a run's classes, which are known only when the run is opened."""


def same_threshold(threshold: float, num_classes: int) -> DecisionThresholds:
    """Return one threshold for all classes.

    >>> same_threshold(0.5, 2).values.tolist()
    [0.5, 0.5]
    """
    values = np.full(num_classes, at_least(threshold), dtype=np.float32)
    return DecisionThresholds(values, f"{threshold:g} for every class")


def at_least(threshold: float) -> np.float32:
    """Return the smallest float32 that is not below ``threshold``; float32 numbers compare with both alike.

    >>> float(at_least(0.5)), float(at_least(0.7)) >= 0.7 > float(np.float32(0.7))
    (0.5, True)
    """
    value = np.float32(threshold)
    return np.nextafter(value, np.float32(np.inf)) if float(value) < threshold else value


def above(threshold: float) -> np.float32:
    """Return the smallest float32 that is above ``threshold``, read as the float32 that it was written from.

    >>> float(above(0.5)), bool(above(1.0) > 1)
    (0.5000000596046448, True)
    """
    return np.nextafter(np.float32(threshold), np.float32(np.inf))
