"""The asymmetric loss (ASL) over the known cells only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.checks.tensor_checks import check_cells, known_cells
from satl.losses.partial_bce import PartialReduction, mean_of_known


def asymmetric_loss(
    logits: Tensor,
    labels: Tensor,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    margin: float = 0.05,
    reduction: PartialReduction = "known",
    batch: Tensor | None = None,
) -> Tensor:
    """Average the asymmetric loss over known cells, in float32 whatever the autocast state.

    With ``p = sigmoid(logit)`` a known positive costs ``-log(p) (1 - p)^gamma_positive``. A known negative costs
    ``-log(1 - q) q^gamma_negative`` with ``q = max(p - margin, 0)``: easy negatives count little, the easiest
    nothing. This is the published formula with the published parameters for MS-COCO; the published code adds
    the cells up, here they are averaged as in :func:`satl.functional.partial_bce`, so that a learning rate means
    the same for both.

    Args:
        logits: ``(B, C)``.
        labels: ``(B, C)`` with +1 present, -1 absent, 0 unknown.
        gamma_positive: how much easy positives are discounted.
        gamma_negative: how much easy negatives are discounted.
        margin: the probability below which a negative costs nothing.
        reduction: ``"known"`` averages over all known cells of the batch, ``"sample"`` first over those of
            each image, then over the images that have any.
        batch: all labels of a batch of which ``labels`` are a part; see :func:`satl.functional.partial_bce`.

    Returns:
        A scalar; 0 with zero gradients if nothing is known. Unknown cells get no gradient, whatever their
        logit.

    Reference: Ridnik et al., Asymmetric loss for multi-label classification, 2021.

    >>> asymmetric_loss(torch.tensor([[0.0, -4.0, 3.0]]), torch.tensor([[1, -1, 0]]))
    tensor(0.3466)
    """
    check_cells(logits, labels)
    known = known_cells(labels)
    # Unknown logits are replaced before the formula: an infinite one must not turn into 0 * inf.
    logits = torch.where(known, logits.float(), 0.0)
    present, absent = logits.sigmoid(), (-logits).sigmoid()
    shifted = (present - margin).clamp(min=0.0)
    log_absent = (absent + margin).clamp(max=1.0).log() if margin > 0 else F.logsigmoid(-logits)
    positive = -F.logsigmoid(logits) * _discount(absent, gamma_positive)
    negative = -log_absent * _discount(shifted, gamma_negative)
    cost = torch.where(labels > 0, positive, negative) * known
    return mean_of_known(cost, labels, reduction, batch)


def _discount(base: Tensor, gamma: float) -> Tensor:
    """Return ``base ** gamma`` with a finite gradient at 0."""
    return base.clamp(min=1e-8) ** gamma if gamma > 0 else torch.ones_like(base)
