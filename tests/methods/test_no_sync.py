"""A training step never asks the device for a value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.host_synchronisation import HostSynchronisation, forbid_host_synchronisation
from satl.features.feature_views import RandomView
from satl.methods import (
    METHODS,
    NETWORKS,
    FeatureVectors,
    Learner,
    NetworkContext,
    StepInputs,
    configure,
    on_features,
)
from satl.models import Backbone, SemanticTransferNetwork
from satl.models.model_config import ModelConfig
from satl.thresholds import SemanticAwareThreshold

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: float(x[0]),
        lambda x: int(x[0]),
        lambda x: 1 if x.any() else 0,
        lambda x: range(x.long()[0]),
        lambda x: x.nonzero(),
        lambda x: torch.where(x > 0),
        lambda x: x[x > 0],
        lambda x: torch.masked_select(x, x > 0),
        torch.unique,
        lambda x: torch.equal(x, x),
    ],
)
def test_the_guard_notices(ask: Callable[[Tensor], object]) -> None:
    values = torch.ones(4)
    with pytest.raises(HostSynchronisation), forbid_host_synchronisation():
        ask(values)
    assert values.sum().item() == 4  # and lets go afterwards


@pytest.mark.parametrize("name", list(METHODS))
def test_a_step_asks_for_nothing(name: str) -> None:
    torch.manual_seed(0)
    classes, images = 4, 6
    backbone = Backbone("resnet18", kwargs={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}, pool=1)
    sizes = {"feature_dim": 16, "attention_dim": 8, "pair_dim": 8, "pair_hidden": 8, "embedding_dim": 6}
    network = SemanticTransferNetwork(classes, backbone, torch.eye(classes), **sizes)
    method = METHODS[name]
    learner = Learner(*configure(method, {}), network, proportion=0.5).to(DEVICE)
    pixels = torch.randn(images, 3, 64, 64, device=DEVICE)
    labels = torch.randint(-1, 2, (images, classes), device=DEVICE)
    indices = torch.arange(images, device=DEVICE)
    teacher = torch.rand(images, classes, device=DEVICE) if method.needs("teacher") else None
    for stage in (1, 2):
        with forbid_host_synchronisation():
            result = learner(
                StepInputs(pixels, labels, indices, stage=stage, ramp=0.5, observe=True, teacher=teacher)
            )
            result.loss.backward()
            learner.remember(result.generator_inputs)
            learner.update_thresholds()
        assert bool(result.loss.isfinite())


ON_FEATURES = ("satl+", "ignore", "assume-negative", "asl", "curriculum", "splc", "large-loss", "ml-gcn")


@pytest.mark.parametrize("name", ON_FEATURES)
def test_a_step_on_features_asks_for_nothing(name: str) -> None:
    method = on_features(METHODS[name])
    torch.manual_seed(0)
    images, dim, classes = 6, 8, ("a", "b", "c", "d")
    labels = torch.randint(-1, 2, (images, len(classes)), device=DEVICE)
    chosen, parameters = configure(method, {})
    context = NetworkContext(
        ModelConfig(embedding_dim=4, feature_dim=4),
        chosen,
        classes,
        labels.cpu().numpy().astype(np.int8),
        FeatureVectors(dim, torch.zeros(dim), torch.ones(dim)),
    )
    network = NETWORKS[chosen.network].build(context, parameters.network)
    learner = Learner(chosen, parameters, network, proportion=0.5).to(DEVICE)
    features = torch.randn(images, 2, dim, device=DEVICE, dtype=torch.float16)
    indices = torch.arange(images, device=DEVICE)
    teacher = torch.rand(images, len(classes), device=DEVICE) if chosen.needs("teacher") else None
    generator = torch.Generator(DEVICE).manual_seed(0)
    for stage in (1, 2):
        with forbid_host_synchronisation():
            vectors = RandomView()(features, generator)
            result = learner(
                StepInputs(vectors, labels, indices, stage=stage, ramp=0.5, observe=True, teacher=teacher)
            )
            result.loss.backward()
            learner.remember(result.generator_inputs)
            learner.update_thresholds()
        assert bool(result.loss.isfinite())


def test_observing_and_filling_ask_for_nothing() -> None:
    rule = SemanticAwareThreshold(5).to(DEVICE)
    scores, labels = torch.rand(64, 5, device=DEVICE), torch.randint(-1, 2, (64, 5), device=DEVICE)
    with forbid_host_synchronisation():
        rule.observe(scores, labels)
        rule.update()
        filled = rule.pseudo_labels(scores, labels)
    assert bool((rule.value < 1).all())
    assert filled.shape == labels.shape
