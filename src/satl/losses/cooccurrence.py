"""SST's co-occurrence loss: an asymmetric loss over all pairs of classes."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.checks.tensor_checks import check_signed
from satl.errors import ArrayError


def cooccurrence_loss(pair_logits: Tensor, labels: Tensor) -> Tensor:
    """Teach the pair branch which classes are present together (SST's L3), in float32.

    A pair is a target when both classes are known positives, everything else counts as absent. With
    ``q = sigmoid(pair_logit)`` a target costs ``-log(q) (1 - q)``; any other pair costs
    ``-log(r) (1 - r)^2`` with ``r = min(1 - q + 0.05, 1)``.

    Args:
        pair_logits: ``(B, Q)`` for the ``Q = C (C - 1) / 2`` pairs ``i < j``, row-major.
        labels: ``(B, C)`` with +1, -1, 0.

    Returns:
        The mean over ``B * Q``; 0 when there is only one class.

    >>> cooccurrence_loss(torch.zeros(1, 1), torch.tensor([[1, 1]]))
    tensor(0.3466)
    """
    check_signed(labels)
    num_classes = labels.shape[-1]
    if labels.ndim != 2 or pair_logits.shape != (labels.shape[0], num_classes * (num_classes - 1) // 2):
        raise ArrayError(
            f"pair_logits must have a column for each pair of the classes of labels, "
            f"got {tuple(pair_logits.shape)} and {tuple(labels.shape)}."
        )
    first, second = torch.triu_indices(num_classes, num_classes, offset=1, device=labels.device)
    present = labels > 0
    target = present[:, first] & present[:, second]
    together = pair_logits.float().sigmoid()
    apart = (1.0 - together + 0.05).clamp(max=1.0)
    cost_of_targets = -together.clamp(min=1e-8).log() * (1.0 - together)
    cost_of_others = -apart.log() * (1.0 - apart).square()
    cost = torch.where(target, cost_of_targets, cost_of_others)
    return cost.sum() / max(cost.numel(), 1)
