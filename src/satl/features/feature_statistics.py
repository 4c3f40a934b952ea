"""Mean, deviation and principal components of the features, over the rows that a run is trained on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from satl.features.feature_table import FeatureTable, IntArray
from satl.images import epoch_order

MOST_ROWS = 20_000
"""Rows that principal components are computed from, at most: more would move them by less than matters."""
LEAST_VARIANCE = 1e-7
"""Share of the largest variance below which nothing varies along a component but rounding errors."""
_BYTES_AT_ONCE = 16 << 20
FloatArray = npt.NDArray[np.float64]


def mean_and_deviation(
    table: FeatureTable, rows: IntArray, unit_length: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation (D,) over some rows and all their views; some rows are read at a time.

    With ``unit_length`` those of the vectors scaled to the length 1.

    >>> from pathlib import Path
    >>> table = FeatureTable(Path("f"), ("a", "b"), [np.array([[[1.0, 5.0]], [[3.0, 5.0]]])], None, "")
    >>> [values.tolist() for values in mean_and_deviation(table, np.arange(2))]
    [[2.0, 5.0], [1.0, 0.0]]
    """
    count = len(rows) * table.views
    # Twice through: the square of a mean that is large beside the deviation would leave nothing of it.
    mean = sum(block.sum(0, dtype=np.float64) for block in _blocks(table, rows, unit_length)) / count
    squares = sum(
        np.square(block - mean.astype(np.float32)).sum(0, dtype=np.float64)
        for block in _blocks(table, rows, unit_length)
    )
    return mean, np.sqrt(squares / count)


def principal_components(
    table: FeatureTable, rows: IntArray, mean: FloatArray, count: int, unit_length: bool = False
) -> tuple[FloatArray, float]:
    """Return the first principal components (count, D) of some rows, and the deviation of what is projected onto them.

    The deviation is one number, that of all projections together: components that vary little stay small. A component
    that nothing varies along, as with fewer rows than components, is zero. The largest entry of each is positive.
    Of many rows :data:`MOST_ROWS` are taken.

    >>> from pathlib import Path
    >>> table = FeatureTable(Path("f"), ("a", "b"), [np.array([[[1.0, 5.0]], [[3.0, 5.0]]])], None, "")
    >>> components, deviation = principal_components(table, np.arange(2), np.array([2.0, 5.0]), 1)
    >>> components.tolist(), deviation
    ([[1.0, 0.0]], 1.0)
    """
    chosen = rows if len(rows) <= MOST_ROWS else np.sort(rows[epoch_order(len(rows), 0, 0)[:MOST_ROWS]])
    covariance = np.zeros((table.dim, table.dim))
    for block in _blocks(table, chosen, unit_length):
        centred = block - mean.astype(np.float32)
        covariance += centred.T @ centred
    components, variances = components_of(covariance / (len(chosen) * table.views))
    components, variances = components[:count], variances[:count]
    components[variances <= LEAST_VARIANCE * variances[0]] = 0
    return components, float(np.sqrt(variances.mean()))


def components_of(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return all principal components (D, D) of a covariance and the variances along them, the largest first.

    The largest entry of each component is positive, so that they do not depend on who computed them.

    >>> components, variances = components_of(np.array([[1.0, 0.0], [0.0, 4.0]]))
    >>> components.tolist(), variances.tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [4.0, 1.0])
    """
    variances, vectors = np.linalg.eigh(covariance)
    components = vectors.T[::-1]
    largest = np.take_along_axis(components, np.abs(components).argmax(1)[:, None], axis=1)
    return components * np.where(largest < 0, -1.0, 1.0), variances[::-1].clip(min=0)


def _blocks(table: FeatureTable, rows: IntArray, unit_length: bool) -> Iterator[npt.NDArray[np.float32]]:
    """Yield all views of some rows, (n, D), some at a time."""
    at_once = max(1, _BYTES_AT_ONCE // (table.views * table.dim * 4))
    for begin in range(0, len(rows), at_once):
        vectors = table.take(rows[begin : begin + at_once]).reshape(-1, table.dim).astype(np.float32)
        if unit_length:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            np.divide(vectors, lengths, out=vectors, where=lengths > 0)
        yield vectors
