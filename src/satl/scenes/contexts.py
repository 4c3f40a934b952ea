"""Which things are seen together: contexts, their favourites, and companions.

A picture belongs to one context. The context says how likely each category is, and most categories bring a
companion along. Every category may turn up in every context, rarely, so that a context is a hint and never a
proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from satl.scenes.brush import Dice
from satl.scenes.objects import CATEGORIES

UNUSUAL_WEIGHT = 0.05
"""Weight of a category in a context that does not mention it."""


@dataclass(frozen=True)
class Crowd:
    """How many categories a picture shows, how likely each number is, and how many contexts they are drawn from."""

    counts: tuple[int, ...]
    weights: tuple[float, ...]
    contexts: int


CROWDS: Mapping[str, Crowd] = {
    "few": Crowd((2, 3, 4), (0.45, 0.08, 0.47), contexts=1),
    "many": Crowd((8, 9, 10, 11, 12, 13, 14), (1, 2, 3, 3, 3, 2, 1), contexts=3),
}
"""The kinds of pictures: with few objects, or with many, which then belong to three contexts at once."""

FOREIGN_BACKDROP = 0.10
"""Part of the pictures whose backdrop belongs to another context than their objects."""


@dataclass(frozen=True)
class Context:
    """Its share of all pictures, and the weights of its categories."""

    share: float
    weights: Mapping[str, float]


CONTEXTS: Mapping[str, Context] = {
    "street": Context(0.24, {"car": 10, "traffic light": 6, "bus": 1.6, "bicycle": 1.6, "tree": 2, "dog": 1}),
    "park": Context(
        0.19, {"tree": 7, "bird": 5, "dog": 4, "ball": 3, "bicycle": 0.8, "bus": 0.4, "cat": 0.4}
    ),
    "sea": Context(0.14, {"sailboat": 3, "sun": 6, "ship": 1.4, "umbrella": 1.4, "bird": 2, "fish": 0.4}),
    "farm": Context(0.10, {"sheep": 2, "truck": 2, "tree": 5, "bird": 2, "dog": 1.5, "sun": 1.5}),
    "kitchen": Context(0.12, {"cup": 6, "bottle": 5, "cat": 1.6, "fish": 1.4, "clock": 0.8, "chair": 1}),
    "desk": Context(0.10, {"laptop": 2.4, "book": 3, "cup": 3, "bottle": 1, "lamp": 2, "clock": 1.2}),
    "living room": Context(
        0.11, {"lamp": 4, "chair": 4, "cat": 2, "fish": 1, "clock": 2, "vase": 2, "book": 0.6}
    ),
}

COMPANIONS: Mapping[str, str] = {
    one: other
    for pair in (
        ("car", "traffic light"),
        ("bus", "bicycle"),
        ("tree", "bird"),
        ("dog", "ball"),
        ("sailboat", "sun"),
        ("ship", "umbrella"),
        ("sheep", "truck"),
        ("cup", "bottle"),
        ("cat", "fish"),
        ("laptop", "book"),
        ("lamp", "chair"),
        ("clock", "vase"),
    )
    for one, other in (pair, pair[::-1])
}
"""What is hardly ever seen alone: each category and the one that comes with it."""

COMPANION_SHARE = 0.99
"""How often a category brings its companion, where the picture has room for it."""


def choose_categories(dice: Dice, crowd: str = "few") -> tuple[str, list[str]]:
    """Draw a context and the categories of one picture: 2 to 4, or 8 to 14 of three contexts where there are many.

    >>> import numpy as np
    >>> context, names = choose_categories(Dice(np.random.Generator(np.random.PCG64(3))))
    >>> context in CONTEXTS, 2 <= len(names) <= 4, len(set(names)) == len(names)
    (True, True, True)
    """
    kind = CROWDS[crowd]
    shares = {name: context.share for name, context in CONTEXTS.items()}
    contexts: list[str] = []
    for _ in range(kind.contexts):
        contexts.append(list(shares)[dice.weighted(list(shares.values()))])
        del shares[contexts[-1]]
    count = kind.counts[dice.weighted(kind.weights)]
    weights = {
        name: sum(CONTEXTS[context].weights.get(name, UNUSUAL_WEIGHT) for context in contexts)
        for name in CATEGORIES
    }
    chosen: list[str] = []
    while len(chosen) < count:
        name = list(weights)[dice.weighted(list(weights.values()))]
        chosen.append(name)
        del weights[name]
        companion = COMPANIONS[name]
        if len(chosen) < count and companion in weights and dice.chance(COMPANION_SHARE):
            chosen.append(companion)
            del weights[companion]
    return contexts[0], chosen
