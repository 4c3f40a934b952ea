"""Threshold rules in plain Python: sort the scores, count, take the one at the right place."""

from __future__ import annotations

import math
from fractions import Fraction

Matrix = list[list[float]]


def known_scores(scores: Matrix, labels: list[list[int]], column: int, sign: int) -> list[float]:
    """Sorted scores in [0, 1] of the known cells of one class and sign; what is not a number is left out."""
    chosen = []
    for row, marks in zip(scores, labels, strict=True):
        if marks[column] == sign and not math.isnan(row[column]):
            chosen.append(min(max(row[column], 0.0), 1.0))
    return sorted(chosen)


def order_statistic(ordered: list[float], level: float) -> float | None:
    """The ceil(level * n)-th smallest, at least the first; exact in the decimals in which a level is written."""
    if not ordered:
        return None
    rank = max(1, math.ceil(Fraction(str(level)) * len(ordered)))
    return ordered[rank - 1]


def ideal_threshold(
    scores: Matrix,
    labels: list[list[int]],
    column: int,
    negative_quantile: float,
    positive_quantile: float,
    min_count: int = 1,
) -> float | None:
    """The ideal threshold of one class, None where it has none."""
    negatives = known_scores(scores, labels, column, -1)
    positives = known_scores(scores, labels, column, +1)
    if len(negatives) + len(positives) < min_count:
        return None
    found = [order_statistic(negatives, negative_quantile), order_statistic(positives, positive_quantile)]
    return max((value for value in found if value is not None), default=None)


def pseudo_label(score: float, label: int, threshold: float) -> int:
    """The label after filling."""
    if label == 0 and score > threshold:
        return 1
    return label


SST_SCHEDULE = {
    **{5: 0.95, 6: 0.925, 7: 0.90, 8: 0.875, 9: 0.85, 10: 0.825, 11: 0.80, 12: 0.775, 13: 0.75},
    **{14: 0.75, 15: 0.75, 16: 0.75, 17: 0.75, 18: 0.75, 19: 0.75},
}
"""The threshold of each epoch as SST published it."""
