"""Certificates written down the slow, plain way: one class, one threshold, one cell at a time."""

from __future__ import annotations

import math
from fractions import Fraction


def binomial_at_most(errors, total, rate):
    """P(at most ``errors`` of ``total``) when each is an error with the fraction ``rate``; exact in fractions."""
    if total == 0:
        return 1
    term = (1 - rate) ** total
    whole = term
    for k in range(errors):
        term = term * (total - k) / (k + 1) * rate / (1 - rate)
        whole += term
    return whole


def labels_needed(precision, confidence, errors=0):
    """Smallest total for which so few errors are surprising; the arguments are text such as "0.95"."""
    rate, level = 1 - Fraction(precision), 1 - Fraction(confidence)
    total = errors + 1
    while binomial_at_most(errors, total, rate) > level:
        total += 1
    return total


def hypergeometric_at_least(seen, drawn, right, size):
    ways = sum(math.comb(right, k) * math.comb(size - right, drawn - k) for k in range(seen, drawn + 1))
    return Fraction(ways, math.comb(size, drawn))


def finite_population_lower(correct, drawn, size, confidence):
    """Smallest share of a set of ``size`` cells under which the sample is not too surprising."""
    level = 1 - Fraction(confidence)
    for right in range(size + 1):
        if hypergeometric_at_least(correct, drawn, right, size) > level:
            return right / size
    raise AssertionError("the sample is always possible when all cells are right")


def grid(unknown, factor=1.2, steps=200):
    """Thresholds from the highest to the lowest: scores of unknown cells at the chosen ranks."""
    ordered = sorted(unknown)
    count = len(ordered)
    if count == 0:
        return []
    ranks = {int(step * (count - 1) / steps) for step in range(steps + 1)}
    power = 0
    while True:
        rank = min(int(factor**power), count) - 1
        ranks |= {rank, count - 1 - rank}
        if factor**power >= count:
            break
        power += 1
    return sorted({ordered[rank] for rank in ranks}, reverse=True)


def passing(cells, errors, target, starts):
    """Which grid points pass; ``starts`` is a list of (number of cells, error probability)."""
    waiting = sorted(starts)
    in_hand, result = 0.0, []
    for n, wrong in zip(cells, errors, strict=True):
        while waiting and n >= waiting[0][0]:
            in_hand += waiting.pop(0)[1]
        p_value = float(binomial_at_most(wrong, n, 1 - target))
        good = in_hand > 0 and p_value <= in_hand * (1 + 1e-9)
        result.append(good)
        if not good:
            in_hand = 0.0
    return result


def starts(tested, target, level):
    """Starts of a class with ``tested`` cells."""
    alone = math.ceil(math.log(level) / math.log(target) - 1e-9)
    first = math.ceil(math.log(0.8 * level) / math.log(target) - 1e-9)
    number = 1
    while tested >= first * 3**number:
        number += 1
    if number == 1:
        return [(alone, level)]
    return [(first, 0.8 * level)] + [(first * 3**k, 0.2 * level / (number - 1)) for k in range(1, number)]


def threshold(positive, negative, unknown, value, target=0.95, level=0.05, guard=0.9):
    """The loosest passing threshold of one class and direction that the guard allows, or None."""
    same, other = (positive, negative) if value > 0 else (negative, positive)
    if not same or not other:
        return None
    rank = math.ceil((len(other) + 1) * guard - 1e-9)
    if rank > len(other):
        return None
    limit = sorted(other)[rank - 1] if value > 0 else sorted(other, reverse=True)[rank - 1]
    points = grid(unknown)
    if value < 0:
        points = points[::-1]

    def accepted(scores, at):
        return sum(score >= at if value > 0 else score <= at for score in scores)

    wrong = [accepted(other, at) for at in points]
    cells = [accepted(same, at) + w for at, w in zip(points, wrong, strict=True)]
    good = passing(cells, wrong, target, starts(len(same) + len(other), target, level))
    allowed = [
        at
        for at, passes in zip(points, good, strict=True)
        if passes and (at > limit if value > 0 else at < limit)
    ]
    return allowed[-1] if allowed else None


def mixture(positive, negative, unknown, rounds=20_000):
    """Prevalence, both distributions and log-likelihood by expectation and maximisation, bin by bin."""
    bins = range(len(unknown))
    f = [(a + 0.5) / (sum(positive) + 0.5 * len(unknown)) for a in positive]
    g = [(b + 0.5) / (sum(negative) + 0.5 * len(unknown)) for b in negative]
    pi = 0.5
    for _ in range(rounds):
        r = [u * pi * f[i] / (pi * f[i] + (1 - pi) * g[i]) if u else 0.0 for i, u in enumerate(unknown)]
        total = sum(r)
        f = [(positive[i] + r[i]) / (sum(positive) + total) for i in bins]
        g = [(negative[i] + unknown[i] - r[i]) / (sum(negative) + sum(unknown) - total) for i in bins]
        pi = total / sum(unknown)
    return pi, f, g, log_likelihood(positive, negative, unknown, pi, f, g)


def log_likelihood(positive, negative, unknown, pi, f, g):
    def term(count, probability):
        return count * math.log(probability) if count else 0.0

    return sum(
        term(a, f[i]) + term(b, g[i]) + term(u, pi * f[i] + (1 - pi) * g[i])
        for i, (a, b, u) in enumerate(zip(positive, negative, unknown, strict=True))
    )
