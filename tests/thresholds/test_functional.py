"""Histograms, quantiles and ideal thresholds against sorted lists."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reference import thresholds as reference
from satl.errors import ArrayError
from satl.functional import (
    histogram_quantile,
    ideal_thresholds,
    move_thresholds,
    pseudo_labels,
    score_histogram,
)
from satl.thresholds import FlexibleThreshold, LargeLossThreshold, LearnedThreshold
from satl.thresholds.functional import negative_labels, passing_quantile

levels = st.integers(0, 1000).map(lambda thousandth: thousandth / 1000)


@st.composite
def score_tables(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Scores and labels of every awkward kind: ties, values outside [0, 1], NaN, infinities, half precision."""
    images, classes = draw(st.integers(1, 60)), draw(st.integers(1, 5))
    noise = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scores = torch.rand(images, classes, generator=noise)
    shape = draw(st.sampled_from(["uniform", "ties", "wide", "constant"]))
    if shape == "ties":
        scores = (scores * 4).round() / 4
    elif shape == "wide":
        scores = scores * 3 - 1
    elif shape == "constant":
        scores = torch.full_like(scores, draw(st.sampled_from([0.0, 0.3, 1.0])))
    for value in draw(st.lists(st.sampled_from([math.nan, math.inf, -math.inf]), max_size=3)):
        scores = torch.where(torch.rand(images, classes, generator=noise) < 0.1, value, scores)
    scores = scores.to(draw(st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16])))
    weights = draw(
        st.sampled_from([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [5.0, 1.0, 0.2]])
    )
    picks = torch.multinomial(torch.tensor(weights), images * classes, replacement=True, generator=noise)
    dtype = draw(st.sampled_from([torch.int8, torch.int64, torch.float32]))
    return scores, (picks - 1).view(images, classes).to(dtype)


@given(
    table=score_tables(),
    negative=levels,
    positive=levels,
    bins=st.sampled_from([2, 7, 100, 2048]),
    spared=st.sampled_from([0.0, 0.0, 0.02, 0.1, 0.5, 3.0]),
    floor=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
)
@settings(max_examples=200, deadline=None)
def test_ideal_thresholds_are_order_statistics_within_one_bin(
    table: tuple[Tensor, Tensor], negative: float, positive: float, bins: int, spared: float, floor: float
) -> None:
    scores, labels = table
    counts = score_histogram(scores, labels, bins)
    ours = ideal_thresholds(counts, negative, positive, negatives_per_positive=spared, floor=floor)
    rows, marks = scores.double().tolist(), labels.int().tolist()
    for column in range(scores.shape[1]):
        exact = reference.ideal_threshold(
            rows, marks, column, negative, positive, negatives_per_positive=spared, floor=floor
        )
        value = float(ours[column])
        if exact is None:
            assert math.isnan(value)
        else:
            assert exact - 1 / bins - 1e-6 <= value <= exact + 1 / bins + 1e-6


@given(
    table=score_tables(),
    level=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    bins=st.sampled_from([2, 7, 100, 2048]),
)
@settings(max_examples=100, deadline=None)
def test_thresholds_let_nearest_to_the_promised_positives_pass(
    table: tuple[Tensor, Tensor], level: float, bins: int
) -> None:
    scores, labels = table
    ours = passing_quantile(score_histogram(scores, labels, bins)[1], level)
    for column in range(scores.shape[1]):
        # In the precision in which the histogram sorts them.
        known = reference.known_scores(scores.float().tolist(), labels.int().tolist(), column, 1)
        edge = reference.passing_edge(known, level, bins)
        if edge is None:
            assert bool(ours[column].isnan())
        else:
            assert float(ours[column]) == pytest.approx(edge)


@pytest.mark.parametrize("low", [0.9990, 0.9996, 0.5001])
def test_positives_that_share_a_bin_pass(low: float) -> None:
    positives, negatives = low + 0.0003 * torch.rand(5000, 1), 0.05 * torch.rand(5000, 1)
    labels = torch.cat([torch.ones(5000, 1), -torch.ones(5000, 1)])
    limit = ideal_thresholds(score_histogram(torch.cat([positives, negatives]), labels, 2048))
    new = low + 0.0003 * torch.rand(1000, 1)
    assert float((new > limit).float().mean()) > 0.5
    assert not bool((negatives > limit).any())


