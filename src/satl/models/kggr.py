"""KGGR: class features and class weights, both propagated over the co-occurrence graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from satl.models.class_network import NetworkOutput, SemanticNetwork
from satl.models.functional import no_autocast
from satl.models.graph import GatedGraph
from satl.models.heads import ElementWiseLinear


class WeightPropagationHead(nn.Module):
    """Logits (B, C) of class outputs (B, C, D), by weights that the classes have exchanged over their graph.

    W0 are the classes' own weights, H^0 = W0 the states of a gated graph network with parameters of its own,
    W* = M [H^T ; W0] + b, and the logit is W*_c . o_c + b_c.

    >>> head = WeightPropagationHead(3, 8)
    >>> head(torch.randn(2, 3, 8), torch.eye(3)).shape, head.weights(torch.eye(3)).shape
    (torch.Size([2, 3]), torch.Size([3, 8]))
    """

    def __init__(self, num_classes: int, dim: int, steps: int = 3, zero_gates: bool = False) -> None:
        super().__init__()
        self.classifier = ElementWiseLinear(num_classes, dim)
        self.propagation = GatedGraph(dim, steps, zero_gates=zero_gates)
        self.output = nn.Linear(2 * dim, dim)

    def weights(self, graph: Tensor) -> Tensor:
        """Graph (C, C) -> the weights W* of all classes (C, D).

        They are the same for all images, so full precision costs nothing and spares them a common error.
        """
        own = self.classifier.weight
        with no_autocast(own):
            weights: Tensor = self.output(torch.cat([self.propagation(own, graph), own], dim=-1))
        return weights

    def forward(self, outputs: Tensor, graph: Tensor) -> Tensor:
        """Outputs (B, C, D), graph (C, C) -> logits (B, C)."""
        return (outputs * self.weights(graph)).sum(-1) + self.classifier.bias


class KGGRNetwork(SemanticNetwork):
    """Backbone, channel reduction, semantic decoupling, and two gated graphs: of features and of weights.

    Further arguments are those of :class:`~satl.models.class_network.SemanticNetwork`.

    Args:
        steps: steps of propagation over the graph, of features and of weights.
        zero_gates: start the graph of the weights at zero, so that weights are first only scaled.

    >>> from satl.models.backbone import Backbone
    >>> tiny = Backbone("resnet18", kwargs={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)})
    >>> network = KGGRNetwork(4, tiny, graph=torch.eye(4), feature_dim=12, attention_dim=8)
    >>> output = network(torch.randn(2, 3, 64, 64))
    >>> tuple(output.logits.shape), tuple(output.features.shape), output.pair_logits
    ((2, 4), (2, 4, 12), None)
    """

    def __init__(
        self,
        num_classes: int,
        backbone: nn.Module,
        graph: Tensor,
        embeddings: Tensor | None = None,
        feature_dim: int | None = 1024,
        attention_dim: int = 512,
        steps: int = 3,
        embedding_dim: int = 300,
        zero_gates: bool = False,
    ) -> None:
        super().__init__(num_classes, backbone, graph, embeddings, feature_dim, attention_dim, embedding_dim)
        dim = self.feature_dim
        self.propagation = GatedGraph(dim, steps)
        self.output = nn.Linear(2 * dim, dim)
        self.weight_head = WeightPropagationHead(num_classes, dim, steps, zero_gates)

    def set_prior(self, probabilities: Tensor) -> None:
        """Set the biases so that a zero feature gives these class probabilities (C,), such as the class frequencies."""
        self.weight_head.classifier.set_prior(probabilities)

    def forward(self, images: Tensor, with_pairs: bool = False) -> NetworkOutput:
        """Images (B, 3, H, W) -> :class:`NetworkOutput`; there is no pair branch."""
        features = self.class_features(images)
        states = self.propagation(features, self.graph)
        joined = torch.cat([states, features.to(states.dtype)], dim=-1)
        logits = self.weight_head(torch.tanh(self.output(joined)), self.graph)
        return NetworkOutput(logits, features, None)
