"""Agreement of annotators written down the slow, plain way: one cell, one pair, one verdict at a time."""

from __future__ import annotations

import math
from fractions import Fraction


def cohen_kappa(first, second):
    """Cohen's kappa of two lists of verdicts from the table of all pairs; NaN where it is not defined."""
    count = len(first)
    values = sorted({*first, *second})
    pairs = {(a, b): 0 for a in values for b in values}
    for a, b in zip(first, second, strict=True):
        pairs[a, b] += 1
    if count == 0:
        return math.nan
    observed = Fraction(sum(pairs[value, value] for value in values), count)
    chance = Fraction(0)
    for value in values:
        by_first = sum(pairs[value, other] for other in values)
        by_second = sum(pairs[other, value] for other in values)
        chance += Fraction(by_first * by_second, count * count)
    return math.nan if chance == 1 else float((observed - chance) / (1 - chance))


def settled(votes, rule):
    """What counts: {cell: value, or None for a disagreement}; votes are (cell, who, value, number, final)."""
    found = {}
    for cell in {vote[0] for vote in votes}:
        here = sorted((vote for vote in votes if vote[0] == cell), key=lambda vote: vote[3])
        finals = [value for _, _, value, _, final in here if final]
        opinions = [value for _, _, value, _, final in here if value != 0 and not final]
        if finals:
            found[cell] = finals[-1]
        elif not opinions:
            found[cell] = 0
        elif len(set(opinions)) == 1 or rule == "latest":
            found[cell] = opinions[-1]
        elif rule == "majority" and opinions.count(1) != opinions.count(-1):
            found[cell] = 1 if opinions.count(1) > opinions.count(-1) else -1
        else:
            found[cell] = None
    return found
