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
from satl.methods import METHODS, RULES, Learner, StepInputs, configure
from satl.models import SemanticTransferNetwork
from satl.runs.reading import make_config
from satl.thresholds import (
    CalibratedThreshold,
    FixedThreshold,
    FlexibleThreshold,
    LargeLossThreshold,
    LinearDecayThreshold,
    MetricThreshold,
    PrecisionThreshold,
    ProportionThreshold,
    SemanticAwareThreshold,
    ShrunkenThreshold,
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
    "shrunk": ShrunkenThreshold,
    "calibrated": CalibratedThreshold,
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
        assert all(field.description for field in part.parameters.model_fields.values()), name


@pytest.mark.parametrize("rule", list(CLASS_OF))
@pytest.mark.parametrize("name", ["sst", "splc"])
def test_a_rule_takes_the_place_of_a_methods_own(name: str, rule: str) -> None:
    learner = make_learner(name, f"method.thresholds.rule={rule}")
    assert len(learner.rules) == len(METHODS[name].generators)
    assert all(type(module) is CLASS_OF[rule] for module in learner.rules.values())


def test_parameters_reach_the_rule() -> None:
    def built(*settings: str) -> ThresholdRule:
        return make_learner("sst", *settings).rules["cross"]  # type: ignore[return-value]

    assert built("method.thresholds.rule=fixed", "method.thresholds.confidence=0.7").confidence == 0.7
    flexible = built(
        "method.thresholds.rule=flexmatch", "method.thresholds.confidence=0.8", "method.thresholds.floor=0.2"
    )
    assert (flexible.confidence, flexible.floor) == (0.8, 0.2)
    proportion = built(
        "method.thresholds.rule=cap", "method.thresholds.bins=64", "method.thresholds.min_count=5"
    )
    assert (proportion.bins, proportion.min_count) == (64, 5)
    metric = built(
        "method.thresholds.rule=mat",
        "method.thresholds.beta=0.5",
        "method.thresholds.bins=64",
        "method.thresholds.min_count=5",
    )
    assert (metric.beta, metric.bins, metric.min_count) == (0.5, 64, 5)
    levels = (
        "method.thresholds.least_precision=0.8",
        "method.thresholds.rate=0.5",
        "method.thresholds.bins=64",
    )
    precise = built("method.thresholds.rule=precision", *levels)
    assert (precise.precision, precise.rate, precise.bins) == (0.8, 0.5, 64)
    options = (
        "method.thresholds.permanent=true",
        "method.thresholds.share_step=0.1",
        "method.thresholds.memory_cells=9",
    )
    large = built("method.thresholds.rule=large-loss", *options)
    assert (large.permanent, large.share_step, large.memory) == (True, 0.1, 9)
    assert not hasattr(built("method.thresholds.rule=large-loss"), "keys")  # memory only where it is needed


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (("method.thresholds.rule=fixedd",), r"no rule 'fixedd' \(did you mean 'fixed'\?\)"),
        (
            ("method.thresholds.rule=cap", "method.thresholds.confidence=0.9"),
            "method.thresholds: there is no key 'confidence'",
        ),
        (("method.thresholds.rule=fixed", "method.thresholds.confidence=2"), "method.thresholds.confidence"),
        (("method.thresholds.rule=flexmatch", "method.thresholds.confidence=0.4"), "method.thresholds.floor"),
        (("method.thresholds.start=0.5",), "method.thresholds.end: must not be above start"),
        (("method.thresholds.rule=mat", "method.thresholds.beta=0"), "method.thresholds.beta"),
    ],
)
def test_wrong_rules_and_parameters_are_named(settings: tuple[str, ...], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        tiny_config("method.name=sst", *settings)


def test_a_default_of_a_method_goes_with_its_rule_only() -> None:
    splc = METHODS["splc"]

    def thresholds(rule: str, **given: object) -> dict[str, object]:
        _, parameters = configure(splc, {"thresholds": {"rule": rule, **given}})
        assert parameters.thresholds is not None
        return parameters.thresholds.model_dump()

    assert thresholds("fixed") == {"confidence": 0.6}
    assert thresholds("flexmatch") == {"confidence": 0.95, "floor": 0.5}
    with pytest.raises(ValidationError, match="confidence"):
        thresholds("mat", confidence=0.5)
    own = dataclasses.replace(splc, defaults={"losses": {"self_paced": {"gamma": 1.0}}, **splc.defaults})
    _, parameters = configure(own, {"thresholds": {"rule": "mat"}})
    assert parameters.losses["self_paced"].model_dump() == {"margin": 1.0, "gamma": 1.0}


def test_additions_to_semantic_thresholds_are_for_probabilities_only() -> None:
    settings = "method.thresholds.floor=0.6", "method.thresholds.negatives_per_positive=0.03"
    rules = make_learner("satl+", *settings).rules
    assert {name: rule.floor for name, rule in rules.items()} == {"cross": 0.0, "teacher": 0.6}
    assert {name: rule.negatives_per_positive for name, rule in rules.items()} == {
        "cross": 0.0,
        "teacher": 0.03,
    }
    own = make_learner("splc", "method.thresholds.rule=semantic", *settings).rules
    assert [(rule.floor, rule.negatives_per_positive) for rule in own.values()] == [(0.6, 0.03)]


def test_a_generator_can_be_left_out() -> None:
    config = tiny_config("method.name=satl+", "method.generators.cross=false")
    assert config.method.configured()[0].generators == ("teacher",)
    assert config.resolved()["method"]["generators"] == {"cross": False, "teacher": {}}
    assert make_config(config.resolved(), "again").resolved() == config.resolved()
    both = tiny_config("method.name=satl+", "method.generators.cross=true")
    assert both.method.configured()[0] == METHODS["satl+"]
    assert both.resolved() == tiny_config("method.name=satl+").resolved()
    rule = tiny_config(
        "method.name=sst", "method.generators.cross=false", "method.thresholds.rule=mat"
    ).method
    assert (rule.configured()[0].generators, rule.configured()[0].rule) == (("intra",), "mat")


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (
            ("method.name=sst", "method.generators.teacher=false"),
            "no generator 'teacher'; .* are intra, cross",
        ),
        (
            ("method.name=sst", "method.generators={intra: false, cross: false}"),
            "at least one generator must stay",
        ),
        (
            ("method.name=hst", "method.generators.prototype=false"),
            "method.generators.prototype: a loss .* needs its",
        ),
        (("method.name=sst", "method.generators=[cross]"), "method.generators: must be a section of keys"),
        (("method.name=ignore", "method.generators.cross=false"), "makes no pseudo-labels"),
    ],
)
def test_wrong_generators_are_named(settings: tuple[str, ...], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        tiny_config(*settings)


@pytest.mark.parametrize(("name", "rule"), list(dict.fromkeys(PAIRS)))
def test_methods_take_rules_without_waiting_for_the_device(name: str, rule: str) -> None:
    torch.manual_seed(0)
    options = {"permanent": True, "memory_cells": 40} if rule == "large-loss" else {}
    method, parameters = configure(METHODS[name], {"thresholds": {"rule": rule, **options}})
    sizes = {"feature_dim": 8, "attention_dim": 8, "pair_dim": 8, "pair_hidden": 8, "embedding_dim": 8}
    backbone = torch.nn.Conv2d(3, 4, 8, 8)
    backbone.channels = 4  # type: ignore[assignment]
    network = SemanticTransferNetwork(4, backbone, torch.eye(4), pairs=method.needs("pairs"), **sizes)
    learner = Learner(method, parameters, network, proportion=0.5)
    pixels, labels, images = make_batch()
    taught = torch.rand(labels.shape) if method.needs("teacher") else None
    with forbid_host_synchronisation():
        for stage in (1, 2, 2):
            if stage == 2:
                learner.update_thresholds()
            result = learner(
                StepInputs(pixels, labels, images, stage=stage, ramp=1.0, observe=True, teacher=taught)
            )
            result.loss.backward()
            learner.remember(result.generator_inputs)
    assert bool(result.loss.isfinite())
    for filled in result.pseudo.values():
        assert torch.equal(filled[labels != 0], labels[labels != 0])


@pytest.mark.parametrize("rule", ["flexmatch", "cap", "mat"])
def test_scores_that_mean_nothing_are_not_counted(rule: str) -> None:
    learner, (pixels, labels, images) = make_learner("sst", f"method.thresholds.rule={rule}"), make_batch()
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
    train(tmp_path, tiny_config("method.name=sst", f"method.thresholds.rule={rule}", "training.epochs=3"))
    rows = metrics(tmp_path)
    assert set(rows[1]["thresholds"]["cross"]) == {1.0}
    assert min(rows[2]["thresholds"]["cross"]) < 1.0
    assert rows[2]["pseudo_labels"]["union"]["emitted"] > 0
