"""Class features of known positives, computed before an epoch for the generators that need them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from satl.distributed import sum_across
from satl.images import Batches
from satl.images.batches import epoch_order
from satl.scoring import Survey
from satl.training.build import Transform

IntArray = np.ndarray[Any, np.dtype[np.int64]]


class SurveyPlan(NamedTuple):
    """Which cells a survey looks at and where their features go; one entry a cell, in the order of the rows."""

    rows: IntArray
    """``(S,)`` row of the table, ascending."""
    classes: IntArray
    """``(S,)``."""
    slots: IntArray
    """``(S,)`` place among the features of the class."""


def plan_survey(
    cells: np.ndarray[Any, np.dtype[np.int8]], rows: IntArray, size: int, seed: int, epoch: int
) -> SurveyPlan:
    """Choose at most ``size`` known positives of each class at random.

    The choice depends on labels, seed and epoch alone. It costs memory for the known positives, not for all cells.

    Args:
        cells: ``(N, C)`` labels of the training images.
        rows: ``(N,)`` their rows in the table, ascending.
        size: known positives per class, at most.
        seed: seed of the run.
        epoch: epoch of the run.

    >>> plan = plan_survey(np.array([[1, 0], [1, -1], [1, 1]], dtype=np.int8), np.array([4, 5, 7]), 2, 0, 0)
    >>> len(plan.rows), plan.classes.tolist().count(0), plan.rows[plan.classes == 1].tolist()
    (3, 2, [7])
    """
    image, label = np.nonzero(cells > 0)
    rank = np.empty(len(rows), dtype=np.int64)
    rank[epoch_order(len(rows), seed, epoch)] = np.arange(len(rows))
    by_class = np.lexsort((rank[image], label))
    first = np.searchsorted(label[by_class], np.arange(cells.shape[1]))
    slot = np.empty(len(image), dtype=np.int64)
    slot[by_class] = np.arange(len(image)) - first[label[by_class]]
    kept = slot < size
    return SurveyPlan(rows[image[kept]], label[kept], slot[kept])


@torch.no_grad()
def take_survey(
    network: nn.Module,
    plan: SurveyPlan,
    batches: Batches,
    transform: Transform,
    device: torch.device,
    half: torch.dtype | None = None,
) -> Survey:
    """Compute the class features of a plan, unaugmented and in eval mode; nothing else of the network is run.

    With several processes each handles its share of the images, and all get the whole.

    Args:
        network: needs ``class_features``, ``num_classes`` and ``feature_dim``.
        plan: from :func:`plan_survey`.
        batches: the images of ``np.unique(plan.rows)``, in that order.
        transform: of the images.
        device: where the network is.
        half: what the network computes in where that is safe; None: float32.
    """
    num_classes, dim = int(network.num_classes), int(network.feature_dim)  # type: ignore[arg-type]
    slots = int(plan.slots.max()) + 1 if len(plan.slots) else 0
    features = torch.zeros(num_classes * slots, dim, device=device)
    images = np.full((num_classes, slots), -1, dtype=np.int64)
    images[plan.classes, plan.slots] = plan.rows
    was_training = network.training
    network.eval()
    try:
        for batch in batches.epoch(0):
            if len(batch.indices) == 0:
                continue
            rows = batch.indices.numpy()
            entries = slice(
                np.searchsorted(plan.rows, rows[0]), np.searchsorted(plan.rows, rows[-1], side="right")
            )
            classes = plan.classes[entries]
            position = torch.from_numpy(np.searchsorted(rows, plan.rows[entries]) * num_classes + classes)
            place = torch.from_numpy(classes * slots + plan.slots[entries])
            pixels = transform(batch.images.to(device, non_blocking=True))
            with torch.autocast(device.type, half, enabled=half is not None):
                found = network.class_features(pixels)  # type: ignore[operator]
            chosen = found.flatten(0, 1).index_select(0, position.to(device))
            features.index_copy_(0, place.to(device), chosen.float())
    finally:
        network.train(was_training)
    # Every slot is filled by one process and zero in the others.
    features = sum_across(features)
    return Survey(features.view(num_classes, slots, dim), torch.from_numpy(images).to(device))
