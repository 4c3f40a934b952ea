"""Scores of known positives, known negatives and unknown cells, counted in a few bins per class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import BoolMatrix, FloatMatrix, LabelMatrix
from satl.completion.statistics.class_cells import ClassCells, class_cells
from satl.evaluation.confidence_bounds import BoolArray, FloatArray, IntArray

# Fewer cells than these cannot tell two distributions apart, so nothing is said about such a class.
ENOUGH_KNOWN = 20
ENOUGH_UNKNOWN = 50

_MOST_BINS = 12
_FEWEST_BINS = 4
# More unknown cells than these add nothing beside the sampling error of the known ones.
_MOST_UNKNOWN = 100_000
_MOST_FOR_EDGES = 2_000


@dataclass(frozen=True)
class BinnedScores:
    """Counts per class and bin.

    Attributes:
        positive, negative, unknown: (C, B) counts; bins after a class's own number of bins are empty.
        bins: (C,) bins of each class.
    """

    positive: FloatArray
    negative: FloatArray
    unknown: FloatArray
    bins: IntArray

    @property
    def enough(self) -> BoolArray:
        """(C,) whether there are enough cells of each kind, and at least three bins, to say something."""
        known = np.minimum(self.positive.sum(axis=1), self.negative.sum(axis=1)) >= ENOUGH_KNOWN
        return np.asarray(known & (self.unknown.sum(axis=1) >= ENOUGH_UNKNOWN) & (self.bins >= 3))


def bin_scores(scores: FloatMatrix, labels: LabelMatrix, held_out: BoolMatrix | None) -> BinnedScores:
    """Count the scored cells of every class in bins of about equal weight.

    Known positives, known negatives and unknown cells weigh the same when the edges are chosen, however many
    there are of each; the smallest of the three groups decides how many bins there are, 4 to 12.

    Args:
        scores, labels, held_out: (N, C) as checked by ``as_cells``.

    >>> scores = np.repeat([[1.0], [2.0], [3.0], [4.0]], 30, axis=0)
    >>> labels = np.tile(np.array([[1], [-1], [0]], dtype=np.int8), (40, 1))
    >>> binned = bin_scores(scores, labels, None)
    >>> binned.positive, binned.bins
    (array([[10., 10., 10., 10.]]), array([4]))
    """
    counts = [_count(cells) for cells in class_cells(scores, labels, held_out)]
    width = max((row.shape[1] for row in counts), default=1)
    table = np.zeros((len(counts), 3, width))
    for index, row in enumerate(counts):
        table[index, :, : row.shape[1]] = row
    bins = np.array([row.shape[1] for row in counts], dtype=np.int64)
    return BinnedScores(table[:, 0], table[:, 1], table[:, 2], bins)


def _count(cells: ClassCells) -> FloatArray:
    """(3, B) counts of one class; without a cell of some kind, or with one score only, there is one bin."""
    parts = [cells.positive, cells.negative, _thinned(cells.unknown, _MOST_UNKNOWN)]
    sizes = [len(part) for part in parts]
    if min(sizes) == 0:
        return np.array(sizes, dtype=np.float64)[:, np.newaxis]
    wanted = int(np.clip(round(2 * min(sizes) ** 0.4), _FEWEST_BINS, _MOST_BINS))
    edges = _edges([_thinned(part, _MOST_FOR_EDGES) for part in parts], wanted)
    return np.stack(
        [np.bincount(np.searchsorted(edges, part, side="right"), minlength=len(edges) + 1) for part in parts]
    ).astype(np.float64)


def _edges(parts: list[npt.NDArray[Any]], bins: int) -> npt.NDArray[Any]:
    values = np.concatenate(parts)
    order = np.argsort(values, kind="stable")
    weight = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])[order]
    below = np.cumsum(weight) / len(parts)
    place = np.searchsorted(below, np.arange(1, bins) / bins, side="right")
    edges = np.unique(values[order][np.minimum(place, len(values) - 1)])
    return edges[edges > values[order[0]]]  # the first bin must not be empty


def _thinned(values: npt.NDArray[Any], most: int) -> npt.NDArray[Any]:
    """Every k-th value: like a random sample, and the same each time."""
    return values if len(values) <= most else values[:: -(-len(values) // most)]
