"""Several annotators: which decisions count, and how far they agree, against plain formulas and scikit-learn."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from reference import agreement as reference
from satl.errors import ConfigError
from satl.review.agreement import ENOUGH_CELLS, Vote, cohen_kappa, pair_agreement, settle

VERDICTS = st.lists(st.tuples(st.sampled_from([1, -1]), st.sampled_from([1, -1])), min_size=0, max_size=40)


@given(VERDICTS)
def test_kappa_is_that_of_the_formula_and_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = cohen_kappa(first, second)
    expected = reference.cohen_kappa(first, second)
    assert math.isnan(found) == math.isnan(expected)
    if not math.isnan(expected):
        assert found == pytest.approx(expected, abs=1e-12)
        assert found == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)


def test_kappa_at_its_edges() -> None:
    assert cohen_kappa([1, -1, 1], [1, -1, 1]) == 1.0
    assert cohen_kappa([1, -1], [-1, 1]) == -1.0
    assert cohen_kappa([1, 1, 1, 1], [1, -1, 1, 1]) == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # 0 / 0 is foreseen
        assert math.isnan(cohen_kappa([], []))
        assert math.isnan(cohen_kappa([1, 1], [1, 1]))
    with pytest.raises(ValueError, match="one length"):
        cohen_kappa([1], [1, 1])


CELLS = [("a.png", "boat"), ("b.png", "boat"), ("a.png", "cat")]
VOTES = st.dictionaries(
    st.tuples(st.sampled_from(CELLS), st.sampled_from(["ann", "bob", "eve", ""])),
    st.sampled_from([1, -1, 0]),
    max_size=12,
)
FINALS = st.dictionaries(st.sampled_from(CELLS), st.sampled_from([1, -1, 0]), max_size=3)


@given(VOTES, FINALS, st.sampled_from(["leave", "latest", "majority"]), st.randoms())
def test_what_counts_is_what_the_plain_rules_say(votes: dict, finals: dict, rule, random) -> None:
    entries = [(cell, who, value, False) for (cell, who), value in votes.items()]
    entries += [(cell, "eve", value, True) for cell, value in finals.items()]
    random.shuffle(entries)
    numbered = [
        (cell, who, value, number, final) for number, (cell, who, value, final) in enumerate(entries, 1)
    ]
    found = settle(
        [Vote(*cell, who, value, number, final) for cell, who, value, number, final in numbered], rule
    )
    expected = reference.settled(numbered, rule)
    assert {(d.image, d.label): d.value for d in found.decisions} == {
        cell: value for cell, value in expected.items() if value is not None
    }
    assert set(found.disagreements) == {cell for cell, value in expected.items() if value is None}
    assert [d.number for d in found.decisions] == sorted(d.number for d in found.decisions)
    by_number = {number: (cell, value) for cell, _, value, number, _ in numbered}
    for decision in found.decisions:
        assert by_number[decision.number] == ((decision.image, decision.label), decision.value)


def test_a_rule_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"disagreements='coin'.*choose one of leave, latest, majority"):
        settle([], "coin")  # type: ignore[arg-type]


def test_pairs_are_told_over_all_and_class_by_class() -> None:
    random = np.random.default_rng(0)
    votes, said = [], {}
    for label, count in (("boat", 60), ("cat", ENOUGH_CELLS - 1)):
        for i in range(count):
            for who in ("ann", "bob"):
                value = int(random.choice([1, -1, 0], p=[0.5, 0.4, 0.1]))
                votes.append(Vote(f"{i}.png", label, who, value, len(votes) + 1))
                said[who, label, i] = value
    votes.append(Vote("0.png", "boat", "eve", 1, 500, final=True))  # no second look
    both = [(label, said["ann", label, i], value) for (who, label, i), value in said.items() if who == "bob"]
    both = [(label, a, b) for label, a, b in both if a and b]
    pairs = {pair.label: pair for pair in pair_agreement(votes)}
    assert list(pairs) == [None, "boat", "cat"]
    for label, pair in pairs.items():
        mine = [(a, b) for one, a, b in both if label in (None, one)]
        assert (pair.first, pair.second, pair.cells) == ("ann", "bob", len(mine))
        assert pair.agreed == sum(a == b for a, b in mine)
        if len(mine) >= ENOUGH_CELLS:
            assert pair.kappa == pytest.approx(cohen_kappa_score(*zip(*mine, strict=True)))
        else:
            assert pair.kappa is None
    assert pairs["cat"].kappa is None
    # All alike: the agreement is full, and kappa is not defined.
    alike = [Vote(f"{i}.png", "boat", who, 1, i) for i in range(30) for who in ("ann", "bob")]
    assert [(pair.agreed, pair.kappa) for pair in pair_agreement(alike)] == [(30, None)] * 2
    assert pair_agreement(votes[:1]) == []
