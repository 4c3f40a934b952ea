from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from satl.inference.run_record import MethodRecord
from satl.reports.comparison import (
    Comparison,
    choose_examples,
    comparison_sentence,
    difference_words,
    easy_and_hard,
    kolmogorov_smirnov,
    scores_by_label,
)


def method(name="sst+satl", score=0.5, scores=None, thresholds=None, precision=None, classes=3):
    return MethodRecord(
        name=name,
        epochs=(),
        summary={"mAP": score},
        average_precision=np.full(classes, 0.5) if precision is None else np.asarray(precision, float),
        scores=scores or {},
        thresholds=thresholds or {},
        best_epoch=0,
        seconds=1.0,
    )


def comparison(*methods, cells, truth=None):
    cells = np.asarray(cells, dtype=np.int8)
    return Comparison(
        classes=tuple(f"class {index}" for index in range(cells.shape[1])),
        images=tuple(f"{row}.png" for row in range(len(cells))),
        cells=cells,
        truth=None if truth is None else np.asarray(truth, dtype=np.int8),
        methods=methods,
        counts={"train": len(cells), "val": 1, "test": 7},
        seed=0,
    )


@pytest.mark.parametrize(("first", "second"), [(13, 40), (1, 1), (200, 3)])
def test_kolmogorov_smirnov_equals_scipy(first, second):
    rng = np.random.default_rng(first)
    one, two = rng.normal(size=first).round(1), rng.normal(0.4, size=second).round(1)
    assert kolmogorov_smirnov(one, two)[0] == pytest.approx(ks_2samp(one, two).statistic)


def test_kolmogorov_smirnov_of_an_empty_sample_is_not_measurable():
    assert np.isnan(kolmogorov_smirnov([], [1.0])).all()


def test_chance_level_is_exceeded_about_once_in_twenty():
    rng = np.random.default_rng(0)
    pairs = [kolmogorov_smirnov(rng.random(80), rng.random(90)) for _ in range(600)]
    share = np.mean([distance > chance for distance, chance in pairs])
    assert 0.02 < share < 0.08


def test_pseudo_labels_are_unknown_cells_strictly_above_the_threshold():
    record = method(
        scores={"intra": np.array([[0.5, 0.6, 0.9]]), "cross": np.array([[0.9, np.nan, 0.9]])},
        thresholds={"intra": np.array([0.5, 0.5, 0.5]), "cross": np.array([0.95, 0.5, 0.5])},
    )
    cells = np.array([[0, 0, 1]], dtype=np.int8)
    assert record.filled(cells).tolist() == [[False, True, False]]
    quality = record.quality(cells, np.array([[1, 1, 1]], dtype=np.int8))
    assert quality is not None
    assert (quality.micro_precision, quality.micro_recall) == (1.0, 0.5)


def test_quality_needs_truth_and_generators():
    cells = np.zeros((1, 3), dtype=np.int8)
    assert method().quality(cells, cells) is None
    with_generator = method(scores={"intra": np.zeros((1, 3))}, thresholds={"intra": np.ones(3)})
    assert with_generator.quality(cells, None) is None


def test_scores_by_label_leaves_out_what_means_nothing():
    scores = np.array([[0.1], [0.2], [np.nan], [0.4], [0.5]])
    cells = np.array([[1], [-1], [1], [0], [0]], dtype=np.int8)
    truth = np.array([[1], [-1], [1], [1], [-1]], dtype=np.int8)
    parts = scores_by_label(scores, cells, truth, 0)
    assert {key: value.tolist() for key, value in parts.items()} == {
        "known present": [0.1],
        "known absent": [0.2],
        "unknown present": [0.4],
        "unknown absent": [0.5],
    }
    assert set(scores_by_label(scores, cells, None, 0)) == {"known present", "known absent"}


def test_easy_and_hard_are_apart_and_skip_classes_without_known_positives():
    cells = np.ones((3, 6), dtype=np.int8)
    cells[:, 0] = 0  # the best class, of which nothing is known
    record = method(precision=[0.99, 0.2, 0.8, np.nan, 0.4, 0.6])
    assert easy_and_hard(comparison(record, cells=cells)) == ([2, 5], [4, 1])


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_easy_and_hard_with_few_classes(classes):
    record = method(precision=np.linspace(0.9, 0.1, classes))
    easy, hard = easy_and_hard(comparison(record, cells=np.ones((4, classes))))
    assert sorted(easy + hard) == list(range(classes))


def test_examples_show_success_and_failure_without_repetition():
    cells = [[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]]
    truth = [[1, 1, -1], [1, -1, 1], [1, 1, 1], [1, 1, 1]]
    scores = np.array([[0, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]], float)
    record = method(scores={"intra": scores}, thresholds={"intra": np.full(3, 0.5)})
    examples = choose_examples(comparison(record, cells=cells, truth=truth), count=3)
    assert [example.row for example in examples] == [0, 1, 2]
    assert examples[0].outcomes["sst+satl"]["recovered"] == ("class 1",)
    assert examples[1].outcomes["sst+satl"] == {
        "recovered": (),
        "wrong": ("class 1",),
        "missed": ("class 2",),
    }
    assert examples[2].outcomes["sst+satl"]["missed"] == ("class 1", "class 2")


def test_examples_without_truth_judge_nothing():
    record = method(scores={"intra": np.ones((2, 3))}, thresholds={"intra": np.full(3, 0.5)})
    examples = choose_examples(comparison(record, cells=[[1, 0, -1], [0, 0, 0]]), count=2)
    assert [example.outcomes["sst+satl"] for example in examples] == [
        {"filled": ("class 1",)},
        {"filled": ("class 0", "class 1", "class 2")},
    ]


def test_examples_ask_for_more_images_than_there_are():
    assert len(choose_examples(comparison(method(), cells=[[1, 0, 0]]), count=6)) == 1


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ((0.30, 0.40, 0.45), ["15.0 points above ignore", "5.0 points above sst"]),
        (
            (0.50, 0.45, 0.44),
            ["6.0 points below ignore", "1.0 point below sst", "Here ignore is the best of them."],
        ),
        ((0.45, 0.45, 0.45), ["level with ignore and level with sst"]),
    ],
)
def test_interpretation_says_who_wins_and_who_does_not(scores, words):
    names = ("ignore", "sst", "sst+satl")
    methods = [method(name, score) for name, score in zip(names, scores, strict=True)]
    text = comparison_sentence(comparison(*methods, cells=np.eye(3)), {})
    for part in words:
        assert part in text
    assert ("is the best of them" in text) == (max(scores) > scores[-1])


def test_interpretation_without_a_number():
    text = comparison_sentence(comparison(method(score=None), cells=np.eye(3)), {})
    assert "nothing to compare" in text


def test_difference_words_singular():
    assert difference_words(1.0) == "1.0 point above"