@given(table=score_tables(), level=levels)
@settings(max_examples=50, deadline=None)
def test_quantiles_leave_the_promised_share_at_or_below(table: tuple[Tensor, Tensor], level: float) -> None:
    scores, labels = table
    counts = score_histogram(scores, labels, bins=64)
    for row, sign in ((0, -1), (1, 1)):
        quantiles = histogram_quantile(counts[row], level)
        for column in range(scores.shape[1]):
            known = reference.known_scores(scores.double().tolist(), labels.int().tolist(), column, sign)
            assert int(counts[row, column].sum()) == len(known)
            if known:
                share = sum(value <= float(quantiles[column]) + 1e-6 for value in known) / len(known)
                assert share >= level - 1e-9
            else:
                assert bool(quantiles[column].isnan())


def test_histogram_adds_up_over_batches() -> None:
    torch.manual_seed(0)
    scores, labels = torch.rand(50, 3), torch.randint(-1, 2, (50, 3))
    parts = sum(score_histogram(s, y, 32) for s, y in zip(scores.split(7), labels.split(7), strict=True))
    assert torch.equal(parts, score_histogram(scores, labels, 32))
    assert not score_histogram(scores[:0], labels[:0], 32).any()


def test_ranks_stay_exact_for_millions_of_scores() -> None:
    # 0.999 of n scores lie in the first bin: the quantile must not step over into the second.
    for count in (1000, 30_000, 7_000_000, 19_997_000):
        inside = count // 1000 * 999
        counts = torch.tensor([inside, count - inside])
        assert float(histogram_quantile(counts, 0.999)) == 0.5
        assert float(histogram_quantile(counts - torch.tensor([1, -1]), 0.999)) == 1.0


def known(scores: list[float], labels: list[int], bins: int = 1000) -> Tensor:
    return score_histogram(torch.tensor(scores).unsqueeze(1), torch.tensor(labels).unsqueeze(1), bins)


def test_separated_class_takes_the_foot_of_the_positives() -> None:
    negatives, positives = [i / 100 for i in range(20)], [0.6 + i / 100 for i in range(20)]
    counts = known(negatives + positives, [-1] * 20 + [1] * 20)
    assert float(ideal_thresholds(counts, 0.999, 0.1)) == pytest.approx(0.61, abs=1.1e-3)


def test_mixed_class_takes_the_tail_of_the_negatives() -> None:
    negatives, positives = [i / 100 for i in range(80)], [0.3 + i / 100 for i in range(20)]
    counts = known(negatives + positives, [-1] * 80 + [1] * 20)
    assert float(ideal_thresholds(counts, 0.999, 0.1)) == pytest.approx(0.79, abs=1.1e-3)


@pytest.mark.parametrize(
    ("labels", "wanted"), [([-1, -1, 0], 0.4), ([1, 1, 0], 0.2), ([0, 0, 0], math.nan), ([-1, 1, 0], 0.4)]
)
def test_degenerate_classes(labels: list[int], wanted: float) -> None:
    ideal = ideal_thresholds(known([0.2, 0.4, 0.9], labels), 0.999, 0.1)
    assert float(ideal) == pytest.approx(wanted, abs=1.1e-3, nan_ok=True)


@pytest.mark.parametrize(("min_count", "has_one"), [(1, True), (3, True), (4, False)])
def test_min_count_counts_both_signs(min_count: int, has_one: bool) -> None:
    counts = known([0.1, 0.2, 0.3, 0.4], [-1, -1, 1, 0])
    assert bool(ideal_thresholds(counts, min_count=min_count).isfinite()) is has_one


def test_move_stays_where_there_is_no_ideal_and_ends_where_it_should() -> None:
    value, ideal = torch.tensor([1.0, 0.3, 0.5]), torch.tensor([1.0, torch.nan, 0.1], dtype=torch.float64)
    for rate in (0.0, 0.1, 0.3, 0.7, 1.0):
        moved = move_thresholds(value, ideal, rate)
        assert moved.dtype == torch.float32
        torch.testing.assert_close(moved, torch.tensor([1.0, 0.3, 0.5 + rate * (0.1 - 0.5)]))
        assert float(moved[0]) == 1.0
        assert float(moved[1]) == float(value[1])


