"""Pictures mixed of two: pairs by position, targets mixed alike, a second pass only where it counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from methods.simple import make_batch, make_learner
from reference import losses as plain
from satl.methods import LOSSES, StepContext, StepInputs, StepResult
from satl.methods.mixing import draw_shares, mix
from satl.methods.satl_plus import MixedParameters, default_mixed_weight
from satl.models.semantic_transfer import NetworkOutput
from satl.training.averaging import MovingAverage
from satl.training.batch_inputs import BatchInputs
from satl.training.build import build_learner
from satl.training.step import TrainingStep
from training.tiny import metrics, tiny_config, train


def mixed_loss(
    logits: Tensor,
    labels: Tensor,
    teacher: Tensor,
    shares: Tensor,
    weight: float = 2.0,
    certainty: float = 0.0,
) -> Tensor:
    output = NetworkOutput(logits, torch.zeros(*labels.shape, 1), None)
    inputs = StepInputs(torch.zeros(0), labels, torch.zeros(0), 2, False, teacher=teacher, shares=shares)
    parameters = MixedParameters(weight=weight, certainty=certainty)
    loss: Tensor = LOSSES["mixed"].build(StepContext(inputs, output), parameters)
    return loss


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


def test_mixed_images_weigh_less_where_many_cells_are_positive() -> None:
    """The weight of sparse data is that of all runs before; an explicit one always holds."""
    assert [default_mixed_weight(share) for share in (0.0, 0.08, 0.15, 0.3, 1.0)] == [20, 20, 20, 10, 3]
    labels = torch.tensor([[1, -1, 0, 0], [1, 0, -1, 0], [0, 1, 0, -1], [1, 0, 0, -1]], dtype=torch.int8)
    pixels, indices = torch.rand(4, 3, 32, 32), torch.arange(4)
    inputs = StepInputs(
        *(pixels, labels, indices),
        stage=2,
        observe=False,
        teacher=torch.rand(4, 4, generator=torch.Generator().manual_seed(0)),
        shares=torch.full((4,), 0.7),
    )
    found = []
    for settings in ((), ("method.losses.mixed.weight=6",), ("method.losses.mixed.weight=20",)):
        torch.manual_seed(0)
        config = tiny_config("method.name=satl+", *settings)
        learner = build_learner(config, ("a", "b", "c", "d"), labels.numpy())
        assert learner.positive_share == 0.5
        found.append(float(learner(inputs, mixed=True).parts["mixed"]))
    assert found[0] == found[1] == pytest.approx(0.3 * found[2])


def test_a_teacher_that_knows_nothing_says_nothing_where_certainty_counts() -> None:
    logits = torch.tensor([[3.0, -1.0], [0.5, 2.0]], requires_grad=True)
    labels, teacher = torch.zeros(2, 2, dtype=torch.int8), torch.full((2, 2), 0.5)
    loss = mixed_loss(logits, labels, teacher, torch.tensor([0.9, 0.6]), certainty=2.0)
    loss.backward()
    assert float(loss.detach()) == 0
    assert logits.grad is not None
    assert not logits.grad.any()


@pytest.mark.parametrize("images", [1, 3, 6])
@pytest.mark.parametrize("kind", ["some known", "nothing known", "all known"])
@pytest.mark.parametrize("certainty", [0.0, 1.0, 2.0])
def test_the_loss_is_that_of_the_loops(images: int, kind: str, certainty: float) -> None:
    noise = torch.Generator().manual_seed(3)
    labels = torch.randint(-1, 2, (images, 4), generator=noise)
    if kind == "nothing known":
        labels.zero_()
    if kind == "all known":
        labels = torch.where(labels == 0, -1, labels)
    logits = torch.randn(images, 4, generator=noise, requires_grad=True)
    teacher = torch.rand(images, 4, generator=noise)
    shares = draw_shares(images, noise)
    teacher[0, :2] = torch.tensor([0.5, 1.0])  # knows nothing, and everything
    loss = mixed_loss(logits, labels, teacher, shares, certainty=certainty)
    expected = 2.0 * plain.mixed(logits, labels, teacher, shares, certainty)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    (found,) = torch.autograd.grad(loss, logits)
    (wanted,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_half_precision_logits_are_computed_in_single_precision() -> None:
    logits = torch.full((2, 1), -40.0, dtype=torch.bfloat16)
    loss = mixed_loss(logits, torch.ones(2, 1, dtype=torch.int8), torch.zeros(2, 1), torch.ones(2), 1.0)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(40.0)


PROBE = 2 * torch.randn(6, 4, generator=torch.Generator().manual_seed(4))
"""What a fitted probe says of the six images of a step."""


def one_step(
    stage: int, *settings: str, fitted: bool = False, observe: bool = True
) -> tuple[TrainingStep, StepInputs, StepResult, int]:
    """A step without BatchNorm in training, and how often the network ran."""
    learner = make_learner("satl+", *settings)
    pixels, labels, indices = make_batch(6)
    if fitted:
        assert learner.probe is not None
        learner.probe.keep(indices, PROBE, num_images=20)
    average = MovingAverage(learner.network, 0.9)
    step = TrainingStep(learner, torch.optim.SGD(learner.parameters(), lr=0.1), average=average)
    inputs = StepInputs(
        *(pixels, labels, indices, stage, observe, torch.tensor(1.0)),
        noise=torch.rand(4, 15, generator=torch.Generator().manual_seed(1)),
        clean=pixels.flip(-1) if observe else None,
        shares=draw_shares(6, torch.Generator().manual_seed(2)),
    )
    passes: list[Any] = []
    learner.network.register_forward_hook(lambda *facts: passes.append(facts))
    return step, inputs, step(inputs), len(passes)


def averaged_logits(inputs: StepInputs) -> Tensor:
    """Those of the averaged weights before the first step, which are the weights themselves."""
    with torch.no_grad():
        return make_learner("satl+").network(inputs.clean).logits


def assert_learns_from_both(
    step: TrainingStep, inputs: StepInputs, result: StepResult, stage: int, teacher: Tensor
) -> None:
    """The loss and the step are those of the images and of the mixed ones, with such a teacher."""
    fresh = make_learner("satl+")
    pixels, labels, shares = inputs.pixels, inputs.labels, inputs.shares
    assert shares is not None
    blended = torch.stack(
        [shares[n] * pixels[n] + (1 - shares[n]) * pixels[n + 1 - 2 * (n % 2)] for n in range(6)]
    )
    weight = default_mixed_weight(fresh.positive_share)
    cost = weight * plain.mixed(fresh.network(blended).logits, labels, teacher, shares)
    assert float(result.parts["mixed"]) == pytest.approx(float(cost.detach()), rel=1e-5)
    assert float(result.loss) == pytest.approx(sum(map(float, result.parts.values())), rel=1e-5)
    # The weights moved by the gradients of both passes.
    whole = fresh(inputs._replace(observe=True, teacher=teacher)).loss
    wanted = torch.autograd.grad(whole + cost, fresh.network.class_head.output.weight)[0]
    moved = fresh.network.class_head.output.weight - step.learner.network.class_head.output.weight
    torch.testing.assert_close(moved.detach(), 0.1 * wanted, rtol=1e-4, atol=1e-6)


def test_a_step_of_stage_2_also_learns_from_mixed_images() -> None:
    step, inputs, result, passes = one_step(2)
    assert passes == 2
    assert_learns_from_both(step, inputs, result, 2, averaged_logits(inputs).sigmoid())


def test_a_step_of_stage_1_does_so_with_the_probe_for_a_teacher() -> None:
    step, inputs, result, passes = one_step(1, fitted=True, observe=False)
    assert passes == 2
    assert_learns_from_both(step, inputs, result, 1, PROBE.sigmoid())


@pytest.mark.parametrize("stage", [1, 2])
def test_where_scores_are_observed_probe_and_average_teach_together(stage: int) -> None:
    step, inputs, result, passes = one_step(stage, fitted=True)
    assert passes == 2
    share = step.learner.probe_weight
    teacher = ((1 - share) * averaged_logits(inputs) + share * PROBE).sigmoid()
    assert_learns_from_both(step, inputs, result, stage, teacher)


@pytest.mark.parametrize("observe", [False, True])
@pytest.mark.parametrize("settings", [(), ("method.teacher.probe_weight=0",)])
def test_without_a_fitted_probe_stage_1_mixes_nothing(settings: tuple[str, ...], observe: bool) -> None:
    _, _, result, passes = one_step(1, *settings, observe=observe)
    assert passes == 1
    assert set(result.parts) == {"classification", "contrast"}


@pytest.mark.parametrize("stage", [1, 2])
def test_without_weight_there_is_no_second_pass_and_nothing_else_changes(stage: int) -> None:
    _, _, with_it, _ = one_step(stage, fitted=True)
    _, _, without, passes = one_step(stage, "method.losses.mixed.weight=0", fitted=True)
    assert passes == 1
    assert "mixed" in with_it.parts
    assert without.parts == {name: part for name, part in with_it.parts.items() if name != "mixed"}


@pytest.mark.parametrize(("probe_weight", "stages"), [(0.3, {1, 2}), (0, {2})])
def test_a_training_draws_shares_wherever_it_mixes(
    probe_weight: float, stages: set[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int, StepInputs]] = []
    inputs_of = BatchInputs.make

    def note(self: BatchInputs, batch: Any, epoch: int, step: int, stage: int, observe: bool) -> Any:
        seen.append((epoch, stage, inputs_of(self, batch, epoch, step, stage, observe)))
        return seen[-1][-1]

    monkeypatch.setattr(BatchInputs, "make", note)
    config = tiny_config(
        "method.name=satl+", f"method.teacher.probe_weight={probe_weight}", "training.epochs=4"
    )
    train(tmp_path / "run", config)
    assert {stage for _, stage, _ in seen} == {1, 2}
    assert {stage for _, stage, inputs in seen if inputs.shares is not None} == stages
    assert all((inputs.shares is not None) == (stage in stages) for _, stage, inputs in seen)
    # The average has a say from the last epoch of stage 1 on.
    assert all((inputs.clean is None) == (epoch == 0) for epoch, _, inputs in seen)
    drawn = torch.stack([inputs.shares for _, _, inputs in seen if inputs.shares is not None])
    assert len(drawn.unique()) == drawn.numel()  # no step repeats the draws of another
    for row in metrics(tmp_path / "run"):
        assert (row["losses"].get("mixed", 0) > 0) == (row["stage"] in stages)
