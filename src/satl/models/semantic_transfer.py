"""The semantic-transfer network shared by SST and HST."""

from __future__ import annotations

from torch import Tensor, nn

from satl.models.class_network import NetworkOutput, SemanticNetwork
from satl.models.graph import GatedGraph
from satl.models.heads import PAIR_HEADS, ClassHead

__all__ = ["NetworkOutput", "SemanticTransferNetwork"]


class SemanticTransferNetwork(SemanticNetwork):
    """Backbone, channel reduction, semantic decoupling, gated graph, class head and pair head.

    Further arguments are those of :class:`~satl.models.class_network.SemanticNetwork`.

    Args:
        steps: steps of propagation over the graph.
        pair_dim: size of a class feature inside the pair head.
        pair_hidden: hidden size of the pair head.
        pair_head: ``full`` as published, or ``factorised`` for many classes; see
            :class:`~satl.models.heads.FactorisedPairHead`.
        pairs: build the pair head; without it ``pair_logits`` is always None.

    >>> import torch
    >>> from satl.models.backbone import Backbone
    >>> tiny = Backbone("resnet18", kwargs={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)})
    >>> network = SemanticTransferNetwork(4, tiny, graph=torch.eye(4), feature_dim=16, attention_dim=8,
    ...                           pair_dim=8, pair_hidden=8)
    >>> output = network(torch.randn(2, 3, 64, 64), with_pairs=True)
    >>> tuple(output.logits.shape), tuple(output.features.shape), tuple(output.pair_logits.shape)
    ((2, 4), (2, 4, 16), (2, 6))
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
        pair_dim: int = 512,
        pair_hidden: int = 1024,
        pairs: bool = True,
        embedding_dim: int = 300,
        pair_head: str = "full",
    ) -> None:
        super().__init__(num_classes, backbone, graph, embeddings, feature_dim, attention_dim, embedding_dim)
        self.propagation = GatedGraph(self.feature_dim, steps)
        self.class_head = ClassHead(num_classes, self.feature_dim)
        self.pair_head = (
            PAIR_HEADS[pair_head](num_classes, self.feature_dim, pair_dim, pair_hidden) if pairs else None
        )

    def set_prior(self, probabilities: Tensor) -> None:
        """Set the biases so that a zero feature gives these class probabilities (C,), such as the class frequencies."""
        self.class_head.classifier.set_prior(probabilities)

    def forward(self, images: Tensor, with_pairs: bool = False) -> NetworkOutput:
        """Images (B, 3, H, W) -> :class:`NetworkOutput`; pair logits only where ``with_pairs``."""
        features = self.class_features(images)
        logits = self.class_head(self.propagation(features, self.graph), features)
        pair_logits = self.pair_head(features) if with_pairs and self.pair_head is not None else None
        return NetworkOutput(logits, features, pair_logits)
