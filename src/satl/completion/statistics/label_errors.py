"""Known cells that the model contradicts: offered to a person, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.completion.statistics.class_cells import as_cells
from satl.evaluation.confidence_bounds import FloatArray, IntArray, as_share

# Neighbours by score whose labels say how likely a label is, and the cells a class needs for that.
_NEIGHBOURS = 40
_FEWEST_OF_A_SIGN = 5


@dataclass(frozen=True)
class LabelErrors:
    """Suspected label errors, the most suspicious first.

    Attributes:
        row, column: (K,) where the cells are.
        label: (K,) int8, the label they have, +1 or -1.
        score: (K,) the model's score.
        confidence: (K,) how likely the label is, given the score: among cells of the class that score alike, the
            share that has this label. Low is suspicious.
        checked: cells that were looked at.
        not_checked: (C,) classes with fewer than 5 tested cells of a sign, about which nothing is said.
    """

    row: IntArray
    column: IntArray
    label: npt.NDArray[np.int8]
    score: FloatArray
    confidence: FloatArray
    checked: int
    not_checked: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.row)


def find_label_errors(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    held_out: npt.ArrayLike | None = None,
    below: float = 0.2,
    *,
    encoding: str | None = None,
) -> LabelErrors:
    """Rank the known cells whose label is unlikely at their score.

    The model's own probabilities may be badly calibrated, and differently for every class. So the
    confidence in a label is counted: the share of cells with this label among the 40 tested cells of the class
    nearest by rank, without the cell itself (as many as the rarer sign has, if these are fewer). This makes
    classes comparable; the idea of ranking by out-of-sample self-confidence is that of C. Northcutt, L. Jiang
    and I. Chuang, Journal of Artificial Intelligence Research 70, 2021.

    Assumption: the model has not been trained on the tested cells; else it repeats their errors and
    finds nothing. There is no guarantee: a hard image looks like an error too. So a person decides.

    Args:
        scores: (N, C), any scale; NaN: no score, not looked at.
        labels: (N, C) in {+1 present, -1 absent, 0 unknown}.
        held_out: (N, C) cells to look at; None: all known cells.
        below: cells with a smaller confidence are returned, in (0, 1).
        encoding: what the values of ``labels`` mean, as in :func:`satl.completion.certify`.

    >>> scores = np.r_[np.linspace(0, 0.4, 50), np.linspace(0.6, 1, 50)][:, None]
    >>> labels = np.where(scores > 0.5, 1, -1)
    >>> labels[95] = -1                      # a slip of the pen: absent, at a score of 0.96
    >>> found = find_label_errors(scores, labels)
    >>> found.row, found.label, found.confidence.round(3)
    (array([95]), array([-1], dtype=int8), array([0.012]))
    """
    as_share(below, "below")
    array, known, held = as_cells(scores, labels, held_out, encoding)
    tested = (known != 0) & ~np.isnan(array)
    if held is not None:
        tested &= held
    present = np.count_nonzero(tested & (known > 0), axis=0)
    few = np.minimum(present, np.count_nonzero(tested, axis=0) - present) < _FEWEST_OF_A_SIGN
    found: list[tuple[Any, ...]] = []
    for index in np.flatnonzero(~few):
        rows = np.flatnonzero(tested[:, index])
        values, signs = array[rows, index], known[rows, index]
        share = _share_of_present(values, signs > 0)
        sure = np.where(signs > 0, share, 1 - share)
        low = sure < below
        found.append((rows[low], np.full(np.count_nonzero(low), index), signs[low], values[low], sure[low]))
    row, column, label, score, confidence = (
        (np.concatenate(part) for part in zip(*found, strict=True)) if found else (np.empty(0),) * 5
    )
    # Among equals the one farther from the cells with its label; then by place, so that the order is fixed.
    order = np.lexsort((column, row, label * score, confidence))
    return LabelErrors(
        row[order].astype(np.int64),
        column[order].astype(np.int64),
        label[order].astype(np.int8),
        score[order].astype(np.float64),
        confidence[order].astype(np.float64),
        int(np.count_nonzero(tested[:, ~few])),
        few,
    )


def _share_of_present(scores: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> FloatArray:
    """(n,) how many of the cells that score like each one are present, the cell itself left out."""
    count = len(scores)
    order = np.argsort(scores, kind="stable")
    ranked = present[order]
    positives = int(np.count_nonzero(present))
    # A wider window around the few cells of a rare sign would be full of the other sign.
    width = min(_NEIGHBOURS, positives, count - positives)
    total = np.concatenate(([0], np.cumsum(ranked)))
    # Equal scores share one window, or the order of the rows would matter.
    first = np.searchsorted(scores[order], scores[order], side="left")
    last = np.searchsorted(scores[order], scores[order], side="right")
    extra = np.maximum(width + 1 - (last - first), 0)
    low = np.clip(first - extra // 2, 0, None)
    high = np.minimum(np.maximum(last + (extra + 1) // 2, low + width + 1), count)
    low = np.maximum(np.minimum(low, high - width - 1), 0)
    others = high - low - 1
    share = (total[high] - total[low] - ranked + present.mean()) / (others + 1)
    result = np.empty(count)
    result[order] = share
    return result
