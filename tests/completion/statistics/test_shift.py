from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import completion as reference
from satl.completion import Verdict, certify, check_shift, precision_at_prevalence
from satl.completion.statistics.class_cells import as_cells
from satl.completion.statistics.mixture import fit_mixture, prevalence_interval
from satl.completion.statistics.prevalence import target_at_prevalence
from satl.completion.statistics.score_bins import bin_scores
from satl.errors import SatlError


def draw(positives, negatives, unknown, prevalence, separation=3.0, shift=0.0, seed=0, classes=1):
    random = np.random.default_rng(seed)
    present = np.zeros((positives + negatives + unknown, classes), dtype=bool)
    present[:positives] = True
    present[positives + negatives :] = random.random((unknown, classes)) < prevalence
    scores = random.normal(size=present.shape) + separation * present
    scores[positives + negatives :] += shift
    labels = np.where(present, 1, -1).astype(np.int8)
    labels[positives + negatives :] = 0
    return scores, labels


def verdicts(check):
    return [Verdict(int(code)).name for code in check.verdict]


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95))
def test_fit_equals_expectation_maximisation(seed, prevalence):
    random = np.random.default_rng(seed)
    f, g = np.array([0.05, 0.1, 0.2, 0.65]), np.array([0.5, 0.3, 0.15, 0.05])
    counts = [
        random.multinomial(size, share)
        for size, share in ((80, f), (120, g), (500, prevalence * f + (1 - prevalence) * g))
    ]
    fit = fit_mixture(*counts)
    pi, _, _, likelihood = reference.mixture(*(count.tolist() for count in counts), rounds=2000)
    assert float(fit.log_likelihood) >= likelihood - 1e-4
    assert float(fit.prevalence) == pytest.approx(pi, abs=2e-3)
    own = reference.log_likelihood(
        *(count.tolist() for count in counts), float(fit.prevalence), fit.positive, fit.negative
    )
    assert float(fit.log_likelihood) == pytest.approx(own)
    assert fit.positive.sum() == pytest.approx(1)
    assert fit.unknown.sum() == pytest.approx(1)


def test_fit_treats_all_classes_and_draws_at_once():
    random = np.random.default_rng(0)
    a, b, u = (random.integers(0, 40, (3, 5, 6)) + 1 for _ in range(3))
    whole = fit_mixture(a, b, u)
    assert whole.misfit.shape == (3, 5)
    alone = fit_mixture(a[2, 1], b[2, 1], u[2, 1])
    assert float(whole.misfit[2, 1]) == pytest.approx(float(alone.misfit))
    assert float(whole.prevalence[2, 1]) == pytest.approx(float(alone.prevalence))


@pytest.mark.parametrize("which", ["positive", "negative"])
def test_prevalence_at_its_ends(which):
    f, g = np.array([10, 30, 160]), np.array([160, 30, 10])
    fit = fit_mixture(f, g, 10 * (f if which == "positive" else g))
    assert float(fit.prevalence) == pytest.approx(1.0 if which == "positive" else 0.0, abs=0.01)
    assert float(fit.misfit) < 0.1


def test_empty_bins_change_nothing():
    a, b, u = np.array([5, 10, 40]), np.array([50, 20, 5]), np.array([200, 150, 100])
    plain, padded = fit_mixture(a, b, u), fit_mixture(*(np.insert(x, 1, 0) for x in (a, b, u)))
    assert float(plain.misfit) == pytest.approx(float(padded.misfit))
    assert float(plain.prevalence) == pytest.approx(float(padded.prevalence))


def test_bins_without_known_cells_are_explained_by_neither():
    fit = fit_mixture([50, 0, 50], [50, 0, 50], [100, 800, 100])
    assert float(fit.misfit) > 100


def test_interval_contains_the_estimate_and_shrinks_with_cells():
    a, b, u = np.array([5, 10, 40]), np.array([50, 20, 5]), np.array([200, 150, 100])
    widths = []
    for factor in (1, 10, 100):
        low, high = prevalence_interval(a * factor, b * factor, u * factor)
        estimate = fit_mixture(a, b, u).prevalence
        assert low < estimate < high
        widths.append(float(high - low))
    assert widths[0] > 2.5 * widths[1] > 6 * widths[2]


def test_interval_is_everything_where_positives_and_negatives_score_alike():
    low, high = prevalence_interval([50, 50], [50, 50], [500, 500])
    assert (float(low), float(high)) == (0, 1)


def test_interval_coverage():
    scores, labels = draw(60, 240, 600, 0.15, classes=200)
    check = check_shift(scores, labels, draws=99)
    covered = (check.prevalence_low <= 0.15) & (check.prevalence_high >= 0.15)
    assert covered.mean() > 0.9


def test_bins_are_about_equally_filled_and_ignore_missing_scores():
    scores, labels = draw(200, 400, 3000, 0.2)
    scores[::7] = np.nan
    binned = bin_scores(*as_cells(scores, labels, None))
    assert binned.bins[0] == 12
    balanced = (
        sum(part / part.sum() for part in (binned.positive[0], binned.negative[0], binned.unknown[0])) / 3
    )
    assert np.abs(balanced - 1 / 12).max() < 0.02
    there = ~np.isnan(scores[:, 0])
    assert binned.unknown.sum() == (there & (labels[:, 0] == 0)).sum()


