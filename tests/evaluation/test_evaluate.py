from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from satl.errors import SatlError
from satl.evaluation import average_precision, count_metrics, evaluate_scores


@pytest.fixture
def case():
    rng = np.random.default_rng(5)
    labels = rng.integers(-1, 2, (60, 5)).astype(np.int8)
    labels[:, 3] = np.minimum(labels[:, 3], 0)
    return rng.random((60, 5)), labels, ["a", "b", "c", "d", "é, quoted"]


def test_collects_the_metrics(case):
    scores, labels, classes = case
    result = evaluate_scores(*case)
    interpolated = average_precision(scores, labels)
    assert result.mAP == pytest.approx(np.nanmean(interpolated))
    assert result.mAP_plain == pytest.approx(
        np.nanmean(average_precision(scores, labels, interpolated=False))
    )
    assert result.measurable_classes == 4
    assert (result.num_images, result.num_classes, result.not_measurable) == (60, 5, ("d",))
    assert result.at_threshold.summary() == count_metrics(scores, labels).summary()
    assert result.top3.summary() == count_metrics(scores, labels, top=3).summary()
    for index, row in enumerate(result.per_class):
        assert row.name == classes[index]
        assert row.known_positives == (labels[:, index] == 1).sum()
        assert row.known_negatives == (labels[:, index] == -1).sum()
        assert row.average_precision == pytest.approx(interpolated[index], nan_ok=True)


def test_thresholds_per_class_are_used_and_reported(case):
    scores, labels, _ = case
    thresholds = [0.1, 0.2, 0.3, 0.4, 0.9]
    result = evaluate_scores(*case, thresholds=thresholds)
    assert [row.threshold for row in result.per_class] == thresholds
    assert result.at_threshold.summary() == count_metrics(scores, labels, thresholds=thresholds).summary()
    assert result.mAP == evaluate_scores(*case).mAP


def test_as_dict_is_json_safe(case):
    text = json.dumps(evaluate_scores(*case).as_dict(), allow_nan=False)
    read = json.loads(text)
    assert read["per_class"][3]["average_precision"] is None
    assert read["per_class"][3]["known_positives"] == 0
    assert set(read) >= {"mAP", "mAP_plain", "OF1", "CF1", "OF1_top3", "CF1_top3", "measurable_classes"}


def test_nothing_known_is_not_measurable_rather_than_zero():
    result = evaluate_scores([[0.3, 0.4]], [[0, 0]], ["a", "b"], encoding="signed")
    assert result.summary()["mAP"] is None
    assert result.summary()["OF1"] is None
    assert result.measurable_classes == 0
    json.dumps(result.as_dict(), allow_nan=False)


def test_csv(case, tmp_path):
    path = tmp_path / "classes.csv"
    result = evaluate_scores(*case)
    result.write_csv(path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == case[2]
    assert rows[3]["average_precision"] == ""
    assert float(rows[0]["average_precision"]) == result.per_class[0].average_precision
    assert [entry.name for entry in tmp_path.iterdir()] == ["classes.csv"]


def test_logits_are_refused_unless_thresholds_are_given():
    logits, labels = [[2.0, -3.0], [-1.0, 0.5]], [[1, -1], [-1, 1]]
    with pytest.raises(SatlError, match="sigmoid"):
        evaluate_scores(logits, labels, ["a", "b"])
    assert evaluate_scores(logits, labels, ["a", "b"], thresholds=0.0).at_threshold.OF1 == 1.0


def test_wrong_number_of_names():
    with pytest.raises(SatlError, match="1 class names for 2 columns"):
        evaluate_scores([[0.1, 0.2]], [[1, 1]], ["a"])


def test_nan_is_refused():
    with pytest.raises(SatlError, match="NaN, the first at row 1, class 2"):
        evaluate_scores([[0.1, np.nan]], [[1, 1]], ["a", "b"])


def test_the_rarest_third_of_the_classes_has_a_mean_of_its_own() -> None:
    generator = np.random.default_rng(3)
    scores = generator.random((60, 7))
    shares = (0.5, 0.1, 0.4, 0.2, 0.3, 0.0, 0.6)
    labels = np.where(generator.random((60, 7)) < shares, 1, -1)
    result = evaluate_scores(scores, labels, list("abcdefg"))
    positives = (labels == 1).sum(axis=0)
    assert positives[5] == 0  # not measurable, so not among the rarest
    rarest = sorted((count, at) for at, count in enumerate(positives) if count)[: 6 // 3]
    plain = [row.average_precision for row in result.per_class]
    assert result.mAP_rare == pytest.approx(np.mean([plain[at] for _, at in rarest]))
    assert result.summary()["mAP_rare"] == result.mAP_rare
    nothing = evaluate_scores(scores, np.zeros((60, 7)), list("abcdefg"), encoding="signed")
    assert np.isnan(nothing.mAP_rare)
    assert nothing.summary()["mAP_rare"] is None
