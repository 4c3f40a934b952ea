"""Threshold rules in plain Python: sort the scores, count, take the one at the right place."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from scipy.optimize import minimize

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
    negatives_per_positive: float = 0.0,
    floor: float = 0.0,
) -> float | None:
    """The ideal threshold of one class, None where it has none."""
    negatives = known_scores(scores, labels, column, -1)
    positives = known_scores(scores, labels, column, +1)
    if len(negatives) + len(positives) < min_count:
        return None
    negative = order_statistic(negatives, negative_quantile)
    spared = math.floor(Fraction(str(negatives_per_positive)) * len(positives))
    if negative is not None and spared > 0:
        # The highest so many may lie above it; at least the lowest one may not.
        negative = min(negative, negatives[max(0, len(negatives) - 1 - spared)])
    known = [v for v in (negative, order_statistic(positives, positive_quantile)) if v is not None]
    return max([floor, *known]) if known else None


def passing_edge(ordered: list[float], level: float, bins: int) -> float | None:
    """The edge of the order statistic's bin above which nearest to as many scores lie as above the statistic."""
    if not ordered:
        return None
    rank = max(1, math.ceil(Fraction(str(level)) * len(ordered)))
    place = bin_of(ordered[rank - 1], bins)
    above = {edge: sum(bin_of(score, bins) >= edge for score in ordered) for edge in (place, place + 1)}
    wanted = len(ordered) - rank
    lower_is_nearer = abs(above[place] - wanted) < abs(above[place + 1] - wanted)
    return (place if lower_is_nearer else place + 1) / bins


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


def unknown_scores(scores: Matrix, labels: list[list[int]], column: int) -> list[float]:
    """Scores in [0, 1] of the unknown cells of one class; what is not a number is left out."""
    return known_scores(scores, labels, column, 0)


def bin_of(score: float, bins: int) -> int:
    """The bin of a score in [0, 1], the last one for 1 itself."""
    return min(int(score * bins), bins - 1)


def first_bin_by_proportion(
    scores: Matrix, labels: list[list[int]], column: int, bins: int, min_count: int = 1
) -> int | None:
    """CAP: the lowest bin from which on no larger a share of the unknown cells lies than is positive of the known."""
    positives = len(known_scores(scores, labels, column, +1))
    negatives = len(known_scores(scores, labels, column, -1))
    unknown = [bin_of(score, bins) for score in unknown_scores(scores, labels, column)]
    if not positives or not negatives or not unknown or positives + negatives < min_count:
        return None
    share = Fraction(positives, positives + negatives)
    for first in range(bins + 1):
        if sum(b >= first for b in unknown) <= share * len(unknown):
            return first
    raise AssertionError("no bin lies beyond the last.")


def f_beta(right: int, wrong: int, missed: int, beta: float) -> Fraction:
    """The F score of counts."""
    weight = Fraction(beta) ** 2
    bottom = (1 + weight) * right + weight * missed + wrong
    return (1 + weight) * right / bottom if bottom else Fraction(0)


def first_bin_by_metric(
    scores: Matrix, labels: list[list[int]], column: int, bins: int, beta: float = 1.0, min_count: int = 1
) -> int | None:
    """MAT: the highest bin from which on to accept the known cells scores best; not the lowest, which takes all."""
    positives = [bin_of(score, bins) for score in known_scores(scores, labels, column, +1)]
    negatives = [bin_of(score, bins) for score in known_scores(scores, labels, column, -1)]
    if not positives or not negatives or len(positives) + len(negatives) < min_count:
        return None
    best, chosen = Fraction(0), None
    for first in range(1, bins):
        right = sum(b >= first for b in positives)
        wrong = sum(b >= first for b in negatives)
        value = f_beta(right, wrong, len(positives) - right, beta)
        if value > 0 and value >= best:
            best, chosen = value, first
    return chosen


def first_bin_by_precision(
    scores: Matrix, labels: list[list[int]], column: int, bins: int, precision: Fraction, min_count: int = 1
) -> int | None:
    """The lowest bin with a known positive from which on the known cells are positive often enough, or ``bins``."""
    positives = [bin_of(score, bins) for score in known_scores(scores, labels, column, +1)]
    negatives = [bin_of(score, bins) for score in known_scores(scores, labels, column, -1)]
    if not positives or not negatives or len(positives) + len(negatives) < min_count:
        return None
    for first in sorted(set(positives)):
        right = sum(b >= first for b in positives)
        wrong = sum(b >= first for b in negatives)
        if Fraction(right, right + wrong) >= precision:
            return first
    return bins


