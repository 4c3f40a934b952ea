"""Cross-entropy over all cells with unknown ones as negatives, except those that look wrong as such."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.checks.tensor_checks import check_cells, known_cells

LargeLossVariant = Literal["rejection", "correction"]


def large_loss(logits: Tensor, labels: Tensor, chosen: Tensor, variant: LargeLossVariant) -> Tensor:
    """Average the binary cross-entropy over all cells, in float32 whatever the autocast state.

    Unknown cells count as negative. Those that ``chosen`` calls positive, because as negatives their loss would
    be large, cost nothing (``rejection``, the published LL-R) or count as positive (``correction``: LL-Ct and
    LL-Cp, which differ in what is chosen).

    Args:
        logits: ``(B, C)``.
        labels: ``(B, C)`` with +1, -1, 0.
        chosen: ``(B, C)`` the labels with the chosen unknown cells as 1.
        variant: what becomes of the chosen cells.

    Returns:
        A scalar, the mean over ``B * C``, rejected cells included as in the published code; 0 for an empty
        batch.

    Reference: Kim et al., Large loss matters in weakly supervised multi-label classification, 2022.

    >>> logits, labels = torch.tensor([[0.0, 2.0]]), torch.tensor([[-1, 0]])
    >>> large_loss(logits, labels, torch.tensor([[-1, 1]]), "rejection")
    tensor(0.3466)
    """
    if variant not in ("rejection", "correction"):
        raise ValueError(f"variant must be 'rejection' or 'correction', got {variant!r}.")
    check_cells(logits, labels)
    check_cells(logits, chosen, labels_name="chosen")
    counted = torch.ones_like(labels, dtype=torch.bool)
    if variant == "rejection":
        counted = known_cells(labels) | ~(chosen > 0)
    # What is rejected is replaced before the formula: an infinite logit must not turn into 0 * inf.
    toward = torch.where(chosen > 0, 1.0, -1.0) * torch.where(counted, logits.float(), 0.0)
    cost = F.softplus(-toward) * counted
    return cost.sum() / max(cost.numel(), 1)
