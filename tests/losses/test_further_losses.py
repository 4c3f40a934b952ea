"""ASL, SPLC and large losses against plain loops: values, gradients and their edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from losses.test_losses import MIXES, assert_same, gradient, random_labels
from reference import losses as reference
from satl.losses import asymmetric_loss, large_loss, partial_bce, self_paced_loss

VARIANTS = ["rejection", "correction"]


def filled(labels: Tensor, seed: int) -> Tensor:
    """The labels with some unknown cells as positives."""
    noise = torch.Generator().manual_seed(seed)
    chosen = (labels == 0) & (torch.rand(labels.shape, generator=noise) < 0.4)
    return torch.where(chosen, torch.ones_like(labels), labels)


# Asymmetric loss


@pytest.mark.parametrize("reduction", ["known", "sample"])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize(("gammas", "margin"), [((0.0, 4.0), 0.05), ((1.0, 2.0), 0.2), ((0.5, 0.5), 0.0)])
def test_asymmetric_equals_the_loops(
    reduction: str, mix: tuple[float, float, float], gammas: tuple[float, float], margin: float
) -> None:
    torch.manual_seed(0)
    logits, labels = 3 * torch.randn(6, 5), random_labels(1, 6, 5, mix)
    labels[2] = 0
    assert_same(
        lambda z: asymmetric_loss(z, labels, *gammas, margin, reduction),  # type: ignore[arg-type]
        lambda z: reference.asymmetric(z, labels, gammas, margin, reduction),
        logits,
    )


def test_asymmetric_without_gammas_and_margin_is_cross_entropy() -> None:
    torch.manual_seed(1)
    logits, labels = 5 * torch.randn(6, 5), random_labels(2, 6, 5)
    ours = gradient(lambda z: asymmetric_loss(z, labels, 0.0, 0.0, 0.0), logits)
    wanted = gradient(lambda z: partial_bce(z, labels), logits)
    for one, other in zip(ours, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_asymmetric_without_a_margin_is_a_focal_loss_of_two_strengths() -> None:
    torch.manual_seed(2)
    logits, labels = 3 * torch.randn(6, 5), random_labels(3, 6, 5)

    def plain(z: Tensor) -> Tensor:
        p = z.sigmoid()
        cost = torch.where(labels > 0, -p.log() * (1 - p) ** 1.5, -(1 - p).log() * p**3.0)
        return cost[labels != 0].mean()

    assert_same(lambda z: asymmetric_loss(z, labels, 1.5, 3.0, margin=0), plain, logits)


@pytest.mark.parametrize("logit", [-200.0, -20.0, 20.0, 200.0])
def test_asymmetric_without_a_margin_keeps_the_cost_of_certain_negatives(logit: float) -> None:
    # log(1 - p) in float32 is 0 or infinite here.
    value, slope = gradient(
        lambda z: asymmetric_loss(z, torch.tensor([[-1]]), 0.0, 0.0, margin=0), torch.tensor([[logit]])
    )
    exact, exact_slope = math.log1p(math.exp(logit)), 1 / (1 + math.exp(-logit))
    assert float(value) == pytest.approx(exact, rel=1e-5)
    assert float(slope) == pytest.approx(exact_slope, rel=1e-5)


def test_the_published_parameters_are_the_defaults() -> None:
    logits, labels = torch.randn(4, 3), random_labels(3, 4, 3)
    assert torch.equal(asymmetric_loss(logits, labels), asymmetric_loss(logits, labels, 0.0, 4.0, 0.05))


def test_easy_negatives_cost_nothing() -> None:
    value, slope = gradient(
        lambda z: asymmetric_loss(z, torch.tensor([[-1, -1]])), torch.tensor([[-3.0, -9.0]])
    )
    assert float(value) == 0.0
    assert not slope.any()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("margin", [0.0, 0.05])
@pytest.mark.parametrize("wild", [torch.inf, -torch.inf, torch.nan, 1e30])
def test_asymmetric_is_finite_whatever_the_unknown_logits(gamma: float, margin: float, wild: float) -> None:
    labels = torch.tensor([[1, 0, -1, 1, -1], [0, 0, 0, 0, 0]])
    logits = torch.tensor([[0.5, wild, -0.5, -80.0, 80.0], [wild] * 5])
    value, slope = gradient(lambda z: asymmetric_loss(z, labels, gamma, gamma, margin), logits)
    assert bool(value.isfinite())
    assert bool(slope.isfinite().all())
    assert not slope[labels == 0].any()


# Self-paced loss correction


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize(("margin", "gamma"), [(1.0, 2.0), (0.0, 0.0), (0.5, 1.0), (1.0, 0.5)])
def test_self_paced_equals_the_loops(mix: tuple[float, float, float], margin: float, gamma: float) -> None:
    torch.manual_seed(2)
    logits, labels = 3 * torch.randn(5, 4), random_labels(4, 5, 4, mix)
    for corrected in (labels, filled(labels, 0)):
        assert_same(
            lambda z, corrected=corrected: self_paced_loss(z, labels, corrected, margin, gamma),
            lambda z, corrected=corrected: reference.self_paced(z, labels, corrected, margin, gamma),
            logits,
        )


def test_self_paced_turns_the_gradient_of_corrected_cells_round() -> None:
    labels, logits = torch.zeros(1, 2), torch.tensor([[0.7, 0.7]])
    _, slope = gradient(lambda z: self_paced_loss(z, labels, torch.tensor([[1, 0]])), logits)
    assert float(slope[0, 0]) < 0 < float(slope[0, 1])


# Large losses


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("mix", MIXES)
def test_large_loss_equals_the_loops(variant: str, mix: tuple[float, float, float]) -> None:
    torch.manual_seed(3)
    logits, labels = 3 * torch.randn(5, 4), random_labels(5, 5, 4, mix)
    for chosen in (labels, filled(labels, 1)):
        assert_same(
            lambda z, chosen=chosen: large_loss(z, labels, chosen, variant),  # type: ignore[arg-type]
            lambda z, chosen=chosen: reference.large_loss(z, labels, chosen, variant),
            logits,
        )


def test_rejected_cells_have_no_gradient_and_corrected_ones_the_opposite() -> None:
    labels, chosen, logits = torch.tensor([[0, 0]]), torch.tensor([[1, 0]]), torch.tensor([[0.4, 0.4]])
    _, rejected = gradient(lambda z: large_loss(z, labels, chosen, "rejection"), logits)
    _, corrected = gradient(lambda z: large_loss(z, labels, chosen, "correction"), logits)
    assert float(rejected[0, 0]) == 0.0
    assert float(corrected[0, 0]) < 0 < float(corrected[0, 1])
    assert rejected[0, 1] == corrected[0, 1]


def test_a_rejected_cell_may_be_infinite() -> None:
    logits = torch.tensor([[torch.inf, 1.0]])
    value, slope = gradient(
        lambda z: large_loss(z, torch.tensor([[0, 0]]), torch.tensor([[1, 0]]), "rejection"), logits
    )
    assert bool(value.isfinite())
    assert bool(slope.isfinite().all())


def test_an_unknown_variant_or_reduction_is_refused() -> None:
    with pytest.raises(ValueError, match="variant"):
        large_loss(torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1), "forever")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reduction"):
        asymmetric_loss(torch.zeros(1, 1), torch.ones(1, 1), reduction="mean")  # type: ignore[arg-type]


# All of them

CALLS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "asymmetric": lambda z, labels, _: asymmetric_loss(z, labels),
    "self-paced": self_paced_loss,
    **{v: lambda z, labels, chosen, v=v: large_loss(z, labels, chosen, v) for v in VARIANTS},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", list(CALLS))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_are_float32_and_finite_under_autocast(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    labels = random_labels(6, 6, 4)
    half, chosen = (8 * torch.randn(6, 4)).to(dtype), filled(labels, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, slope = gradient(lambda z: CALLS[name](z, labels, chosen), half)
    wanted, wanted_slope = gradient(lambda z: CALLS[name](z, labels, chosen), half.float())
    assert value.dtype == torch.float32
    assert slope.dtype == dtype
    torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(slope.float(), wanted_slope, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("name", list(CALLS))
@pytest.mark.parametrize("images", [0, 3])
def test_nothing_known_is_harmless(name: str, images: int) -> None:
    labels = torch.zeros(images, 3, dtype=torch.int8)
    value, slope = gradient(lambda z: CALLS[name](z, labels, labels), torch.randn(images, 3))
    assert bool(value.isfinite())
    assert bool(slope.isfinite().all())
    if name == "asymmetric" or images == 0:
        assert float(value) == 0.0
        assert not slope.any()


@pytest.mark.parametrize("name", list(CALLS))
def test_extreme_logits_stay_finite(name: str) -> None:
    labels = torch.tensor([[1, -1, 0, 1, -1, 0]])
    value, slope = gradient(
        lambda z: CALLS[name](z, labels, filled(labels, 3)),
        torch.tensor([[1e4, 1e4, 1e4, -1e4, -1e4, -1e4]]),
    )
    assert bool(value.isfinite())
    assert bool(slope.isfinite().all())
