"""SST's contrastive loss: class features of positives together, all others apart."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def contrastive_loss(features: Tensor, labels: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Compare the class features of all image pairs of a batch (SST's L5), in float32.

    Per class and image pair with cosine ``d``: two known positives cost ``1 - d``, a positive and a negative
    ``1 + d``, two negatives ``1 + d``; pairs with an unknown cell are unused. Let P be the number of
    positive-positive entries over all classes. If P > 0, each of the two other sets is replaced by 2P of its
    entries at random plus its P most expensive ones (an entry can be both); if P = 0 they are kept whole.
    The choice is made with sorts and weights, so all shapes are static and the host is never asked.

    Args:
        features: ``(B, C, D)``.
        labels: ``(B, C)`` with +1, -1, 0.
        generator: source of the random choice; the default generator of the device if not given.

    Returns:
        The mean over all chosen entries; 0 if there are none.
    """
    batch = features.shape[0]
    first, second = torch.triu_indices(batch, batch, offset=1, device=features.device)
    with torch.autocast(features.device.type, enabled=False):
        unit = F.normalize(features.float(), dim=-1, eps=1e-9).transpose(0, 1)
        cosine = (unit @ unit.transpose(1, 2))[:, first, second]  # (C, pairs)
    by_class = labels.t()
    left, right = by_class[:, first], by_class[:, second]
    usable = (left != 0) & (right != 0)
    both_positive = (left > 0) & (right > 0)
    mixed = usable & (left != right)
    both_negative = (left < 0) & (right < 0)
    cost = torch.where(both_positive, 1.0 - cosine, 1.0 + cosine)

    num_positive = both_positive.sum()
    noise = torch.rand(cost.shape, generator=generator, device=cost.device)
    weight = both_positive.to(cost.dtype)
    for members in (mixed, both_negative):
        at_random = _rank(noise, members) < 2 * num_positive
        most_expensive = _rank(-cost.detach(), members) < num_positive
        chosen = torch.where(num_positive > 0, at_random.to(cost.dtype) + most_expensive, 1.0)
        weight = weight + chosen * members
    return (cost * weight).sum() / weight.sum().clamp(min=1.0)


def _rank(keys: Tensor, members: Tensor) -> Tensor:
    """Return each entry's position among ``members`` in ascending order of ``keys`` (non-members last)."""
    order = torch.where(members, keys, torch.inf).flatten().argsort(stable=True)
    rank = torch.empty_like(order)
    rank.scatter_(0, order, torch.arange(order.numel(), device=order.device))
    return rank.view(keys.shape)
