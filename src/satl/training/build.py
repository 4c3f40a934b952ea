"""From a configuration to a learner, an augmentation and an evaluation transform."""

from __future__ import annotations

from typing import Any

import numpy as np

from satl.errors import ConfigError
from satl.images import EvalTransform, TrainAugment
from satl.methods import Learner
from satl.methods.base import NETWORKS
from satl.methods.networks import NetworkSetting
from satl.training.config import ImagesConfig, RunConfig


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
    method, parameters = config.method.declared(), config.method.parameters()
    network = NETWORKS[method.network](NetworkSetting(config.model, method, parameters, classes, labels))
    proportion = 1.0 if labels is None else float((labels != 0).mean())
    return Learner(method, parameters, network, proportion)


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
