"""Base classes of the networks: a backbone, a graph and embeddings of the classes, a feature vector per class."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from satl.errors import ArrayError
from satl.models.decoupling import SemanticDecoupling
from satl.models.embeddings import VECTOR_NORM


class NetworkOutput(NamedTuple):
    """Output of a network for a batch."""

    logits: Tensor
    """(B, C): logit of every class."""
    features: Tensor
    """(B, C, D): feature of every class, before propagation over the graph."""
    pair_logits: Tensor | None
    """(B, Q): logit of the co-occurrence of every pair i < j; None unless it was requested."""


class ClassNetwork(nn.Module):
    """A backbone with the graph and the embeddings of the classes.

    Args:
        num_classes: C.
        backbone: gives feature maps (B, ``backbone.channels``, h, w); normally a
            :class:`~satl.models.backbone.Backbone`.
        graph: (C, C), not trained.
    """

    embeddings: Tensor
    graph: Tensor
    feature_dim: int
    """D, the size of the class features in :class:`NetworkOutput`."""

    def __init__(self, num_classes: int, backbone: nn.Module, graph: Tensor) -> None:
        super().__init__()
        if graph.shape != (num_classes, num_classes):
            raise ArrayError(f"the graph of {num_classes} classes has the shape {tuple(graph.shape)}.")
        self.num_classes = num_classes
        self.backbone = backbone
        self.channels = int(backbone.channels)  # type: ignore[arg-type]
        self.register_buffer("graph", graph.detach().clone().float())

    def set_embeddings(self, embeddings: Tensor | None, embedding_dim: int) -> None:
        """Take word vectors (C, E), which are not trained, or start learned vectors (C, ``embedding_dim``)."""
        if embeddings is None:
            start = torch.randn(self.num_classes, embedding_dim) * VECTOR_NORM / embedding_dim**0.5
            self.embeddings = nn.Parameter(start)
        else:
            if embeddings.ndim != 2 or embeddings.shape[0] != self.num_classes:
                raise ArrayError(
                    f"the embeddings of {self.num_classes} classes have the shape {tuple(embeddings.shape)}."
                )
            self.register_buffer("embeddings", embeddings.detach().clone().float())

    @torch.no_grad()
    def set_prior(self, probabilities: Tensor) -> None:
        """Set the biases so that a zero feature gives these class probabilities (C,), such as the class frequencies."""
        raise NotImplementedError

    def class_features(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> class features (B, C, D), without graph and heads."""
        raise NotImplementedError

    def forward(self, images: Tensor, with_pairs: bool = False) -> NetworkOutput:
        """Images (B, 3, H, W) -> :class:`NetworkOutput`; pair logits only where ``with_pairs``."""
        raise NotImplementedError


class SemanticNetwork(ClassNetwork):
    """Backbone, channel reduction and semantic decoupling: what SST, HST, SSGRL and KGGR share.

    Args:
        num_classes, backbone: as in :class:`ClassNetwork`.
        graph: (C, C) co-occurrence graph, not trained; see
            :func:`~satl.models.functional.cooccurrence_graph`.
        embeddings: (C, E) word vectors, not trained; None: learned vectors of ``embedding_dim``.
        feature_dim: D, channels after the reduction, and size of class features and graph states; None: the
            channels of the backbone, without a reduction.
        attention_dim: size of the attention space.
        embedding_dim: size of learned class embeddings.
    """

    def __init__(
        self,
        num_classes: int,
        backbone: nn.Module,
        graph: Tensor,
        embeddings: Tensor | None = None,
        feature_dim: int | None = 1024,
        attention_dim: int = 512,
        embedding_dim: int = 300,
    ) -> None:
        super().__init__(num_classes, backbone, graph)
        self.feature_dim = self.channels if feature_dim is None else feature_dim
        self.reduction: nn.Module = nn.Identity()
        if feature_dim is not None:
            self.reduction = nn.Sequential(
                nn.Conv2d(self.channels, feature_dim, kernel_size=1, bias=False), nn.BatchNorm2d(feature_dim)
            )
        # Drawn after the reduction: the order of the draws is part of what a seed stands for.
        self.set_embeddings(embeddings, embedding_dim)
        self.decoupling = SemanticDecoupling(self.feature_dim, self.embeddings.shape[1], attention_dim)

    @torch.no_grad()
    def start_reduction(self, mean: Tensor, components: Tensor, variances: Tensor) -> None:
        """Let the reduction begin with what the backbone knows: principal components instead of random weights.

        In evaluation mode it is then a rotation to ``components`` and one factor, so that angles and, up to the factor,
        distances are those of the map, as far as the components keep them. The factor makes a number behind the
        reduction as large, in the mean square, as one before it. Outputs without a component stay random. Without a
        reduction nothing is done.

        Args:
            mean: (E,) of the map, E channels of the backbone.
            components: (K, E), orthonormal, the largest variance first; K may be above ``feature_dim``.
            variances: (E,) along all components of the map, K of which are given.
        """
        if not isinstance(self.reduction, nn.Sequential):
            return
        conv, norm = self.reduction
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, _BatchNorm)  # that of several processes, too
        assert norm.running_mean is not None
        assert norm.running_var is not None
        count = min(self.feature_dim, len(components))
        components, kept = components[:count].double(), variances[:count].double()
        centre = components @ mean.double()
        square = (variances.double().sum() + mean.double().square().sum()) / self.channels
        factor = (square / ((kept.sum() + centre.square().sum()) / count)).sqrt()
        for target, value in (
            (conv.weight, components[:, :, None, None]),
            (norm.running_mean, centre),
            (norm.running_var, kept),
            (norm.weight, factor * (kept + norm.eps).sqrt()),
            (norm.bias, factor * centre),
        ):
            target[:count].copy_(value)

    def class_features(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> class features (B, C, D), without graph and heads."""
        features: Tensor = self.decoupling(self.reduction(self.backbone(images)), self.embeddings)
        return features
