from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import completion as reference
from satl.completion import Reason, certify
from satl.errors import SatlError
from satl.evaluation.confidence_bounds import clopper_pearson_lower, labels_needed


def table(seed, known=(200, 300), unknown=400, classes=3, separation=3.0, prevalence=0.4, decimals=None):
    """Scores, labels and the truth; the number of known cells differs from class to class."""
    random = np.random.default_rng(seed)
    rows = max(known) + unknown
    truth = np.where(random.random((rows, classes)) < prevalence, 1, -1).astype(np.int8)
    scores = random.normal(size=truth.shape) + separation * (truth > 0)
    if decimals is not None:
        scores = np.round(scores, decimals)
    labels = truth.copy()
    for column in range(classes):
        labels[known[column % len(known)] :, column] = 0
    return scores, labels, truth


def names_of(certificate):
    return [Reason(int(reason)).name for reason in certificate.reason]


@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([None, 1, 0]),
    st.sampled_from([0.8, 0.95]),
    st.sampled_from([0.05, 0.3]),
)
def test_thresholds_equal_the_reference(seed, decimals, target, prevalence):
    scores, labels, _ = table(
        seed, known=(60, 250), unknown=150, separation=2.5, prevalence=prevalence, decimals=decimals
    )
    result = certify(scores, labels, precision=target)
    for column in range(3):
        values, known = scores[:, column], labels[:, column]
        parts = [values[known == sign].tolist() for sign in (1, -1, 0)]
        present, absent = (reference.threshold(*parts, value, target=target) for value in (1, -1))
        if present is not None and absent is not None and present <= absent:
            continue  # cut between the two: tested below
        for got, expected in ((result.present, present), (result.absent, absent)):
            assert bool(got.certified[column]) == (expected is not None)
            if expected is not None:
                assert got.threshold[column] == expected


def test_fifty_nine_error_free_cells_give_a_certificate_and_fifty_eight_do_not():
    for count, expected in ((59, True), (58, False)):
        scores = np.concatenate((np.full(count, 0.9), np.linspace(0, 0.5, 20), [0.8]))[:, None]
        labels = np.concatenate((np.ones(count), -np.ones(20), [0]))[:, None]
        result = certify(scores, labels)
        assert bool(result.present.certified[0]) is expected
        assert names_of(result.present) == ["CERTIFIED" if expected else "TOO_FEW"]
        if not expected:
            assert result.present.needed.at_random[0] >= 1


def test_counts_and_shares_are_those_of_the_threshold():
    scores, labels, _ = table(1)
    result = certify(scores, labels, precision=0.9)
    for side in (result.present, result.absent):
        for column in np.flatnonzero(side.certified):
            beyond = side.value * scores[:, column] >= side.value * side.threshold[column]
            known = labels[:, column]
            assert side.cells[column] == (beyond & (known != 0)).sum()
            assert side.errors[column] == (beyond & (known == -side.value)).sum()
            assert side.accepted[column] == (beyond & (known == 0)).sum()
            assert side.found[column] == (beyond & (known == side.value)).sum() / (known == side.value).sum()
            assert (
                side.leaked[column] == (beyond & (known == -side.value)).sum() / (known == -side.value).sum()
            )
            assert side.lower_bound[column] >= 0.9 - 1e-9
    assert result.present.certified.any()


def test_decide_accepts_unknown_cells_only():
    scores, labels, _ = table(2)
    result = certify(scores, labels)
    decision = result.decide(scores, labels)
    assert decision.dtype == np.int8
    assert not decision[labels != 0].any()
    unknown = labels == 0
    np.testing.assert_array_equal((decision == 1).sum(axis=0), result.present.accepted)
    np.testing.assert_array_equal((decision == -1).sum(axis=0), result.absent.accepted)
    np.testing.assert_array_equal(decision == 1, unknown & (scores >= result.present.threshold))


def test_only_held_out_cells_are_tested():
    scores, labels, _ = table(3)
    held_out = (np.arange(len(labels)) % 2 == 0)[:, None] & (labels != 0)
    result = certify(scores, labels, held_out)
    changed = scores.copy()
    changed[(labels != 0) & ~held_out] = np.random.default_rng(0).normal(
        size=((labels != 0) & ~held_out).sum()
    )
    other = certify(changed, labels, held_out)
    np.testing.assert_array_equal(result.present.threshold, other.present.threshold)
    np.testing.assert_array_equal(result.present.tested, held_out.sum(axis=0))


