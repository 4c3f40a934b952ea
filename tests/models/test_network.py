"""The folded network against the plain one, and its edges: one class, no pairs, half precision."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reference import network as reference
from satl.losses import cooccurrence_loss
from satl.models import (
    Backbone,
    ClassHead,
    ElementWiseLinear,
    FactorisedPairHead,
    GatedGraph,
    PairHead,
    SemanticDecoupling,
    SemanticTransferNetwork,
    pair_indices,
)


class FixedMap(nn.Module):
    """A backbone that answers with a given feature map."""

    def __init__(self, feature_map: Tensor) -> None:
        super().__init__()
        self.feature_map = feature_map
        self.channels = feature_map.shape[1]

    def forward(self, images: Tensor) -> Tensor:
        return self.feature_map


def tiny_network(classes: int, **options: Any) -> SemanticTransferNetwork:
    backbone = Backbone("resnet18", kwargs={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}, pool=1)
    sizes = {
        "feature_dim": 32,
        "attention_dim": 8,
        "pair_dim": 8,
        "pair_hidden": 16,
        "graph": torch.eye(classes),
    }
    return SemanticTransferNetwork(classes, backbone, **{**sizes, **options})


def weighted_sum(values: list[Tensor]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for value in values:
        total = total + (value * torch.cos(torch.arange(value.numel()).reshape(value.shape))).sum()
    return total


def assert_gradients_agree(folded: Tensor, plain: Tensor, parameters: list[Tensor]) -> None:
    ours = torch.autograd.grad(folded, parameters)
    theirs = torch.autograd.grad(plain, parameters)
    for mine, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_decoupling_equals_the_unfolded_form(classes: int) -> None:
    torch.manual_seed(classes)
    module = SemanticDecoupling(feature_dim=6, embedding_dim=5, attention_dim=4).double()
    feature_map = torch.randn(2, 6, 2, 3, dtype=torch.float64, requires_grad=True)
    embeddings = torch.randn(classes, 5, dtype=torch.float64, requires_grad=True)
    folded = module(feature_map, embeddings)
    plain = reference.decoupling(
        feature_map,
        embeddings,
        module.feature_projection.weight,
        module.class_projection.weight,
        module.hidden.weight,
        module.hidden.bias,
        module.output.weight,
        module.output.bias,
    )
    torch.testing.assert_close(folded, plain, rtol=1e-10, atol=1e-10)
    assert_gradients_agree(
        weighted_sum([folded]), weighted_sum([plain]), [feature_map, embeddings, *module.parameters()]
    )


def test_biases_that_cancel_get_a_gradient_of_exactly_zero() -> None:
    module = SemanticDecoupling(feature_dim=6, embedding_dim=5, attention_dim=4)
    module(torch.randn(2, 6, 2, 3), torch.randn(3, 5)).square().sum().backward()
    for bias in (module.hidden.bias, module.output.bias):
        assert bias.grad is not None
        assert not bias.grad.any()
    assert module.hidden.weight.grad is not None
    assert bool(module.hidden.weight.grad.any())


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_pair_head_equals_the_materialised_form(classes: int) -> None:
    torch.manual_seed(classes)
    head = PairHead(classes, feature_dim=6, pair_dim=4, pair_hidden=5).double()
    features = torch.randn(3, classes, 6, dtype=torch.float64, requires_grad=True)
    folded = head(features)
    plain = reference.pair_mlp(
        features,
        head.reduce.weight,
        head.reduce.bias,
        head.join.weight,
        head.join.bias,
        head.hidden.weight,
        head.hidden.bias,
        head.classifier.weight,
        head.classifier.bias,
    )
    assert folded.shape == (3, classes * (classes - 1) // 2)
    torch.testing.assert_close(folded, plain, rtol=1e-10, atol=1e-10)
    if classes > 1:
        assert_gradients_agree(weighted_sum([folded]), weighted_sum([plain]), [features, *head.parameters()])


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_factorised_pair_head_equals_the_loops(classes: int) -> None:
    torch.manual_seed(classes)
    head = FactorisedPairHead(classes, feature_dim=6, pair_dim=4, pair_hidden=5).double()
    with torch.no_grad():
        head.bias.normal_()
    features = torch.randn(3, classes, 6, dtype=torch.float64, requires_grad=True)
    fast = head(features)
    plain = reference.factorised_pairs(
        features,
        head.reduce.weight,
        head.reduce.bias,
        head.join.weight,
        head.join.bias,
        head.weight,
        head.bias,
    )
    assert fast.shape == (3, classes * (classes - 1) // 2)
    torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-10)
    if classes > 1:
        assert_gradients_agree(weighted_sum([fast]), weighted_sum([plain]), [features, *head.parameters()])


def test_the_factorised_head_grows_with_the_classes_not_with_the_pairs() -> None:
    def numbers(classes: int) -> tuple[int, int]:
        with torch.device("meta"):
            head = FactorisedPairHead(classes, feature_dim=1024, pair_dim=512, pair_hidden=1024)
        return head.weight.numel(), head.bias.numel()

    assert numbers(80) == (80 * 2048, 3160)
    assert numbers(1000) == (1000 * 2048, 499500)  # the full head has 499,500 x 1024 numbers


def test_factorised_pairs_learn_what_occurs_together() -> None:
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(1)
    classes, images = 6, 256
    kind = torch.rand(images, 1, generator=random) < 0.5
    present = torch.where(kind, torch.tensor([1, 1, 1, 0, 0, 0]), torch.tensor([0, 0, 0, 1, 1, 1]))
    labels = 2 * present - 1
    noise = torch.randn(images, classes, 8, generator=random)
    features = noise + 2.0 * present.unsqueeze(-1)
    head = FactorisedPairHead(classes, feature_dim=8, pair_dim=8, pair_hidden=16)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(150):
        optimiser.zero_grad()
        cooccurrence_loss(head(features), labels).backward()
        optimiser.step()
    first, second = pair_indices(classes)
    together = (labels[:, first] > 0) & (labels[:, second] > 0)
    probability = head(features).sigmoid()
    assert float(((probability > 0.5) == together).float().mean()) > 0.97


@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_gated_graph_equals_the_loops(classes: int, steps: int) -> None:
    torch.manual_seed(10 * classes + steps)
    module = GatedGraph(4, steps).double()
    states = torch.randn(2, classes, 4, dtype=torch.float64, requires_grad=True)
    graph = torch.rand(classes, classes, dtype=torch.float64)
    names = (("z", "update"), ("r", "reset"), ("h", "candidate"))
    gates = {}
    for letter, name in names:
        for matrix, source in (("W", "message"), ("U", "state")):
            layer = getattr(module, f"{name}_{source}")
            gates[matrix + letter], gates["b" + matrix + letter] = layer.weight, layer.bias
    new, plain = module(states, graph), reference.gated_graph(states, graph, gates, steps)
    torch.testing.assert_close(new, plain, rtol=1e-10, atol=1e-10)
    parameters = [states, *(module.parameters() if steps else [])]
    assert_gradients_agree(weighted_sum([new]), weighted_sum([plain]), parameters)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_whole_head_equals_the_plain_network(classes: int) -> None:
    torch.manual_seed(classes)
    feature_map = torch.randn(3, 7, 2, 2, dtype=torch.float64)
    network = SemanticTransferNetwork(
        classes,
        FixedMap(feature_map),
        graph=torch.rand(classes, classes),
        feature_dim=6,
        attention_dim=5,
        steps=2,
        pair_dim=4,
        pair_hidden=5,
        embedding_dim=3,
    ).double()
    output = network(torch.zeros(3, 3, 8, 8), with_pairs=True)
    reduced = network.reduction(feature_map)
    weights = dict(network.named_parameters())
    plain = reference.head_network(reduced, network.embeddings, network.graph, weights, steps=2)
    for ours, wanted in zip((output.logits, output.features, output.pair_logits), plain, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-10, atol=1e-10)
    used = [p for name, p in weights.items() if classes > 1 or not name.startswith("pair_head")]
    assert_gradients_agree(
        weighted_sum([o for o in output if o is not None]), weighted_sum(list(plain)), used
    )


def test_parameters_are_those_of_the_published_network() -> None:
    classes, pairs = 80, 3160
    with torch.device("meta"):
        network = SemanticTransferNetwork(
            classes,
            FixedMap(torch.empty(1, 2048, 7, 7)),
            graph=torch.empty(classes, classes),
            embeddings=torch.empty(classes, 300),
        )
    shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    assert shapes == {
        "reduction.0.weight": (1024, 2048, 1, 1),
        "reduction.1.weight": (1024,),
        "reduction.1.bias": (1024,),
        "decoupling.feature_projection.weight": (512, 1024),
        "decoupling.class_projection.weight": (512, 300),
        "decoupling.hidden.weight": (512, 512),
        "decoupling.hidden.bias": (512,),
        "decoupling.output.weight": (1, 512),
        "decoupling.output.bias": (1,),
        **{
            f"propagation.{gate}_{source}.{kind}": shape
            for gate in ("update", "reset", "candidate")
            for source, width in (("message", 2048), ("state", 1024))
            for kind, shape in (("weight", (1024, width)), ("bias", (1024,)))
        },
        "class_head.output.weight": (1024, 2048),
        "class_head.output.bias": (1024,),
        "class_head.classifier.weight": (classes, 1024),
        "class_head.classifier.bias": (classes,),
        "pair_head.reduce.weight": (512, 1024),
        "pair_head.reduce.bias": (512,),
        "pair_head.join.weight": (1024, 1024),
        "pair_head.join.bias": (1024,),
        "pair_head.hidden.weight": (1024, 1024),
        "pair_head.hidden.bias": (1024,),
        "pair_head.classifier.weight": (pairs, 1024),
        "pair_head.classifier.bias": (pairs,),
    }
    assert set(dict(network.named_buffers())) >= {"graph", "embeddings"}


def test_element_wise_layers_start_uniform() -> None:
    torch.manual_seed(0)
    layer = ElementWiseLinear(200, 64)
    for values in (layer.weight.detach(), layer.bias.detach()):
        assert float(values.abs().max()) <= 1 / 8
        assert float(values.abs().max()) > 0.95 / 8
        assert abs(float(values.mean())) < 0.02


def test_class_head_equals_the_loops() -> None:
    torch.manual_seed(0)
    head = ClassHead(4, 5).double()
    states, features = torch.randn(2, 2, 4, 5, dtype=torch.float64)
    plain = reference.class_logits(
        states,
        features,
        head.output.weight,
        head.output.bias,
        head.classifier.weight,
        head.classifier.bias,
    )
    torch.testing.assert_close(head(states, features), plain, rtol=1e-10, atol=1e-10)


def test_pair_branch_is_skipped_or_absent() -> None:
    network, images = tiny_network(4), torch.randn(2, 3, 32, 32)
    called: list[nn.Module] = []
    assert network.pair_head is not None
    network.pair_head.register_forward_hook(lambda module, *_: called.append(module))
    assert network(images).pair_logits is None
    assert not called
    with_pairs = network(images, with_pairs=True).pair_logits
    assert with_pairs is not None
    assert with_pairs.shape == (2, 6)
    assert called

    without = tiny_network(4, pairs=False)
    assert not any(name.startswith("pair_head") for name, _ in without.named_parameters())
    assert without(images, with_pairs=True).pair_logits is None


def test_embeddings_are_a_buffer_when_given_and_learned_otherwise() -> None:
    learned = tiny_network(4)
    assert isinstance(learned.embeddings, nn.Parameter)
    norm = float(learned.embeddings.detach().norm(dim=1).mean())
    assert norm == pytest.approx(6, abs=2.5)
    given = tiny_network(4, embeddings=torch.ones(4, 11))
    assert "embeddings" not in dict(given.named_parameters())
    assert given.decoupling.class_projection.weight.shape[1] == 11
    with pytest.raises(ValueError, match="embeddings of 4 classes"):
        tiny_network(4, embeddings=torch.ones(3, 11))
    with pytest.raises(ValueError, match="graph of 4 classes"):
        tiny_network(4, graph=torch.eye(3))


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_training_step_in_half_precision_is_finite(classes: int) -> None:
    torch.manual_seed(classes)
    network = tiny_network(classes).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = network(torch.randn(3, 3, 64, 64), with_pairs=True)
    assert output.logits.dtype == torch.float32
    assert output.pair_logits is not None
    assert output.pair_logits.dtype == torch.float32
    loss = output.logits.square().sum() + output.pair_logits.square().sum()
    loss = loss + output.features.float().square().sum()
    loss.backward()
    assert all(bool(torch.isfinite(value).all()) for value in output if value is not None)
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(torch.isfinite(parameter.grad).all()), name


def test_half_precision_stays_near_full_precision() -> None:
    torch.manual_seed(0)
    network, images = tiny_network(5).eval(), torch.randn(2, 3, 64, 64)
    full = network(images, with_pairs=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = network(images, with_pairs=True)
    torch.testing.assert_close(half.logits, full.logits, rtol=0.05, atol=0.02)
    torch.testing.assert_close(half.pair_logits, full.pair_logits, rtol=0.05, atol=0.02)


def test_copies_and_saved_states_give_the_same_output() -> None:
    torch.manual_seed(0)
    network, images = tiny_network(5).eval(), torch.randn(2, 3, 64, 64)
    other = tiny_network(5).eval()
    other.load_state_dict(network.state_dict())
    wanted = network(images, with_pairs=True)
    for twin in (copy.deepcopy(network), other):
        output = twin(images, with_pairs=True)
        for ours, theirs in zip(output, wanted, strict=True):
            assert torch.equal(ours, theirs)
