"""SSGRL: class features that exchange messages over the co-occurrence graph."""

from __future__ import annotations

from torch import Tensor, nn

from satl.models.class_network import NetworkOutput, SemanticNetwork
from satl.models.graph import GatedGraph
from satl.models.heads import ClassHead


class SSGRLNetwork(SemanticNetwork):
    """Backbone, semantic decoupling, gated graph and class head, on all channels of the backbone.

    Further arguments are those of :class:`~satl.models.class_network.SemanticNetwork`.

    Args:
        feature_dim: D, size of class features and graph states; None: the channels of the backbone. The map is
            reduced to D channels only where it has another number.
        steps: steps of propagation over the graph.
        tie_gates: let the reset gate share the state matrix of the update gate, as the published code does.

    >>> import torch
    >>> from satl.models.backbone import Backbone
    >>> tiny = Backbone("resnet18", kwargs={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)})
    >>> output = SSGRLNetwork(4, tiny, graph=torch.eye(4), attention_dim=8)(torch.randn(2, 3, 64, 64))
    >>> tuple(output.logits.shape), tuple(output.features.shape), output.pair_logits
    ((2, 4), (2, 4, 16), None)
    """

    def __init__(
        self,
        num_classes: int,
        backbone: nn.Module,
        graph: Tensor,
        embeddings: Tensor | None = None,
        feature_dim: int | None = None,
        attention_dim: int = 1024,
        steps: int = 3,
        embedding_dim: int = 300,
        tie_gates: bool = False,
    ) -> None:
        unreduced = feature_dim == int(backbone.channels)  # type: ignore[arg-type]
        super().__init__(
            num_classes,
            backbone,
            graph,
            embeddings,
            None if unreduced else feature_dim,
            attention_dim,
            embedding_dim,
        )
        self.propagation = GatedGraph(self.feature_dim, steps, tie_gates=tie_gates)
        self.class_head = ClassHead(num_classes, self.feature_dim)

    def set_prior(self, probabilities: Tensor) -> None:
        """Set the biases so that a zero feature gives these class probabilities (C,), such as the class frequencies."""
        self.class_head.classifier.set_prior(probabilities)

    def forward(self, images: Tensor, with_pairs: bool = False) -> NetworkOutput:
        """Images (B, 3, H, W) -> :class:`NetworkOutput`; there is no pair branch."""
        features = self.class_features(images)
        logits = self.class_head(self.propagation(features, self.graph), features)
        return NetworkOutput(logits, features, None)
