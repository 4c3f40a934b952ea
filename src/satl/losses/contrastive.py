"""SST's contrastive loss: class features of positives together, all others apart."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.checks.tensor_checks import check_signed
from satl.distributed import gather_across, gather_with_gradient, world_size
from satl.errors import ArrayError

# Entries are sorted once for both sets: the set goes into the highest bits of a 32-bit key, its value below.
_VALUES = 2**29
_MIXED, _NEGATIVE, _NEITHER = 0, 1, 2


def contrastive_loss(features: Tensor, labels: Tensor, noise: Tensor | None = None) -> Tensor:
    """Compare the class features of all image pairs of a batch (SST's L5), in float32.

    Per class and image pair with cosine ``d``: two known positives cost ``1 - d``, a positive and a negative
    ``1 + d``, two negatives ``1 + d``; pairs with an unknown cell are unused. Let P be the number of
    positive-positive entries over all classes. If P > 0, each of the two other sets is replaced by 2P of its
    entries at random plus its P most expensive ones (an entry can be both); if P = 0 they are kept whole.
    The choice is made with sorts and weights, so all shapes are static and nothing waits for the device.

    With several processes the batch is that of all of them: B below is the number of their images together, and
    every process computes the same loss.

    Args:
        features: ``(B, C, D)``.
        labels: ``(B, C)`` with +1, -1, 0.
        noise: ``(C, B (B - 1) / 2)`` in [0, 1) for the random choice, the least noisy are taken; drawn from the
            default generator of the device if not given, which only one process alone may leave out.

    Returns:
        The mean over all chosen entries; 0 if there are none.
    """
    if noise is None and world_size() > 1:
        raise ValueError("several processes need the same noise: draw it from generators with equal seeds.")
    check_signed(labels)
    if features.shape[:2] != labels.shape:
        raise ArrayError(
            f"features must be of the images and classes of labels, "
            f"got {tuple(features.shape)} and {tuple(labels.shape)}."
        )
    features, labels = gather_with_gradient(features), gather_across(labels)
    batch = features.shape[0]
    first, second = torch.triu_indices(batch, batch, offset=1, device=features.device)
    with torch.autocast(features.device.type, enabled=False):
        unit = F.normalize(features.float(), dim=-1, eps=1e-9).transpose(0, 1)
        cosine = (unit @ unit.transpose(1, 2))[:, first, second]  # (C, pairs)
    by_class = labels.t()
    left, right = by_class[:, first], by_class[:, second]
    both_positive = (left > 0) & (right > 0)
    mixed = ((left > 0) & (right < 0)) | ((left < 0) & (right > 0))
    both_negative = (left < 0) & (right < 0)
    cost = torch.where(both_positive, 1.0 - cosine, 1.0 + cosine)
    if noise is None:
        noise = torch.rand(cost.shape, device=cost.device)

    num_positive = both_positive.sum()
    group = torch.where(mixed, _MIXED, torch.where(both_negative, _NEGATIVE, _NEITHER))
    at_random = _rank(_whole(noise), group) < 2 * num_positive
    # A cost lies between 0 and 2, up to rounding.
    most_expensive = _rank(_VALUES - 1 - _whole(cost.detach() / 2), group) < num_positive
    chosen = torch.where(num_positive > 0, at_random.to(cost.dtype) + most_expensive, 1.0)
    weight = torch.where(both_positive, 1.0, chosen * (group != _NEITHER))
    return (cost * weight).sum() / weight.sum().clamp(min=1.0)


def _whole(values: Tensor) -> Tensor:
    """Numbers in [0, 1) as whole ones below ``_VALUES``, in the same order."""
    return (values.float() * _VALUES).to(torch.int32).clamp(0, _VALUES - 1)


def _rank(values: Tensor, group: Tensor) -> Tensor:
    """Return each entry's position within its group in ascending order of ``values``; equal ones by their place."""
    order = (group * _VALUES + values).to(torch.int32).flatten().argsort(stable=True)
    rank = torch.empty_like(order)
    rank.scatter_(0, order, torch.arange(order.numel(), device=order.device))
    return rank.view(values.shape) - torch.where(group == _NEGATIVE, (group == _MIXED).sum(), 0)
