"""What several annotators say together: which decisions count, where they disagree, how far they agree.

Pure functions of the decisions that stand; a skipped cell is no opinion.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from satl.errors import Argument, ConfigError

DisagreementRule = Literal["leave", "latest", "majority"]
"""What counts on a cell that annotators disagree about: nothing, the latest decision, or that of most of them."""
ENOUGH_CELLS = 20
"""Cells that two annotators must both have decided before their kappa is told: it means little for fewer."""


class Vote(NamedTuple):
    """The decision of one annotator that stands on a cell: 1 present, -1 absent, 0 skipped.

    Attributes:
        final: it settles a disagreement and goes before all others.
    """

    image: str
    label: str
    annotator: str
    value: int
    number: int
    final: bool = False


class CurrentDecision(NamedTuple):
    """The current decision on a cell; value and number are None where it is open."""

    image: str
    label: str
    value: int | None
    number: int | None


class Settlement(NamedTuple):
    """What counts: one decision for every cell on which one is found, oldest first, and the cells without."""

    decisions: list[CurrentDecision]
    disagreements: list[tuple[str, str]]


def settle(votes: Iterable[Vote], rule: DisagreementRule = "leave") -> Settlement:
    """Return the decision that counts on every cell, and the cells on which the annotators disagree.

    A final decision counts; else what all who had an opinion say; else what ``rule`` says. A majority that is none
    leaves the cell among the disagreements.

    >>> ann, bob = Vote("a.jpg", "boat", "ann", 1, 1), Vote("a.jpg", "boat", "bob", -1, 2)
    >>> settle([ann, bob]).disagreements, settle([ann, bob], "latest").decisions[0].value
    ([('a.jpg', 'boat')], -1)
    >>> settle([ann, bob, Vote("a.jpg", "boat", "eve", 1, 3, final=True)]).decisions[0].value
    1
    """
    if rule not in get_args(DisagreementRule):
        raise ConfigError(
            "is not a rule for disagreements",
            where=Argument("disagreements", rule),
            remedy=f"choose one of {', '.join(get_args(DisagreementRule))}",
        )
    by_cell: dict[tuple[str, str], list[Vote]] = defaultdict(list)
    for vote in votes:
        by_cell[vote.image, vote.label].append(vote)
    decisions: list[CurrentDecision] = []
    disagreements: list[tuple[str, str]] = []
    for cell, here in by_cell.items():
        value = _value(here, rule)
        if value is None:
            disagreements.append(cell)
        else:
            # The latest of those that say so, a final one before all.
            counted = max(here, key=lambda vote: (vote.final, vote.value == value, vote.number))
            decisions.append(CurrentDecision(*cell, value, counted.number))
    decisions.sort(key=lambda decision: decision.number or 0)
    return Settlement(decisions, disagreements)


def _value(votes: Sequence[Vote], rule: DisagreementRule) -> int | None:
    """Return what counts on one cell, or None where the annotators disagree."""
    final = [vote.value for vote in votes if vote.final]
    if final:
        return final[-1]
    opinions = sorted((vote for vote in votes if vote.value), key=lambda vote: vote.number)
    if not opinions:
        return 0
    balance = sum(vote.value for vote in opinions)
    if abs(balance) == len(opinions) or rule == "latest":
        return opinions[-1].value
    return int(math.copysign(1, balance)) if rule == "majority" and balance else None


class PairAgreement(NamedTuple):
    """How far two annotators agree on the cells that both decided.

    Attributes:
        label: the class, or None for all classes together.
        cells: decided by both.
        agreed: decided alike.
        kappa: Cohen's kappa; None for fewer than :data:`ENOUGH_CELLS` cells, and where it is not defined because
            both said one and the same about every cell.
    """

    first: str
    second: str
    label: str | None
    cells: int
    agreed: int
    kappa: float | None


def cohen_kappa(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return Cohen's kappa of two lists of verdicts, (n,) each: agreement beyond what chance would give.

    1 for full agreement, 0 for as much as two would have by chance who each keep their own share of every verdict.
    NaN where chance alone gives full agreement, or without a cell.

    >>> cohen_kappa([1, 1, -1, -1], [1, 1, -1, 1])
    0.5
    """
    one, two = np.asarray(first), np.asarray(second)
    if one.shape != two.shape or one.ndim != 1:
        raise ValueError(f"two lists of one length, not of the shapes {one.shape} and {two.shape}")
    values = np.unique(np.concatenate([one, two]))
    if len(values) < 2:
        return math.nan
    observed = float(np.mean(one == two))
    shares = [(np.mean(one == value), np.mean(two == value)) for value in values]
    chance = float(sum(a * b for a, b in shares))
    return (observed - chance) / (1 - chance)


def pair_agreement(votes: Iterable[Vote], enough: int = ENOUGH_CELLS) -> list[PairAgreement]:
    """Return for each pair of annotators with a cell in common how far they agree: over all, then class by class.

    Final decisions are left out: they settle what annotators said, and are no second look of their own.
    """
    said: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for vote in votes:
        if vote.value and not vote.final:
            said[vote.annotator][vote.label, vote.image] = vote.value
    found: list[PairAgreement] = []
    for first, second in combinations(sorted(said), 2):
        common = sorted(said[first].keys() & said[second].keys())
        if not common:
            continue
        by_class: dict[str | None, list[tuple[int, int]]] = {None: []}
        for cell in common:
            pair = said[first][cell], said[second][cell]
            by_class[None].append(pair)
            by_class.setdefault(cell[0], []).append(pair)
        for label, pairs in by_class.items():
            one, two = zip(*pairs, strict=True)
            kappa = cohen_kappa(one, two) if len(pairs) >= enough else math.nan
            agreed = sum(a == b for a, b in pairs)
            stated = None if math.isnan(kappa) else kappa
            found.append(PairAgreement(first, second, label, len(pairs), agreed, stated))
    return found
