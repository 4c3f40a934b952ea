"""Start the layer that reduces the channels of a backbone from principal components of its own features.

That layer is published with random weights: what the backbone knows is scrambled, and a short training ends before it
is put together again. Principal components keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from satl.distributed import of_first_process, sum_across
from satl.errors import RunError
from satl.features.feature_statistics import LEAST_VARIANCE, components_of
from satl.images import Batches
from satl.images.batches import epoch_order
from satl.models.class_network import SemanticNetwork
from satl.training.build import Transform

IntArray = np.ndarray[Any, np.dtype[np.int64]]

MOST_IMAGES = 2_000
"""Images that principal components are computed from, at most: with 25 to 49 places each they are 50,000 vectors."""


class MapMoments(NamedTuple):
    """Mean and covariance of the vectors at all places of feature maps."""

    mean: Tensor
    """(E,)."""
    covariance: Tensor
    """(E, E)."""


def images_to_begin_with(rows: IntArray) -> IntArray:
    """Return the rows of at most :data:`MOST_IMAGES` images, ascending, always the same of the same rows."""
    return rows if len(rows) <= MOST_IMAGES else np.sort(rows[epoch_order(len(rows), 0, 0)[:MOST_IMAGES]])


@torch.no_grad()
def map_moments(
    backbone: nn.Module,
    batches: Batches,
    transform: Transform,
    device: torch.device,
    half: torch.dtype | None = None,
) -> MapMoments:
    """Return the moments of a backbone's maps over the images of ``batches``, unaugmented and in eval mode.

    With several processes each computes its share, and all get those of all images.
    """
    channels = int(backbone.channels)  # type: ignore[arg-type]
    wide = torch.float32 if device.type == "mps" else torch.float64  # which Apple's devices lack
    count = torch.zeros((), dtype=wide, device=device)
    total = torch.zeros(channels, dtype=wide, device=device)
    products = torch.zeros(channels, channels, dtype=wide, device=device)
    was_training = backbone.training
    backbone.eval()
    try:
        for batch in batches.epoch(0):
            if len(batch.indices) == 0:
                continue
            pixels = transform(batch.images.to(device, non_blocking=True))
            with torch.autocast(device.type, half, enabled=half is not None):
                maps = backbone(pixels)
            vectors = maps.to(wide).movedim(1, -1).flatten(0, -2)
            count += len(vectors)
            total += vectors.sum(0)
            products += vectors.T @ vectors
    finally:
        backbone.train(was_training)
    count, total, products = sum_across(count), sum_across(total), sum_across(products)
    mean = total / count
    return MapMoments(mean, products / count - torch.outer(mean, mean))


def give_components(network: nn.Module, moments: MapMoments) -> None:
    """Give a network's reduction, if it has one, the principal components that something varies along.

    Raises:
        RunError: the moments are not finite.
    """
    if not _has_reduction(network):
        return
    # By the processor, since not every device has double precision.
    mean, covariance = (values.cpu().double() for values in moments)
    if not (mean.isfinite().all() and covariance.isfinite().all()):
        raise RunError(
            "the backbone makes numbers of the training images that are not finite, which have no principal components",
            where="model.reduction",
            remedy="use other weights, or a training.precision other than fp16 if it is that",
        )
    # Those of the first process: machines round differently, and components that vary alike then turn.
    components, variances = (
        of_first_process(torch.from_numpy(values.copy()).to(moments.mean.dtype).to(moments.mean.device)).cpu()
        for values in components_of(covariance.numpy())
    )
    useful = variances > LEAST_VARIANCE * variances[0]
    network.start_reduction(mean, components[useful], variances)  # type: ignore[operator]


def start_from_components(
    networks: Sequence[nn.Module], batches: Batches, transform: Transform, half: torch.dtype | None
) -> None:
    """Give all these networks, which have the same weights, the components of the first one's maps.

    No image is read for networks that reduce nothing.
    """
    if not _has_reduction(networks[0]):
        return
    device = next(networks[0].parameters()).device
    moments = map_moments(networks[0].get_submodule("backbone"), batches, transform, device, half)
    for network in networks:
        give_components(network, moments)


def _has_reduction(network: nn.Module) -> bool:
    return isinstance(network, SemanticNetwork) and not isinstance(network.reduction, nn.Identity)
