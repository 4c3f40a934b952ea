"""A rule applied to a whole table: what it accepts, and how good that is, counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satl.thresholds import (
    FixedThreshold,
    LargeLossThreshold,
    LinearDecayThreshold,
    MetricThreshold,
    SemanticAwareThreshold,
)
from satl.thresholds.application import apply_rule
from thresholds.tables import MIXES


def tables(seed: int, mix: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    noise = np.random.default_rng(seed)
    shape = (30, 3)
    labels = noise.choice([-1, 0, 1], shape, p=np.array(mix) / sum(mix)).astype(np.int8)
    scores = (noise.random(shape) * 20).round() / 20
    return scores.astype(np.float32), labels, noise.integers(-1, 2, shape).astype(np.int8)


@given(seed=st.integers(0, 1000), mix=st.sampled_from(list(MIXES.values())))
@settings(max_examples=40)
def test_rows_are_counted_by_hand(seed: int, mix: list[float]) -> None:
    scores, labels, truth = tables(seed, mix)
    rows = apply_rule(FixedThreshold(3, 0.5), scores, labels, ("a", "b", "c"), truth, encoding="signed")
    for c, row in enumerate(rows):
        known = {(n, int(labels[n, c])) for n in range(30) if labels[n, c] != 0}
        above = {n for n in range(30) if scores[n, c] > 0.5}
        unknown = set(range(30)) - {n for n, _ in known}
        assert (row.name, row.threshold) == ("abc"[c], 0.5)
        assert row.known_positives == sum(sign > 0 for _, sign in known)
        assert row.known_negatives == sum(sign < 0 for _, sign in known)
        assert (row.unknown, row.accepted) == (len(unknown), len(unknown & above))
        hits = [sign > 0 for n, sign in known if n in above]
        assert row.precision == pytest.approx(sum(hits) / len(hits) if hits else math.nan, nan_ok=True)
        positives = [n in above for n, sign in known if sign > 0]
        recall = sum(positives) / len(positives) if positives else math.nan
        assert row.recall == pytest.approx(recall, nan_ok=True)
        judged = [truth[n, c] > 0 for n in unknown & above if truth[n, c] != 0]
        assert row.truth_precision == pytest.approx(
            sum(judged) / len(judged) if judged else math.nan, nan_ok=True
        )
        there = [n in above for n in unknown if truth[n, c] > 0]
        assert row.truth_recall == pytest.approx(sum(there) / len(there) if there else math.nan, nan_ok=True)


def test_without_updates_a_rule_goes_to_its_limit() -> None:
    scores, labels, _ = tables(0, [1.0, 1.0, 1.0])
    names = ("a", "b", "c")
    assert apply_rule(LinearDecayThreshold(3), scores, labels, names)[0].threshold == 0.75
    assert apply_rule(LinearDecayThreshold(3), scores, labels, names, updates=2)[0].threshold == 0.925
    slow, fast = (
        apply_rule(SemanticAwareThreshold(3, rate=rate), scores, labels, names) for rate in (0.1, 1.0)
    )
    assert [row.threshold for row in slow] == [row.threshold for row in fast]
    once = apply_rule(SemanticAwareThreshold(3, rate=0.1), scores, labels, names, updates=1)
    for one, ideal in zip(once, fast, strict=True):
        assert one.threshold == pytest.approx(0.9 + 0.1 * ideal.threshold, abs=1e-6)


def test_thresholds_are_the_shortest_numbers_that_mean_the_same() -> None:
    scores, labels, _ = tables(1, [1.0, 1.0, 1.0])
    assert apply_rule(FixedThreshold(3, 0.7), scores, labels, ("a", "b", "c"))[0].threshold == 0.7
    for c, row in enumerate(apply_rule(MetricThreshold(3), scores, labels, ("a", "b", "c"))):
        accepted = (scores[:, c] > np.float32(row.threshold)) & (labels[:, c] == 0)
        assert row.accepted == int(accepted.sum())


def test_cells_without_a_score_are_neither_counted_nor_accepted() -> None:
    scores = np.array([[0.9], [np.nan], [0.8], [0.1]], dtype=np.float32)
    labels = np.array([[0], [0], [1], [-1]], dtype=np.int8)
    [row] = apply_rule(FixedThreshold(1, 0.5), scores, labels, ("cat",))
    assert (row.unknown, row.accepted) == (2, 1)


def test_a_rule_that_grows_needs_a_number_and_remembers() -> None:
    scores, labels, _ = tables(2, [1.0, 2.0, 1.0])
    names = ("a", "b", "c")
    with pytest.raises(NotImplementedError):
        apply_rule(LargeLossThreshold(3), scores, labels, names)
    for permanent in (False, True):
        rule = LargeLossThreshold(3, share_step=0.1, permanent=permanent, memory=60)
        rows = apply_rule(rule, scores, labels, names, updates=3)
        assert sum(row.accepted for row in rows) == 27
