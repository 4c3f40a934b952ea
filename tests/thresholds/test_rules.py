"""The threshold rules as modules: state, conventions, schedules."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reference import thresholds as reference
from satl.errors import ArrayError
from satl.thresholds import LearnedThreshold, LinearDecayThreshold, SemanticAwareThreshold, ThresholdRule


def batch(seed: int = 0, images: int = 200, classes: int = 4) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(seed)
    labels = torch.randint(-1, 2, (images, classes), generator=noise)
    return (torch.rand(images, classes, generator=noise) + 0.3 * (labels > 0)) / 1.3, labels


def moved(**options: object) -> SemanticAwareThreshold:
    rule = SemanticAwareThreshold(num_classes=4, **options)  # type: ignore[arg-type]
    rule.observe(*batch())
    rule.update()
    return rule


@pytest.mark.parametrize("rule", [SemanticAwareThreshold(3), LinearDecayThreshold(3)])
def test_rules_start_at_one_and_emit_nothing(rule: ThresholdRule) -> None:
    assert rule.value.tolist() == [1.0, 1.0, 1.0]
    labels = torch.zeros(5, 3, dtype=torch.int8)
    assert not rule.pseudo_labels(torch.rand(5, 3), labels).any()
    assert not rule.pseudo_labels(torch.ones(5, 3), labels).any()


def test_streaming_equals_the_exact_order_statistics() -> None:
    scores, labels = batch(images=3000)
    rule = SemanticAwareThreshold(4, rate=1.0)
    for part, marks in zip(scores.split(64), labels.split(64), strict=True):
        rule.observe(part, marks)
    rule.update()
    for column in range(4):
        exact = reference.ideal_threshold(scores.tolist(), labels.tolist(), column, 0.999, 0.1)
        assert exact is not None
        assert 0 <= float(rule.value[column]) - exact <= 1 / 2048 + 1e-6


def test_repeated_updates_follow_the_geometric_path() -> None:
    rule = SemanticAwareThreshold(4, rate=0.3)
    scores, labels = batch()
    rule.observe(scores, labels)
    ideal = rule.ideal()
    for k in range(1, 6):
        if k > 1:
            rule.observe(scores, labels)
        rule.update()
        torch.testing.assert_close(rule.value.double(), ideal + (1 - ideal) * 0.7**k, rtol=0, atol=1e-6)


def test_update_starts_new_histograms_and_keeps_without_evidence() -> None:
    rule = moved()
    assert not rule.counts.any()
    before = rule.value.clone()
    rule.update()
    assert torch.equal(rule.value, before)


def test_classes_below_min_count_keep_their_threshold() -> None:
    rule = SemanticAwareThreshold(2, rate=1.0, min_count=3)
    rule.observe(
        torch.tensor([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]]), torch.tensor([[1, 1], [-1, -1], [-1, 0]])
    )
    rule.update()
    assert float(rule.value[0]) == pytest.approx(0.3, abs=1 / 2048)
    assert float(rule.value[1]) == 1.0


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_equation_5_is_the_other_convention(rate: float) -> None:
    literal = moved(rate=rate, convention="eq5").value
    torch.testing.assert_close(literal, moved(rate=1 - rate, convention="rate").value)
    if rate == 0.5:
        assert torch.equal(literal, moved(rate=rate).value)
    scores, labels = batch()
    watcher = SemanticAwareThreshold(4)
    watcher.observe(scores, labels)
    torch.testing.assert_close(literal.double(), rate * 1.0 + (1 - rate) * watcher.ideal(), rtol=0, atol=1e-6)


def test_observing_leaves_the_graph_and_the_scores_alone() -> None:
    scores, labels = batch()
    scores.requires_grad_()
    rule = SemanticAwareThreshold(4)
    rule.observe(scores, labels)
    assert not rule.counts.requires_grad
    assert not list(rule.parameters())


@pytest.mark.parametrize("make", [SemanticAwareThreshold, LinearDecayThreshold])
def test_state_dict_round_trip_goes_on_as_if_nothing_happened(make: type[ThresholdRule]) -> None:
    first = make(4)
    first.observe(*batch(1))
    first.update()
    first.observe(*batch(2))
    second = make(4)
    second.load_state_dict(first.state_dict())
    for rule in (first, second):
        rule.observe(*batch(3))
        rule.update()
    assert torch.equal(first.value, second.value)
    assert not torch.equal(first.value, make(4).value)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])


def test_linear_decay_by_steps_goes_as_far_in_an_epoch_as_it_has_updates() -> None:
    rule = LinearDecayThreshold(3, start=0.9, step=0.1, end=0.45, update_every=4)
    seen = []
    for _ in range(2):
        rule.update()
        for step in range(10):
            if rule.updates_after(step, 10):
                rule.update()
        seen.append(float(rule.value[0]))
    assert seen == pytest.approx([0.8, 0.6])
    rule.update()
    rule.update()
    assert rule.value.tolist() == pytest.approx([0.45] * 3)
    assert not LinearDecayThreshold(3).updates_after(4, 10)
    with pytest.raises(ValueError, match="update_every must be at least 1"):
        LinearDecayThreshold(3, update_every=0)


def test_linear_decay_is_the_published_schedule() -> None:
    rule = LinearDecayThreshold(3)
    for epoch, wanted in reference.SST_SCHEDULE.items():
        rule.update()
        torch.testing.assert_close(rule.value, torch.full((3,), wanted), msg=f"epoch {epoch}")


def test_half_precision_scores_under_autocast() -> None:
    scores, labels = batch()
    exact, half = SemanticAwareThreshold(4, rate=1.0), SemanticAwareThreshold(4, rate=1.0)
    exact.observe(scores.bfloat16().float(), labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half.observe(scores.bfloat16(), labels)
        half.update()
    exact.update()
    assert half.value.dtype == torch.float32
    assert torch.equal(half.value, exact.value)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"num_classes": 0}, "num_classes"),
        ({"negative_quantile": 1.1}, "negative_quantile"),
        ({"positive_quantile": -0.1}, "positive_quantile"),
        ({"rate": 2.0}, "rate"),
        ({"bins": 1}, "bins"),
        ({"min_count": 0}, "min_count"),
        ({"convention": "eq6"}, "convention"),
        ({"negatives_per_positive": -0.1}, "negatives_per_positive"),
        ({"negatives_per_positive": float("nan")}, "negatives_per_positive"),
        ({"floor": 1.5}, "floor"),
    ],
)
def test_impossible_options_are_named(options: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        SemanticAwareThreshold(**{"num_classes": 3, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"start": 0.5, "end": 0.6}, {"step": -0.1}, {"start": 1.5}])
def test_impossible_schedules_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="linear decay"):
        LinearDecayThreshold(3, **options)


def test_a_rule_without_a_way_to_move_says_so() -> None:
    with pytest.raises(NotImplementedError):
        ThresholdRule(2).update()


def test_one_odd_negative_does_not_decide_for_a_common_class() -> None:
    labels = torch.ones(1000, 2, dtype=torch.int8)
    labels[:100, 0] = -1  # nine in ten images show the first class, one in a hundred the second
    labels[:990, 1] = -1
    scores = torch.where(labels > 0, 0.6, 0.2)
    scores[0, 0] = 0.9
    value = {}
    for spared in (0.0, 0.02):
        rule = SemanticAwareThreshold(2, rate=1.0, negatives_per_positive=spared)
        rule.observe(scores, labels)
        rule.update()
        value[spared] = rule.value.tolist()
    assert value[0.0] == pytest.approx([0.9, 0.6], abs=1e-3)
    assert value[0.02] == pytest.approx([0.6, 0.6], abs=1e-3)
    rare = scores[:, 1:].clone()
    rare[0] = 0.9
    for spared in (0.0, 0.02):
        rule = SemanticAwareThreshold(1, rate=1.0, negatives_per_positive=spared)
        rule.observe(rare, labels[:, 1:])
        rule.update()
        # Ten known positives buy no negative.
        assert rule.value.tolist() == pytest.approx([0.9], abs=1e-3)


def test_a_floor_holds_the_thresholds_of_classes_with_evidence() -> None:
    labels = torch.tensor([[1, 1, 0], [-1, -1, 0], [0, 0, 0]])
    scores = torch.tensor([[0.3, 0.9, 0.9], [0.1, 0.2, 0.9], [0.4, 0.95, 0.9]])
    rule = SemanticAwareThreshold(3, rate=1.0, floor=0.5)
    rule.observe(scores, labels)
    rule.update()
    assert rule.value.tolist() == pytest.approx([0.5, 0.9, 1.0], abs=1e-3)
    assert rule.pseudo_labels(scores, labels)[2].tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_thresholds_stay_exact_in_a_model_of_half_precision(dtype: torch.dtype) -> None:
    rule = SemanticAwareThreshold(1, rate=1.0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), rule).to(dtype)
    assert model[0].weight.dtype == dtype
    scores = torch.full((50, 1), 0.7004)
    rule.observe(scores, torch.full((50, 1), -1))
    rule.update()
    assert rule.value.dtype == torch.float32
    assert float(rule.value) >= 0.7004
    assert not rule.pseudo_labels(scores, torch.zeros(50, 1)).any()
    learned = rule.value.clone()
    assert torch.equal(model.to(dtype)[1].value, learned)
    assert torch.equal(model.double()[1].value, learned)
    assert model.to("meta")[1].value.device.type == "meta"


def test_a_learned_threshold_stays_exact_as_well() -> None:
    rule = LearnedThreshold(2)
    optimiser = torch.optim.Adam(rule.parameters(), lr=1e-3, weight_decay=5e-4)
    rule.bfloat16()
    assert rule.value.dtype == torch.float32
    for _ in range(20):
        optimiser.zero_grad()
        rule.loss(torch.full((4, 2), 0.5), torch.ones(4, 2)).backward()
        optimiser.step()
    assert bool((rule.value < 1.0).all())


def test_labels_and_shapes_that_mean_something_else_are_refused() -> None:
    rule = SemanticAwareThreshold(1, rate=1.0)
    with pytest.raises(ValueError, match=r"must be \(B, 1\), got \(4, 3\) and \(4, 3\)"):
        rule.observe(torch.rand(4, 3), torch.ones(4, 3))
    with pytest.raises(ValueError, match=r"got \(4, 1\) and \(4,\)"):
        rule.observe(torch.rand(4, 1), torch.ones(4))
    with pytest.raises(ArrayError, match=r"got torch\.uint8, which cannot hold -1"):
        rule.observe(torch.rand(4, 1), torch.ones(4, 1, dtype=torch.uint8))
    rule.observe(torch.tensor([[0.9], [0.2]]), torch.tensor([[torch.nan], [1.0]]))
    assert rule.counts.sum(-1).flatten().tolist() == [0, 1]


def test_repr_shows_what_matters() -> None:
    assert "negative_quantile=0.999" in repr(SemanticAwareThreshold(3))
