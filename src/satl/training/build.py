"""From a configuration to a learner, its step, an augmentation and an evaluation transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from satl.distributed import world_size
from satl.errors import ConfigError
from satl.images import EvalTransform, TrainAugment
from satl.images.resample import by_bytes
from satl.methods import Learner
from satl.methods.method_parts import NETWORKS
from satl.methods.networks import NetworkContext
from satl.models import Backbone
from satl.runs.config import ImagesConfig, RunConfig, TrainingConfig
from satl.training.averaging import MovingAverage
from satl.training.optimisers import make_optimiser
from satl.training.step import TrainingStep
from satl.training.tally import EpochTally


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
    method, parameters = config.method.configured()
    context = NetworkContext(config.model, method, classes, labels)
    network = NETWORKS[method.network].build(context, parameters.network)
    proportion = 1.0 if labels is None else float((labels != 0).mean())
    return Learner(method, parameters, network, proportion)


def place_on_device(learner: Learner, device: torch.device, bf16: bool = False) -> Learner:
    """Move a learner to a device, its backbone in the form that is fastest there."""
    learner.to(device)
    if bf16:
        learner.use_bfloat16_memory()
    if device.type == "cuda":
        backbone = learner.network.backbone
        assert isinstance(backbone, Backbone)
        backbone.to(memory_format=torch.channels_last)
        if bf16 and torch.backends.cudnn.is_available() and torch.version.hip is None:
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
    on_gpu = next(learner.parameters()).device.type == "cuda"
    graph = config.cuda_graphs and on_gpu and world_size() == 1
    step = TrainingStep(
        learner,
        make_optimiser(learner, config, capturable=graph),
        model=None if wrap is None else wrap(learner),
        average=average,
        tally=tally,
        bf16=config.precision == "bf16",
        clip_norm=config.clip_norm,
        accumulate=config.accumulate,
        graph=graph,
    )
    if config.compile:
        step.compile()
    return step


def build_augment(
    images: ImagesConfig, source_size: int, device: torch.device, bf16: bool = False
) -> TrainAugment:
    """Build the training augmentation, on the device, for images that arrive with the side ``source_size``."""
    if images.crop_sizes is not None and not all(1 <= size <= source_size for size in images.crop_sizes):
        raise ConfigError(
            f"images.crop_sizes: {list(images.crop_sizes)} must lie between 1 and the images' side {source_size}."
        )
    return TrainAugment(
        source_size,
        images.size,
        images.crop_sizes,
        flip=images.flip,
        jitter=images.jitter,
        **_layout(device, bf16, (source_size, images.size)),
    ).to(device)


def build_transform(images: ImagesConfig, device: torch.device, bf16: bool = False) -> EvalTransform:
    """Build the transform of validation, test and prediction, on the device."""
    return EvalTransform(images.size, **_layout(device, bf16)).to(device)


def _layout(device: torch.device, bf16: bool, sizes: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return dtype and memory format of the pixels as the convolutions use them, which saves a conversion per step."""
    if device.type == "cuda":
        return {"dtype": torch.bfloat16 if bf16 else torch.float32, "channels_last": True}
    # Resized as bytes, images are in this order already.
    return {"channels_last": sizes is not None and by_bytes(device, *sizes)}