def test_scores_may_have_any_scale():
    scores, labels, _ = table(4)
    plain = certify(scores, labels)
    bent = certify(np.exp(scores), labels)  # a rising function keeps the order
    np.testing.assert_allclose(np.exp(plain.present.threshold), bent.present.threshold, rtol=1e-12)
    np.testing.assert_array_equal(plain.absent.accepted, bent.absent.accepted)


def test_present_and_absent_mirror_each_other():
    scores, labels, _ = table(5)
    one, other = certify(scores, labels), certify(-scores, -labels)
    np.testing.assert_array_equal(one.present.threshold, -other.absent.threshold)
    np.testing.assert_array_equal(one.absent.reason, other.present.reason)
    np.testing.assert_array_equal(one.absent.needed.at_random, other.present.needed.at_random)


def test_order_of_rows_and_classes_does_not_matter():
    scores, labels, _ = table(6, decimals=1)
    rows, columns = np.random.default_rng(0).permutation(len(scores)), [2, 0, 1]
    one, other = certify(scores, labels), certify(scores[rows][:, columns], labels[rows][:, columns])
    np.testing.assert_array_equal(one.present.threshold[columns], other.present.threshold)
    np.testing.assert_array_equal(one.absent.cells[columns], other.absent.cells)


@pytest.mark.parametrize("known", [0, 1, 2])
@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_almost_no_cells(known, unknown):
    random = np.random.default_rng(known)
    scores = random.random((known + unknown, 2))
    labels = np.zeros(scores.shape, dtype=np.int8)
    labels[:known] = np.array([1, -1])[np.arange(known) % 2, None]
    result = certify(scores, labels, encoding="signed")
    assert not result.present.certified.any()
    assert not result.absent.certified.any()
    assert not result.decide(scores, labels, encoding="signed").any()
    expected = "NOTHING_UNKNOWN" if unknown == 0 else ("NONE_OF_VALUE" if known == 0 else "NONE_OF_OTHER")
    assert names_of(result.present)[0] == (expected if known < 2 or unknown == 0 else "TOO_FEW_OF_OTHER")


@pytest.mark.parametrize("sign", [1, -1])
def test_all_held_out_cells_of_one_sign_certify_nothing(sign):
    scores = np.random.default_rng(0).random((2000, 1))
    labels = np.where(np.arange(2000) < 1000, sign, 0)[:, None]
    for guard in (0.0, 0.9):
        result = certify(scores, labels, guard=guard, encoding="signed")
        sides = (result.present, result.absent) if sign > 0 else (result.absent, result.present)
        assert names_of(sides[0]) == ["NONE_OF_OTHER"]
        assert names_of(sides[1]) == ["NONE_OF_VALUE"]
        assert "label more of its cells, some that are" in sides[0].explain(["tag"])[0]


def test_constant_scores_say_nothing_beyond_the_prevalence():
    labels = np.concatenate((np.repeat([1, -1], [990, 10]), np.zeros(50)))[:, None]
    scores = np.full(labels.shape, 0.5)
    guarded = certify(scores, labels)
    assert names_of(guarded.present) == ["LETS_TOO_MUCH_THROUGH"]
    plain = certify(scores, labels, guard=0.0)  # 99 % are present: true, but of no use
    assert plain.present.certified[0]
    assert plain.present.accepted[0] == 50
    assert names_of(plain.absent) == ["TOO_LOW"]


def test_guard_keeps_a_rare_class_from_being_called_absent_everywhere():
    random = np.random.default_rng(0)
    truth = np.where(random.random((6000, 1)) < 0.02, 1, -1)
    scores = random.normal(size=truth.shape) + 3 * (truth > 0)
    labels = np.where(np.arange(6000)[:, None] < 3000, truth, 0)
    bold, careful = certify(scores, labels, guard=0.0), certify(scores, labels)
    assert bold.absent.leaked[0] == 1  # every positive is lost
    assert careful.absent.certified[0]
    assert careful.absent.leaked[0] <= 0.1
    few = certify(scores, np.where((labels == 1) & (np.cumsum(labels == 1, axis=0) > 8), 0, labels))
    assert names_of(few.absent) == ["TOO_FEW_OF_OTHER"]


