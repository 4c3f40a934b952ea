"""Pure functions of the pseudo-label generators."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def intra_image_scores(
    pair_probabilities: Tensor, labels: Tensor, leave_one_out: bool = True
) -> tuple[Tensor, Tensor]:
    """Score each class by its co-occurrence with the known positives of the same image (SST's IST).

    For a cell that is not a known positive the score is the mean of ``P[c, j]`` over the known positives j of
    the image. For a known positive the mean leaves the class itself out, so that known and unknown positives
    are scored alike.

    Args:
        pair_probabilities: ``(B, C, C)`` symmetric; the diagonal is ignored.
        labels: ``(B, C)`` with +1, -1, 0.
        leave_one_out: ``False`` gives the published score, in which a known positive counts itself with
            probability 1 and every cell counts as informative.

    Returns:
        ``(B, C)`` float32 scores in [0, 1] and ``(B, C)`` booleans that say where the score means anything:
        images without a known positive, and a lone known positive itself, have score 0 and no information.

    >>> pairs = torch.tensor([[[1.0, 0.8, 0.2], [0.8, 1.0, 0.4], [0.2, 0.4, 1.0]]])
    >>> scores, informative = intra_image_scores(pairs, torch.tensor([[1, 1, 0]]))
    >>> scores
    tensor([[0.8000, 0.8000, 0.3000]])
    """
    present = (labels > 0).float()
    diagonal = torch.eye(labels.shape[1], device=labels.device, dtype=torch.bool)
    with torch.autocast(labels.device.type, enabled=False):
        others = pair_probabilities.float().masked_fill(diagonal, 0.0)
        total = torch.bmm(others, present.unsqueeze(-1)).squeeze(-1)
    count = present.sum(1, keepdim=True)
    if not leave_one_out:
        return (total + present) / count.clamp(min=1.0), torch.ones_like(labels, dtype=torch.bool)
    count = count - present
    return total / count.clamp(min=1.0), count > 0


def cross_image_scores(
    features: Tensor, bank: Tensor, usable: Tensor, owners: Tensor | None = None, images: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Score each class by its mean cosine to stored features of known positives (SST's CST).

    Args:
        features: ``(B, C, D)`` class features of the batch.
        bank: ``(C, E, D)`` stored features of unit length.
        usable: ``(C, E)`` booleans, false for empty slots.
        owners: ``(C, E)`` index of the image each stored feature came from.
        images: ``(B,)`` index of each image of the batch. With ``owners`` given, the slots that an image filled
            itself are left out of its own score.

    Returns:
        ``(B, C)`` float32 scores in [-1, 1] and ``(B, C)`` booleans, false where no slot could be used (score 0).
    """
    with torch.autocast(features.device.type, enabled=False):
        unit = F.normalize(features.float(), dim=-1, eps=1e-9).transpose(0, 1)  # (C, B, D)
        cosine = torch.bmm(unit, bank.float().transpose(1, 2))  # (C, B, E)
    counted = usable.unsqueeze(1).expand_as(cosine)
    if owners is not None and images is not None:
        counted = counted & (owners.unsqueeze(1) != images.view(1, -1, 1))
    count = counted.sum(-1)
    # Rounding may carry the cosine of equal vectors past 1, above a threshold that must emit nothing.
    scores = ((cosine * counted).sum(-1) / count.clamp(min=1)).clamp(-1.0, 1.0)
    return scores.t(), (count > 0).t()
