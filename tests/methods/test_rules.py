"""Every threshold rule works in every method that makes pseudo-labels, by its name alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from harness.host_synchronisation import forbid_host_synchronisation
from methods.simple import make_batch, make_learner, step
from satl.errors import ConfigError
from satl.methods import METHODS, Learner
from satl.methods.declaration import RULES
from satl.models import SemanticTransferNetwork
from satl.runs.reading import make_config
from satl.thresholds import (
    FixedThreshold,
    FlexibleThreshold,
    LargeLossThreshold,
    LinearDecayThreshold,
    MetricThreshold,
    PrecisionThreshold,
    ProportionThreshold,
    SemanticAwareThreshold,
    ThresholdRule,
)
from training.tiny import metrics, tiny_config, train

CLASS_OF: dict[str, type[ThresholdRule]] = {
    "linear": LinearDecayThreshold,
    "semantic": SemanticAwareThreshold,
    "fixed": FixedThreshold,
    "flexmatch": FlexibleThreshold,
    "cap": ProportionThreshold,
    "mat": MetricThreshold,
    "precision": PrecisionThreshold,
    "large-loss": LargeLossThreshold,
}
WITH_PSEUDO_LABELS = [name for name, method in METHODS.items() if method.generators]
# Every rule in two methods, and two rules in every method.
PAIRS = [(name, rule) for name in ("sst", "splc") for rule in CLASS_OF]
PAIRS += [(name, rule) for name in WITH_PSEUDO_LABELS for rule in ("cap", "large-loss")]


def test_the_rules_are_there_and_say_what_they_are() -> None:
    assert set(CLASS_OF) <= set(RULES)
    for name, part in RULES.items():
        assert part.summary.endswith("."), name
        assert all(field.description for field in part.own_fields.values()), name
        assert "bce_reduction" not in part.own_fields


@pytest.mark.parametrize("rule", list(CLASS_OF))
@pytest.mark.parametrize("name", ["sst", "splc"])
def test_a_rule_takes_the_place_of_a_methods_own(name: str, rule: str) -> None:
    learner = make_learner(name, f"method.threshold={rule}")
    assert len(learner.rules) == len(METHODS[name].generators)
    assert all(type(module) is CLASS_OF[rule] for module in learner.rules.values())


def test_parameters_reach_the_rule() -> None:
    def built(*settings: str) -> ThresholdRule:
        return make_learner("sst", *settings).rules["cross"]  # type: ignore[return-value]

    assert built("method.threshold=fixed", "method.confidence=0.7").confidence == 0.7
    flexible = built("method.threshold=flexmatch", "method.confidence=0.8", "method.threshold_floor=0.2")
    assert (flexible.confidence, flexible.floor) == (0.8, 0.2)
    proportion = built("method.threshold=cap", "method.bins=64", "method.min_count=5")
    assert (proportion.bins, proportion.min_count) == (64, 5)
    metric = built("method.threshold=mat", "method.metric_beta=0.5", "method.bins=64", "method.min_count=5")
    assert (metric.beta, metric.bins, metric.min_count) == (0.5, 64, 5)
    levels = ("method.least_precision=0.8", "method.rate=0.5", "method.bins=64")
    precise = built("method.threshold=precision", *levels)
    assert (precise.precision, precise.rate, precise.bins) == (0.8, 0.5, 64)
    options = ("method.variant=permanent", "method.share_step=0.1", "method.memory_cells=9")
    large = built("method.threshold=large-loss", *options)
    assert (large.permanent, large.share_step, large.memory) == (True, 0.1, 9)
    assert not hasattr(built("method.threshold=large-loss"), "keys")  # memory only where it is needed


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (("method.threshold=fixedd",), r"no rule 'fixedd' \(did you mean 'fixed'\?\)"),
        (("method.threshold=cap", "method.confidence=0.9"), "no key 'method.confidence'"),
        (("method.threshold=fixed", "method.confidence=2"), "method.confidence"),
        (("method.threshold=flexmatch", "method.confidence=0.4"), "method.threshold_floor"),
        (("method.threshold_start=0.5",), "method.threshold_end: must not be above threshold_start"),
        (("method.threshold=mat", "method.metric_beta=0"), "method.metric_beta"),
    ],
)
def test_wrong_rules_and_parameters_are_named(settings: tuple[str, ...], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        tiny_config("method.name=sst", *settings)


def test_a_default_of_a_method_goes_with_its_rule_only() -> None:
    splc = METHODS["splc"]
    assert splc.with_threshold("fixed") is splc
    assert splc.with_threshold("flexmatch").parameters().confidence == 0.95
    own = dataclasses.replace(splc, defaults={"confidence": 0.6, "focal_gamma": 1.0})
    assert own.with_threshold("mat").parameters().focal_gamma == 1.0
    with pytest.raises(ValidationError, match="confidence"):
        splc.with_threshold("mat").parameters(confidence=0.5)
    # The variant belongs to the loss as well as to the rule, so it stays when the rule goes.
    large = dataclasses.replace(METHODS["large-loss"], defaults={"variant": "temporary", "share_step": 0.1})
    assert large.with_threshold("cap").parameters().variant == "temporary"


def test_additions_to_semantic_thresholds_are_for_probabilities_only() -> None:
    settings = "method.threshold_floor=0.6", "method.negatives_per_positive=0.03"
    rules = make_learner("satl+", *settings).rules
    assert {name: rule.floor for name, rule in rules.items()} == {"cross": 0.0, "teacher": 0.6}
    assert {name: rule.negatives_per_positive for name, rule in rules.items()} == {
        "cross": 0.0,
        "teacher": 0.03,
    }
    own = make_learner("splc", "method.threshold=semantic", *settings).rules
    assert [(rule.floor, rule.negatives_per_positive) for rule in own.values()] == [(0.6, 0.03)]


def test_some_of_the_generators_can_be_chosen() -> None:
    config = tiny_config("method.name=satl+", "method.generators=[teacher]")
    assert config.method.declared().generators == ("teacher",)
    assert config.resolved()["method"]["generators"] == ["teacher"]
    assert make_config(config.resolved(), "again").resolved() == config.resolved()
    assert tiny_config("method.name=satl+", "method.generators=teacher").resolved() == config.resolved()
    both = tiny_config("method.name=satl+", "method.generators=[teacher, cross]")
    assert both.method.declared() == METHODS["satl+"]
    assert "generators" not in tiny_config("method.name=satl+").resolved()["method"]
    # The bank goes with its generator.
    with pytest.raises(ConfigError, match="bank_size"):
        tiny_config("method.name=satl+", "method.generators=[teacher]", "method.bank_size=5")
    rule = tiny_config("method.name=sst", "method.generators=[intra]", "method.threshold=mat").method
    assert (rule.declared().generators, rule.declared().threshold) == (("intra",), "mat")


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (("method.name=sst", "method.generators=[teacher]"), "there is no 'teacher'; .* are intra, cross"),
        (("method.name=sst", "method.generators=[]"), "name at least one"),
        (("method.name=hst", "method.generators=[intra]"), "about the scores of 'prototype'; keep it"),
        (("method.name=sst", "method.generators=[cross, cross]"), "each once"),
        (("method.name=ignore", "method.generators=[cross]"), "makes no pseudo-labels"),
    ],
)
def test_wrong_generators_are_named(settings: tuple[str, ...], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        tiny_config(*settings)


@pytest.mark.parametrize(("name", "rule"), list(dict.fromkeys(PAIRS)))
def test_methods_take_rules_without_waiting_for_the_device(name: str, rule: str) -> None:
    torch.manual_seed(0)
    method = METHODS[name].with_threshold(rule)
    options = {"variant": "permanent", "memory_cells": 40} if rule == "large-loss" else {}
    sizes = {"feature_dim": 8, "attention_dim": 8, "pair_dim": 8, "pair_hidden": 8, "embedding_dim": 8}
    backbone = torch.nn.Conv2d(3, 4, 8, 8)
    backbone.channels = 4  # type: ignore[assignment]
    network = SemanticTransferNetwork(4, backbone, torch.eye(4), pairs=method.needs("pairs"), **sizes)
    learner = Learner(method, method.parameters(**options), network, proportion=0.5)
    pixels, labels, images = make_batch()
    taught = torch.rand(labels.shape) if method.needs("teacher") else None
    with forbid_host_synchronisation():
        for stage in (1, 2, 2):
            if stage == 2:
                learner.update_thresholds()
            result = learner(pixels, labels, images, stage=stage, ramp=1.0, observe=True, teacher=taught)
            result.loss.backward()
            learner.remember(result.evidence)
    assert bool(result.loss.isfinite())
    for filled in result.pseudo.values():
        assert torch.equal(filled[labels != 0], labels[labels != 0])


@pytest.mark.parametrize("rule", ["flexmatch", "cap", "mat"])
def test_scores_that_mean_nothing_are_not_counted(rule: str) -> None:
    learner, (pixels, labels, images) = make_learner("sst", f"method.threshold={rule}"), make_batch()
    labels[0] = torch.tensor([0, -1, 0, 0])  # no known positive: the intra-image scores mean nothing
    step(learner, 1, (pixels, labels, images))
    counts = learner.rules["intra"].counts
    scores = learner.score(pixels, labels, images)["intra"]
    informative = ~scores.isnan()
    unknown = int((informative & (labels == 0)).sum())
    known = int((informative & (labels != 0)).sum())
    assert not informative[0].any()
    wanted = {"flexmatch": unknown + known, "cap": unknown + known, "mat": known}[rule]
    total = int(counts[1:].sum()) if rule == "flexmatch" else int(counts.sum())
    assert total == wanted
    assert not learner.rules["cross"].counts.any()  # the bank is still empty


@pytest.mark.parametrize("rule", [pytest.param("flexmatch", marks=pytest.mark.slow), "cap"])
def test_a_training_with_another_rule_moves_and_writes_its_thresholds(rule: str, tmp_path: Path) -> None:
    train(tmp_path, tiny_config("method.name=sst", f"method.threshold={rule}", "training.epochs=3"))
    rows = metrics(tmp_path)
    assert set(rows[1]["thresholds"]["cross"]) == {1.0}
    assert min(rows[2]["thresholds"]["cross"]) < 1.0
    assert rows[2]["pseudo_labels"]["union"]["emitted"] > 0