def test_cells_without_a_score_are_neither_tested_nor_accepted():
    scores, labels, _ = table(7, known=(600, 900))
    missing = np.random.default_rng(1).random(scores.shape) < 0.2
    scores[missing] = np.nan
    result = certify(scores, labels)
    decision = result.decide(scores, labels)
    assert not decision[missing].any()
    np.testing.assert_array_equal(result.present.tested, ((labels != 0) & ~missing).sum(axis=0))
    assert result.present.certified.any()
    for column in range(3):
        there = ~missing[:, column]
        alone = certify(scores[there, column : column + 1], labels[there, column : column + 1])
        np.testing.assert_array_equal(alone.present.threshold[0], result.present.threshold[column])
    assert names_of(certify(np.full((5, 1), np.nan), np.array([[1], [-1], [0], [0], [0]])).present) == [
        "NOTHING_UNKNOWN"
    ]


def test_infinite_scores_are_scores():
    scores, labels, _ = table(8, classes=1, known=(400,))
    scores[scores > 3] = np.inf
    scores[scores < 0] = -np.inf
    result = certify(scores, labels)
    assert result.present.certified[0]
    assert result.decide(scores, labels)[(labels == 0) & (scores == np.inf)].min() == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_other_types_of_scores(dtype):
    scores, labels, _ = table(9, decimals=1)
    scores = (scores * 10).astype(dtype) if dtype == np.int64 else scores.astype(dtype)
    result = certify(scores, labels)
    exact = certify(scores.astype(np.float64), labels)
    np.testing.assert_array_equal(result.present.threshold, exact.present.threshold)
    np.testing.assert_array_equal(
        result.decide(scores, labels), exact.decide(scores.astype(np.float64), labels)
    )


def test_directions_never_accept_the_same_cell():
    for seed in range(20):
        scores, labels, _ = table(seed, separation=5.0, prevalence=0.5, decimals=1)
        result = certify(scores, labels, precision=0.6, guard=0.0)
        both = result.present.certified & result.absent.certified
        assert both.any()
        assert (result.present.threshold[both] > result.absent.threshold[both]).all()
        for side, counts in (
            (result.present, result.present_counts),
            (result.absent, result.absent_counts),
        ):
            assert (side.precision[both] >= 0.6).all()
            assert (counts.grid == side.threshold[:, None])[both].any(axis=1).all()


def test_the_table_as_a_family_is_stricter():
    scores, labels, _ = table(10, known=(300, 5), unknown=500, classes=40)
    each, all_ = certify(scores, labels), certify(scores, labels, family="table")
    # Twenty classes have enough tested cells; with two directions that makes forty statements.
    assert all_.present.level == pytest.approx(np.full(40, 0.05 / 40))
    assert each.present.certified.sum() > all_.present.certified.sum()
    assert not (all_.present.certified & ~each.present.certified).any()


def test_a_rarer_class_among_the_unknown_raises_the_bar():
    random = np.random.default_rng(3)
    share = np.repeat([0.5, 0.1], [4000, 6000])[:, None]
    truth = np.where(random.random((10_000, 1)) < share, 1, -1)
    scores = random.normal(size=truth.shape) + 3 * (truth > 0)
    labels = np.where(np.arange(10_000)[:, None] < 4000, truth, 0)
    same, shifted = certify(scores, labels), certify(scores, labels, transfer="prevalence")
    assert shifted.present.target[0] > 0.99  # odds of 19 to 1, times nine
    assert shifted.absent.target[0] < 0.95
    assert shifted.present.certified[0]
    assert shifted.present.threshold[0] > same.present.threshold[0]
    hit = shifted.decide(scores, labels) == 1
    assert (truth[hit] == 1).mean() >= 0.95
    assert (truth[same.decide(scores, labels) == 1] == 1).mean() < 0.95


