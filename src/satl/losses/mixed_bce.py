"""Binary cross-entropy on images mixed of two, over the known cells of both."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.checks.tensor_checks import check_cells, known_cells
from satl.errors import ArrayError
from satl.losses.partial_bce import count_of_part


def mixed_bce(
    logits: Tensor, labels: Tensor, others: Tensor, shares: Tensor, batch: Tensor | None = None
) -> Tensor:
    """Judge mixed images by what is known of the two that each is made of, in float32 whatever the autocast state.

    Cross-entropy is linear in its target, so mixup's loss of a cell is that of the one label and that of the other,
    weighted by their shares of the picture. Here each counts where it is known. If labels are hidden at random, that is
    on average the loss of complete labels. With shares of 1 it is :func:`satl.functional.partial_bce`.

    Args:
        logits: ``(B, C)`` of the mixed images.
        labels: ``(B, C)`` of the first image of each, with +1 present, -1 absent, 0 unknown.
        others: ``(B, C)`` of the second; all together they hold the same rows as ``labels``.
        shares: ``(B,)`` in [0, 1], how much of each picture is the first image.
        batch: ``(N, C)`` all labels of a batch of which ``labels`` are a part, as in ``partial_bce``.

    Returns:
        A scalar: the sum over cells, divided by the number of known ones; 0 with zero gradients if nothing is known.
        With several processes it is their mean that is the loss of the batch.

    >>> mixed_bce(torch.tensor([[2.0]]), torch.tensor([[1]]), torch.tensor([[0]]), torch.tensor([0.5]))
    tensor(0.0635)
    """
    check_cells(logits, labels)
    check_cells(logits, others)
    if shares.shape != labels.shape[:1]:
        raise ArrayError(f"shares must be ({labels.shape[0]},), got {tuple(shares.shape)}.")
    own = shares.float().unsqueeze(1)
    cost = own * _cost(logits, labels) + (1.0 - own) * _cost(logits, others)
    counted = known_cells(labels if batch is None else batch)
    return cost.sum() / count_of_part(counted, labels.shape[0])


def _cost(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each cell, 0 where it is unknown, whatever its logit."""
    known = known_cells(labels)
    sign = torch.where(known, labels.float(), 0.0)
    return F.softplus(-sign * torch.where(known, logits.float(), 0.0)) * known
