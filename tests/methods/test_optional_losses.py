"""Loss terms that a configuration adds or exchanges: mixing on known cells, one fused loss."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from methods.simple import assert_resumes, make_batch, make_learner
from reference import losses as plain
from satl.errors import ArrayError, ConfigError
from satl.losses import mixed_bce, partial_bce
from satl.methods import LOSSES, StepContext, StepInputs
from satl.methods.loss_terms import MixedKnownParameters, PseudoParameters
from satl.methods.mixing import draw_shares, neighbours
from satl.models.semantic_transfer import NetworkOutput
from training.tiny import metrics, tiny_config, train

KINDS = ["some known", "nothing known", "all known"]
MIXED = "method.losses.mixed_known.weight=1"


def random_labels(images: int, kind: str) -> Tensor:
    labels = torch.randint(-1, 2, (images, 4), generator=torch.Generator().manual_seed(3))
    if kind == "nothing known":
        labels.zero_()
    return torch.where(labels == 0, -1, labels) if kind == "all known" else labels


def mixed_known(logits: Tensor, labels: Tensor, shares: Tensor, weight: float = 1.0) -> Tensor:
    output = NetworkOutput(logits, torch.zeros(*labels.shape, 1), None)
    inputs = StepInputs(torch.zeros(0), labels, torch.zeros(0), 1, False, shares=shares)
    loss: Tensor = LOSSES["mixed_known"].build(
        StepContext(inputs, output), MixedKnownParameters(weight=weight)
    )
    return loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("images", [1, 3, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_mixing_on_known_cells_is_that_of_the_loops(images: int, kind: str, dtype: torch.dtype) -> None:
    noise = torch.Generator().manual_seed(5)
    labels, shares = random_labels(images, kind), draw_shares(images, noise)
    logits = torch.randn(images, 4, generator=noise).to(dtype).requires_grad_()
    loss = mixed_known(logits, labels, shares, weight=2.0)
    assert loss.dtype == torch.float32
    expected = 2.0 * plain.mixed_known(logits, labels, shares)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    (found,) = torch.autograd.grad(loss, logits)
    (wanted,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(found, wanted, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)


def test_pictures_that_are_not_mixed_have_the_plain_loss_and_unknown_logits_do_not_matter() -> None:
    labels = random_labels(6, "some known")
    logits = torch.randn(6, 4)
    others = labels[neighbours(6, labels.device)]
    torch.testing.assert_close(mixed_bce(logits, labels, others, torch.ones(6)), partial_bce(logits, labels))
    logits[(labels == 0) & (others == 0)] = torch.inf
    assert bool(mixed_bce(logits, labels, others, torch.full((6,), 0.6)).isfinite())
    with pytest.raises(ArrayError, match=r"shares must be \(6,\)"):
        mixed_bce(logits, labels, others, torch.ones(5))


def test_hidden_at_random_it_is_on_average_mixup_with_complete_labels() -> None:
    noise = torch.Generator().manual_seed(1)
    complete = random_labels(2, "all known")
    logits, shares = torch.randn(2, 4, generator=noise), draw_shares(2, noise)
    others = neighbours(2, logits.device)
    whole = mixed_bce(logits, complete, complete[others], shares)
    total = torch.zeros(())
    draws = 4000
    for _ in range(draws):
        seen = torch.where(torch.rand(2, 4, generator=noise) < 0.5, complete, 0)
        # Times the known cells and divided by those expected: the sum itself has no bias.
        total += mixed_bce(logits, seen, seen[others], shares) * (seen != 0).sum().clamp(min=1) / 4
    torch.testing.assert_close(total / draws, whole, rtol=0.03, atol=0)


def test_micro_batches_add_up_to_the_batch() -> None:
    labels, logits = random_labels(8, "some known"), torch.randn(8, 4)
    shares = draw_shares(8, torch.Generator().manual_seed(0))
    others = labels[neighbours(8, labels.device)]
    parts = [
        mixed_bce(logits[at], labels[at], others[at], shares[at], labels) for at in (slice(0, 4), slice(4, 8))
    ]
    torch.testing.assert_close(sum(parts) / 2, mixed_bce(logits, labels, others, shares))


@pytest.mark.parametrize("method", ["ignore", "ssgrl", "sst+satl", "satl+"])
def test_any_method_can_mix_on_known_cells_from_the_first_epoch(method: str, tmp_path: Path) -> None:
    config = tiny_config(f"method.name={method}", MIXED, "training.epochs=3", "training.ema=0.9")
    train(tmp_path / "run", config)
    rows = metrics(tmp_path / "run")
    assert all(row["losses"]["mixed_known"] > 0 for row in rows)
    again = tiny_config(f"method.name={method}", "method.losses.mixed_known.weight=1.0")
    assert again.method.configured()[0].stage1[-1] == "mixed_known"


def test_a_weight_of_zero_saves_the_pass() -> None:
    assert make_learner("ignore", MIXED).mixes(1)
    assert not make_learner("ignore", "method.losses.mixed_known.weight=0").mixes(1)
    assert not make_learner("ignore").mixes(1)


def test_a_run_that_mixes_on_known_cells_resumes(tmp_path: Path) -> None:
    assert_resumes(tmp_path, "sst+satl", MIXED)


def test_only_terms_for_any_method_can_be_added() -> None:
    with pytest.raises(ConfigError, match=r"there is no loss 'contrast'.*any method can have mixed_known"):
        tiny_config("method.name=ignore", "method.losses.contrast.weight=1")


@pytest.mark.parametrize("kind", KINDS)
def test_the_fused_loss_is_that_of_the_loops(kind: str) -> None:
    noise = torch.Generator().manual_seed(2)
    labels = random_labels(6, kind)
    logits = torch.randn(6, 4, generator=noise, requires_grad=True)
    filled = [
        torch.where((labels == 0) & (torch.rand(6, 4, generator=noise) < 0.4), 1, labels) for _ in range(2)
    ]
    output = NetworkOutput(logits, torch.zeros(6, 4, 1), None)
    inputs = StepInputs(torch.zeros(0), labels, torch.zeros(0), 2, False)
    context = StepContext(inputs, output, pseudo={"intra": filled[0], "cross": filled[1]})
    loss = LOSSES["pseudo"].build(context, PseudoParameters(fused=True))
    expected = plain.fused_loss(logits, labels, filled)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    (found,) = torch.autograd.grad(loss, logits)
    (wanted,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_the_fused_loss_takes_the_place_of_classification_in_stage_2() -> None:
    learner = make_learner("sst+satl", "method.losses.pseudo.fused=true")
    assert "classification" in learner.method.stage1
    assert "classification" not in learner.method.stage2
    images, labels, indices = make_batch()
    parts = learner(StepInputs(images, labels, indices, stage=2, observe=True)).parts
    assert set(parts) == {"cooccurrence", "contrast", "pseudo", "ranking"}
    # Thresholds are still 1, so that only the known cells count.
    with torch.no_grad():
        torch.testing.assert_close(parts["pseudo"], partial_bce(learner.network(images).logits, labels))
