"""The rules of other papers against plain loops: fixed, FlexMatch, CAP, MAT, large losses; and precision."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.host_synchronisation import forbid_host_synchronisation
from reference import thresholds as reference
from satl.thresholds import (
    CalibratedThreshold,
    FixedThreshold,
    FlexibleThreshold,
    LargeLossThreshold,
    LinearDecayThreshold,
    MetricThreshold,
    PrecisionThreshold,
    ProportionThreshold,
    SemanticAwareThreshold,
    ShrunkenThreshold,
    ThresholdRule,
)
from satl.thresholds.calibrated import calibrated_probabilities
from satl.thresholds.functional import largest_cells, negative_labels, score_histogram
from thresholds.tables import unit_tables

Table = tuple[Tensor, Tensor]
POWERS = st.sampled_from([2, 16, 256])  # bins whose edges are exact in every precision


def plain(table: Table) -> tuple[list[list[float]], list[list[int]]]:
    return table[0].double().tolist(), table[1].int().tolist()


def moved(rule: ThresholdRule, table: Table, parts: int = 3) -> ThresholdRule:
    """The rule after it saw the table in a few batches, which may hold 1 and 0 only."""
    rule.take_signed()
    for scores, labels in zip(table[0].chunk(parts), table[1].chunk(parts), strict=True):
        rule.observe(scores, labels)
    rule.update()
    return rule


def assert_accepts_from(rule: ThresholdRule, table: Table, bins: int, first: list[int | None]) -> None:
    """Exactly the unknown cells in these bins and above are filled, and a class without a bin keeps 1.0."""
    scores, labels = table
    filled = rule.pseudo_labels(scores, labels)
    for c, bin_index in enumerate(first):
        if bin_index is None:
            assert float(rule.value[c]) == 1.0
        for n in range(len(scores)):
            score, label = float(scores[n, c]), int(labels[n, c])
            accepted = (
                label == 0
                and not math.isnan(score)
                and bin_index is not None
                and reference.bin_of(score, bins) >= bin_index
            )
            assert int(filled[n, c]) == (1 if accepted else label)


# Fixed


@given(table=unit_tables(), confidence=st.sampled_from([0.0, 0.3, 0.5, 0.95, 1.0]))
@settings(max_examples=40)
def test_fixed_is_a_constant_after_the_first_update(table: Table, confidence: float) -> None:
    scores, labels = table
    rule = FixedThreshold(scores.shape[1], confidence, encoding="signed")
    assert not rule.pseudo_labels(scores, labels).gt(labels).any()
    moved(rule, table)
    filled = rule.pseudo_labels(scores, labels)
    # A constant is what it is in the precision of the thresholds.
    exact = torch.tensor(confidence).double()
    assert torch.equal(filled > labels, (labels == 0) & (scores.double() > exact))
    moved(rule, table)
    assert rule.value.tolist() == rule.limit().tolist() == [float(exact)] * scores.shape[1]


# FlexMatch


@given(
    table=unit_tables(),
    confidence=st.sampled_from([0.5, 0.75, 0.9]),
    floor=st.sampled_from([0.0, 0.25, 0.5]),
)
@settings(max_examples=80)
def test_flexmatch_equals_the_loops(table: Table, confidence: float, floor: float) -> None:
    rows, marks = plain(table)
    rule = moved(FlexibleThreshold(table[0].shape[1], confidence, floor), table)
    exact = float(torch.tensor(confidence))  # what half precision and the rule compare with
    wanted = reference.flexible_thresholds(rows, marks, exact, floor)
    assert rule.value.tolist() == pytest.approx([1.0 if w is None else w for w in wanted], abs=1e-6)
    assert not rule.counts.any()


def test_flexmatch_lowers_the_threshold_of_classes_that_lag() -> None:
    # 4 of 4, 2 of 4 and none of the unknown cells above 0.8; one positive of five known cells in each class.
    scores = torch.tensor([[0.9, 0.9, 0.1]] * 2 + [[0.9, 0.2, 0.1]] * 2 + [[0.5, 0.5, 0.5]] * 5)
    labels = torch.tensor([[0, 0, 0]] * 4 + [[1, 1, 1]] + [[-1, -1, -1]] * 4)
    rule = moved(FlexibleThreshold(3, confidence=0.8, floor=0.1), (scores, labels))
    assert rule.value.tolist() == pytest.approx([0.8, 0.8 * 0.5 / 1.5, 0.1], abs=1e-6)


def test_flexmatch_warms_up_while_most_expected_positives_are_missing() -> None:
    scores = torch.tensor([[0.9, 0.1]] * 2 + [[0.1, 0.1]] * 38 + [[0.5, 0.5]] * 2)
    labels = torch.tensor([[0, 0]] * 40 + [[1, 1], [-1, -1]])
    rule = moved(FlexibleThreshold(2, confidence=0.8, floor=0.0), (scores, labels))
    beta = 2 / (20 + 20 - 2)  # 20 positives expected in each class, two found
    assert rule.value.tolist() == pytest.approx([0.8 * beta / (2 - beta), 0.0], abs=1e-6)


# CAP


@given(table=unit_tables(), bins=POWERS, min_count=st.sampled_from([1, 1, 20]))
@settings(max_examples=80)
def test_cap_accepts_the_share_that_is_positive(table: Table, bins: int, min_count: int) -> None:
    rows, marks = plain(table)
    rule = moved(ProportionThreshold(table[0].shape[1], bins, min_count), table)
    first = [reference.first_bin_by_proportion(rows, marks, c, bins, min_count) for c in range(len(rows[0]))]
    assert_accepts_from(rule, table, bins, first)


def test_cap_matches_the_proportion_of_many_scores() -> None:
    noise = torch.Generator().manual_seed(0)
    truth = torch.rand(4000, 3, generator=noise) < torch.tensor([0.02, 0.2, 0.6])
    scores = (torch.rand(4000, 3, generator=noise) + truth) / 2
    known = torch.rand(4000, 3, generator=noise) < 0.5
    labels = torch.where(known, torch.where(truth, 1, -1), 0)
    rule = moved(ProportionThreshold(3), (scores, labels), parts=40)
    accepted = (rule.pseudo_labels(scores, labels) > labels).sum(0) / (labels == 0).sum(0)
    share = (labels > 0).sum(0) / (labels != 0).sum(0)
    assert bool((accepted <= share).all())
    torch.testing.assert_close(accepted, share, rtol=0, atol=2e-3)


# MAT


@given(
    table=unit_tables(),
    bins=POWERS,
    beta=st.sampled_from([0.5, 1.0, 2.0]),
    min_count=st.sampled_from([1, 1, 20]),
)
@settings(max_examples=80)
def test_mat_maximises_the_metric_over_bin_edges(
    table: Table, bins: int, beta: float, min_count: int
) -> None:
    rows, marks = plain(table)
    rule = moved(MetricThreshold(table[0].shape[1], beta, bins, min_count), table)
    first = [
        reference.first_bin_by_metric(rows, marks, c, bins, beta, min_count) for c in range(len(rows[0]))
    ]
    assert_accepts_from(rule, table, bins, first)


def test_mat_takes_the_highest_of_several_best_thresholds() -> None:
    scores = torch.tensor([[0.9], [0.6], [0.4], [0.1], [0.5]])
    labels = torch.tensor([[1], [1], [-1], [-1], [0]])
    rule = moved(MetricThreshold(1, bins=16), (scores, labels))
    assert float(rule.value) == pytest.approx(9 / 16)  # not 7 / 16, which would accept the cell at 0.5
    assert not rule.pseudo_labels(scores, labels)[4].any()


def test_mat_reaches_the_best_f1_of_any_threshold() -> None:
    noise = torch.Generator().manual_seed(1)
    labels = torch.where(torch.rand(300, 4, generator=noise) < 0.3, 1, -1)
    scores = ((torch.rand(300, 4, generator=noise) + 0.5 * (labels > 0)) / 1.5).mul(200).round() / 200
    rule = moved(MetricThreshold(4), (scores, labels))
    for c in range(4):
        column, truth = scores[:, c], labels[:, c] > 0

        def f1(accepted: Tensor, truth: Tensor = truth) -> float:
            right = int((accepted & truth).sum())
            return 2 * right / int(accepted.sum() + truth.sum())

        best = max(f1(column >= value) for value in column.unique())
        assert f1(column > rule.value[c]) == best


def test_mat_of_a_small_beta_is_more_careful() -> None:
    noise = torch.Generator().manual_seed(2)
    labels = torch.where(torch.rand(500, 1, generator=noise) < 0.3, 1, -1)
    scores = (torch.rand(500, 1, generator=noise) + 0.4 * (labels > 0)) / 1.4
    careful, eager = (moved(MetricThreshold(1, beta), (scores, labels)).value for beta in (0.3, 3.0))
    assert float(careful) > float(eager) + 0.1


# Precision


@given(
    table=unit_tables(),
    bins=POWERS,
    percent=st.sampled_from([0, 50, 75, 90, 100]),
    min_count=st.sampled_from([1, 1, 20]),
)
@settings(max_examples=80)
def test_precision_takes_the_lowest_bin_that_is_precise_enough(
    table: Table, bins: int, percent: int, min_count: int
) -> None:
    rows, marks = plain(table)
    rule = moved(PrecisionThreshold(table[0].shape[1], percent / 100, bins=bins, min_count=min_count), table)
    first = [
        reference.first_bin_by_precision(rows, marks, c, bins, Fraction(percent, 100), min_count)
        for c in range(len(rows[0]))
    ]
    for c, bin_index in enumerate(first):
        if bin_index == 0:  # a score of exactly 0 lies above no threshold
            table[0][:, c].clamp_(min=1e-6)
    assert_accepts_from(rule, table, bins, first)


def test_precision_is_kept_on_the_known_cells_and_no_lower_positive_keeps_it() -> None:
    noise = torch.Generator().manual_seed(4)
    labels = torch.where(torch.rand(400, 3, generator=noise) < torch.tensor([0.05, 0.3, 0.8]), 1, -1)
    scores = (torch.rand(400, 3, generator=noise) + 0.8 * (labels > 0)) / 1.8
    rule = moved(PrecisionThreshold(3, 0.9), (scores, labels))
    semantic = moved(SemanticAwareThreshold(3, rate=1.0), (scores, labels))
    assert float(rule.value[2]) < float(semantic.value[2]) - 0.1  # a common class needs no high threshold
    for c in range(3):
        column, truth = scores[:, c], labels[:, c] > 0
        assert truth[column > rule.value[c]].double().mean() >= 0.9
        for lower in column[truth & (column < rule.value[c] - 1 / 2048)]:
            assert truth[column >= lower].double().mean() < 0.9


def test_precision_emits_nothing_where_the_surest_known_cell_is_negative() -> None:
    scores = torch.tensor([[0.9, 0.9], [0.2, 0.95], [0.1, 0.1]])
    labels = torch.tensor([[1, 1], [1, -1], [-1, -1]])
    rule = moved(PrecisionThreshold(2, 0.9, bins=16), (scores, labels), parts=1)
    assert rule.value.tolist() == [pytest.approx(3 / 16), 1.0]


# Shrunken precision


@given(
    table=unit_tables(),
    bins=st.sampled_from([4, 16]),
    percent=st.sampled_from([0, 50, 75, 90, 100]),
    strength=st.sampled_from([0, 1, 10]),
    floor=st.sampled_from([Fraction(0), Fraction(1, 2)]),
    min_count=st.sampled_from([1, 1, 20]),
)
@settings(max_examples=80)
def test_shrunken_precision_takes_the_lowest_bin_that_is_precise_enough(
    table: Table, bins: int, percent: int, strength: int, floor: Fraction, min_count: int
) -> None:
    rows, marks = plain(table)
    options = (percent / 100, strength, float(floor))
    rule = moved(ShrunkenThreshold(table[0].shape[1], *options, bins=bins, min_count=min_count), table)
    wanted = (Fraction(percent, 100), strength, floor, min_count)
    first = [
        reference.first_bin_by_shrunken_precision(rows, marks, c, bins, *wanted) for c in range(len(rows[0]))
    ]
    for c, bin_index in enumerate(first):
        if bin_index == 0:  # a score of exactly 0 lies above no threshold
            table[0][:, c].clamp_(min=1e-6)
    assert_accepts_from(rule, table, bins, first)


def test_shrunken_precision_of_a_rare_class_is_not_taken_at_its_word() -> None:
    """Two lucky positives prove little where other classes are often wrong at their scores."""
    scores = torch.cat([torch.linspace(0.0, 1.0, 201), torch.tensor([0.42, 0.41, 0.05])]).unsqueeze(1)
    scores = scores.repeat(1, 2)
    labels = torch.where(scores > 0.7, 1, -1)
    labels[60:141:2] = 1
    labels[:, 1] = 0
    labels[-3:, 0] = 0
    labels[-3:, 1] = torch.tensor([1, 1, -1])
    alone = moved(PrecisionThreshold(2, 0.9), (scores, labels), parts=1)
    shrunken = moved(ShrunkenThreshold(2, 0.9, strength=30), (scores, labels), parts=1)
    assert float(alone.value[1]) < 0.42
    assert 0.42 < float(shrunken.value[1]) < 0.75
    assert float(alone.value[0]) == pytest.approx(float(shrunken.value[0]), abs=0.02)


# Expected precision


@given(table=unit_tables(), bins=st.sampled_from([4, 16]))
@settings(max_examples=60)
def test_probabilities_make_the_known_cells_likeliest(table: Table, bins: int) -> None:
    found = calibrated_probabilities(score_histogram(table[0].float(), table[1].int(), bins))
    assert found.tolist() == pytest.approx(reference.calibrated_chance(*plain(table), bins), abs=1e-4)
    assert bool((found.diff() >= 0).all())


@given(
    table=unit_tables(),
    percent=st.sampled_from([0, 50, 75, 90, 100]),
    floor=st.sampled_from([0.0, 0.5]),
    min_count=st.sampled_from([1, 1, 20]),
)
@settings(max_examples=80)
def test_nothing_recalls_more_at_the_expected_precision(
    table: Table, percent: int, floor: float, min_count: int
) -> None:
    assert_nothing_recalls_more(table, percent / 100, floor, min_count, bins=4)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_recalls_more_in_classes_of_every_kind(seed: int) -> None:
    noise = torch.Generator().manual_seed(seed)
    scores = torch.rand(400, 3, generator=noise) ** torch.tensor([0.3, 1.0, 3.0])
    labels = torch.where(torch.rand(400, 3, generator=noise) < scores, 1, -1)
    labels[torch.rand(400, 3, generator=noise) < 0.7] = 0
    assert_nothing_recalls_more((scores, labels), 0.85, 0.0, 1, bins=16)


def assert_nothing_recalls_more(
    table: Table, precision: float, floor: float, min_count: int, bins: int
) -> None:
    """Against every combination of thresholds there is."""
    rule = moved(CalibratedThreshold(table[0].shape[1], precision, floor, 1.0, bins, min_count), table)
    rows, marks = plain(table)
    chance = calibrated_probabilities(score_histogram(table[0].float(), table[1].int(), bins)).tolist()
    choices, firsts = [], []
    for c in range(len(rows[0])):
        present, absent = (reference.known_scores(rows, marks, c, sign) for sign in (1, -1))
        if not present or not absent or len(present) + len(absent) < min_count:
            assert float(rule.value[c]) == 1.0
            continue
        choices.append(reference.expected_choices(rows, marks, c, bins, chance, floor - 1e-9))
        firsts.append(math.ceil(float(rule.value[c].double()) * bins))
    every = reference.every_choice(choices, bins, precision)
    surplus, recall = every[tuple(firsts)]
    assert surplus >= -1e-6
    # Nobody else is at least as good in both and better in one.
    assert not any(a > surplus + 1e-6 and b > recall - 1e-9 for a, b in every.values() if recall > 0)
    assert not any(a > surplus - 1e-9 and b > recall + 1e-6 for a, b in every.values())
    # What is possible beyond it is less than one class can bring.
    assert max(b for a, b in every.values() if a >= 0) <= recall + 1.0 + 1e-6


def test_a_class_that_is_easy_pays_for_one_that_is_not() -> None:
    noise = torch.Generator().manual_seed(0)
    scores = torch.rand(100_000, 2, generator=noise)
    easy = scores[:, 0]
    scores[:, 0] = torch.where(easy < 0.1, 0.97 + 0.2 * easy, 0.03 * easy)
    labels = torch.where(torch.rand(100_000, 2, generator=noise) < scores, 1, -1)
    labels[torch.rand(100_000, 2, generator=noise) < 0.9] = 0
    both = moved(CalibratedThreshold(2, 0.8), (scores, labels))
    alone = moved(CalibratedThreshold(1, 0.8), (scores[:, [1]], labels[:, [1]]))
    # Accepted from p on, scores that are even are (p + 1) / 2 precise: from 0.6 on 80 %, from the floor on 75 %.
    assert float(alone.value[0]) == pytest.approx(0.6, abs=0.03)
    assert float(both.value[1]) == pytest.approx(0.5, abs=0.03)


# Large losses


@given(table=unit_tables(), updates=st.integers(0, 4), step=st.sampled_from(["0.002", "0.05", "0.3"]))
@settings(max_examples=60)
def test_large_loss_takes_the_largest_of_a_batch(table: Table, updates: int, step: str) -> None:
    scores, labels = table
    rule = LargeLossThreshold(scores.shape[1], float(step), encoding="signed")
    for _ in range(updates):
        rule.update()
    filled = rule.pseudo_labels(scores, labels)
    chosen = {(int(n), int(c)) for n, c in (filled > labels).nonzero()}
    assert chosen == reference.largest_unknown(*plain(table), updates * Fraction(step))
    assert torch.equal(filled[labels != 0], labels[labels != 0])


def test_large_loss_never_takes_what_means_nothing() -> None:
    rule = moved(LargeLossThreshold(2, 1.0), (torch.rand(6, 2), torch.zeros(6, 2)))
    scores = torch.tensor([[-1.0, 0.2], [-0.5, -1.0]])
    assert rule.pseudo_labels(scores, torch.zeros(2, 2)).tolist() == [[0, 1], [1, 0]]


def test_large_loss_tells_the_threshold_of_the_last_epoch() -> None:
    scores, labels = torch.arange(64).view(16, 4) / 64, torch.zeros(16, 4)
    labels[:8] = -1
    rule = LargeLossThreshold(4, share_step=0.125, bins=64)
    for share in (0.125, 0.25):
        moved(rule, (scores, labels))
        accepted = (scores > rule.value) & (labels == 0)
        assert int(accepted.sum()) == share * 64
    with pytest.raises(NotImplementedError):
        rule.limit()


def test_the_permanent_variant_remembers_cells_by_image() -> None:
    rule = LargeLossThreshold(2, share_step=0.25, permanent=True, memory=8)
    labels, images = torch.zeros(2, 2, dtype=torch.int8), torch.tensor([7, 3])
    high_left, high_right = torch.tensor([[0.9, 0.1], [0.2, 0.1]]), torch.tensor([[0.1, 0.9], [0.1, 0.2]])
    assert not rule.pseudo_labels(high_left, labels, images).any()  # nothing before the first update
    rule.update()
    assert rule.pseudo_labels(high_left, labels, images).tolist() == [[1, 0], [0, 0]]
    rule.update()
    # What was accepted for image 7 stays, in whatever batch and place it comes; one more cell joins it.
    assert rule.pseudo_labels(high_right, labels, images.flip(0)).tolist() == [[0, 1], [1, 0]]
    rule.update()
    rule.eval()
    assert rule.pseudo_labels(high_left, labels, images).tolist() == [[1, 0], [1, 1]]
    assert rule.pseudo_labels(high_left, -torch.ones_like(labels), images).tolist() == [[-1, -1]] * 2
    assert int(rule.written) == 2  # nothing is learned in eval mode
    with pytest.raises(ValueError, match="index of each image"):
        rule.pseudo_labels(high_left, labels)


def test_the_permanent_variant_forgets_the_oldest_where_memory_is_full() -> None:
    rule = LargeLossThreshold(4, share_step=0.5, permanent=True, memory=3)
    labels = torch.zeros(1, 4, dtype=torch.int8)
    rising = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    rule.update()
    for image in range(3):  # two cells of each image: 2 and 3
        rule.pseudo_labels(rising, labels, torch.tensor([image]))
    rule.update()
    assert sorted(rule.sorted_keys.tolist()) == [1 * 4 + 3, 2 * 4 + 2, 2 * 4 + 3]
    # More cells in a step than there is memory: the last ones stay.
    crowd = LargeLossThreshold(4, share_step=1.0, permanent=True, memory=3)
    crowd.update()
    crowd.pseudo_labels(rising, labels, torch.tensor([5]))
    assert sorted(crowd.keys[:-1].tolist()) == [21, 22, 23]


@given(table=unit_tables(), count=st.integers(0, 60))
@settings(max_examples=40)
def test_largest_cells_are_as_many_as_asked_for(table: Table, count: int) -> None:
    scores, labels = table
    candidates = (labels == 0) & ~scores.isnan()
    for number in (count, torch.tensor(count)):
        chosen = largest_cells(scores, labels == 0, number)
        assert int(chosen.sum()) == min(count, int(candidates.sum()))
        assert not (chosen & ~candidates).any()
        if chosen.any() and (candidates & ~chosen).any():
            assert float(scores[chosen].min()) >= float(scores[candidates & ~chosen].max())


# Curriculum


@given(table=unit_tables(), threshold=st.sampled_from([0.25, 0.5, 0.75, 1.0]))
@settings(max_examples=40)
def test_negatives_mirror_the_positives(table: Table, threshold: float) -> None:
    scores, labels = table
    filled = negative_labels(scores, labels, torch.tensor(threshold))
    for n in range(len(scores)):
        for c in range(scores.shape[1]):
            score, label = float(scores[n, c]), int(labels[n, c])
            absent = label == 0 and score < 1 - threshold and not score > threshold
            assert int(filled[n, c]) == (-1 if absent else label)
    assert filled.dtype == labels.dtype


# All of them

RULES = [
    FixedThreshold(4),
    LinearDecayThreshold(4),
    SemanticAwareThreshold(4, rate=0.4),
    FlexibleThreshold(4),
    ProportionThreshold(4),
    MetricThreshold(4),
    PrecisionThreshold(4, 0.6, rate=0.5),
    ShrunkenThreshold(4, 0.6, rate=0.5),
    CalibratedThreshold(4, 0.6, rate=0.5),
]
names = [type(rule).__name__ for rule in RULES]
FROM_HISTOGRAMS: list[type[ThresholdRule]] = [
    FlexibleThreshold,
    ProportionThreshold,
    MetricThreshold,
    PrecisionThreshold,
    ShrunkenThreshold,
    CalibratedThreshold,
]


def usual(seed: int = 0, images: int = 300) -> Table:
    noise = torch.Generator().manual_seed(seed)
    labels = torch.randint(-1, 2, (images, 4), generator=noise)
    return (torch.rand(images, 4, generator=noise) + 0.3 * (labels > 0)) / 1.3, labels


@pytest.mark.parametrize("seed", range(8))
def test_scores_without_ties_equal_the_loops(seed: int) -> None:
    table = usual(seed, images=60)
    rows, marks = plain(table)
    cap = [reference.first_bin_by_proportion(rows, marks, c, 256) for c in range(4)]
    assert_accepts_from(moved(ProportionThreshold(4, bins=256), table), table, 256, cap)
    mat = [reference.first_bin_by_metric(rows, marks, c, 256) for c in range(4)]
    assert_accepts_from(moved(MetricThreshold(4, bins=256), table), table, 256, mat)
    flexible = moved(FlexibleThreshold(4, 0.7, 0.0), table)
    wanted = reference.flexible_thresholds(rows, marks, float(torch.tensor(0.7)), 0.0)
    assert flexible.value.tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("rule", RULES, ids=names)
def test_repeated_updates_end_at_the_limit(rule: ThresholdRule) -> None:
    scores, labels = usual()
    rule.observe(scores, labels)
    limit = rule.limit()
    for _ in range(40):
        rule.update()
        rule.observe(scores, labels)
    torch.testing.assert_close(rule.value, limit, rtol=0, atol=1e-6)
    assert bool((limit < 1).all())


@pytest.mark.parametrize(
    "make",
    [*FROM_HISTOGRAMS, SemanticAwareThreshold],
)
@pytest.mark.parametrize(
    "labels",
    [[[0, 0], [0, 0]], [[1, 0], [0, 0]], [[0, -1], [-1, 0]]],
    ids=["nothing known", "one positive", "negatives only"],
)
def test_classes_without_evidence_never_emit(make: type[ThresholdRule], labels: list[list[int]]) -> None:
    marks = torch.tensor(labels)
    rule = moved(make(2), (torch.tensor([[0.4, 0.6], [0.6, 0.4]]), marks), parts=1)
    filled = rule.pseudo_labels(torch.full((2, 2), 0.99), torch.zeros(2, 2))
    for c in range(2):
        column = marks[:, c]
        if make is SemanticAwareThreshold:
            known = bool((column != 0).any())
        elif make is FlexibleThreshold:
            known = bool((column > 0).any()) and bool((column == 0).any())
        else:
            known = False
        assert bool(filled[:, c].any()) is known
        assert (float(rule.value[c]) < 1.0) is known


@pytest.mark.parametrize(
    "make",
    FROM_HISTOGRAMS,
)
def test_an_update_without_news_changes_nothing(make: type[ThresholdRule]) -> None:
    rule = moved(make(4), usual())
    before = rule.value.clone()
    rule.update()
    assert torch.equal(rule.value, before)
    moved(rule, (torch.full((6, 4), math.nan), torch.tensor([[1] * 4, [0] * 4, [-1] * 4] * 2)))
    assert torch.equal(rule.value, before)


@pytest.mark.parametrize("rule", [*RULES, LargeLossThreshold(4, permanent=True, memory=50)])
def test_state_goes_on_as_if_nothing_happened(rule: ThresholdRule) -> None:
    import copy

    first = copy.deepcopy(rule)
    images = torch.arange(300)
    moved(first, usual(1))
    first.pseudo_labels(*usual(1), images)
    first.observe(*usual(2))
    second = copy.deepcopy(rule)
    second.load_state_dict(first.state_dict())
    for one in (first, second):
        moved(one, usual(3))
    assert torch.equal(first.value, second.value)
    filled = [one.pseudo_labels(*usual(4), images) for one in (first, second)]
    assert torch.equal(*filled)
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items())


@pytest.mark.parametrize("rule", [*RULES, LargeLossThreshold(4, permanent=True, memory=50)])
def test_nothing_waits_for_the_device(rule: ThresholdRule) -> None:
    scores, labels = usual(5)
    scores.requires_grad_()
    with forbid_host_synchronisation():
        rule.observe(scores, labels)
        rule.update()
        filled = rule.pseudo_labels(scores, labels, torch.arange(len(scores)))
    assert not filled.requires_grad
    assert not any(buffer.requires_grad for buffer in rule.buffers())


@pytest.mark.parametrize(
    "make",
    FROM_HISTOGRAMS,
)
def test_half_precision_under_autocast(make: type[ThresholdRule]) -> None:
    scores, labels = usual()
    exact, half = make(4), make(4)
    moved(exact, (scores.bfloat16().float(), labels))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        moved(half, (scores.bfloat16(), labels))
    assert half.value.dtype == torch.float32
    assert torch.equal(half.value, exact.value)


@pytest.mark.parametrize(
    ("make", "options", "word"),
    [
        (FixedThreshold, {"confidence": 1.5}, "confidence"),
        (FlexibleThreshold, {"confidence": 0.4}, "floor"),
        (FlexibleThreshold, {"floor": -0.1}, "floor"),
        (ProportionThreshold, {"bins": 1}, "bins"),
        (MetricThreshold, {"min_count": 0}, "min_count"),
        (MetricThreshold, {"beta": 0.0}, "beta"),
        (PrecisionThreshold, {"precision": 1.1}, "precision"),
        (PrecisionThreshold, {"rate": 2.0}, "rate"),
        (PrecisionThreshold, {"bins": 0}, "bins"),
        (ShrunkenThreshold, {"strength": -1.0}, "strength"),
        (ShrunkenThreshold, {"floor": 1.1}, "floor"),
        (CalibratedThreshold, {"precision": -0.1}, "precision"),
        (CalibratedThreshold, {"floor": 2.0}, "floor"),
        (LargeLossThreshold, {"share_step": 1.5}, "share_step"),
        (LargeLossThreshold, {"memory": 0}, "memory"),
    ],
)
def test_impossible_options_are_named(
    make: type[ThresholdRule], options: dict[str, float], word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        make(3, **options)
    with pytest.raises(ValueError, match="num_classes"):
        make(0)


def test_reprs_show_what_matters() -> None:
    assert "confidence=0.95" in repr(FlexibleThreshold(2))
    assert "bins=2048" in repr(ProportionThreshold(2))
    assert "beta=1.0" in repr(MetricThreshold(2))
    assert "precision=0.97, rate=1.0" in repr(PrecisionThreshold(2))
    assert "share_step=0.002" in repr(LargeLossThreshold(2))
