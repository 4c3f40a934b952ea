"""The networks of SSGRL, KGGR and ML-GCN against their plain forms, and their edges."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from reference import network as reference
from satl.models import (
    Backbone,
    ClassNetwork,
    GatedGraph,
    GraphConvolution,
    KGGRNetwork,
    MLGCNNetwork,
    SSGRLNetwork,
    WeightPropagationHead,
    convolution_graph,
    cooccurrence_graph,
)


class FixedMap(nn.Module):
    """A backbone that answers with a given feature map."""

    def __init__(self, feature_map: Tensor) -> None:
        super().__init__()
        self.feature_map = feature_map
        self.channels = feature_map.shape[1]

    def forward(self, images: Tensor) -> Tensor:
        return self.feature_map


def random_map(batch: int = 3, channels: int = 7) -> Tensor:
    return torch.randn(batch, channels, 2, 3, dtype=torch.float64, requires_grad=True)


def assert_equal_in_value_and_gradient(ours: Tensor, plain: Tensor, inputs: dict[str, Tensor]) -> None:
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    upstream = torch.cos(torch.arange(ours.numel(), dtype=ours.dtype)).reshape(ours.shape)
    mine = torch.autograd.grad((ours * upstream).sum(), list(inputs.values()), retain_graph=True)
    wanted = torch.autograd.grad((plain * upstream).sum(), list(inputs.values()), retain_graph=True)
    for name, one, other in zip(inputs, mine, wanted, strict=True):
        torch.testing.assert_close(
            one, other, rtol=1e-10, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("tie_gates", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_ssgrl_equals_the_plain_network(classes: int, tie_gates: bool, learned: bool) -> None:
    torch.manual_seed(classes)
    feature_map = random_map()
    network = SSGRLNetwork(
        classes,
        FixedMap(feature_map),
        graph=torch.rand(classes, classes),
        embeddings=None if learned else torch.randn(classes, 4),
        attention_dim=5,
        steps=2,
        embedding_dim=3,
        tie_gates=tie_gates,
    ).double()
    output = network(torch.zeros(3, 3, 8, 8))
    weights = dict(network.named_parameters())
    assert ("embeddings" in weights) == learned
    assert ("propagation.reset_state.weight" in weights) == (not tie_gates)
    assert not any(name.startswith("reduction") for name in weights)
    logits, features = reference.ssgrl(feature_map, network.embeddings, network.graph, weights, steps=2)
    assert output.pair_logits is None
    torch.testing.assert_close(output.features, features, rtol=1e-10, atol=1e-10)
    assert_equal_in_value_and_gradient(output.logits, logits, {"map": feature_map, **weights})


@pytest.mark.parametrize(("feature_dim", "reduced"), [(None, False), (7, False), (4, True)])
def test_ssgrl_reduces_the_map_only_to_another_number_of_channels(
    feature_dim: int | None, reduced: bool
) -> None:
    feature_map = random_map().detach().float()
    network = SSGRLNetwork(
        3, FixedMap(feature_map), torch.eye(3), feature_dim=feature_dim, attention_dim=4, embedding_dim=5
    )
    assert network.feature_dim == (feature_dim or 7)
    assert ("reduction.0.weight" in network.state_dict()) == reduced
    assert network(torch.zeros(3, 3, 8, 8)).features.shape == (3, 3, network.feature_dim)


@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("zero_gates", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_kggr_equals_the_plain_network(classes: int, zero_gates: bool, learned: bool) -> None:
    torch.manual_seed(classes)
    feature_map = random_map()
    network = KGGRNetwork(
        classes,
        FixedMap(feature_map),
        graph=torch.rand(classes, classes),
        embeddings=None if learned else torch.randn(classes, 4),
        feature_dim=6,
        attention_dim=5,
        steps=2,
        embedding_dim=3,
        zero_gates=zero_gates,
    ).double()
    output = network(torch.zeros(3, 3, 8, 8))
    weights = dict(network.named_parameters())
    reduced = network.reduction(feature_map)
    logits, features = reference.kggr(reduced, network.embeddings, network.graph, weights, steps=2)
    assert output.pair_logits is None
    torch.testing.assert_close(output.features, features, rtol=1e-10, atol=1e-10)
    assert_equal_in_value_and_gradient(output.logits, logits, {"map": feature_map, **weights})


def test_class_weights_are_propagated_over_the_graph() -> None:
    torch.manual_seed(0)
    head = WeightPropagationHead(4, 3, steps=3).double()
    graph = torch.rand(4, 4, dtype=torch.float64)
    weights = dict(head.named_parameters())
    plain = reference.propagated_weights(
        weights["classifier.weight"],
        graph,
        reference.gates_of(weights, "propagation."),
        weights["output.weight"],
        weights["output.bias"],
        steps=3,
    )
    used = {name: weight for name, weight in weights.items() if name != "classifier.bias"}
    assert_equal_in_value_and_gradient(head.weights(graph), plain, used)


def test_gates_at_zero_halve_the_states_at_every_step() -> None:
    graph = GatedGraph(4, steps=3, zero_gates=True)
    states = torch.randn(5, 4)
    torch.testing.assert_close(graph(states, torch.rand(5, 5)), states / 8)
    graph(states, torch.rand(5, 5)).sum().backward()
    assert bool(graph.candidate_message.weight.grad.any())  # and they can leave zero


@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_ml_gcn_equals_the_plain_network(classes: int, bias: bool, learned: bool) -> None:
    torch.manual_seed(classes)
    feature_map = random_map()
    network = MLGCNNetwork(
        classes,
        FixedMap(feature_map),
        graph=torch.rand(classes, classes),
        embeddings=None if learned else torch.randn(classes, 4),
        hidden_dim=5,
        embedding_dim=3,
        bias=bias,
    ).double()
    if bias:
        network.set_prior(torch.linspace(0.2, 0.7, classes))
    output = network(torch.zeros(3, 3, 8, 8))
    weights = dict(network.named_parameters())
    assert ("bias" in weights) == bias
    logits, pooled = reference.ml_gcn(
        feature_map,
        network.embeddings,
        network.graph,
        weights["first.weight"],
        weights["second.weight"],
        weights.get("bias"),
    )
    assert output.pair_logits is None
    assert output.features.shape == (3, classes, network.feature_dim)
    for c in range(classes):
        assert torch.equal(output.features[:, c], pooled)
    assert_equal_in_value_and_gradient(output.logits, logits, {"map": feature_map, **weights})


def test_the_feature_of_an_image_is_not_copied_for_every_class() -> None:
    network = MLGCNNetwork(50, FixedMap(torch.randn(2, 7, 3, 3)), torch.eye(50), hidden_dim=4)
    features = network(torch.zeros(2, 3, 8, 8)).features
    assert features.untyped_storage().nbytes() == 2 * 7 * features.element_size()
    assert torch.equal(network.class_features(torch.zeros(2, 3, 8, 8)), features)


def test_of_equal_largest_values_one_gets_the_gradient_as_in_a_pooling_layer() -> None:
    feature_map = torch.tensor([[[[0.0, 2.0], [2.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]], requires_grad=True)
    network = MLGCNNetwork(2, FixedMap(feature_map), torch.eye(2), hidden_dim=4)
    (ours,) = torch.autograd.grad(network.image_features(torch.zeros(1, 3, 8, 8)).sum(), feature_map)
    (wanted,) = torch.autograd.grad(torch.nn.functional.max_pool2d(feature_map, 2).sum(), feature_map)
    assert torch.equal(ours, wanted)


def test_without_biases_there_is_no_start_at_a_prior() -> None:
    network = MLGCNNetwork(2, FixedMap(torch.randn(2, 7, 3, 3)), torch.eye(2), hidden_dim=4)
    with pytest.raises(ValueError, match="without biases"):
        network.set_prior(torch.full((2,), 0.5))


@settings(max_examples=40, deadline=None)
@given(
    labels=st.integers(1, 5).flatmap(
        lambda c: st.lists(st.lists(st.integers(-1, 1), min_size=c, max_size=c), min_size=1, max_size=8)
    ),
    threshold=st.sampled_from([0.2, 0.25, 0.4, 0.5, 1.0]),
    weight=st.sampled_from([0.0, 0.25, 0.8]),
)
def test_convolution_graph_equals_counting_and_has_no_nan(
    labels: list[list[int]], threshold: float, weight: float
) -> None:
    table = np.array(labels, dtype=np.int8)
    graph = convolution_graph(table, threshold, weight, encoding="signed")
    wanted = reference.convolution_graph(labels, table.shape[1], threshold, weight)
    torch.testing.assert_close(graph, torch.tensor(wanted), rtol=1e-6, atol=1e-7)
    assert bool(graph.isfinite().all())
    assert torch.equal(
        graph, convolution_graph(torch.from_numpy(table), threshold, weight, encoding="signed")
    )


def test_convolution_graph_of_the_published_code_by_hand() -> None:
    # Class 0 is present five times, twice with class 1: exactly the threshold, so a neighbour.
    # Class 1 is present twice, always with class 0. Class 2 has no known positive.
    table = np.array([[1, 1, 0], [1, 1, -1], [1, 0, -1], [1, -1, -1], [1, -1, 0]], dtype=np.int8)
    neighbours = torch.tensor([[1.0, 0.25, 0.0], [0.25, 1.0, 0.0], [0.0, 0.0, 1.0]])
    wanted = neighbours / torch.tensor([1.25, 1.25, 1.0])[:, None]
    torch.testing.assert_close(convolution_graph(table), wanted, rtol=1e-5, atol=1e-6)
    assert torch.equal(convolution_graph(np.zeros((4, 3), dtype=np.int8), encoding="signed"), torch.eye(3))


def shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}


def gate_shapes(prefix: str, dim: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}{gate}_{source}.{kind}": shape
        for gate in ("update", "reset", "candidate")
        for source, width in (("message", 2 * dim), ("state", dim))
        for kind, shape in (("weight", (dim, width)), ("bias", (dim,)))
    }


def decoupling_shapes(dim: int, attention: int) -> dict[str, tuple[int, ...]]:
    return {
        "decoupling.feature_projection.weight": (attention, dim),
        "decoupling.class_projection.weight": (attention, 300),
        "decoupling.hidden.weight": (attention, attention),
        "decoupling.hidden.bias": (attention,),
        "decoupling.output.weight": (1, attention),
        "decoupling.output.bias": (1,),
    }


def test_parameters_are_those_of_the_published_networks() -> None:
    given_graph, words = torch.empty(80, 80, device="meta"), torch.empty(80, 300, device="meta")
    with torch.device("meta"):
        arguments: Any = (80, FixedMap(torch.empty(1, 2048, 14, 14)), given_graph, words)
        ssgrl, kggr, ml_gcn = SSGRLNetwork(*arguments), KGGRNetwork(*arguments), MLGCNNetwork(*arguments)
    assert shapes(ssgrl) == {
        **decoupling_shapes(2048, 1024),
        **gate_shapes("propagation.", 2048),
        "class_head.output.weight": (2048, 4096),
        "class_head.output.bias": (2048,),
        "class_head.classifier.weight": (80, 2048),
        "class_head.classifier.bias": (80,),
    }
    assert shapes(kggr) == {
        "reduction.0.weight": (1024, 2048, 1, 1),
        "reduction.1.weight": (1024,),
        "reduction.1.bias": (1024,),
        **decoupling_shapes(1024, 512),
        **gate_shapes("propagation.", 1024),
        "output.weight": (1024, 2048),
        "output.bias": (1024,),
        "weight_head.classifier.weight": (80, 1024),
        "weight_head.classifier.bias": (80,),
        **gate_shapes("weight_head.propagation.", 1024),
        "weight_head.output.weight": (1024, 2048),
        "weight_head.output.bias": (1024,),
    }
    assert shapes(ml_gcn) == {"first.weight": (300, 1024), "second.weight": (1024, 2048)}


def test_graph_convolutions_start_uniform() -> None:
    torch.manual_seed(0)
    weight = GraphConvolution(50, 64).weight.detach()
    assert 0.95 / 8 < float(weight.abs().max()) <= 1 / 8
    assert abs(float(weight.mean())) < 0.01


def tiny(build: Callable[..., ClassNetwork], classes: int = 4, **options: Any) -> ClassNetwork:
    torch.manual_seed(classes)
    backbone = Backbone("resnet18", kwargs={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}, pool=1)
    sizes: dict[str, Any] = {"embedding_dim": 6}
    sizes |= {"hidden_dim": 8} if build is MLGCNNetwork else {"feature_dim": 16, "attention_dim": 8}
    return build(classes, backbone, **{"graph": torch.eye(classes), **sizes, **options})


NETWORKS = [SSGRLNetwork, KGGRNetwork, MLGCNNetwork]


@pytest.mark.parametrize("build", NETWORKS)
@pytest.mark.parametrize("classes", [1, 5])
def test_training_step_in_half_precision_is_finite(build: Callable[..., ClassNetwork], classes: int) -> None:
    network = tiny(build, classes).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = network(torch.randn(3, 3, 64, 64))
    assert output.logits.dtype == torch.float32
    output.logits.square().sum().backward()
    assert bool(output.logits.isfinite().all())
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize("build", NETWORKS)
def test_half_precision_stays_near_full_precision(build: Callable[..., ClassNetwork]) -> None:
    network, images = tiny(build).eval(), torch.randn(2, 3, 64, 64)
    full = network(images).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = network(images).logits
    torch.testing.assert_close(half, full, rtol=0.05, atol=0.03)


@pytest.mark.parametrize("build", NETWORKS)
def test_labels_of_which_nothing_is_known_give_a_finite_network(build: Callable[..., ClassNetwork]) -> None:
    labels = np.zeros((3, 4), dtype=np.int8)
    make = convolution_graph if build is MLGCNNetwork else cooccurrence_graph
    graph = make(labels, encoding="signed")
    assert bool(tiny(build, graph=graph)(torch.randn(2, 3, 64, 64)).logits.isfinite().all())


@pytest.mark.parametrize("build", NETWORKS)
def test_copies_and_saved_states_give_the_same_output(build: Callable[..., ClassNetwork]) -> None:
    network, images = tiny(build).eval(), torch.randn(2, 3, 64, 64)
    other = tiny(build, graph=torch.zeros(4, 4)).eval()
    other.load_state_dict(network.state_dict())
    for twin in (copy.deepcopy(network), other):
        assert torch.equal(twin(images).logits, network(images).logits)


@pytest.mark.parametrize("build", NETWORKS)
def test_wrong_shapes_are_refused(build: Callable[..., ClassNetwork]) -> None:
    with pytest.raises(ValueError, match="graph of 4 classes"):
        tiny(build, graph=torch.eye(3))
    with pytest.raises(ValueError, match="embeddings of 4 classes"):
        tiny(build, embeddings=torch.ones(3, 5))
