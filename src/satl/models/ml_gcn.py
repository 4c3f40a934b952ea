"""ML-GCN: one feature per image, and classifiers made from word vectors by graph convolutions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from satl.models.class_network import ClassNetwork, NetworkOutput
from satl.models.functional import full_precision, no_autocast


class GraphConvolution(nn.Module):
    """One layer: nodes (C, D), graph (C, C) -> graph @ nodes @ W (C, E), without bias.

    >>> GraphConvolution(8, 4)(torch.randn(5, 8), torch.eye(5)).shape
    torch.Size([5, 4])
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(outputs)
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))

    def forward(self, nodes: Tensor, graph: Tensor) -> Tensor:
        """Nodes (C, D), graph (C, C) -> (C, E)."""
        return graph @ (nodes @ self.weight)


class MLGCNNetwork(ClassNetwork):
    """The largest value of every channel over the map, and a linear classifier that a graph network writes.

    H = leaky_relu(A X W1), W = A H W2, logit_c = W_c . x, with A the normalised graph, X the class embeddings,
    x the pooled image. The feature of an image is the feature of each of its classes: D is the number of
    channels.

    Args:
        num_classes, backbone: as in :class:`~satl.models.class_network.ClassNetwork`; the published backbone has
            ``pool=1``.
        graph: (C, C) normalised graph, not trained; see :func:`~satl.models.graph.convolution_graph`.
        embeddings: (C, E) word vectors, not trained; None: learned vectors of ``embedding_dim``.
        hidden_dim: size of a class between the two graph convolutions.
        embedding_dim: size of learned class embeddings.
        bias: add a bias of its own to the logit of every class; the published network has none.

    >>> from satl.models.backbone import Backbone
    >>> tiny = Backbone("resnet18", kwargs={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}, pool=1)
    >>> output = MLGCNNetwork(4, tiny, graph=torch.eye(4), hidden_dim=8)(torch.randn(2, 3, 64, 64))
    >>> tuple(output.logits.shape), tuple(output.features.shape), output.pair_logits
    ((2, 4), (2, 4, 16), None)
    """

    def __init__(
        self,
        num_classes: int,
        backbone: nn.Module,
        graph: Tensor,
        embeddings: Tensor | None = None,
        hidden_dim: int = 1024,
        embedding_dim: int = 300,
        bias: bool = False,
    ) -> None:
        super().__init__(num_classes, backbone, graph)
        self.feature_dim = self.channels
        self.set_embeddings(embeddings, embedding_dim)
        self.first = GraphConvolution(self.embeddings.shape[1], hidden_dim)
        self.second = GraphConvolution(hidden_dim, self.channels)
        self.bias = nn.Parameter(torch.zeros(num_classes)) if bias else None

    @torch.no_grad()
    def set_prior(self, probabilities: Tensor) -> None:
        """Set the biases so that a zero feature gives these class probabilities (C,), such as the class frequencies."""
        if self.bias is None:
            raise ValueError("a network without biases cannot start at given probabilities")
        self.bias.copy_(torch.logit(probabilities))

    def image_features(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> the largest value of every channel (B, D)."""
        return self.backbone(images).flatten(2).max(-1).values

    def class_features(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> (B, C, D), for every class the feature of the image; a view."""
        return self._for_every_class(self.image_features(images))

    def weights(self) -> Tensor:
        """The classifiers of all classes (C, D)."""
        hidden = F.leaky_relu(self.first(self.embeddings, self.graph), 0.2)
        weights: Tensor = self.second(hidden, self.graph)
        return weights

    def forward(self, images: Tensor, with_pairs: bool = False) -> NetworkOutput:
        """Images (B, 3, H, W) -> :class:`NetworkOutput`; there is no pair branch."""
        features = self.image_features(images)
        # Little work, and half precision would round the logits: both layers and the product keep theirs.
        with no_autocast(features):
            logits = F.linear(full_precision(features), self.weights(), self.bias)
        return NetworkOutput(logits, self._for_every_class(features), None)

    def _for_every_class(self, features: Tensor) -> Tensor:
        return features[:, None, :].expand(-1, self.num_classes, -1)
