from __future__ import annotations

import numpy as np
import pytest

from satl.completion import certify, plan_labels
from satl.completion.statistics.labels_needed import cells_required
from satl.errors import SatlError
from satl.evaluation.confidence_bounds import errors_at_most


def case(seed=0, rows=3000, classes=4, known=(60, 100, 600, 0), separation=4.0, prevalence=0.3):
    random = np.random.default_rng(seed)
    truth = np.where(random.random((rows, classes)) < prevalence, 1, -1).astype(np.int8)
    scores = random.normal(size=truth.shape) + separation * (truth > 0)
    labels = truth.copy()
    for column in range(classes):
        labels[known[column % len(known)] :, column] = 0
    return scores, labels, truth


def test_cells_are_unknown_distinct_and_within_the_budget():
    scores, labels, _ = case()
    plan = plan_labels(scores, labels, certify(scores, labels), budget=150)
    assert 0 < len(plan) <= 150
    assert not labels[plan.row, plan.column].any()
    assert len(set(zip(plan.row.tolist(), plan.column.tolist(), strict=True))) == len(plan)
    np.testing.assert_array_equal(plan.score, scores[plan.row, plan.column])
    assert plan.drawn.sum() == len(plan)
    assert (plan.drawn <= plan.labels).all()


def test_every_cell_lies_in_the_zone_of_its_aim():
    scores, labels, _ = case()
    plan = plan_labels(scores, labels, certify(scores, labels), budget=10_000)
    value, zone = plan.value_of_aim[plan.aim], plan.zone[plan.aim]
    assert (value * plan.score >= value * zone).all()
    np.testing.assert_array_equal(plan.column, plan.column_of_aim[plan.aim])
    np.testing.assert_array_equal(np.bincount(plan.aim, minlength=len(plan.zone)), plan.drawn)


def without_positives(seed=0, column=3, rows=60):
    """As ``case``, but nothing is known to be present in one class."""
    scores, labels, truth = case(seed)
    labels[:rows, column] = np.minimum(truth[:rows, column], 0)
    return scores, labels, truth


def test_classes_short_of_evidence_come_first():
    scores, labels, _ = without_positives()
    plan = plan_labels(scores, labels, certify(scores, labels), budget=100_000)
    assert plan.stage.tolist() == sorted(plan.stage.tolist())
    assert plan.column_of_aim[0] == 3  # nothing is known to be present in it
    assert plan.stage[0] == 0
    assert set(plan.column_of_aim[plan.stage == 1].tolist()) == {0, 1}
    assert set(plan.column_of_aim[plan.stage == 3].tolist()) <= {2}


def test_within_a_stage_most_gain_per_label_comes_first():
    scores, labels, _ = case(classes=8, known=(80, 90, 100, 110))
    plan = plan_labels(scores, labels, certify(scores, labels), budget=100_000)
    for stage in set(plan.stage.tolist()):
        ratio = (plan.gain / plan.labels)[plan.stage == stage]
        assert (np.diff(ratio) <= 1e-12).all()


def test_cells_of_a_zone_are_a_random_part_of_it():
    # Not the highest scores and not those nearest the threshold: their mean is that of the zone.
    scores, labels, _ = case(rows=20_000, classes=1, known=(100,))
    result = certify(scores, labels)
    means = []
    for seed in range(40):
        plan = plan_labels(scores, labels, result, seed=seed)
        first = plan.aim == 0
        means.append(plan.score[first].mean())
    inside = plan.value_of_aim[0] * scores >= plan.value_of_aim[0] * plan.zone[0]
    pool = scores[inside & (labels == 0)]
    error = pool.std() / np.sqrt(first.sum() * 40)
    assert abs(np.mean(means) - pool.mean()) < 4 * error


def test_zones_of_one_class_do_not_meet():
    for seed in range(10):
        scores, labels, _ = case(seed, separation=1.5 + seed / 2, known=(80, 150))
        plan = plan_labels(scores, labels, certify(scores, labels, precision=0.8), budget=10**6)
        present, absent = plan.zones(4)
        both = ~np.isnan(present) & ~np.isnan(absent)
        assert (absent[both] < present[both]).all()


