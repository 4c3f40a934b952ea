"""Self-paced loss correction (SPLC): a focal loss in which unknown cells are negatives until they are not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.checks.tensor_checks import check_cells


def self_paced_loss(
    logits: Tensor, labels: Tensor, corrected: Tensor, margin: float = 1.0, gamma: float = 2.0
) -> Tensor:
    """Average a focal loss with a margin over all cells, in float32 whatever the autocast state.

    Known positives must reach their logit by ``margin`` more than others: with ``p = sigmoid(logit - margin)``
    they cost ``-log(p) (1 - p)^gamma``. Unknown cells that ``corrected`` calls positive cost the same with
    ``p = sigmoid(logit)``. All other cells count as negative and cost ``-log(1 - p) p^gamma``. This is the
    published formula, averaged instead of added up; published for tables without known negatives, which are
    here negatives for good.

    Args:
        logits: ``(B, C)``.
        labels: ``(B, C)`` with +1, -1, 0.
        corrected: ``(B, C)`` the labels with pseudo-labels filled in; ``labels`` itself before any are made.
        margin: of the logit of known positives.
        gamma: how much easy cells are discounted.

    Returns:
        A scalar; 0 for an empty batch.

    Reference: Zhang et al., Simple and robust loss design for multi-label learning with missing labels, 2021.

    >>> self_paced_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[1, 0]]), torch.tensor([[1, 0]]))
    tensor(0.1733)
    """
    check_cells(logits, labels)
    check_cells(logits, corrected, labels_name="corrected")
    shifted = logits.float() - margin * (labels > 0)
    toward = torch.where(corrected > 0, shifted, -shifted)
    wrong = (-toward).sigmoid().clamp(min=1e-8)  # below 1 a power of 0 has no finite gradient
    cost = -F.logsigmoid(toward) * wrong**gamma
    return cost.sum() / max(cost.numel(), 1)
