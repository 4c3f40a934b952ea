"""From a configuration to a learner, an augmentation and an evaluation transform."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from satl.errors import ConfigError
from satl.images import EvalTransform, TrainAugment
from satl.methods import Learner, get_method
from satl.methods.base import Method, Registry
from satl.models.backbone import Backbone
from satl.models.functional import cooccurrence_graph
from satl.models.transfer import TransferNetwork
from satl.training.config import ImagesConfig, ModelConfig, RunConfig

NETWORKS = Registry()
"""Networks by the name that methods declare."""


@NETWORKS.register("transfer")
def _transfer(
    model: ModelConfig, method: Method, classes: tuple[str, ...], graph: torch.Tensor, weights: bool
) -> TransferNetwork:
    return TransferNetwork(
        num_classes=len(classes),
        backbone=_backbone(model, weights),
        graph=graph,
        embeddings=_embeddings(model, classes),
        embedding_dim=model.embedding_dim,
        feature_dim=model.feature_dim,
        attention_dim=model.attention_dim,
        steps=model.steps,
        pair_dim=model.pair_dim,
        pair_hidden=model.pair_hidden,
        pairs=method.needs_pairs,
    )


def build_learner(
    config: RunConfig,
    classes: tuple[str, ...],
    labels: np.ndarray[Any, np.dtype[np.int8]] | None = None,
) -> Learner:
    """Build the learner of a configuration.

    Args:
        config: the run's configuration.
        classes: class names.
        labels: ``(N, C)`` training labels for the graph and the known proportion. Without them the learner
            is a shell for a checkpoint that holds both, and no pretrained weights are fetched.
    """
    method = get_method(config.method.name)
    num_classes = len(classes)
    if labels is None:
        graph, proportion = torch.zeros(num_classes, num_classes), 1.0
    else:
        graph, proportion = cooccurrence_graph(labels), float((labels != 0).mean())
    network = NETWORKS[method.network](config.model, method, classes, graph, labels is not None)
    if config.model.prior_bias and labels is not None:
        network.class_head.classifier.start_at(_prior(labels))
    return Learner(method, config.method.parameters(), network, proportion)


def _prior(labels: np.ndarray[Any, np.dtype[np.int8]]) -> torch.Tensor:
    """Share of positives among the known cells of each class ``(C,)``, drawn a little towards one half."""
    positives, known = (labels > 0).sum(0), (labels != 0).sum(0)
    return torch.from_numpy((positives + 1.0) / (known + 2.0))


def build_augment(images: ImagesConfig, source_size: int) -> TrainAugment:
    """Build the training augmentation for images that arrive with the side ``source_size``."""
    if images.crop_sizes is not None and not all(1 <= size <= source_size for size in images.crop_sizes):
        raise ConfigError(
            f"images.crop_sizes: {list(images.crop_sizes)} must lie between 1 and the images' side {source_size}."
        )
    return TrainAugment(source_size, images.size, images.crop_sizes, flip=images.flip, jitter=images.jitter)


def build_transform(images: ImagesConfig) -> EvalTransform:
    """Build the transform of validation, test and prediction."""
    return EvalTransform(images.size)


def _backbone(model: ModelConfig, weights: bool) -> Backbone:
    return Backbone(
        model.backbone,
        pretrained=weights and model.pretrained and model.weights is None,
        weights=model.weights if weights else None,
        kwargs=model.backbone_kwargs,
        pool=model.pool,
        train_stages=model.train_stages,
        stride_in_1x1=model.stride_in_1x1,
    )


def _embeddings(model: ModelConfig, classes: tuple[str, ...]) -> torch.Tensor | None:
    if model.word_vectors is None:
        return None
    from satl.models.embeddings import load_word_vectors

    return torch.from_numpy(
        load_word_vectors(model.word_vectors, classes, missing=model.missing_words)
    ).float()
