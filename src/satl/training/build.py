"""From a configuration to a learner, its step, an augmentation and an evaluation transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from satl.distributed import world_size
from satl.errors import Argument, ConfigError
from satl.features import FeatureTable
from satl.features.feature_statistics import mean_and_deviation, principal_components
from satl.features.feature_views import MeanView, RandomView
from satl.images import EvalTransform, TrainAugment
from satl.images.images_config import ImagesConfig
from satl.images.resample import by_bytes
from satl.methods import FeatureVectors, Learner
from satl.methods.method_parts import NETWORKS
from satl.methods.networks import NetworkContext
from satl.models import Backbone
from satl.runs.config import RunConfig
from satl.runs.data import RunData
from satl.runs.settling import settled
from satl.runs.training_config import TrainingConfig
from satl.training.averaging import MovingAverage
from satl.training.optimisers import make_optimiser
from satl.training.step import TrainingStep
from satl.training.tally import EpochTally


def build_learner(
    config: RunConfig,
    classes: tuple[str, ...],
    labels: np.ndarray[Any, np.dtype[np.int8]] | None = None,
    features: FeatureVectors | None = None,
) -> Learner:
    """Build the learner of a configuration.

    Args:
        config: the run's configuration.
        classes: class names.
        labels: ``(N, C)`` training labels for the graph and the known shares. Without them the learner
            is a shell for a checkpoint that holds both, and no pretrained weights are fetched.
        features: for a run on features, the vectors that come in.
    """
    config = settled(config)
    method, parameters = config.method.configured()
    context = NetworkContext(config.model, method, classes, labels, features)
    network = NETWORKS[method.network].build(context, parameters.network)
    backbone = getattr(network, "backbone", None)
    if labels is not None and isinstance(backbone, Backbone):
        backbone.require_size(config.images.input.size)
    if labels is None:
        return Learner(method, parameters, network, proportion=1.0)
    known, positives = int(np.count_nonzero(labels)), int(np.count_nonzero(labels > 0))
    return Learner(
        method,
        parameters,
        network,
        float((labels != 0).mean()),
        positives / max(known, 1),
        known / max(len(classes), 1),
    )


def feature_vectors(config: RunConfig, data: RunData) -> FeatureVectors | None:
    """Return the vectors that come in, with their statistics over the training images; None for a run on images."""
    if not isinstance(data.source, FeatureTable):
        return None
    unit_length = config.features.unit_length
    if not config.features.standardise:
        return FeatureVectors(data.source.dim, unit_length=unit_length)
    rows, kept = data.rows("train"), config.features.kept_components(data.source.dim)
    mean, deviation = mean_and_deviation(data.source, rows, unit_length)
    if not kept:
        return FeatureVectors(
            data.source.dim, torch.from_numpy(mean), torch.from_numpy(deviation), unit_length
        )
    components, spread = principal_components(data.source, rows, mean, kept, unit_length)
    return FeatureVectors(
        data.source.dim,
        torch.from_numpy(mean),
        torch.full((kept,), spread),
        unit_length,
        torch.from_numpy(components),
    )


def feature_shell(config: RunConfig, dim: int) -> FeatureVectors:
    """Return the vectors of ``dim`` numbers of a run whose checkpoint knows all that was learned from them."""
    kept = config.features.kept_components(dim)
    components = torch.zeros(kept, dim) if kept else None
    return FeatureVectors(dim, unit_length=config.features.unit_length, components=components)


def half_type(precision: str) -> torch.dtype | None:
    """Return what ``training.precision`` computes in where that is safe; None for float32.

    >>> half_type("bf16"), half_type("fp32")
    (torch.bfloat16, None)
    """
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)


def place_on_device(learner: Learner, device: torch.device, half: torch.dtype | None = None) -> Learner:
    """Move a learner to a device, its backbone in the form that is fastest there."""
    learner.to(device)
    if half is torch.bfloat16:
        learner.use_bfloat16_memory()
    if device.type == "cuda":
        backbone = learner.network.backbone
        if not isinstance(backbone, Backbone):
            return learner  # features come in: there are no convolutions
        backbone.to(memory_format=torch.channels_last)
        if half is torch.bfloat16 and torch.backends.cudnn.is_available() and torch.version.hip is None:
            backbone.fold_frozen()
    return learner


def build_step(
    config: TrainingConfig,
    learner: Learner,
    *,
    average: MovingAverage | None = None,
    tally: EpochTally | None = None,
    wrap: Callable[[nn.Module], nn.Module] | None = None,
) -> TrainingStep:
    """Build the step of a configuration, with its optimiser, for a learner that is on its device already.

    Args:
        config: optimiser, precision, and whether to compile and to replay.
        learner: the method put together.
        average: an average of its weights.
        tally: sums of the epoch.
        wrap: what several processes put around the learner.
    """
    device = next(learner.parameters()).device
    if config.precision == "fp16" and device.type not in ("cuda", "cpu"):
        raise ConfigError(
            f"gradients cannot be scaled on {device.type}",
            where=Argument("training.precision", "fp16"),
            remedy="use bf16 or fp32",
        )
    on_gpu = device.type == "cuda"
    graph = config.cuda_graphs and on_gpu and world_size() == 1
    step = TrainingStep(
        learner,
        make_optimiser(learner, config, capturable=graph),
        model=None if wrap is None else wrap(learner),
        average=average,
        tally=tally,
        half=half_type(config.precision),
        clip_norm=config.clip_norm,
        accumulate=config.accumulate,
        graph=graph,
    )
    if config.compile:
        # What was compiled for an earlier training of this process fits no other one, and would count towards the limit
        # of versions of a function: after four trainings the next one failed.
        torch.compiler.reset()
        step.compile()
    return step


Augment = TrainAugment | RandomView
"""From a batch as its source gives it to what the network sees in training."""
Transform = EvalTransform | MeanView
"""The same for validation, test and prediction."""


def augment_of(
    config: RunConfig, data: RunData, device: torch.device, half: torch.dtype | None = None
) -> Augment:
    """Build the training augmentation of a run, on the device."""
    if isinstance(data.source, FeatureTable):
        return RandomView()
    return build_augment(config.images, data.source.size, device, half)


def transform_of(config: RunConfig, device: torch.device, half: torch.dtype | None = None) -> Transform:
    """Build the transform of validation, test and prediction of a run, on the device."""
    return MeanView() if config.on_features else build_transform(config.images, device, half)


def build_augment(
    images: ImagesConfig, source_size: int, device: torch.device, half: torch.dtype | None = None
) -> TrainAugment:
    """Build the training augmentation, on the device, for images that arrive with the side ``source_size``."""
    if images.crop_sizes is not None and not all(1 <= size <= source_size for size in images.crop_sizes):
        raise ConfigError(
            f"images.crop_sizes: {list(images.crop_sizes)} must lie between 1 and the images' side {source_size}."
        )
    taken = images.input
    return TrainAugment(
        source_size,
        taken.size,
        images.crop_sizes,
        flip=images.flip,
        mean=taken.mean,
        std=taken.std,
        interpolation=taken.interpolation,
        jitter=images.jitter,
        **_layout(device, half, (source_size, taken.size)),
    ).to(device)


def build_transform(
    images: ImagesConfig, device: torch.device, half: torch.dtype | None = None
) -> EvalTransform:
    """Build the transform of validation, test and prediction, on the device."""
    taken = images.input
    return EvalTransform(
        taken.size,
        mean=taken.mean,
        std=taken.std,
        interpolation=taken.interpolation,
        **_layout(device, half),
    ).to(device)


def _layout(
    device: torch.device, half: torch.dtype | None, sizes: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Return dtype and memory format of the pixels as the convolutions use them, which saves a conversion per step."""
    if device.type == "cuda":
        return {"dtype": half or torch.float32, "channels_last": True}
    # Resized as bytes, images are in this order already.
    return {"channels_last": sizes is not None and by_bytes(device, *sizes)}
