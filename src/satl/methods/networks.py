"""Build networks from a configuration, and the network that most methods share.

A further network is one function in the file of its method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from satl.errors import ConfigError
from satl.methods.method import Method
from satl.methods.method_parts import NETWORKS
from satl.methods.parameters import Parameters
from satl.models.backbone import Backbone
from satl.models.class_network import ClassNetwork
from satl.models.feature_input import FeatureInput
from satl.models.functional import cooccurrence_graph
from satl.models.model_config import TEXT_KEYS, ModelConfig
from satl.models.semantic_transfer import SemanticTransferNetwork
from satl.models.vector_network import VectorNetwork

LabelArray = np.ndarray[Any, np.dtype[np.int8]]


class FeatureVectors(NamedTuple):
    """The vectors that come in where a run has features instead of images."""

    dim: int
    """Numbers in a vector."""
    mean: Tensor | None = None
    """``(D,)`` of the training vectors; None: they are not shifted, or a checkpoint knows."""
    deviation: Tensor | None = None
    """``(K,)`` of what comes out; None: it is not scaled, or a checkpoint knows."""
    unit_length: bool = False
    """Whether each vector is scaled to the length 1, before it is shifted and scaled."""
    components: Tensor | None = None
    """``(K, D)`` that the shifted vectors are projected onto; None: they are not, and K is D."""


def _known_together(labels: LabelArray) -> Tensor:
    """Return the graph of classes that are known to be present together."""
    return cooccurrence_graph(labels, encoding="signed")


@dataclass(frozen=True)
class NetworkContext:
    """What a network may need to know to be built."""

    model: ModelConfig
    method: Method
    classes: tuple[str, ...]
    labels: LabelArray | None
    """``(N, C)`` training labels. None: a shell for a checkpoint that holds all weights, so none are fetched."""
    features: FeatureVectors | None = None
    """What comes in instead of images; None: images do."""

    def backbone(self) -> Backbone | FeatureInput:
        """Build the backbone of the configuration, or what stands for it where features come in."""
        if self.features is not None:
            return FeatureInput(*self.features)
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
            final_layers=model.final_layers is not False,
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
            from satl.models.class_prompts import embed_class_names

            text = model.text_source
            assert text is not None
            key, source = "text_model", text.model
            try:
                vectors = embed_class_names(text, self.classes)
            except ConfigError as error:
                raise error.with_arguments(TEXT_KEYS) from None
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
        graph: Callable[[LabelArray], Tensor] = _known_together,
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
            **{
                name: None if value == "all" else value
                for name in sizes
                if (value := getattr(self.model, name)) is not None
            },
            **further,
        )
        self.set_prior(network)
        return network

    def set_prior(self, network: ClassNetwork | VectorNetwork) -> None:
        """Start each class at the log-odds of its known labels, where the configuration says so."""
        if self.labels is not None and self.model.prior_bias:
            positives, known = (self.labels > 0).sum(0), (self.labels != 0).sum(0)
            # The share of positives among the known cells, drawn a little towards one half.
            network.set_prior(torch.from_numpy((positives + 1.0) / (known + 2.0)))


class VectorParameters(Parameters):
    """One vector for each picture and a linear classifier for each class."""

    hidden: int = Field(0, ge=0, description="Units of a hidden layer; 0: none.")


@NETWORKS.register("vector", VectorParameters)
def _vector(context: NetworkContext, parameters: VectorParameters) -> nn.Module:
    network = VectorNetwork(len(context.classes), context.backbone(), parameters.hidden)
    context.set_prior(network)
    return network


@NETWORKS.register("transfer", needs=["map"], gives=["pairs"])
def _transfer(context: NetworkContext, parameters: Parameters) -> nn.Module:
    sizes = ("feature_dim", "attention_dim", "embedding_dim", "steps", "pair_dim", "pair_hidden", "pair_head")
    return context.build(SemanticTransferNetwork, sizes, pairs=context.method.needs("pairs"))
