"""The semantic-transfer network shared by SST and HST."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from satl.models.decoupling import SemanticDecoupling
from satl.models.graph import GatedGraph
from satl.models.heads import ClassHead, PairHead


class NetworkOutput(NamedTuple):
    """What the network says about a batch."""

    logits: Tensor
    """(B, C): logit of every class."""
    features: Tensor
    """(B, C, D): feature of every class, before propagation over the graph."""
    pair_logits: Tensor | None
    """(B, Q): logit of the co-occurrence of every pair i < j; None where it was not asked for."""


class TransferNetwork(nn.Module):
    """Backbone, channel reduction, semantic decoupling, gated graph, class head and pair head.

    Args:
        num_classes: C.
        backbone: gives feature maps (B, ``backbone.channels``, h, w); normally a
            :class:`~satl.models.backbone.Backbone`.
        graph: (C, C) co-occurrence graph, not trained; see
            :func:`~satl.models.functional.cooccurrence_graph`.
        embeddings: (C, E) word vectors, not trained; None: learned vectors of ``embedding_dim``.
        feature_dim: D, channels after the reduction, and size of class features and graph states.
        attention_dim: size of the attention space.
        steps: steps of propagation over the graph.
        pair_dim: size of a class feature inside the pair head.
        pair_hidden: hidden size of the pair head.
        pairs: build the pair head; without it ``pair_logits`` is always None.
        embedding_dim: size of learned class embeddings.

    >>> from satl.models.backbone import Backbone
    >>> tiny = Backbone("resnet18", kwargs={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)})
    >>> network = TransferNetwork(4, tiny, graph=torch.eye(4), feature_dim=16, attention_dim=8,
    ...                           pair_dim=8, pair_hidden=8)
    >>> output = network(torch.randn(2, 3, 64, 64), with_pairs=True)
    >>> tuple(output.logits.shape), tuple(output.features.shape), tuple(output.pair_logits.shape)
    ((2, 4), (2, 4, 16), (2, 6))
    """

    embeddings: Tensor
    graph: Tensor

    def __init__(
        self,
        num_classes: int,
        backbone: nn.Module,
        graph: Tensor,
        embeddings: Tensor | None = None,
        feature_dim: int = 1024,
        attention_dim: int = 512,
        steps: int = 3,
        pair_dim: int = 512,
        pair_hidden: int = 1024,
        pairs: bool = True,
        embedding_dim: int = 300,
    ) -> None:
        super().__init__()
        if graph.shape != (num_classes, num_classes):
            raise ValueError(f"the graph of {num_classes} classes has the shape {tuple(graph.shape)}")
        self.num_classes = num_classes
        self.feature_dim = feature_dim
        self.backbone = backbone
        channels = int(backbone.channels)  # type: ignore[arg-type]
        self.reduction = nn.Sequential(
            nn.Conv2d(channels, feature_dim, kernel_size=1, bias=False), nn.BatchNorm2d(feature_dim)
        )
        self.register_buffer("graph", graph.detach().clone().float())
        if embeddings is None:
            # The norm of a GloVe vector is about 6: a learned one starts at the same scale.
            self.embeddings = nn.Parameter(torch.randn(num_classes, embedding_dim) * 6 / embedding_dim**0.5)
        else:
            if embeddings.ndim != 2 or embeddings.shape[0] != num_classes:
                raise ValueError(
                    f"the embeddings of {num_classes} classes have the shape {tuple(embeddings.shape)}"
                )
            self.register_buffer("embeddings", embeddings.detach().clone().float())
        self.decoupling = SemanticDecoupling(feature_dim, self.embeddings.shape[1], attention_dim)
        self.propagation = GatedGraph(feature_dim, steps)
        self.class_head = ClassHead(num_classes, feature_dim)
        self.pair_head = PairHead(num_classes, feature_dim, pair_dim, pair_hidden) if pairs else None

    @property
    def num_pairs(self) -> int:
        """Q, the number of pairs i < j."""
        return self.num_classes * (self.num_classes - 1) // 2

    def class_features(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> class features (B, C, D), without graph and heads."""
        features: Tensor = self.decoupling(self.reduction(self.backbone(images)), self.embeddings)
        return features

    def forward(self, images: Tensor, with_pairs: bool = False) -> NetworkOutput:
        """Images (B, 3, H, W) -> :class:`NetworkOutput`; pair logits only where ``with_pairs``."""
        features = self.class_features(images)
        logits = self.class_head(self.propagation(features, self.graph), features)
        pair_logits = self.pair_head(features) if with_pairs and self.pair_head is not None else None
        return NetworkOutput(logits, features, pair_logits)
