"""HST's learned thresholds: the loss against plain loops, and what an optimiser makes of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from reference import losses as plain_losses
from reference import thresholds as plain_thresholds
from satl.runs.config import TrainingConfig
from satl.thresholds import LearnedThreshold
from satl.thresholds.application import apply_rule
from satl.thresholds.functional import score_histogram
from satl.thresholds.learned import resting_thresholds, threshold_learning
from satl.training.optimisers import load_optimiser, make_optimiser

# Weights for absent, unknown and present cells.
MIXES = [[1.0, 1.0, 1.0], [1.0, 6.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]


def batch(seed: int, images: int = 7, classes: int = 4, mix: list[float] = MIXES[0]) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(seed)
    picks = torch.multinomial(torch.tensor(mix), images * classes, replacement=True, generator=noise)
    scores = 2 * torch.rand(images, classes, generator=noise) - 1
    return scores, (picks - 1).view(images, classes)


def slopes(loss: Tensor, *of: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, of, materialize_grads=True) if loss.requires_grad else of


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("classes", [1, 4])
@pytest.mark.parametrize("level", [-0.5, 0.1, 0.9])
def test_the_loss_equals_the_loops(mix: list[float], classes: int, level: float) -> None:
    scores, labels = batch(0, 7, classes, mix)
    thresholds = (level + 0.1 * torch.rand(classes)).requires_grad_()
    scores[0] = thresholds.detach()  # exactly at the threshold there is a gradient
    scores[1] = thresholds.detach() + 1.5
    scores[2, 0] = torch.nan
    scores.requires_grad_()
    ours = threshold_learning(scores, labels, thresholds)
    doubled = [scores.detach().double().requires_grad_(), thresholds.detach().double().requires_grad_()]
    plain = plain_losses.threshold_learning(doubled[0], labels, doubled[1])
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), plain, rtol=1e-5, atol=1e-6)
    for mine, wanted in zip(slopes(ours, scores, thresholds), slopes(plain, *doubled), strict=True):
        torch.testing.assert_close(mine.double(), wanted, rtol=1e-4, atol=1e-6, equal_nan=True)


def test_only_a_score_of_one_moves_a_threshold_of_one() -> None:
    labels = torch.tensor([[1, 1, -1, -1, 0]])
    thresholds = torch.ones(5, requires_grad=True)
    scores = torch.tensor([[1.0, 0.999, 1.0, 0.5, 1.0]], requires_grad=True)
    threshold_learning(scores, labels, thresholds).backward()
    assert thresholds.grad is not None
    assert scores.grad is not None
    torch.testing.assert_close(thresholds.grad, torch.tensor([0.125, 0, -0.125, 0, 0]))
    torch.testing.assert_close(scores.grad, -thresholds.grad.unsqueeze(0))


@pytest.mark.parametrize("images", [0, 3])
def test_nothing_known_costs_nothing(images: int) -> None:
    rule = LearnedThreshold(2)
    scores = torch.full((images, 2), torch.nan, requires_grad=True)
    loss = rule.loss(scores, torch.zeros(images, 2))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert rule.value.grad is not None
    assert not rule.value.grad.any()
    assert scores.grad is not None
    assert not scores.grad.any()


def test_half_precision_scores_under_autocast() -> None:
    scores, labels = batch(1)
    rule = LearnedThreshold(4)
    rule.value.data.fill_(0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = rule.loss(scores.bfloat16(), labels)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, rule.loss(scores.bfloat16().float(), labels))


def test_rules_weigh_the_loss_and_share_or_keep_the_gradient() -> None:
    scores, labels = batch(2, images=40)
    own, shared = LearnedThreshold(4, weight=0.3, shared=False), LearnedThreshold(4, weight=0.3)
    for rule in (own, shared):
        rule.value.data.fill_(0.2)
        rule.loss(scores, labels).backward()
    plain = torch.full((4,), 0.2, requires_grad=True)
    (0.3 * threshold_learning(scores, labels, plain)).backward()
    assert plain.grad is not None
    assert own.value.grad is not None
    assert shared.value.grad is not None
    torch.testing.assert_close(own.value.grad, plain.grad)
    torch.testing.assert_close(shared.value.grad, plain.grad.sum().expand(4))
    assert plain.grad.unique().numel() == 4


class Whole(nn.Module):
    """Something with a rule in it, as a learner has."""

    def __init__(self, rule: LearnedThreshold) -> None:
        super().__init__()
        self.rules = nn.ModuleDict({"cross": rule})


def trained(rule: LearnedThreshold, steps: int, optimiser: str = "adam", **options: float) -> list[float]:
    """The threshold of the first class at every step, on the same random scores."""
    config = TrainingConfig(optimiser=optimiser, lr=0.01, **options)  # type: ignore[arg-type]
    moving = make_optimiser(Whole(rule), config)
    path = []
    for step in range(steps):
        scores, labels = batch(step, images=30)
        rule.loss(scores, labels).backward()
        moving.step()
        moving.zero_grad()
        path.append(float(rule.value[0].detach()))
        if rule.shared:
            assert rule.value.unique().numel() == 1
    return path


def test_a_shared_threshold_goes_the_way_of_a_single_number() -> None:
    number = nn.Parameter(torch.ones(()))
    moving = torch.optim.Adam([number], lr=0.01, weight_decay=5e-4)
    wanted = []
    for step in range(150):
        scores, labels = batch(step, images=30)
        moving.zero_grad()
        (0.1 * threshold_learning(scores, labels, number.expand(4))).backward()
        moving.step()
        wanted.append(float(number.detach()))
    path = trained(LearnedThreshold(4), 150)
    assert path == pytest.approx(wanted, abs=1e-5)
    assert path[-1] < 0.8


def test_weight_decay_is_what_lowers_a_threshold_that_no_score_reaches() -> None:
    never = torch.full((5, 4), 0.3), torch.ones(5, 4)
    for decay, optimiser, wanted in (
        (True, "adam", 0.8),
        (False, "adam", 1.0),
        (True, "adamw", 0.8),
        (False, "adamw", 1.0),
    ):
        rule = LearnedThreshold(4, decay=decay)
        moving = make_optimiser(Whole(rule), TrainingConfig(optimiser=optimiser, lr=0.01))
        for _ in range(20):
            rule.loss(*never).backward()
            moving.step()
            moving.zero_grad()
        assert rule.value.detach().tolist() == pytest.approx([wanted] * 4, abs=4e-3)


def test_thresholds_without_decay_still_learn_with_the_rate_of_the_head() -> None:
    rule = LearnedThreshold(4, decay=False, shared=False)
    rule.value.data.fill_(0.1)
    config = TrainingConfig(lr=0.1, head_lr=0.5, weight_decay=0.3)
    moving = make_optimiser(Whole(rule), config)
    assert [(group["lr"], group["weight_decay"]) for group in moving.param_groups] == [(0.5, 0.0)]
    rule.loss(*batch(3)).backward()
    moving.step()
    assert not torch.equal(rule.value, torch.full((4,), 0.1))
    together = make_optimiser(Whole(LearnedThreshold(4)), config)
    assert [group["weight_decay"] for group in together.param_groups] == [0.3]


def test_pseudo_labels_are_what_lies_strictly_above() -> None:
    rule = LearnedThreshold(2)
    labels = torch.tensor([[0, 0], [0, -1], [0, 1]])
    assert torch.equal(rule.pseudo_labels(torch.ones(3, 2), labels), labels)
    rule.value.data.copy_(torch.tensor([0.5, 0.5]))
    filled = rule.pseudo_labels(torch.tensor([[0.5, 0.6], [0.51, 0.9], [-1.0, 0.9]]), labels)
    assert filled.tolist() == [[0, 1], [1, -1], [0, 1]]
    assert not filled.requires_grad


def test_updates_leave_thresholds_to_the_optimiser() -> None:
    rule = LearnedThreshold(4)
    rule.observe(*batch(0))
    assert rule.counts.any()
    rule.update()
    assert not rule.counts.any()
    assert rule.value.tolist() == [1.0] * 4
    assert sorted(rule.state_dict()) == ["counts", "value"]
    assert [name for name, _ in rule.named_parameters()] == ["value"]


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("ties", [False, True])
def test_the_resting_place_equals_the_loops(mix: list[float], ties: bool) -> None:
    scores, labels = batch(5, 60, 3, mix)
    scores = (scores.abs() * 8).round() / 8 if ties else scores.abs()
    found = resting_thresholds(score_histogram(scores, labels, bins=50))
    for c in range(3):
        positives = plain_thresholds.known_scores(scores.tolist(), labels.tolist(), c, +1)
        negatives = plain_thresholds.known_scores(scores.tolist(), labels.tolist(), c, -1)
        if not positives and not negatives:
            assert bool(found[c].isnan())
        else:
            assert float(found[c]) == plain_thresholds.resting_place(positives, negatives, 50)


@pytest.mark.parametrize("shared", [True, False])
def test_the_limit_is_where_an_optimiser_stops(shared: bool) -> None:
    noise = torch.Generator().manual_seed(0)
    labels = torch.where(torch.rand(4000, 2, generator=noise) < 0.3, 1, -1)
    middle = torch.where(labels > 0, 0.7, torch.tensor([0.35, 0.25]))
    scores = (middle + 0.1 * torch.randn(4000, 2, generator=noise)).clamp(0, 1)
    rule = LearnedThreshold(2, shared=shared)
    rule.observe(scores, labels)
    rest = rule.limit()
    moving = torch.optim.Adam([rule.value], lr=0.003, weight_decay=1e-6)
    for _ in range(600):
        moving.zero_grad()
        rule.loss(scores, labels).backward()
        moving.step()
    torch.testing.assert_close(rule.value.detach().double(), rest.double(), rtol=0, atol=0.02)
    assert (float(rest[0]) == float(rest[1])) == shared
    assert 0.2 < float(rest.min()) < float(rest.max()) < 0.6 or shared


def test_a_plain_table_is_judged_where_the_thresholds_would_rest() -> None:
    scores = torch.tensor([[0.9], [0.8], [0.3], [0.35], [0.85], [0.2]])
    labels = torch.tensor([[1], [1], [-1], [-1], [0], [0]], dtype=torch.int8)
    (row,) = apply_rule(LearnedThreshold(1, bins=10), scores.numpy(), labels.numpy(), ("cat",))
    assert (row.threshold, row.accepted, row.precision, row.recall) == (pytest.approx(0.4), 1, 1.0, 1.0)


def test_impossible_options_are_named() -> None:
    with pytest.raises(ValueError, match="weight"):
        LearnedThreshold(3, weight=-1.0)
    with pytest.raises(ValueError, match="bins"):
        LearnedThreshold(3, bins=1)
    assert "shared=True" in repr(LearnedThreshold(3))


@pytest.mark.parametrize("decay", [True, False])
@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
def test_thresholds_can_have_a_rate_and_a_start_of_their_own(optimiser: str, decay: bool) -> None:
    whole = nn.Module()
    whole.network = nn.Linear(2, 2)
    whole.rules = nn.ModuleDict(
        {name: LearnedThreshold(2, decay=decay, initial=0.8, rate=0.01) for name in ("intra", "cross")}
    )
    config = TrainingConfig(optimiser=optimiser, lr=1e-5, head_lr=1e-4, weight_decay=5e-4)
    groups = make_optimiser(whole, config).param_groups
    assert [group["lr"] for group in groups] == [0.01, 0.01, 1e-4]
    assert [group["weight_decay"] for group in groups] == [5e-4 if decay else 0.0] * 2 + [5e-4]
    assert groups[0]["params"][0] is whole.rules["intra"].value
    assert whole.rules["cross"].value.tolist() == pytest.approx([0.8, 0.8])
    for wrong in ({"initial": 1.5}, {"rate": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LearnedThreshold(2, **wrong)


@pytest.mark.parametrize("rate", [None, 0.01])
def test_adamw_lowers_thresholds_as_adam_does_and_weights_as_ever(rate: float | None) -> None:
    def after(optimiser: str) -> tuple[float, float]:
        rule = LearnedThreshold(1, rate=rate)
        whole = nn.Module()
        whole.network, whole.rules = nn.Linear(1, 1, bias=False), nn.ModuleDict({"cross": rule})
        nn.init.ones_(whole.network.weight)
        config = TrainingConfig(optimiser=optimiser, lr=0.01, weight_decay=0.05)
        moving = make_optimiser(whole, config)
        for step in range(20):
            if step == 10:  # a run that goes on has the same decay
                state = moving.state_dict()
                moving = make_optimiser(whole, config)
                load_optimiser(moving, state)
            moving.zero_grad()
            (
                rule.loss(torch.full((3, 1), 0.3), torch.ones(3, 1)) + 0.0 * whole.network.weight.sum()
            ).backward()
            moving.step()
        return float(rule.value.detach()), float(whole.network.weight.detach())

    adam, adamw = after("adam"), after("adamw")
    assert adamw[0] == pytest.approx(adam[0], abs=1e-6)
    assert adamw[0] == pytest.approx(0.8, abs=4e-3)
    assert adamw[1] == pytest.approx((1 - 0.01 * 0.05) ** 20, abs=1e-6)  # next to nothing, as AdamW means it


def test_without_decay_a_threshold_stays_at_one_and_an_own_rate_from_below_moves_it() -> None:
    scores, labels = torch.tensor([[0.9], [0.85], [0.2]]), torch.tensor([[1], [1], [-1]])

    def after(**options: float) -> float:
        rule = LearnedThreshold(1, decay=False, **options)
        whole = nn.Module()
        whole.network, whole.rules = nn.Linear(1, 1), nn.ModuleDict({"cross": rule})
        optimiser = make_optimiser(whole, TrainingConfig(optimiser="adamw", lr=1e-4))
        for _ in range(50):
            optimiser.zero_grad()
            (rule.loss(scores, labels) + 0.0 * whole.network(torch.zeros(1)).sum()).backward()
            optimiser.step()
        return float(rule.value.detach())

    assert after() == 1.0
    assert 0.2 < after(initial=0.8, rate=0.01) < 0.5
