"""Binary cross-entropy over the known cells only."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from satl.checks.tensor_checks import LabelReader, check_cells, check_signed, known_cells
from satl.distributed import count_per_process
from satl.errors import ArrayError

PartialReduction = Literal["known", "sample"]


def partial_bce(
    logits: Tensor, labels: Tensor, reduction: PartialReduction = "known", batch: Tensor | None = None
) -> Tensor:
    """Average the binary cross-entropy over known cells, in float32 whatever the autocast state.

    Args:
        logits: ``(B, C)``.
        labels: ``(B, C)`` with +1 present, -1 absent, 0 unknown.
        reduction: ``"known"`` averages over all known cells of the batch (SST, HST); ``"sample"`` averages
            first over the known cells of each image, then over the images that have any (equation 9).
        batch: ``(N, C)`` all labels of a batch of which ``labels`` are a part, where it is done in equal parts one
            after the other; the mean of the losses of the parts is then that of the batch.

    Returns:
        A scalar; 0 with zero gradients if nothing is known. Unknown cells get no gradient, whatever their
        logit. With several processes it is their mean that is the average over the known cells of all of them.

    >>> partial_bce(torch.tensor([[0.0, 3.0]]), torch.tensor([[1, 0]]))
    tensor(0.6931)
    """
    check_cells(logits, labels)
    known = known_cells(labels)
    sign = torch.where(known, labels.float(), 0.0)
    # Unknown logits are replaced before the formula: an infinite one must not turn into 0 * inf.
    cost = F.softplus(-sign * torch.where(known, logits.float(), 0.0)) * known
    return mean_of_known(cost, labels, reduction, batch)


def mean_of_known(cost: Tensor, labels: Tensor, reduction: PartialReduction, batch: Tensor | None) -> Tensor:
    """Average what the known cells cost.

    Args:
        cost: ``(B, C)``, 0 where the cell is unknown.
        labels: ``(B, C)``.
        reduction: as in :func:`partial_bce`.
        batch: as in :func:`partial_bce`.
    """
    check_reduction(reduction)
    if batch is not None:
        check_signed(batch, "batch")
        if batch.shape[1:] != labels.shape[1:]:
            raise ArrayError(
                f"batch and labels must have the same classes, got {tuple(batch.shape)} and {tuple(labels.shape)}."
            )
    check_cells(cost, labels, "cost")
    known = known_cells(labels)
    counted = known if batch is None else known_cells(batch)
    if reduction == "sample":
        cost = cost.sum(1) / known.sum(1).clamp(min=1)
        counted = counted.any(1)
    return cost.sum() / count_of_part(counted, labels.shape[0])


def count_of_part(counted: Tensor, images: int) -> Tensor:
    """Return what a sum over ``images`` images is divided by for a mean over the true cells of a whole batch.

    Args:
        counted: ``(N, ...)`` booleans of the batch, in this process; the others hold as many images.
        images: images of the part, which are all N or a share of them.

    >>> count_of_part(torch.tensor([True, True, False, True]), 2)
    tensor(1.5000)
    """
    count = count_per_process(counted.sum())
    return count if images == counted.shape[0] else count * (images / counted.shape[0])


def check_reduction(reduction: str) -> None:
    """Refuse an unknown reduction."""
    if reduction not in ("known", "sample"):
        raise ValueError(f"reduction must be 'known' or 'sample', got {reduction!r}.")


class PartialBCELoss(nn.Module):
    """Binary cross-entropy over the known cells of a batch; see :func:`satl.functional.partial_bce`.

    Args:
        reduction: as in :func:`satl.functional.partial_bce`.
        encoding: what the labels mean that the loss is called with, by a name of :data:`satl.labels.ENCODINGS`. None:
            +1, -1 and 0 for unknown; until a batch holds -1, 1 beside 0 is refused. Other values are refused (on an
            accelerator: in the first batch).

    >>> loss = PartialBCELoss()
    >>> loss(torch.tensor([[0.0, 3.0]]), torch.tensor([[0, 0]]))
    tensor(0.)
    >>> loss = PartialBCELoss(encoding="complete")
    >>> loss(torch.tensor([[0.0, 3.0]]), torch.tensor([[1, 0]]))
    tensor(1.8709)
    """

    def __init__(self, reduction: PartialReduction = "known", encoding: str | None = None) -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction: PartialReduction = reduction
        self._labels = LabelReader(encoding)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the scalar loss of ``logits`` and ``labels``, both ``(B, C)``."""
        return partial_bce(logits, self._labels(labels), self.reduction)
