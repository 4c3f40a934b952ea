"""Adding the zero-shot generator to a method by settings, and a step with it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from harness.host_synchronisation import forbid_host_synchronisation
from satl.errors import ConfigError
from satl.methods import Learner, StepInputs, configure, get_method
from satl.methods.method import resolved_settings
from satl.models.class_network import NetworkOutput
from satl.scoring import TextGenerator, text_statistics
from training.tiny import tiny_config


class LinearNetwork(nn.Module):
    """Logits from vectors; their feature is that of every class."""

    num_classes, feature_dim = 3, 8

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(8, 3)

    def forward(self, vectors: torch.Tensor, with_pairs: bool = False) -> NetworkOutput:
        return NetworkOutput(self.classifier(vectors), vectors[:, None].expand(-1, 3, -1), None)


@pytest.mark.parametrize("given", [True, {}, None])
def test_any_method_with_generators_can_have_it(given: object) -> None:
    method = get_method("satl+")
    chosen, parameters = configure(method, {"generators": {"text": given}})
    assert chosen.generators == ("cross", "teacher", "text")
    assert chosen.needs("vectors")
    settings = resolved_settings(method, chosen, parameters)
    assert settings["generators"]["text"] is True
    assert configure(method, settings)[0].generators == chosen.generators


def test_it_is_left_out_unless_it_is_asked_for() -> None:
    method = get_method("satl+")
    for settings in ({}, {"generators": {"text": False}}):
        chosen, parameters = configure(method, settings)
        assert chosen.generators == method.generators
        assert "text" not in resolved_settings(method, chosen, parameters)["generators"]
    assert configure(get_method("ignore"), {"generators": {"text": False}})[0].generators == ()


def test_it_can_be_the_only_one() -> None:
    alone = {"cross": False, "teacher": False, "text": True}
    assert configure(get_method("satl+"), {"generators": alone})[0].generators == ("text",)


def test_mistakes_are_answered_with_what_there_is() -> None:
    with pytest.raises(
        ConfigError,
        match=r"no generator 'txt' \(did you mean 'text'\?\); those of method 'sst' are intra, cross, and any method "
        r"with generators can have text",
    ):
        tiny_config("method.name=sst", "method.generators.txt=true")
    with pytest.raises(ConfigError, match="no generator 'text'; method 'ignore' makes no pseudo-labels"):
        tiny_config("method.name=ignore", "method.generators.text=true")
    with pytest.raises(ConfigError, match=r"generators\.text: there is no key 'prompts'"):
        tiny_config("method.name=sst", "method.generators.text.prompts=3")


@pytest.mark.parametrize("stage", [1, 2])
def test_a_step_scores_the_vectors_that_came_in_and_asks_the_device_for_nothing(stage: int) -> None:
    torch.manual_seed(0)
    method, parameters = configure(
        get_method("satl+"),
        {"generators": {"text": True, "teacher": False}, "losses": {"mixed": {"weight": 0}}},
    )
    learner = Learner(method, parameters, LinearNetwork(), proportion=0.5)
    vectors, labels = torch.randn(12, 8) + 1.0, torch.randint(-1, 2, (12, 3))
    generator = learner.generators["text"]
    assert isinstance(generator, TextGenerator)
    prompts = torch.randn(3, 8)
    generator.keep(prompts, *text_statistics([vectors], prompts))
    rule = learner.rules["text"]
    rule.value.fill_(0.6)
    inputs = StepInputs(vectors, labels, torch.arange(12), stage=stage, observe=True)
    with forbid_host_synchronisation():
        result = learner(inputs)
        result.loss.backward()
        learner.remember(result.generator_inputs)
    expected = generator(result.generator_inputs).values
    assert torch.equal(learner.score(vectors, labels, torch.arange(12))["text"], expected)
    if stage == 2:
        filled = torch.where((labels == 0) & (expected > 0.6), 1, labels)
        assert torch.equal(result.pseudo["text"], filled)
    assert int(rule.counts.sum()) == int((labels != 0).sum())
    assert learner.network.classifier.weight.grad is not None