@given(table=score_tables(), seed=st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_known_cells_are_never_overwritten(table: tuple[Tensor, Tensor], seed: int) -> None:
    scores, labels = table
    thresholds = torch.rand(scores.shape[1], generator=torch.Generator().manual_seed(seed))
    before = labels.clone()
    filled = pseudo_labels(scores, labels, thresholds)
    assert filled.dtype == labels.dtype
    assert torch.equal(labels, before)
    for n in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            wanted = reference.pseudo_label(float(scores[n, c]), int(labels[n, c]), float(thresholds[c]))
            assert int(filled[n, c]) == wanted


def test_a_score_at_the_threshold_is_not_above_it() -> None:
    thresholds = torch.tensor([0.5, 1.0])
    scores = torch.tensor([[0.5, 1.0], [0.5000001, 1.0]])
    assert pseudo_labels(scores, torch.zeros(2, 2, dtype=torch.int8), thresholds).tolist() == [[0, 0], [1, 0]]


def test_no_gradient_flows_through_pseudo_labels() -> None:
    scores = torch.rand(3, 2, requires_grad=True)
    assert not pseudo_labels(scores, torch.zeros(3, 2), torch.zeros(2)).requires_grad


def flexible_thresholds(scores: Tensor, labels: Tensor) -> Tensor:
    rule = FlexibleThreshold(3, confidence=0.6, floor=0.1)
    rule.observe(scores, labels)
    rule.update()
    return rule.value


def largest(scores: Tensor, labels: Tensor, permanent: bool) -> Tensor:
    rule = LargeLossThreshold(3, share_step=0.2, permanent=permanent)
    for _ in range(2):  # what is remembered counts from the second time on
        rule.update()
        filled = rule.pseudo_labels(scores, labels, torch.arange(len(scores)))
    return filled


# Of scores and labels (4, 3): whatever looks at both.
READERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "histogram": lambda scores, labels: score_histogram(scores, labels, bins=8),
    "positives": lambda scores, labels: pseudo_labels(scores, labels, torch.full((3,), 0.5)),
    "negatives": lambda scores, labels: negative_labels(scores, labels, torch.full((3,), 0.7)),
    "learned": lambda scores, labels: LearnedThreshold(3).loss(scores + 0.9, labels).detach(),
    "flexible": flexible_thresholds,
    "largest": lambda scores, labels: largest(scores, labels, permanent=False),
    "largest for good": lambda scores, labels: largest(scores, labels, permanent=True),
}


@pytest.mark.parametrize("name", READERS)
def test_labels_that_would_be_misread_are_refused(name: str) -> None:
    scores = torch.rand(4, 3)
    for dtype in (torch.bool, torch.uint8):  # in which absent is unknown, or 255
        with pytest.raises(ArrayError, match=f"must be of a signed type, got {dtype}"):
            READERS[name](scores, torch.randint(-1, 2, (4, 3)).to(dtype))
    with pytest.raises(ValueError, match=r"\(4, 3\) and \(4, 1\)"):
        READERS[name](scores, torch.ones(4, 1))


@pytest.mark.parametrize("name", [name for name in READERS if name != "histogram"])
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_scores_of_other_classes_are_refused(name: str, classes: int) -> None:
    # One class would be broadcast to three.
    with pytest.raises(ValueError, match=rf"\(4, {classes}\)"):
        READERS[name](torch.rand(4, classes), torch.ones(4, classes))


@pytest.mark.parametrize("fill", [pseudo_labels, negative_labels])
def test_thresholds_are_one_for_each_class_or_one_for_all(
    fill: Callable[[Tensor, Tensor, Tensor | float], Tensor],
) -> None:
    scores, labels = torch.rand(4, 3), torch.zeros(4, 3)
    expected = fill(scores, labels, torch.full((3,), 0.6))
    assert torch.equal(fill(scores, labels, torch.tensor(0.6)), expected)
    assert torch.equal(fill(scores, labels, 0.6), expected)
    assert torch.equal(
        fill(scores.bfloat16(), labels, 0.6), fill(scores.bfloat16(), labels, torch.tensor(0.6))
    )
    for shape in ((4, 1), (1,), (2, 4, 3)):
        with pytest.raises(
            ValueError, match=f"thresholds must be one for each class .* got {re.escape(str(shape))}"
        ):
            fill(scores, labels, torch.rand(shape))


@pytest.mark.parametrize("name", READERS)
def test_a_label_that_is_not_a_number_is_unknown(name: str) -> None:
    scores = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[1.0, 0.0, -1.0], [0.0, 0.0, 1.0], [-1.0, 1.0, 0.0], [1.0, -1.0, 0.0]])
    as_zero, as_nan = (READERS[name](scores, torch.where(labels == 0, no, labels)) for no in (0.0, math.nan))
    assert torch.equal(as_nan.nan_to_num(0.0), as_zero)
