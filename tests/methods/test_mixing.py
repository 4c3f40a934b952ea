"""Pictures mixed of two: pairs by position, targets mixed alike, a second pass only where it counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from methods.simple import make_batch, make_learner
from reference import losses as plain
from satl.methods import METHODS
from satl.methods.base import TERMS
from satl.methods.learner import StepResult
from satl.methods.mixing import draw_shares, mix
from satl.methods.parts import StepContext
from satl.models.transfer import NetworkOutput
from satl.training.ema import MovingAverage
from satl.training.step import StepInputs, TrainingStep
from satl.training.trainer import Trainer
from training.tiny import metrics, tiny_config, train


def mixed_loss(
    logits: Tensor, labels: Tensor, teacher: Tensor, shares: Tensor, weight: float = 2.0
) -> Tensor:
    parameters = METHODS["satl+"].parameters(mix_weight=weight)
    output = NetworkOutput(logits, torch.zeros(*labels.shape, 1), None)
    return TERMS["mixed"](StepContext(parameters, output, labels, {}, {}, {}, teacher, shares=shares))


def test_shares_are_the_larger_part_of_a_beta_distribution() -> None:
    shares = draw_shares(20_000, torch.Generator().manual_seed(0))
    assert torch.equal(shares, draw_shares(20_000, torch.Generator().manual_seed(0)))
    beta = stats.beta(0.5, 0.5)
    test = stats.kstest(shares.double().numpy(), lambda x: beta.cdf(x) - beta.cdf(1 - x))
    assert test.pvalue > 0.01


@pytest.mark.parametrize("images", [1, 2, 5, 8])
def test_each_image_is_mixed_with_its_neighbour(images: int) -> None:
    noise = torch.Generator().manual_seed(images)
    pixels = torch.randn(images, 3, 4, 4, generator=noise, dtype=torch.float64)
    shares = draw_shares(images, noise)
    found = mix(pixels, shares)
    for n in range(images):
        other = n + 1 if n % 2 == 0 else n - 1
        other = n if other == images else other
        expected = shares[n].double() * pixels[n] + (1 - shares[n].double()) * pixels[other]
        torch.testing.assert_close(found[n], expected, rtol=1e-6, atol=1e-6)


def test_mixing_keeps_precision_and_memory_format() -> None:
    pixels = torch.randn(4, 3, 8, 8).to(torch.bfloat16, memory_format=torch.channels_last)
    found = mix(pixels, torch.full((4,), 0.75))
    assert found.dtype == torch.bfloat16
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("images", [1, 3, 6])
@pytest.mark.parametrize("kind", ["some known", "nothing known", "all known"])
def test_the_loss_is_that_of_the_loops(images: int, kind: str) -> None:
    noise = torch.Generator().manual_seed(3)
    labels = torch.randint(-1, 2, (images, 4), generator=noise)
    if kind == "nothing known":
        labels.zero_()
    if kind == "all known":
        labels = torch.where(labels == 0, -1, labels)
    logits = torch.randn(images, 4, generator=noise, requires_grad=True)
    teacher = torch.rand(images, 4, generator=noise)
    shares = draw_shares(images, noise)
    loss = mixed_loss(logits, labels, teacher, shares)
    expected = 2.0 * plain.mixed(logits, labels, teacher, shares)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    (found,) = torch.autograd.grad(loss, logits)
    (wanted,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_half_precision_logits_are_computed_in_single_precision() -> None:
    logits = torch.full((2, 1), -40.0, dtype=torch.bfloat16)
    loss = mixed_loss(logits, torch.ones(2, 1, dtype=torch.int8), torch.zeros(2, 1), torch.ones(2), 1.0)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(40.0)


def one_step(stage: int, *settings: str) -> tuple[TrainingStep, StepInputs, StepResult, int]:
    """A step without BatchNorm in training, and how often the network ran."""
    learner = make_learner("satl+", *settings)
    pixels, labels, indices = make_batch(6)
    average = MovingAverage(learner.network, 0.9)
    step = TrainingStep(learner, torch.optim.SGD(learner.parameters(), lr=0.1), average=average)
    inputs = StepInputs(
        *(pixels, labels, indices, torch.tensor(1.0)),
        noise=torch.rand(4, 15, generator=torch.Generator().manual_seed(1)),
        clean=pixels,
        shares=draw_shares(6, torch.Generator().manual_seed(2)),
    )
    passes: list[Any] = []
    learner.network.register_forward_hook(lambda *facts: passes.append(facts))
    return step, inputs, step(inputs, stage, observe=True), len(passes)


def test_a_step_of_stage_2_also_learns_from_mixed_images() -> None:
    step, inputs, result, passes = one_step(2)
    assert passes == 2
    fresh = make_learner("satl+")
    pixels, labels, shares = inputs.pixels, inputs.labels, inputs.shares
    assert shares is not None
    blended = torch.stack(
        [shares[n] * pixels[n] + (1 - shares[n]) * pixels[n + 1 - 2 * (n % 2)] for n in range(6)]
    )
    with torch.no_grad():
        teacher = fresh.network(pixels).logits.sigmoid()
    weight = fresh.parameters_of_method.mix_weight
    cost = weight * plain.mixed(fresh.network(blended).logits, labels, teacher, shares)
    assert float(result.parts["mixed"]) == pytest.approx(float(cost.detach()), rel=1e-4)
    assert float(result.loss) == pytest.approx(sum(map(float, result.parts.values())), rel=1e-5)
    # The weights moved by the gradients of both passes.
    whole = fresh(pixels, labels, inputs.indices, 2, 1.0, True, teacher, inputs.noise).loss
    wanted = torch.autograd.grad(whole + cost, fresh.network.class_head.output.weight)[0]
    moved = fresh.network.class_head.output.weight - step.learner.network.class_head.output.weight
    torch.testing.assert_close(moved.detach(), 0.1 * wanted, rtol=1e-4, atol=1e-6)


def test_stage_1_mixes_nothing() -> None:
    _, _, result, passes = one_step(1)
    assert passes == 1
    assert "mixed" not in result.parts


def test_without_weight_there_is_no_second_pass_and_nothing_else_changes() -> None:
    _, _, with_it, _ = one_step(2)
    _, _, without, passes = one_step(2, "method.mix_weight=0")
    assert passes == 1
    assert without.parts == {name: part for name, part in with_it.parts.items() if name != "mixed"}


def test_a_training_draws_shares_in_stage_2_only(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, Tensor | None]] = []
    inputs_of = Trainer._inputs

    def note(self: Trainer, batch: Any, epoch: int, step: int, stage: int, observe: bool) -> Any:
        inputs = inputs_of(self, batch, epoch, step, stage, observe)
        seen.append((stage, inputs.shares))
        return inputs

    monkeypatch.setattr(Trainer, "_inputs", note)
    train(tmp_path / "run", tiny_config("method.name=satl+", "training.epochs=4"))
    assert all((shares is None) == (stage == 1) for stage, shares in seen)
    drawn = torch.stack([shares for stage, shares in seen if shares is not None])
    assert {stage for stage, _ in seen} == {1, 2}
    assert len(drawn.unique()) == drawn.numel()  # no step repeats the draws of another
    assert all(row["losses"]["mixed"] > 0 for row in metrics(tmp_path / "run") if row["stage"] == 2)
