"""Checked input of the statistics, and the scored cells of one class after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import BoolMatrix, FloatMatrix, LabelMatrix, as_labels, as_real_matrix
from satl.errors import ArrayError
from satl.labels.holdout import as_held_out

# A column of a large row-major table touches every line of memory: sixteen at a time share the way.
_COLUMNS = 16


class ClassCells(NamedTuple):
    """The cells of one class that have a score.

    Attributes:
        positive: scores of the tested known cells that are present.
        negative: scores of the tested known cells that are absent.
        unknown: scores of the unknown cells.
        planned: scores of the tested cells that were picked by their score: positives and negatives picked for
            present, positives and negatives picked for absent.
    """

    positive: npt.NDArray[Any]
    negative: npt.NDArray[Any]
    unknown: npt.NDArray[Any]
    planned: tuple[npt.NDArray[Any], ...]


def as_cells(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    held_out: npt.ArrayLike | None,
    encoding: str | None = None,
) -> tuple[FloatMatrix, LabelMatrix, BoolMatrix | None]:
    """Check scores (N, C), labels (N, C) of an encoding and the held-out mask (N, C) or None.

    A score that is NaN stays: the cell has none. Half precision becomes single precision and
    integers become double precision, both exact.
    """
    array = as_real_matrix(scores)
    known = as_labels(labels, array.shape, encoding=encoding)
    if held_out is None:
        return array, known, None
    return array, known, as_held_out(held_out, known)


def class_cells(
    scores: FloatMatrix,
    labels: LabelMatrix,
    held_out: BoolMatrix | None,
    planned: LabelMatrix | None = None,
) -> Iterator[ClassCells]:
    """Yield the scored cells of one class after the other; tested are the held-out cells, or all known ones."""
    for first in range(0, scores.shape[1], _COLUMNS):
        block = slice(first, first + _COLUMNS)
        block_scores = np.ascontiguousarray(scores[:, block].T)
        block_labels = np.ascontiguousarray(labels[:, block].T)
        block_tested = None if held_out is None else np.ascontiguousarray(held_out[:, block].T)
        block_planned = None if planned is None else np.ascontiguousarray(planned[:, block].T)
        for index, (column, known) in enumerate(zip(block_scores, block_labels, strict=True)):
            scored = ~np.isnan(column)
            tested = scored if block_tested is None else scored & block_tested[index]
            picked: tuple[npt.NDArray[Any], ...] = (column[:0],) * 4
            if block_planned is not None:
                purpose = block_planned[index]
                picked = tuple(
                    column[tested & (purpose == value) & (known == sign)]
                    for value in (1, -1)
                    for sign in (1, -1)
                )
                tested = tested & (purpose == 0)
            yield ClassCells(
                column[tested & (known > 0)],
                column[tested & (known < 0)],
                column[scored & (known == 0)],
                picked,
            )


def class_names(names: Any, count: int) -> tuple[str, ...]:
    """Return the names of ``count`` classes; without names they are called by their number."""
    if names is None:
        return tuple(f"class {number + 1}" for number in range(count))
    given = tuple(str(name) for name in names)
    if len(given) != count:
        raise ArrayError(f"{len(given)} class names were given for {count} classes.")
    return given
