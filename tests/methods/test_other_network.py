"""A method with the network of another one: ``method.network.name``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from satl.errors import ConfigError
from satl.methods import configure, get_method
from satl.methods.method import Method, resolved_settings
from satl.methods.registry import register_method
from satl.models import MLGCNNetwork, SSGRLNetwork
from satl.models.vector_network import VectorNetwork
from satl.runs.reading import make_config
from satl.training.build import build_learner

TINY = {
    "backbone": "resnet18",
    "backbone_kwargs": {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]},
    "pretrained": False,
    "feature_dim": 8,
    "attention_dim": 8,
    "embedding_dim": 8,
    "pair_dim": 8,
    "pair_hidden": 8,
}


def config_with(method: dict[str, Any], **data: Any) -> Any:
    content = {"data": {"scenes": {"train": 8, "val": 2, "test": 2}, **data}, "model": TINY, "method": method}
    return make_config(content, "a test")


@pytest.mark.parametrize(
    ("name", "kind"), [("ssgrl", SSGRLNetwork), ("ml-gcn", MLGCNNetwork), ("vector", VectorNetwork)]
)
def test_a_method_trains_with_another_network(name: str, kind: type) -> None:
    config = config_with({"name": "satl+", "network": {"name": name}})
    labels = torch.randint(-1, 2, (8, 3), generator=torch.Generator().manual_seed(0)).to(torch.int8).numpy()
    learner = build_learner(config, ("a", "b", "c"), labels, None)
    assert type(learner.network) is kind
    logits = learner.network(torch.randn(2, 3, 32, 32)).logits
    assert logits.shape == (2, 3)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("name", ["sst+satl", "kggr", "ssgrl", "ml-gcn", "satl+"])
def test_all_channels_of_the_backbone_need_no_reduction(name: str) -> None:
    labels = torch.randint(-1, 2, (8, 3), generator=torch.Generator().manual_seed(0)).to(torch.int8).numpy()
    content = {
        "data": {"scenes": {"train": 8, "val": 2, "test": 2}},
        "model": {**TINY, "feature_dim": "all"},
        "method": {"name": name},
    }
    config = make_config(content, "a test")
    network = build_learner(config, ("a", "b", "c"), labels, None).network
    output = network(torch.randn(2, 3, 32, 32), with_pairs=True)
    assert output.features.shape == (2, 3, 16)
    assert not any(
        isinstance(part, torch.nn.Conv2d)
        for part in getattr(network, "reduction", torch.nn.Identity()).modules()
    )
    assert make_config(config.resolved(), "again") == config


def test_settings_are_those_of_the_chosen_network() -> None:
    _, parameters = configure(get_method("satl+"), {"network": {"name": "ssgrl", "tie_gates": True}})
    assert parameters.network.tie_gates is True  # type: ignore[attr-defined]


def test_the_choice_is_written_out_and_read_back() -> None:
    method = get_method("satl+")
    chosen, parameters = configure(method, {"network": {"name": "ssgrl"}})
    settings = resolved_settings(method, chosen, parameters)
    assert settings["network"] == {"name": "ssgrl", "tie_gates": False}
    again, read = configure(method, settings)
    assert again.network == "ssgrl"
    assert read == parameters
    resolved = config_with({"name": "satl+", "network": {"name": "ssgrl"}}).resolved()
    assert make_config(resolved, "again").resolved() == resolved


def test_the_own_network_is_not_written_out() -> None:
    """So settings, and what is compared when a run is resumed, stay what they were."""
    method = get_method("satl+")
    for given in ({}, {"network": {"name": "transfer"}}):
        assert "network" not in resolved_settings(method, *configure(method, given))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": "satl+", "network": {"name": "ssgrll"}}, "did you mean 'ssgrl'"),
        ({"name": "sst", "network": {"name": "ssgrl"}}, "as cooccurrence, intra must know"),
        ({"name": "satl+", "network": {"name": "ssgrl", "tie_gate": True}}, "did you mean 'tie_gates'"),
        ({"name": "satl+", "network": {"nam": "ssgrl"}}, "did you mean 'name'"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_with(settings)


def test_a_network_that_attends_to_positions_is_refused_on_features(tmp_path: Any) -> None:
    content = {
        "data": {"table": str(tmp_path / "labels.csv"), "features": str(tmp_path / "features.npz")},
        "method": {"name": "satl+", "network": {"name": "ssgrl"}},
    }
    with pytest.raises(ConfigError, match="use one of vector, ml-gcn, or images"):
        make_config(content, "a test")


def test_a_declared_method_must_fit_its_network() -> None:
    method = Method("odd", "s", "r", network="ssgrl", stage1=("cooccurrence",), stage2=("cooccurrence",))
    with pytest.raises(ValueError, match="network 'ssgrl' does not say it"):
        register_method(method)
