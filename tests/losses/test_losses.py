"""The losses against plain loops: values, gradients and their edges."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from reference import losses as reference
from satl.functional import contrastive_loss, cooccurrence_loss, differential_ranking, partial_bce
from satl.losses import DifferentialRankingLoss, PartialBCELoss

NOTHING, EVERYTHING = (1.0, 0.0, 0.0), (0.0, 1.0, 1.0)
MIXES = [(1.0, 1.0, 1.0), EVERYTHING, (6.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0), NOTHING]


def random_labels(seed: int, images: int, classes: int, mix: tuple[float, float, float] = MIXES[0]) -> Tensor:
    """Labels drawn with weights for unknown, absent and present."""
    noise = torch.Generator().manual_seed(seed)
    picks = torch.multinomial(torch.tensor(mix), images * classes, replacement=True, generator=noise)
    return torch.tensor([0, -1, 1], dtype=torch.int8)[picks].view(images, classes)


def gradient(loss: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    """Value and gradient; a loss that does not depend on its input has a gradient of zero."""
    at = at.clone().requires_grad_()
    value = loss(at)
    if value.requires_grad:
        (slope,) = torch.autograd.grad(value, at)
    else:
        slope = torch.zeros_like(at)
    return value.detach(), slope


def assert_same(ours: Callable[[Tensor], Tensor], plain: Callable[[Tensor], Tensor], at: Tensor) -> None:
    value, slope = gradient(ours, at)
    wanted_value, wanted_slope = gradient(plain, at.double())
    assert value.dtype == torch.float32
    assert value.shape == ()
    torch.testing.assert_close(value.double(), wanted_value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(slope.double(), wanted_slope, rtol=1e-4, atol=1e-6)


# Partial cross-entropy


@pytest.mark.parametrize("reduction", ["known", "sample"])
@pytest.mark.parametrize("mix", MIXES)
def test_partial_bce_equals_the_loops(reduction: str, mix: tuple[float, float, float]) -> None:
    torch.manual_seed(0)
    logits, labels = 3 * torch.randn(6, 5), random_labels(1, 6, 5, mix)
    labels[2] = 0
    assert_same(
        lambda z: PartialBCELoss(reduction, "signed")(z, labels),  # type: ignore[arg-type]
        lambda z: reference.partial_bce(z, labels, reduction),
        logits,
    )


def test_reductions_differ_where_images_know_different_amounts() -> None:
    logits, labels = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([[1, 1], [-1, 0]])
    one, other = partial_bce(logits, labels, "known"), partial_bce(logits, labels, "sample")
    costs = [0.693147, 0.693147, 2.126928]
    assert float(one) == pytest.approx(sum(costs) / 3, abs=1e-5)
    assert float(other) == pytest.approx((costs[0] + costs[2]) / 2, abs=1e-5)


@pytest.mark.parametrize("reduction", ["known", "sample"])
@pytest.mark.parametrize("images", [0, 4])
def test_partial_bce_of_nothing_known_is_zero_with_zero_gradients(reduction: str, images: int) -> None:
    logits = torch.randn(images, 3, requires_grad=True)
    loss = partial_bce(logits, torch.zeros(images, 3), reduction)  # type: ignore[arg-type]
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros(images, 3))


@pytest.mark.parametrize("wild", [torch.inf, -torch.inf, torch.nan, 1e30])
@pytest.mark.parametrize("reduction", ["known", "sample"])
def test_logits_of_unknown_cells_do_not_matter(reduction: str, wild: float) -> None:
    labels = torch.tensor([[1, 0, -1], [0, 0, 0]])
    logits = torch.tensor([[0.5, wild, -0.5], [wild, wild, wild]], requires_grad=True)
    loss = partial_bce(logits, labels, reduction)  # type: ignore[arg-type]
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.474077, abs=1e-5)
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert not logits.grad[labels == 0].any()


def test_large_logits_stay_finite() -> None:
    logits, labels = torch.tensor([[1e4, -1e4, 1e4, -1e4]]), torch.tensor([[1, -1, -1, 1]])
    value, slope = gradient(lambda z: partial_bce(z, labels), logits)
    assert float(value) == pytest.approx(5000.0)
    assert slope.tolist() == [[0.0, 0.0, 0.25, -0.25]]


# Differential ranking


@pytest.mark.parametrize("reduction", ["batch", "sum", "known"])
@pytest.mark.parametrize("clamp", [True, False])
@pytest.mark.parametrize("mix", MIXES)
def test_ranking_equals_the_loops(reduction: str, clamp: bool, mix: tuple[float, float, float]) -> None:
    torch.manual_seed(1)
    scores, labels, thresholds = torch.rand(6, 4), random_labels(2, 6, 4, mix), torch.rand(4)
    assert_same(
        lambda s: DifferentialRankingLoss(clamp, reduction, "signed")(  # type: ignore[arg-type]
            s, labels, thresholds
        ),
        lambda s: reference.differential_ranking(s, labels, thresholds.double().tolist(), clamp, reduction),
        scores,
    )


@pytest.mark.parametrize(
    ("clamp", "wanted"),
    [(True, [[-1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]), (False, [[-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 0.0]])],
)
def test_gradient_above_below_and_at_the_threshold(clamp: bool, wanted: list[list[float]]) -> None:
    scores = torch.tensor([[0.75, 0.75, 0.25, 0.25, 0.5, 0.5, 0.75]])
    labels = torch.tensor([[1, -1, 1, -1, 1, -1, 0]])
    thresholds = torch.full((7,), 0.5, requires_grad=True)
    _, slope = gradient(lambda s: differential_ranking(s, labels, thresholds, clamp), scores)
    assert slope.tolist() == wanted
    value = differential_ranking(scores.requires_grad_(), labels, thresholds, clamp)
    assert torch.autograd.grad(value, thresholds, allow_unused=True) == (None,)


def test_ranking_teaches_nothing_while_thresholds_are_at_one() -> None:
    labels = random_labels(3, 8, 5)
    value, slope = gradient(lambda s: differential_ranking(s, labels, torch.ones(5)), torch.rand(8, 5))
    assert float(value) == pytest.approx(int((labels != 0).sum()) / 8)
    assert not slope.any()


@pytest.mark.parametrize("reduction", ["batch", "sum", "known"])
@pytest.mark.parametrize("images", [0, 4])
def test_ranking_of_nothing_known_is_zero(reduction: str, images: int) -> None:
    scores = torch.full((images, 3), torch.inf, requires_grad=True)
    loss = differential_ranking(scores, torch.zeros(images, 3), torch.zeros(3), True, reduction)  # type: ignore[arg-type]
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert scores.grad is not None
    assert torch.equal(scores.grad, torch.zeros(images, 3))


# Co-occurrence


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("classes", [2, 5])
def test_cooccurrence_equals_the_loops(classes: int, mix: tuple[float, float, float]) -> None:
    torch.manual_seed(2)
    labels = random_labels(4, 5, classes, mix)
    assert_same(
        lambda e: cooccurrence_loss(e, labels),
        lambda e: reference.cooccurrence(e, labels),
        4 * torch.randn(5, classes * (classes - 1) // 2),
    )


def test_cooccurrence_of_confident_absence_costs_nothing() -> None:
    value, slope = gradient(
        lambda e: cooccurrence_loss(e, torch.tensor([[1, -1], [0, 1]])), torch.tensor([[-4.0], [-3.5]])
    )
    assert float(value) == 0.0
    assert not slope.any()


@pytest.mark.parametrize("logit", [-torch.inf, -200.0, 200.0, torch.inf])
def test_cooccurrence_is_finite_for_extreme_logits(logit: float) -> None:
    labels = torch.tensor([[1, 1, 0]])
    value, slope = gradient(lambda e: cooccurrence_loss(e, labels), torch.full((1, 3), logit))
    assert bool(value.isfinite())
    assert bool(slope.isfinite().all())


def test_one_class_has_no_pairs() -> None:
    loss = cooccurrence_loss(torch.zeros(3, 0, requires_grad=True), torch.ones(3, 1))
    assert float(loss.detach()) == 0.0


# Contrast


def noise_of(seed: int, images: int, classes: int) -> Tensor:
    """Noise for the random choice."""
    shape = (classes, images * (images - 1) // 2)
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("mix", [*MIXES, (1.0, 8.0, 1.0)])
@pytest.mark.parametrize("seed", [0, 1])
def test_contrast_equals_the_loops_with_the_same_noise(mix: tuple[float, float, float], seed: int) -> None:
    torch.manual_seed(seed)
    labels = random_labels(seed, 6, 4, mix)
    assert_same(
        lambda f: contrastive_loss(f, labels, noise_of(seed, 6, 4)),
        lambda f: reference.contrastive(f, labels, noise_of(seed, 6, 4)),
        torch.randn(6, 4, 7),
    )


def test_contrast_without_positive_pairs_takes_everything() -> None:
    torch.manual_seed(0)
    labels = torch.tensor([[-1, 1], [-1, -1], [-1, 0], [1, -1], [-1, -1]])
    features = torch.randn(5, 2, 3)
    entries = reference.contrast_entries(features, labels)
    assert not entries["positive"]
    costs = torch.stack([cost for kind in entries.values() for _, cost in kind])
    assert len(costs) == 10 + 6
    for _ in range(2):
        torch.testing.assert_close(contrastive_loss(features, labels).double(), costs.mean())


def test_contrast_of_small_sets_is_not_random() -> None:
    # Two positives and one negative: P = 1, two mixed entries of which both are drawn and the dearer one
    # twice, and no pair of negatives.
    features = torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]], [[0.0, 1.0]]])
    labels = torch.tensor([[1], [1], [-1]])
    wanted = ((1 - 0.6) + (1 + 0.0) + 2 * (1 + 0.8)) / 4
    assert float(contrastive_loss(features, labels)) == pytest.approx(wanted, abs=1e-6)


def test_contrast_draws_2p_at_random_and_p_of_the_dearest() -> None:
    # 2 positives, 12 negatives in one class: P = 1, 24 mixed and 66 negative entries. With one-hot features
    # every cosine is 0 but that of the two equal negatives, so it is the dearest of its set in every draw.
    features = torch.eye(14).unsqueeze(1)
    features[13] = features[12]
    labels = torch.tensor([1] * 2 + [-1] * 12).unsqueeze(1)
    values = []
    for seed in range(400):
        value, slope = gradient(
            lambda f, seed=seed: contrastive_loss(f, labels, noise_of(seed, 14, 1)), features
        )
        assert bool(slope.isfinite().all())
        values.append(float(value))
    # 1 + 3 + 3 entries; the dearest costs 2, all others 1; it is drawn a second time in 2 of 66 cases.
    once, twice = 8 / 7, 9 / 7
    assert all(min(abs(v - once), abs(v - twice)) < 1e-5 for v in values)
    assert sum(abs(v - twice) < 1e-5 for v in values) / 400 == pytest.approx(2 / 66, abs=0.025)


@pytest.mark.parametrize("images", [1, 4])
def test_contrast_of_nothing_known_is_zero(images: int) -> None:
    value, slope = gradient(lambda f: contrastive_loss(f, torch.zeros(images, 3)), torch.randn(images, 3, 5))
    assert float(value) == 0.0
    assert not slope.any()


# All of them


@pytest.mark.parametrize("name", ["bce", "ranking", "cooccurrence", "contrast"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_are_float32_and_finite_under_autocast(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    labels = random_labels(5, 6, 4)
    shapes = {"bce": (6, 4), "ranking": (6, 4), "cooccurrence": (6, 6), "contrast": (6, 4, 8)}
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "bce": lambda x: partial_bce(x, labels),
        "ranking": lambda x: differential_ranking(x, labels, torch.full((4,), 0.1)),
        "cooccurrence": lambda x: cooccurrence_loss(x, labels),
        "contrast": lambda x: contrastive_loss(x, labels, noise_of(0, 6, 4)),
    }
    half = (3 * torch.randn(shapes[name])).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, slope = gradient(calls[name], half)
    wanted, wanted_slope = gradient(calls[name], half.float())
    assert value.dtype == torch.float32
    assert slope.dtype == dtype
    torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(slope.float(), wanted_slope, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("make", [PartialBCELoss, DifferentialRankingLoss])
def test_unknown_reductions_are_refused(make: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="reduction"):
        make(reduction="mean")
    with pytest.raises(ValueError, match="reduction"):
        partial_bce(torch.zeros(1, 1), torch.ones(1, 1), "mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reduction"):
        differential_ranking(torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1), True, "mean")  # type: ignore[arg-type]


@pytest.mark.parametrize("clamp", [True, False])
@pytest.mark.parametrize("reduction", ["batch", "known"])
def test_a_score_that_is_not_a_number_counts_as_unknown(clamp: bool, reduction: str) -> None:
    labels = torch.tensor([[1, -1, 1], [-1, 0, 1]])
    scores, limits = torch.rand(2, 3), torch.full((3,), 0.4)
    hidden = labels.clone()
    hidden[0, 0] = 0
    value, slope = gradient(lambda s: differential_ranking(s, hidden, limits, clamp, reduction), scores)  # type: ignore[arg-type]
    scores[0, 0] = torch.nan
    same, same_slope = gradient(lambda s: differential_ranking(s, labels, limits, clamp, reduction), scores)  # type: ignore[arg-type]
    assert same == value
    assert torch.equal(same_slope, slope)