def test_too_few_cells_for_a_prevalence():
    scores, labels, _ = table(11, known=(80,), unknown=30, classes=1, separation=6)
    present = certify(scores, labels, transfer="prevalence").present
    assert names_of(present) == ["PREVALENCE_OPEN"]
    assert present.explain()[0].endswith("cells are present; more labels of random cells may do.")


def test_reasons_and_what_would_help():
    scores, labels, _ = table(12, known=(80, 3000), unknown=3000, classes=2, separation=1.0)
    scores[:, 0] += 4 * labels[:, 0]
    result = certify(scores, labels)
    assert names_of(result.present) == ["TOO_FEW", "TOO_LOW"]
    few, low = result.present.explain(["cat", "dog"])
    assert few.startswith("'cat' has no threshold for present: of its 80 tested cells, ")
    assert " more labels of random cells, or " in few
    one = replace(result.present.needed, at_random=np.ones(2))
    assert "; about 1 more label of random cells, or " in replace(result.present, needed=one).explain()[0]
    assert low.startswith("'dog' has no threshold for present: at best ")
    assert "does not show 0.95" in low
    certified = certify(*table(12, known=(3000,), classes=1)[:2])
    assert certified.present.explain()[0].startswith(
        "'class 1' is accepted as present for a score of at least "
    )
    assert "at most" in certified.absent.explain()[0]


def test_too_few_right_cells_before_the_first_test_are_told_as_such():
    # 29 right cells alone would show 0.9; with 300 tested the first test is of 31, and two of these are wrong.
    scores = np.concatenate(
        (np.linspace(6, 7, 29), [5.1, 5.0], np.linspace(0, 1, 269), np.linspace(0, 7.5, 600))
    )
    labels = np.repeat([1, -1, -1, 0], [29, 2, 269, 600])
    present = certify(scores[:, None], labels[:, None], precision=0.9).present
    assert names_of(present) == ["TOO_FEW"]
    assert present.explain(["cat"])[0].startswith(
        "'cat' has no threshold for present: 29 of 29 tested cells beyond a threshold are right, but the strictest "
        "threshold that is tried has at least 31, of which too many were wrong; about "
    )


def test_a_test_that_ended_at_its_strict_end_is_told_as_such():
    # The highest of 63 cells is wrong: 62 of 63 would show 0.9, but the first 31 do not, and there it ends.
    scores = np.concatenate(([7.0], np.linspace(5, 6, 62), np.linspace(0, 1, 300), np.linspace(0, 7.5, 600)))
    labels = np.repeat([-1, 1, -1, 0], [1, 62, 300, 600])
    result = certify(scores[:, None], labels[:, None], precision=0.9)
    assert names_of(result.present) == ["TOO_FEW"]
    assert clopper_pearson_lower(62, 63) > 0.9
    sentence = result.present.explain(["cat"])[0]
    assert sentence == (
        "'cat' has no threshold for present: 62 of 63 tested cells beyond a threshold are right, but thresholds are "
        "tried from the strictest on, and at a stricter one too many were wrong to go on; about 49 labels among the "
        "highest scores, chosen by a label plan as a test of their own, may do."
    )
    # Labels of random cells may end there again.
    needed = result.present.needed
    assert (needed.at_random[0], needed.in_zone[0]) == (np.inf, 49)


def test_more_labels_are_fewer_where_the_evidence_is_better():
    wanted = []
    for known in (20, 40, 55):
        scores = np.concatenate((np.linspace(5, 6, known), np.linspace(0, 1, 60), np.linspace(0, 6, 600)))[
            :, None
        ]
        labels = np.repeat([1, -1, 0], [known, 60, 600])[:, None]
        result = certify(scores, labels)
        assert names_of(result.present) == ["TOO_FEW"]
        wanted.append(result.present.needed.at_random[0])
    assert wanted == sorted(wanted, reverse=True)
    # 55 right cells lie in the upper part, and about four more without an error are needed there.
    assert 4 <= wanted[-1] <= 60


def test_no_number_of_labels_helps_a_model_that_sees_nothing():
    scores, labels, _ = table(13, known=(3000,), classes=1, separation=0.0, prevalence=0.5)
    result = certify(scores, labels)
    assert np.isinf(result.present.needed.at_random[0])
    assert "a better model may" in result.present.explain()[0]


