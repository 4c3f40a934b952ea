"""Run a network over images: class probabilities, generator scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from satl.distributed import world_size
from satl.images import Batches
from satl.images.batches import translate_worker_crash
from satl.methods import Learner
from satl.training.build import Transform

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]


@torch.no_grad()
def class_probabilities(
    network: nn.Module,
    batches: Batches,
    transform: Transform,
    device: torch.device,
    half: torch.dtype | None = None,
) -> FloatArray:
    """Return the class probability of every image of ``batches`` in its order, ``(N, C)``.

    Where the batches are shared by several processes, each handles its share, and all get the whole. Otherwise
    nothing is exchanged, so that a process may ask alone.
    """
    return _collect(
        network,
        batches,
        lambda images, indices: {"probability": network(transform(images)).logits.float().sigmoid()},
        device,
        half,
    )["probability"]


@torch.no_grad()
def pooled_features(
    backbone: nn.Module,
    batches: Batches,
    transform: Transform,
    device: torch.device,
    half: torch.dtype | None = None,
) -> FloatArray:
    """Return the mean over the last feature map of every image of ``batches`` in its order, ``(N, D)``.

    Processes share the work as in :func:`class_probabilities`.
    """
    return _collect(
        backbone,
        batches,
        lambda images, indices: {"features": backbone(transform(images)).float().mean(dim=(2, 3))},
        device,
        half,
    )["features"]


@torch.no_grad()
def cell_scores(
    learner: Learner,
    cells: Tensor,
    batches: Batches,
    transform: Transform,
    device: torch.device,
    half: torch.dtype | None = None,
) -> dict[str, FloatArray]:
    """Return ``probability`` and the scores of each generator for every cell, each ``(N, C)``, unaugmented.

    Processes share the work as in :func:`class_probabilities`.
    """
    return _collect(
        learner,
        batches,
        lambda images, indices: learner.score(transform(images), cells.index_select(0, indices), indices),
        device,
        half,
    )


def _collect(
    module: nn.Module, batches: Batches, compute: Any, device: torch.device, half: torch.dtype | None
) -> dict[str, FloatArray]:
    was_training = module.training
    module.eval()
    num = len(batches.indices)
    found: dict[str, FloatArray] = {}
    places: list[IntArray] = []
    done = 0
    kept: list[tuple[int, dict[str, Tensor]]] = []

    def keep(first: int, part: dict[str, Tensor]) -> None:
        for name, values in part.items():
            if name not in found:  # one array for all: parts and their sum would be twice the memory
                found[name] = np.empty((num, *values.shape[1:]), dtype=np.float32)
            found[name][first : first + len(values)] = values.float().cpu().numpy()

    try:
        with translate_worker_crash():
            for batch in batches.epoch(0):
                count = len(batch.indices)
                if count == 0:
                    continue
                images = batch.images.to(device, non_blocking=True)
                indices = batch.indices.to(device, non_blocking=True)
                with torch.autocast(device.type, half, enabled=half is not None):
                    part = compute(images, indices)
                if device.type == "cpu":
                    keep(done, part)
                else:  # nothing waits for the device before the last batch
                    kept.append((done, part))
                places.append(batch.indices.numpy())
                done += count
    finally:
        module.train(was_training)
    for first, part in kept:
        keep(first, part)
    # Batches that are not shared are of this process's own images, about which the others know nothing, in their order.
    if batches.world_size == 1:
        return found
    where = np.concatenate(places) if places else np.empty(0, dtype=np.int64)
    shares: list[Any] = [None] * world_size()
    dist.all_gather_object(shares, (where, {name: values[:done] for name, values in found.items()}))
    shares = [share for share in shares if len(share[0])]
    seen = np.concatenate([share[0] for share in shares])
    row_of = np.empty(int(batches.indices.max()) + 1, dtype=np.int64)
    row_of[seen] = np.arange(len(seen))
    order = row_of[batches.indices]
    return {name: np.concatenate([share[1][name] for share in shares])[order] for name in shares[0][1]}
