"""What networks are built from, and the network that most methods share.

A further network is one function in the file of its method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from satl.errors import ConfigError
from satl.methods.method import Method
from satl.methods.method_parts import NETWORKS
from satl.methods.parameters import Parameters
from satl.models.backbone import Backbone
from satl.models.class_network import ClassNetwork
from satl.models.functional import cooccurrence_graph
from satl.models.model_config import ModelConfig
from satl.models.semantic_transfer import SemanticTransferNetwork

LabelArray = np.ndarray[Any, np.dtype[np.int8]]


@dataclass(frozen=True)
class NetworkContext:
    """What a network may need to know to be built."""

    model: ModelConfig
    method: Method
    classes: tuple[str, ...]
    labels: LabelArray | None
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
            freeze_statistics=model.freeze_statistics,
        )

    def embeddings(self) -> Tensor | None:
        """Return the given vectors ``(C, E)`` of the classes, or None where they are to be learned."""
        model = self.model
        if model.word_vectors is None and model.text_model is None:
            return None
        if self.labels is None:  # the checkpoint holds them, so neither the file nor the model is needed
            return torch.zeros(len(self.classes), model.embedding_dim)
        if model.word_vectors is not None:
            from satl.models.embeddings import load_word_vectors

            key, source = "word_vectors", str(model.word_vectors)
            vectors = load_word_vectors(model.word_vectors, self.classes, missing=model.missing_words)
        else:
            from satl.models.sentence_embeddings import embed_class_names

            key, source = "text_model", str(model.text_model)
            vectors = embed_class_names(source, self.classes)
        if vectors.shape[1] != model.embedding_dim:
            raise ConfigError(
                f"model.{key}: the vectors of {source} have {vectors.shape[1]} numbers, not "
                f"{model.embedding_dim}; set model.embedding_dim={vectors.shape[1]}."
            )
        return torch.from_numpy(vectors).float()

    def sizes(self, *names: str) -> dict[str, Any]:
        """Return those of these keys of ``model`` that have a value; the others keep the network's default."""
        return {name: value for name in names if (value := getattr(self.model, name)) is not None}

    def graph(self, make: Callable[[LabelArray], Tensor] = cooccurrence_graph) -> Tensor:
        """Return the graph ``(C, C)`` that ``make`` draws from the labels; zeros for a shell."""
        if self.labels is None:
            return torch.zeros(len(self.classes), len(self.classes))
        return make(self.labels)

    def with_prior(self, network: ClassNetwork) -> ClassNetwork:
        """Return the network, with each class at the share of positives where the configuration says so."""
        prior = self.prior()
        if prior is not None:
            network.set_prior(prior)
        return network

    def prior(self) -> Tensor | None:
        """Return what each class's probability is to start at ``(C,)``, or None where nothing is asked for.

        The share of positives among the known cells, drawn a little towards one half.
        """
        if self.labels is None or not self.model.prior_bias:
            return None
        positives, known = (self.labels > 0).sum(0), (self.labels != 0).sum(0)
        return torch.from_numpy((positives + 1.0) / (known + 2.0))


@NETWORKS.register("transfer")
def _transfer(context: NetworkContext, parameters: Parameters) -> nn.Module:
    sizes = ("feature_dim", "attention_dim", "embedding_dim", "steps", "pair_dim", "pair_hidden", "pair_head")
    network = SemanticTransferNetwork(
        num_classes=len(context.classes),
        backbone=context.backbone(),
        graph=context.graph(),
        embeddings=context.embeddings(),
        pairs=context.method.needs("pairs"),
        **context.sizes(*sizes),
    )
    return context.with_prior(network)
