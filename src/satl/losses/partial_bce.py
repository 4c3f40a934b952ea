"""Binary cross-entropy over the known cells only."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PartialReduction = Literal["known", "sample"]


def partial_bce(logits: Tensor, labels: Tensor, reduction: PartialReduction = "known") -> Tensor:
    """Average the binary cross-entropy over known cells, in float32 whatever the autocast state.

    Args:
        logits: ``(B, C)``.
        labels: ``(B, C)`` with +1 present, -1 absent, 0 unknown.
        reduction: ``"known"`` averages over all known cells of the batch (SST, HST); ``"sample"`` averages
            first over the known cells of each image, then over the images that have any (equation 9).

    Returns:
        A scalar; 0 with zero gradients if nothing is known. Unknown cells get no gradient, whatever their
        logit.

    >>> partial_bce(torch.tensor([[0.0, 3.0]]), torch.tensor([[1, 0]]))
    tensor(0.6931)
    """
    known = labels != 0
    sign = labels.float()
    # Unknown logits are replaced before the formula: an infinite one must not turn into 0 * inf.
    cost = F.softplus(-sign * torch.where(known, logits.float(), 0.0)) * known
    if reduction == "known":
        return cost.sum() / known.sum().clamp(min=1)
    if reduction == "sample":
        per_image = cost.sum(1) / known.sum(1).clamp(min=1)
        return per_image.sum() / known.any(1).sum().clamp(min=1)
    raise ValueError(f"reduction must be 'known' or 'sample', got {reduction!r}.")


class PartialBCELoss(nn.Module):
    """Binary cross-entropy over the known cells of a batch; see :func:`satl.functional.partial_bce`.

    >>> loss = PartialBCELoss()
    >>> loss(torch.tensor([[0.0, 3.0]]), torch.tensor([[0, 0]]))
    tensor(0.)
    """

    def __init__(self, reduction: PartialReduction = "known") -> None:
        super().__init__()
        if reduction not in ("known", "sample"):
            raise ValueError(f"reduction must be 'known' or 'sample', got {reduction!r}.")
        self.reduction: PartialReduction = reduction

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the scalar loss of ``logits`` and ``labels``, both ``(B, C)``."""
        return partial_bce(logits, labels, self.reduction)
