"""HST's prototype contrast: class features of positives near the prototypes of their class, others away."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from satl.checks.tensor_checks import check_cells, known_cells

PrototypeSign = Literal["fixed", "reference"]


def prototype_contrast(scores: Tensor, labels: Tensor, sign: PrototypeSign = "fixed") -> Tensor:
    """Pull known positives towards the prototypes of their class and push known negatives away, in float32.

    With the mean cosine ``s`` of a class feature to the prototypes, a known positive costs ``1 - s``, a known
    negative ``1 + s`` and an unknown cell 1. The mean is over all cells, as in HST, whose weight of 0.05 is made
    for it: an unknown cell adds a constant and no gradient.

    Args:
        scores: ``(B, C)`` mean cosines in [-1, 1].
        labels: ``(B, C)`` with +1, -1, 0.
        sign: ``"reference"`` is the published code's ``1 + y * s``, which pushes positives away from their
            prototypes.

    Returns:
        A scalar; 0 for an empty batch.

    >>> prototype_contrast(torch.tensor([[0.5, -0.5, 0.9]]), torch.tensor([[1, -1, 0]]))
    tensor(0.6667)
    """
    if sign not in ("fixed", "reference"):
        raise ValueError(f"sign must be 'fixed' or 'reference', got {sign!r}.")
    check_cells(scores, labels, "scores")
    known = known_cells(labels)
    # Both are replaced before the product: neither an infinite score nor a label of NaN must turn into NaN.
    alike = torch.where(known, scores.float(), 0.0) * torch.where(known, labels.float(), 0.0)
    cost = 1.0 - alike if sign == "fixed" else 1.0 + alike
    return cost.sum() / max(cost.numel(), 1)
