"""``satl.functional`` offers the formulas as pure functions that the modules use."""

from __future__ import annotations

import doctest
import inspect

import torch

import satl.functional
from satl import DifferentialRankingLoss, PartialBCELoss, SemanticAwareThreshold


def test_everything_offered_is_a_documented_function() -> None:
    for name in satl.functional.__all__:
        function = getattr(satl.functional, name)
        assert inspect.isfunction(function), name
        assert inspect.getdoc(function), name
        assert "Tensor" in str(inspect.signature(function)), name
    assert sorted(satl.functional.__all__) == satl.functional.__all__


def test_modules_equal_the_functions() -> None:
    torch.manual_seed(0)
    scores, labels = torch.rand(20, 3), torch.randint(-1, 2, (20, 3))
    rule = SemanticAwareThreshold(3, rate=0.4, bins=32)
    rule.observe(scores, labels)
    rule.update()
    counts = satl.functional.score_histogram(scores, labels, 32)
    value = satl.functional.move_thresholds(torch.ones(3), satl.functional.ideal_thresholds(counts), 0.4)
    assert torch.equal(rule.value, value)
    assert torch.equal(
        rule.pseudo_labels(scores, labels), satl.functional.pseudo_labels(scores, labels, value)
    )
    assert torch.equal(PartialBCELoss()(scores, labels), satl.functional.partial_bce(scores, labels))
    assert torch.equal(
        DifferentialRankingLoss()(scores, labels, value),
        satl.functional.differential_ranking(scores, labels, value),
    )


def test_functions_leave_their_arguments_alone() -> None:
    torch.manual_seed(1)
    scores, labels, thresholds = torch.rand(6, 3), torch.randint(-1, 2, (6, 3)), torch.rand(3)
    features, pairs = torch.randn(6, 3, 4), torch.rand(6, 3, 3)
    everything = (scores, labels, thresholds, features, pairs)
    before = [tensor.clone() for tensor in everything]
    functional = satl.functional
    functional.score_histogram(scores, labels, 8)
    functional.pseudo_labels(scores, labels, thresholds)
    functional.move_thresholds(thresholds, torch.rand(3), 0.5)
    functional.partial_bce(scores, labels)
    functional.differential_ranking(scores, labels, thresholds)
    functional.cooccurrence_loss(scores, labels)
    functional.contrastive_loss(features, labels)
    functional.intra_image_scores(pairs, labels)
    functional.cross_image_scores(features, torch.randn(3, 2, 4), torch.ones(3, 2, dtype=torch.bool))
    assert all(torch.equal(now, then) for now, then in zip(everything, before, strict=True))


def test_the_drop_in_modules_are_shown_by_examples() -> None:
    for subject in (SemanticAwareThreshold, PartialBCELoss, DifferentialRankingLoss):
        assert doctest.DocTestParser().get_examples(inspect.getdoc(subject) or ""), subject