def test_few_cells_cannot_tell():
    for sizes in ((19, 100, 500), (100, 19, 500), (100, 100, 49), (0, 0, 0), (0, 50, 100), (5, 0, 5)):
        check = check_shift(*draw(*sizes, 0.3, shift=5.0), encoding="signed")
        assert verdicts(check) == ["CANNOT_TELL"]
        assert np.isnan(check.p_value).all()
        assert "too few cells to tell" in check.explain(["cat"])[0]
        json.dumps(check.records(), allow_nan=False)


def test_constant_scores_cannot_tell():
    scores, labels = draw(100, 100, 500, 0.3)
    assert verdicts(check_shift(np.full(scores.shape, 0.5), labels)) == ["CANNOT_TELL"]


def test_no_shift_prevalence_and_shift_have_their_own_verdicts():
    cases = [draw(150, 600, 4000, 0.2), draw(150, 600, 4000, 0.02), draw(150, 600, 4000, 0.2, shift=0.7)]
    scores, labels = (np.concatenate(part, axis=1) for part in zip(*cases, strict=True))
    check = check_shift(scores, labels)
    assert verdicts(check) == ["FITS", "PREVALENCE_DIFFERS", "DOES_NOT_FIT"]
    assert check.alarm.tolist() == [False, False, True]
    assert check.known_prevalence == pytest.approx([0.2] * 3)
    assert check.prevalence[:2] == pytest.approx([0.2, 0.02], abs=0.02)
    sentences = check.explain(["car", "cat", "boat"])
    assert sentences[0] == "Unknown cells of 'car' look like the known ones."
    assert "of the unknown cells, against 20 % of the known ones" in sentences[1]
    assert (
        sentences[2]
        == "Unknown cells of 'boat' do not look like the known ones: do not trust its thresholds."
    )


def test_a_tiny_misfit_of_many_cells_is_no_alarm():
    # Three hundredths of a standard deviation: certain, and of no consequence.
    scores, labels = draw(60_000, 60_000, 60_000, 0.5, shift=0.03)
    check = check_shift(scores, labels)
    assert check.p_value[0] < 0.02
    assert check.unexplained[0] < 0.02
    assert not check.alarm[0]


def test_scores_may_have_any_scale_and_rows_any_order():
    scores, labels = draw(100, 300, 1500, 0.1, seed=3)
    rows = np.random.default_rng(0).permutation(len(scores))
    one, other = check_shift(scores, labels), check_shift(np.exp(scores[rows]), labels[rows])
    assert one.misfit == pytest.approx(other.misfit)
    assert one.p_value == pytest.approx(other.p_value)


def test_the_same_seed_gives_the_same_p_value():
    scores, labels = draw(100, 300, 1500, 0.1, shift=0.3)
    assert check_shift(scores, labels, seed=1).p_value == check_shift(scores, labels, seed=1).p_value


def test_precision_is_reweighted_to_the_unknown_cells():
    scores, labels = draw(1000, 1000, 6000, 0.05)
    result = certify(scores, labels)
    check = check_shift(scores, labels, certification=result)
    tail = precision_at_prevalence(result.present.found, result.present.leaked, check.prevalence)
    assert check.present_precision == pytest.approx(tail)
    assert check.present_precision_low[0] < check.present_precision[0] < result.present.precision[0]
    assert check.absent_precision[0] > result.absent.precision[0]
    without = check_shift(scores, labels)
    assert np.isnan(without.present_precision).all()
    assert f"{100 * check.present_precision[0]:.3g} % right" in check.explain(["cat"])[0]


def test_target_and_precision_at_a_prevalence_agree():
    found, leaked, same, other = 0.8, 0.01, 300, 700
    target = target_at_prevalence(0.9, same, other, 0.05)
    # Where the tested cells show exactly the target, the unknown ones have exactly the precision.
    leak = found * same * (1 - target) / (target * other)
    assert precision_at_prevalence(found, leak, 0.05) == pytest.approx(0.9)
    assert target_at_prevalence(0.9, same, other, same / (same + other)) == pytest.approx(0.9)
    assert target_at_prevalence(0.9, same, other, [0.0, 1.0]).tolist() == [1.0, 0.0]
    assert np.isnan(precision_at_prevalence(0.0, 0.0, 0.5))
    assert precision_at_prevalence(found, leaked, 1.0) == 1


def test_hundred_classes_take_seconds():
    import time

    scores, labels = draw(50, 200, 1000, 0.1, classes=100)
    start = time.process_time()
    check_shift(scores, labels)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 10}, "at least 99"),
        ({"level": 0}, "level must lie"),
        ({"confidence": 1}, "confidence must lie"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(SatlError, match=message):
        check_shift(*draw(30, 30, 60, 0.5), **options)
