"""Thresholds behind scikit-learn's interface: the numbers of the completion, the conventions of the library."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as TheirNotFittedError
from sklearn.utils.validation import check_is_fitted

from satl import ThresholdCompleter
from satl.completion import certify
from satl.errors import ArrayError, ConfigError, SatlError


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels with NaN for unknown, truth: an easy class, a hard one, one without a known positive."""
    draw = np.random.default_rng(0)
    truth = draw.random((4000, 3)) < [0.4, 0.4, 0.0]
    scores = draw.normal(size=truth.shape) + truth * [4.0, 0.5, 4.0]
    labels = np.where(draw.random(truth.shape) < 0.25, truth, np.nan)
    return scores, labels, truth


def test_it_accepts_what_certificates_accept_and_keeps_the_promise(drawn):
    scores, labels, truth = drawn
    completer = ThresholdCompleter(precision=0.95)
    assert completer.fit(scores, labels) is completer
    signed = np.where(np.isnan(labels), 0, np.where(labels == 1, 1, -1)).astype(np.int8)
    certification = certify(scores, signed, precision=0.95)
    assert np.array_equal(completer.present_from_, certification.present.threshold, equal_nan=True)
    assert np.array_equal(completer.absent_to_, certification.absent.threshold, equal_nan=True)
    filled = completer.complete(scores, labels)
    assert np.array_equal(filled, np.where(signed != 0, signed, certification.decide(scores, signed)))
    assert np.array_equal(filled[signed != 0], signed[signed != 0])
    new = (signed == 0) & (filled != 0)
    assert new[:, 0].sum() > 1000
    assert not new[:, 2].any()  # nothing known is present: no promise
    assert (filled[new] == np.where(truth, 1, -1)[new]).mean() > 0.95


def test_predict_decides_by_the_threshold_with_the_best_f1(drawn):
    scores, labels, truth = drawn
    completer = ThresholdCompleter().fit(scores, labels)
    decided = completer.predict(scores)
    assert set(np.unique(decided)) == {0, 1}
    assert np.isnan(completer.thresholds_[2])
    assert not decided[:, 2].any()
    assert (decided[:, 0] == truth[:, 0]).mean() > 0.95
    assert np.array_equal(decided[:, 0], scores[:, 0] >= completer.thresholds_[0])


def test_the_same_labels_in_every_encoding(drawn):
    scores, labels, _ = drawn
    signed = np.where(np.isnan(labels), 0, np.where(labels == 1, 1, -1))
    csl = np.where(np.isnan(labels), -1, labels)
    expected = ThresholdCompleter().fit_complete(scores, labels)
    assert np.array_equal(ThresholdCompleter().fit_complete(scores, signed), expected)
    assert np.array_equal(ThresholdCompleter(encoding="csl").fit_complete(scores, csl), expected)
    with pytest.raises(ArrayError, match="labels: can be read in 2 ways"):
        ThresholdCompleter().fit(scores, np.nan_to_num(labels))
    ThresholdCompleter(encoding="complete").fit(scores, np.nan_to_num(labels))


def test_conventions_of_scikit_learn(drawn):
    scores, labels, _ = drawn
    given = ThresholdCompleter(precision=0.8, family="table")
    assert given.get_params() == {
        "confidence": 0.95,
        "encoding": None,
        "family": "table",
        "precision": 0.8,
        "transfer": "same",
    }
    given.fit(scores, labels)
    copy = clone(given)
    assert copy.get_params() == given.get_params()
    with pytest.raises(TheirNotFittedError):
        check_is_fitted(copy)
    check_is_fitted(given)
    assert copy.set_params(precision=0.5) is copy
    assert (copy.precision, given.precision) == (0.5, 0.8)
    assert repr(given) == "ThresholdCompleter(family='table', precision=0.8)"
    assert given.n_features_in_ == 3
    before = given.thresholds_
    assert np.array_equal(given.fit(scores, labels).thresholds_, before, equal_nan=True)


def test_mistakes_end_in_a_sentence(drawn):
    scores, labels, _ = drawn
    completer = ThresholdCompleter()
    for ask in (lambda: completer.predict(scores), lambda: completer.complete(scores, labels)):
        with pytest.raises(SatlError, match=r"not fitted; call fit\(scores, labels\) first") as caught:
            ask()
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, AttributeError)
    with pytest.raises(ConfigError, match="did you mean 'precision'"):
        completer.set_params(precison=0.9)
    with pytest.raises(ArrayError, match="no label is known"):
        completer.fit(scores, np.full_like(labels, np.nan))
    with pytest.raises(ArrayError, match="The shape of labels is"):
        completer.fit(scores[:-1], labels)
    with pytest.raises(ArrayError, match="labels hold 2"):
        completer.fit(scores, np.full_like(labels, 2))
    with pytest.raises(ArrayError, match="encoding 'complete'"):
        ThresholdCompleter(encoding="complete").fit(scores, labels)
    with pytest.raises(ArrayError, match="fitted to 3"):
        completer.fit(scores, labels).predict(scores[:, :2])
    with pytest.raises(SatlError, match="precision"):
        ThresholdCompleter(precision=1.5).fit(scores, labels)
