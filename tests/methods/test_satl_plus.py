"""SATL+: a teacher's probability as a generator and as a soft target."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from satl.methods import METHODS
from satl.methods.base import TERMS
from satl.methods.parts import StepContext
from satl.models.transfer import NetworkOutput
from satl.scoring import Evidence, TeacherGenerator
from training.tiny import metrics, tiny_config, train


def soft_loss(logits: torch.Tensor, labels: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    parameters = METHODS["satl+"].parameters(soft_weight=2.0)
    output = NetworkOutput(logits, torch.zeros(*logits.shape, 1), None)
    return TERMS["soft"](StepContext(parameters, output, labels, {}, {}, {}, teacher))


def test_the_soft_target_is_the_mean_cross_entropy_over_unknown_cells() -> None:
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, generator=noise, dtype=torch.float64, requires_grad=True)
    teacher = torch.rand(5, 3, generator=noise, dtype=torch.float64)
    labels = torch.randint(-1, 2, (5, 3), generator=noise)
    total, count = 0.0, 0
    for n in range(5):
        for c in range(3):
            if labels[n, c] == 0:
                p = 1 / (1 + math.exp(-float(logits.detach()[n, c])))
                q = float(teacher[n, c])
                total -= q * math.log(p) + (1 - q) * math.log(1 - p)
                count += 1
    assert 0 < count < 15
    loss = soft_loss(logits, labels, teacher)
    assert float(loss.detach()) == pytest.approx(2.0 * total / count, rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, logits)
    expected = torch.where(labels == 0, 2.0 * (logits.detach().sigmoid() - teacher) / count, 0.0)
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-8)


def test_without_unknown_cells_the_soft_target_costs_nothing() -> None:
    logits = torch.randn(2, 2, requires_grad=True)
    loss = soft_loss(logits, torch.ones(2, 2, dtype=torch.int8), torch.rand(2, 2))
    assert float(loss.detach()) == 0.0
    loss.backward()
    assert logits.grad is not None
    assert bool((logits.grad == 0).all())


def test_half_precision_logits_are_computed_in_single_precision() -> None:
    logits = torch.full((1, 1), -40.0, dtype=torch.bfloat16)
    loss = soft_loss(logits, torch.zeros(1, 1), torch.ones(1, 1))
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(80.0)


def test_the_teacher_scores_every_cell_and_is_required() -> None:
    labels, images = torch.tensor([[1, 0]]), torch.tensor([0])
    features = torch.zeros(1, 2, 1)
    teacher = torch.tensor([[0.25, 0.75]])
    scores = TeacherGenerator()(Evidence(features, None, labels, images, None, teacher))
    assert torch.equal(scores.values, teacher)
    assert bool(scores.informative.all())
    with pytest.raises(ValueError, match="needs the probabilities of a teacher"):
        TeacherGenerator()(Evidence(features, None, labels, images))


def test_it_learns(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config("method.name=satl+", "training.epochs=8"))
    rows = metrics(tmp_path / "run")
    assert rows[-1]["losses"]["classification"] < 0.8 * rows[0]["losses"]["classification"]
    assert rows[-1]["val"]["mAP"] > 0.25  # a random order scores about 0.18
    assert set(rows[-1]["thresholds"]) == {"cross", "teacher"}
    assert rows[-1]["losses"]["soft"] > 0
