"""The loss for other people's loops is the loop of the modules, written once."""

from __future__ import annotations

import pytest
import torch

from satl import DifferentialRankingLoss, PartialBCELoss, SemanticAwareThreshold
from satl.losses import SATLLoss
from satl.thresholds import FixedThreshold, LearnedThreshold


def batches(seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(4):
        logits = 2 * torch.randn(32, 3, generator=draw)
        labels = torch.randint(-1, 2, (32, 3), generator=draw)
        found.append((logits.requires_grad_(), labels))
    return found


def test_it_is_the_loop_of_the_three_modules():
    one = SATLLoss(3, warm_up=0, ranking_weight=0.5)
    rule, bce, ranking = SemanticAwareThreshold(3), PartialBCELoss(), DifferentialRankingLoss()
    for _ in range(3):
        for logits, labels in batches():
            scores = logits.sigmoid()
            expected = bce(logits, rule.pseudo_labels(scores, labels)) + 0.5 * ranking(
                scores, labels, rule.value
            )
            rule.observe(scores, labels)
            assert torch.equal(one(logits, labels), expected)
        rule.update()
        one.update()
        assert torch.equal(one.thresholds, rule.value)
    assert (one.thresholds < 1).all()


def test_the_warm_up_fills_nothing_and_forgets_its_scores():
    one = SATLLoss(3, warm_up=2)
    late = SATLLoss(3, warm_up=0)
    for epoch in range(2):
        for logits, labels in batches(epoch):
            assert torch.equal(one(logits, labels), PartialBCELoss()(logits, labels))
            if epoch == 1:
                late(logits, labels)
        one.update()
        assert (one.epochs, bool((one.thresholds < 1).any())) == (epoch + 1, epoch == 1)
    late.update()
    assert torch.equal(one.thresholds, late.thresholds)  # learned from the second epoch alone


def test_validation_is_not_learned_from():
    one = SATLLoss(3, warm_up=0)
    for logits, labels in batches():
        with torch.no_grad():
            one(logits.detach(), labels)
        one.eval()
        one(logits, labels)
        one.train()
    assert int(one.rule.counts.sum()) == 0


def test_a_checkpoint_holds_thresholds_counts_and_epochs(tmp_path):
    one = SATLLoss(3, warm_up=1)
    for _ in range(2):
        for logits, labels in batches():
            one(logits, labels)
        one.update()
    one(*batches()[0])
    torch.save(one.state_dict(), tmp_path / "loss.pt")
    other = SATLLoss(3, warm_up=1)
    other.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    assert (other.epochs, torch.equal(other.thresholds, one.thresholds)) == (2, True)
    one.update()
    other.update()
    assert torch.equal(other.thresholds, one.thresholds)


def test_another_rule_and_wrong_arguments():
    one = SATLLoss(2, rule=FixedThreshold(2, 0.6))
    one.update()
    assert one.pseudo_labels(torch.tensor([[1.0, 0.0]]), torch.tensor([[0, 0]])).tolist() == [[1, 0]]
    with pytest.raises(ValueError, match="warm_up"):
        SATLLoss(2, warm_up=-1)
    with pytest.raises(ValueError, match="reduction"):
        SATLLoss(2, reduction="mean")
    with pytest.raises(ValueError, match="a loss of its own"):
        SATLLoss(2, rule=LearnedThreshold(2))