def first_bin_by_shrunken_precision(
    scores: Matrix,
    labels: list[list[int]],
    column: int,
    bins: int,
    precision: Fraction,
    strength: int,
    floor: Fraction,
    min_count: int = 1,
) -> int | None:
    """The lowest bin with a known positive of any class that is precise enough, or ``bins``; none below the floor.

    Beside its own known cells a class has ``strength`` of the precision of all classes together.
    """

    def counts(c: int, first: int) -> tuple[int, int]:
        positives, negatives = (known_scores(scores, labels, c, sign) for sign in (+1, -1))
        return sum(bin_of(s, bins) >= first for s in positives), sum(
            bin_of(s, bins) >= first for s in negatives
        )

    right, wrong = counts(column, 0)
    if not right or not wrong or right + wrong < min_count:
        return None
    for first in range(bins):
        if Fraction(first, bins) < floor:
            continue
        of_all = [counts(c, first) for c in range(len(scores[0]))]
        known = sum(sum(one) for one in of_all)
        right, wrong = of_all[column]
        inside = [known_scores(scores, labels, c, +1) for c in range(len(scores[0]))]
        if not any(bin_of(s, bins) == first for of_class in inside for s in of_class):
            continue
        if not right + wrong + strength:
            continue
        together = Fraction(sum(one[0] for one in of_all), known)
        if (right + strength * together) / (right + wrong + strength) >= precision:
            return first
    return bins


def calibrated_chance(scores: Matrix, labels: list[list[int]], bins: int) -> list[float]:
    """The probability of each bin: log-odds stretched and shifted to make the known cells of all classes likeliest."""

    def odds(place: int) -> float:
        middle = (place + 0.5) / bins
        return math.log(middle / (1 - middle))

    known = [
        (odds(bin_of(score, bins)), sign)
        for column in range(len(scores[0]))
        for sign in (-1, 1)
        for score in known_scores(scores, labels, column, sign)
    ]

    def cost(two: tuple[float, float]) -> float:
        stretch, shift = two
        doubt = ((stretch - 1) ** 2 + shift**2) / 2
        return doubt + sum(math.log1p(math.exp(-sign * (stretch * x + shift))) for x, sign in known)

    stretch, shift = minimize(cost, (1.0, 0.0), options={"gtol": 1e-9}).x
    return [1 / (1 + math.exp(-(max(stretch, 0.0) * odds(place) + shift))) for place in range(bins)]


def expected_choices(
    scores: Matrix, labels: list[list[int]], column: int, bins: int, chance: list[float], floor: float
) -> dict[int, tuple[float, float]]:
    """First bin that may be accepted -> precision and recall to be expected of the unknown cells of a class.

    Accepting nothing is the bin after the last one, with no precision (taken as 0 surplus by the caller) and recall 0.
    """
    unknown = [bin_of(score, bins) for score in unknown_scores(scores, labels, column)]
    there = sum(chance[place] for place in unknown)
    choices = {}
    for first in sorted(set(unknown)):
        accepted = [chance[place] for place in unknown if place >= first]
        if chance[first] >= floor:
            choices[first] = sum(accepted) / len(accepted), sum(accepted) / there
    return choices


def every_choice(
    choices: list[dict[int, tuple[float, float]]], bins: int, precision: float
) -> dict[tuple[int, ...], tuple[float, float]]:
    """First bin of each class -> (sum over classes of precision above the wanted one, sum of recalls)."""
    found = {}
    for firsts in itertools.product(*([*of_class, bins] for of_class in choices)):
        taken = [of_class[first] for of_class, first in zip(choices, firsts, strict=True) if first < bins]
        found[firsts] = sum(right - precision for right, _ in taken), sum(recall for _, recall in taken)
    return found


def flexible_thresholds(
    scores: Matrix, labels: list[list[int]], confidence: float, floor: float
) -> list[float | None]:
    """FlexMatch over all classes, with the positives still expected for the samples not used yet."""
    classes = range(len(scores[0]))
    above, expected = [], []
    for column in classes:
        unknown = unknown_scores(scores, labels, column)
        positives = len(known_scores(scores, labels, column, +1))
        known = positives + len(known_scores(scores, labels, column, -1))
        above.append(sum(score > confidence for score in unknown))
        expected.append(len(unknown) * positives / known if known else 0.0)
    most = max(*above, sum(expected) - sum(above), 1.0)
    found: list[float | None] = []
    for column in classes:
        beta = above[column] / most
        if not known_scores(scores, labels, column, +1) or not unknown_scores(scores, labels, column):
            found.append(None)
        else:
            found.append(max(floor, confidence * beta / (2 - beta)))
    return found


def largest_unknown(scores: Matrix, labels: list[list[int]], share: Fraction) -> set[tuple[int, int]]:
    """Large loss: the unknown cells with the largest scores, as many as a share of all cells, rounded up."""
    cells = [
        (-scores[n][c], n, c)
        for n, marks in enumerate(labels)
        for c, mark in enumerate(marks)
        if mark == 0 and not math.isnan(scores[n][c])
    ]
    count = math.ceil(share * len(labels) * len(labels[0]))
    return {(n, c) for _, n, c in sorted(cells)[:count]}


def resting_place(positives: list[float], negatives: list[float], bins: int) -> float:
    """DTL: come down from 1 bin edge by bin edge, and stop before the first at which the gradient points up."""
    middle = [[(bin_of(score, bins) + 0.5) / bins for score in scores] for scores in (positives, negatives)]
    for edge in range(bins - 1, -1, -1):
        threshold = edge / bins
        down = sum(1 / (1 + math.exp(score - threshold)) for score in middle[0] if score > threshold)
        up = sum(1 / (1 + math.exp(threshold - score)) for score in middle[1] if score > threshold)
        if up > down:
            return (edge + 1) / bins
    return 0.0
