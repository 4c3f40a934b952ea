"""Build networks from a configuration, and the network that most methods share.

A further network is one function in the file of its method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        """Return the given vectors ``(C, E)`` of the classes, or None where they are learned."""
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

    def build(
        self,
        kind: Callable[..., ClassNetwork],
        sizes: Sequence[str],
        graph: Callable[[LabelArray], Tensor] = cooccurrence_graph,
        **further: Any,
    ) -> ClassNetwork:
        """Build a network with the backbone, graph and embeddings of the classes.

        Args:
            kind: class of the network.
            sizes: keys of ``model`` that it takes; one without a value keeps the network's default.
            graph: makes the graph ``(C, C)`` from the labels.
            further: other arguments of the network.
        """
        num_classes = len(self.classes)
        network = kind(
            num_classes,
            backbone=self.backbone(),
            graph=torch.zeros(num_classes, num_classes) if self.labels is None else graph(self.labels),
            embeddings=self.embeddings(),
            **{name: value for name in sizes if (value := getattr(self.model, name)) is not None},
            **further,
        )
        if self.labels is not None and self.model.prior_bias:
            positives, known = (self.labels > 0).sum(0), (self.labels != 0).sum(0)
            # The share of positives among the known cells, drawn a little towards one half.
            network.set_prior(torch.from_numpy((positives + 1.0) / (known + 2.0)))
        return network


@NETWORKS.register("transfer")
def _transfer(context: NetworkContext, parameters: Parameters) -> nn.Module:
    sizes = ("feature_dim", "attention_dim", "embedding_dim", "steps", "pair_dim", "pair_hidden", "pair_head")
    return context.build(SemanticTransferNetwork, sizes, pairs=context.method.needs("pairs"))
