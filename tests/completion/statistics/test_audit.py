from __future__ import annotations

import json

import numpy as np
import pytest

from satl.completion import Band, draw_audit, estimate_audit
from satl.errors import SatlError


def case(seed=0, rows=800, classes=3):
    """Bands, and a truth in which each band has its own share of positives."""
    random = np.random.default_rng(seed)
    bands = random.choice(5, size=(rows, classes), p=[0.2, 0.15, 0.4, 0.1, 0.15])
    share = np.array([0.5, 0.93, 0.03, 0.5, 0.2])[bands]
    return bands, np.where(random.random(bands.shape) < share, 1, -1)


def true_shares(bands, truth):
    """Precision of present and absent, recall of both, prevalence; (5, C)."""
    unknown, present, absent = bands > 0, bands == Band.PRESENT, bands == Band.ABSENT
    plus, minus = truth == 1, truth == -1
    return np.array(
        [
            (present & plus).sum(0) / present.sum(0),
            (absent & minus).sum(0) / absent.sum(0),
            (present & plus).sum(0) / (unknown & plus).sum(0),
            (absent & minus).sum(0) / (unknown & minus).sum(0),
            (unknown & plus).sum(0) / unknown.sum(0),
        ]
    )


def shares(result):
    return (
        result.present_precision,
        result.absent_precision,
        result.present_recall,
        result.absent_recall,
        result.prevalence,
    )


def test_sample_is_stratified_and_never_holds_a_known_cell():
    bands, _ = case()
    sample = draw_audit(bands, size=20)
    np.testing.assert_array_equal(bands[sample.row, sample.column], sample.band)
    assert (sample.band > 0).all()
    for column in range(3):
        for band in range(1, 5):
            population = (bands[:, column] == band).sum()
            assert sample.population[column, band - 1] == population
            assert ((sample.column == column) & (sample.band == band)).sum() == min(20, population)
    assert len(set(zip(sample.row.tolist(), sample.column.tolist(), strict=True))) == len(sample)


def test_the_order_does_not_give_the_band_away():
    sample = draw_audit(case()[0], size=20)
    key = sample.column * 10_000 + sample.row
    assert (np.diff(key) > 0).all()


def test_a_seed_gives_the_same_sample():
    bands, _ = case()
    np.testing.assert_array_equal(draw_audit(bands, 5).row, draw_audit(bands, 5).row)
    assert (draw_audit(bands, 5).row != draw_audit(bands, 5, seed=1).row).any()


@pytest.mark.parametrize("by", ["class", "table"])
def test_a_complete_audit_leaves_no_doubt(by):
    bands, truth = case()
    sample = draw_audit(bands, size=10**6, by=by)
    assert len(sample) == (bands > 0).sum()
    result = estimate_audit(sample, truth[sample.row, sample.column])
    expected = (
        true_shares(bands, truth) if by == "class" else true_shares(bands.ravel(), truth.ravel())[:, None]
    )
    for share, exact in zip(shares(result), expected, strict=True):
        np.testing.assert_allclose(share.estimate, exact)
        np.testing.assert_allclose(share.low, exact)
        np.testing.assert_allclose(share.high, exact)


@pytest.mark.parametrize("by", ["class", "table"])
def test_intervals_cover_the_truth(by):
    bands, truth = case(rows=300)
    expected = (
        true_shares(bands, truth) if by == "class" else true_shares(bands.ravel(), truth.ravel())[:, None]
    )
    missed, estimates = np.zeros(expected.shape), np.zeros(expected.shape)
    repetitions = 100
    for seed in range(repetitions):
        sample = draw_audit(bands, size=15, by=by, seed=seed)
        result = estimate_audit(sample, truth[sample.row, sample.column])
        for index, share in enumerate(shares(result)):
            missed[index] += (share.low > expected[index] + 1e-12) | (share.high < expected[index] - 1e-12)
            estimates[index] += share.estimate
    assert (missed / repetitions).max() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / repetitions)
    np.testing.assert_allclose(estimates / repetitions, expected, atol=0.06)


def test_cannot_tell_counts_against_and_for():
    bands = np.ones((100, 1), dtype=int)
    sample = draw_audit(bands, size=100)
    answers = np.ones(100)
    answers[:10] = 0
    share = estimate_audit(sample, answers, encoding="signed").present_precision
    assert (share.low[0], share.high[0]) == (0.9, 1.0)
    assert share.estimate[0] == 1.0
    assert estimate_audit(sample, answers, encoding="signed").unsure[0].tolist() == [10, 0, 0, 0]


def test_bands_without_cells_are_undefined_and_json_safe():
    sample = draw_audit(np.array([[0, 4], [0, 4]]))
    result = estimate_audit(sample, np.array([-1, -1]))
    assert np.isnan(result.present_precision.estimate).all()
    assert np.isnan(result.present_precision.low).all()
    first, second = json.loads(json.dumps(result.as_dict(["a", "b"]), allow_nan=False))
    assert first["prevalence"] == {"estimate": None, "low": None, "high": None}
    assert second["prevalence"] == {"estimate": 0.0, "low": 0.0, "high": 0.0}
    assert second["present_recall"]["estimate"] is None  # nothing was there to be found
    assert (second["present_recall"]["low"], second["present_recall"]["high"]) == (0.0, 1.0)


def test_nothing_unknown_is_an_empty_audit():
    sample = draw_audit(np.zeros((4, 2), dtype=int))
    assert len(sample) == 0
    assert np.isnan(estimate_audit(sample, []).prevalence.estimate).all()
    assert len(draw_audit(np.zeros((4, 2), dtype=int), by="table")) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_audit(np.zeros(3, dtype=int)), "integers of the shape"),
        (lambda: draw_audit(np.zeros((3, 1))), "integers of the shape"),
        (lambda: draw_audit(np.full((3, 1), 5)), "from 0 to 4"),
        (lambda: draw_audit(np.ones((3, 1), dtype=int), size=0), "at least 1"),
        (lambda: draw_audit(np.ones((3, 1), dtype=int), by="klass"), "did you mean 'class'"),
        (lambda: estimate_audit(draw_audit(np.ones((3, 1), dtype=int)), [1, 1]), "each of the 3 cells"),
        (
            lambda: estimate_audit(draw_audit(np.ones((3, 1), dtype=int)), [1, 1, 2]),
            "answers hold 2 at row 3",
        ),
        (lambda: estimate_audit(draw_audit(np.ones((3, 1), dtype=int)), [1, 1, 1], 1.0), "confidence"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(SatlError, match=message):
        call()