def test_labels_of_the_plan_bring_certificates():
    scores, labels, truth = case(classes=20, known=(80,), separation=5.0)
    before = certify(scores, labels)
    plan = plan_labels(scores, labels, before, budget=100_000)
    labels[plan.row, plan.column] = truth[plan.row, plan.column]
    after = certify(scores, labels, planned=plan.planned(scores.shape), zones=plan.zones(20))
    aims = plan.column_of_aim[(plan.value_of_aim == 1) & (plan.drawn == plan.labels)]
    assert before.present.certified[aims].mean() < 0.3
    assert after.present.certified[aims].mean() > 0.5
    # No threshold is looser than the zone, and the tested cells are those of the plan.
    limit, _ = plan.zones(20)
    got = after.present.certified & ~np.isnan(limit)
    assert (after.present.threshold[got] >= limit[got]).all()
    np.testing.assert_array_equal(after.present.tested[aims], plan.drawn[plan.value_of_aim == 1][: len(aims)])
    decision = after.decide(scores, labels)
    assert (truth[decision == 1] == 1).mean() > 0.95


@pytest.mark.parametrize("seed", range(5))
def test_right_answers_about_a_value_that_nobody_had_seen_bring_its_certificate(seed):
    scores, labels, truth = without_positives(seed)
    plan = plan_labels(scores, labels, certify(scores, labels))
    assert (plan.column_of_aim[0], plan.value_of_aim[0], plan.stage[0]) == (3, 1, 0)
    rows = plan.row[plan.aim == 0]
    assert (truth[rows, 3] == 1).all()
    labels[plan.row, plan.column] = truth[plan.row, plan.column]
    after = certify(scores, labels, planned=plan.planned(scores.shape), zones=plan.zones(4))
    # As few as could do, so every one of them has to lie beyond the threshold: it is the end of their zone.
    assert (after.present.cells[3], after.present.errors[3], after.present.tested[3]) == (59, 0, 59)
    assert after.present.certified[3]
    assert after.present.threshold[3] == plan.zone[0]
    assert "is accepted as present" in after.present.explain(list("abcd"))[3]
    assert (after.decide(scores, labels)[:, 3] == 1).sum() == after.present.accepted[3] > 0


def test_nothing_is_asked_about_a_class_whose_certificate_planned_cells_could_not_bring():
    # Nothing known of either value, or eight of the other: the guard would stay silent whatever the answers are.
    scores, labels, truth = case(known=(600,))
    labels[:, 3] = 0
    labels[np.flatnonzero(truth[:, 2] == -1)[8:], 2] = 0
    plan = plan_labels(scores, labels, certify(scores, labels), budget=100_000)
    assert 3 not in plan.column_of_aim
    assert (2, 1) not in set(zip(plan.column_of_aim.tolist(), plan.value_of_aim.tolist(), strict=True))


def test_wrong_answers_of_a_plan_are_the_reason_given():
    scores, labels, _ = without_positives()
    plan = plan_labels(scores, labels, certify(scores, labels))
    labels[plan.row, plan.column] = -1
    after = certify(scores, labels, planned=plan.planned(scores.shape), zones=plan.zones(4))
    assert np.isnan(after.present.threshold[3])
    assert "no tested cell is known to be present" not in after.present.explain(list("abcd"))[3]


def test_a_seed_gives_the_same_plan():
    scores, labels, _ = case()
    result = certify(scores, labels)
    one, other = plan_labels(scores, labels, result), plan_labels(scores, labels, result)
    np.testing.assert_array_equal(one.row, other.row)
    assert (plan_labels(scores, labels, result, seed=1).row[:20] != one.row[:20]).any()


def test_nothing_to_gain_is_an_empty_plan():
    scores, labels, _ = case(separation=0.0, known=(2500,), prevalence=0.5)
    plan = plan_labels(scores, labels, certify(scores, labels))
    assert len(plan) == 0
    assert len(plan.drawn) == 0
    assert np.isnan(plan.zones(4)).all()
    assert not plan.planned(scores.shape).any()


def test_aims_count_the_cells_drawn_for_them():
    scores, labels, _ = without_positives()
    plan = plan_labels(scores, labels, certify(scores, labels), budget=50)
    assert len(plan) == plan.drawn.sum() == 50
    assert plan.column_of_aim[0] == 3


def test_required_cells_have_about_even_odds():
    random = np.random.default_rng(0)
    for rate in (0.005, 0.02, 0.03):
        number = int(cells_required(np.array([[rate]]), np.array([0.95]), np.array([0.05]))[0, 0])
        errors = random.binomial(number, rate, 4000)
        odds = (errors_at_most(errors, number, 0.95) <= 0.05).mean()
        assert 0.4 < odds < 0.8


def test_bad_input():
    scores, labels, _ = case()
    result = certify(scores, labels)
    with pytest.raises(SatlError, match="at least 1 cell"):
        plan_labels(scores, labels, result, budget=0)
    with pytest.raises(SatlError, match="about 4 classes, but the scores are about 2"):
        plan_labels(scores[:, :2], labels[:, :2], result)