def test_one_right_cell_of_one_is_no_reason_to_give_up() -> None:
    """The class is unlike one of which many cells are tested and too many wrong: nobody knows yet what it takes."""
    scores = np.concatenate(([0.9, 0.5, 0.4], np.linspace(0.1, 0.8, 19), np.linspace(0, 1, 80)))[:, None]
    labels = np.repeat([1, -1, 0], [3, 19, 80])[:, None]
    result = certify(scores, labels, precision=0.8)
    assert (result.present.cells[0], result.present.errors[0]) == (1, 0)
    (sentence,) = result.present.explain(("dog",))
    assert "1 of 1 tested cell beyond a threshold is right, too few to show 0.8" in sentence
    assert "label more of its cells, some that are present" in sentence
    assert "not expected to help" not in sentence


def test_result_says_what_was_asked_for_and_how_many_labels_are_missing():
    scores, labels, _ = table(14, known=(300, 10))
    result = certify(scores, labels)
    assert (result.precision, result.family, result.transfer) == (0.95, "class", "same")
    assert result.present.certified[:2].tolist() == [True, False]
    assert np.isnan(result.present.threshold[1])
    assert 0 < result.present.needed.at_random[1] < np.inf


def test_no_class_and_no_image():
    empty = certify(np.empty((0, 2)), np.empty((0, 2), dtype=np.int8))
    assert names_of(empty.present) == ["NOTHING_UNKNOWN"] * 2
    assert certify(np.empty((3, 0)), np.empty((3, 0), dtype=np.int8)).present.threshold.shape == (0,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"precision": 1.0}, "precision must lie between"),
        ({"confidence": 0.0}, "confidence must lie between"),
        ({"guard": 1.0}, "guard must be at least 0"),
        ({"family": "tabel"}, "did you mean 'table'"),
        ({"transfer": "sam"}, "did you mean 'same'"),
        ({"held_out": np.ones((4, 1), dtype=bool)}, "unknown cell at row 3, class 1"),
        ({"held_out": np.ones((4, 1))}, "must be booleans"),
        ({"labels": np.zeros((3, 1))}, "shape of labels"),
        ({"scores": np.zeros(4)}, "images, classes"),
        ({"scores": np.full((4, 1), "x")}, "real numbers"),
        ({"planned": np.zeros((4, 1), dtype=np.int8)}, "belong together"),
        (
            {"planned": np.zeros((4, 1)), "zones": ([0.0], [0.0]), "transfer": "prevalence"},
            "do not show a prevalence",
        ),
    ],
)
def test_bad_input(change, message):
    given = {"scores": np.zeros((4, 1)), "labels": np.array([[1], [-1], [0], [0]]), **change}
    with pytest.raises(SatlError, match=message):
        certify(**given)


def test_class_names_must_fit():
    result = certify(np.zeros((2, 2)), np.zeros((2, 2)), encoding="signed")
    with pytest.raises(SatlError, match="3 class names were given for 2"):
        result.present.explain(["a", "b", "c"])


@pytest.mark.slow
def test_a_large_table_takes_seconds():
    random = np.random.default_rng(0)
    shape = (1_000_000, 100)
    present = random.random(shape, dtype=np.float32) < 0.1
    scores = random.standard_normal(shape, dtype=np.float32)
    scores += np.float32(3) * present
    labels = np.where(present, 1, -1).astype(np.int8)
    labels[100_000:] = 0
    del present
    import time

    start = time.process_time()
    result = certify(scores, labels)
    decision = result.decide(scores, labels)
    assert time.process_time() - start < 20
    assert result.present.certified.all()
    assert (decision != 0).any(axis=0).all()


def test_known_cells_of_the_other_value_save_no_labels():
    labels = np.zeros((2000, 1), dtype=np.int8)
    labels[:60] = 1
    scores = np.random.default_rng(0).random((2000, 1))
    scores[:60] = 0.5 + 0.5 * scores[:60]
    absent = certify(scores, labels, precision=0.7, encoding="signed").absent
    assert names_of(absent) == ["NONE_OF_VALUE"]
    assert absent.needed.at_random[0] >= absent.needed.in_zone[0] == labels_needed(0.7)
