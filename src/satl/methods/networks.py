"""The networks that methods name.

A further network is one function here, or in the file of its method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from satl.methods.base import NETWORKS, Method
from satl.models.backbone import Backbone
from satl.models.functional import cooccurrence_graph
from satl.models.transfer import TransferNetwork

if TYPE_CHECKING:
    from satl.training.config import ModelConfig


@dataclass(frozen=True)
class NetworkSetting:
    """What a network may need to know to be built."""

    model: ModelConfig
    method: Method
    parameters: Any
    """The method's own parameter model."""
    classes: tuple[str, ...]
    labels: np.ndarray[Any, np.dtype[np.int8]] | None
    """``(N, C)`` training labels. None: a shell for a checkpoint that holds all weights, so none are fetched."""

    def backbone(self) -> Backbone:
        """Build the backbone of the configuration."""
        model, fetch = self.model, self.labels is not None
        return Backbone(
            model.backbone,
            pretrained=fetch and model.pretrained and model.weights is None,
            weights=model.weights if fetch else None,
            kwargs=model.backbone_kwargs,
            pool=model.pool,
            train_stages=model.train_stages,
            stride_in_1x1=model.stride_in_1x1,
        )

    def embeddings(self) -> Tensor | None:
        """Return the word vectors ``(C, E)`` of the classes, or None where they are to be learned."""
        if self.model.word_vectors is None:
            return None
        from satl.models.embeddings import load_word_vectors

        vectors = load_word_vectors(self.model.word_vectors, self.classes, missing=self.model.missing_words)
        return torch.from_numpy(vectors).float()

    def graph(self) -> Tensor:
        """Return the co-occurrence graph ``(C, C)`` of the known positives; zeros for a shell."""
        if self.labels is None:
            return torch.zeros(len(self.classes), len(self.classes))
        return cooccurrence_graph(self.labels)

    def prior(self) -> Tensor | None:
        """Return what each class's probability is to start at ``(C,)``, or None where nothing is asked for.

        The share of positives among the known cells, drawn a little towards one half.
        """
        if self.labels is None or not self.model.prior_bias:
            return None
        positives, known = (self.labels > 0).sum(0), (self.labels != 0).sum(0)
        return torch.from_numpy((positives + 1.0) / (known + 2.0))


@NETWORKS.register("transfer")
def _transfer(setting: NetworkSetting) -> nn.Module:
    model = setting.model
    network = TransferNetwork(
        num_classes=len(setting.classes),
        backbone=setting.backbone(),
        graph=setting.graph(),
        embeddings=setting.embeddings(),
        embedding_dim=model.embedding_dim,
        feature_dim=model.feature_dim,
        attention_dim=model.attention_dim,
        steps=model.steps,
        pair_dim=model.pair_dim,
        pair_hidden=model.pair_hidden,
        pairs=setting.method.needs("pairs"),
    )
    prior = setting.prior()
    if prior is not None:
        network.class_head.classifier.start_at(prior)
    return network
