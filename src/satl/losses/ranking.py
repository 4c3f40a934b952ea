"""The differential ranking loss (DRL): known cells on the right side of their threshold."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from satl.checks.tensor_checks import LabelReader, as_thresholds, check_cells, known_cells
from satl.distributed import count_per_process, world_size

RankingReduction = Literal["batch", "sum", "known"]


def differential_ranking(
    scores: Tensor,
    labels: Tensor,
    thresholds: Tensor | float,
    clamp: bool = True,
    reduction: RankingReduction = "batch",
) -> Tensor:
    """Push known positives above and known negatives below the threshold of their class.

    With the difference ``d = max(0, score - threshold)`` a known positive costs ``1 - d`` and a known negative
    ``1 + d`` (equations 6 to 8); unknown cells cost nothing. The gradient with respect to a score is thus -1
    for known positives and +1 for known negatives above the threshold, and 0 at or below it. Thresholds get
    no gradient. Computed in float32 whatever the autocast state.

    Args:
        scores: ``(B, C)`` generator scores; a cell whose score is NaN counts as unknown.
        labels: ``(B, C)`` with +1, -1, 0.
        thresholds: ``(C,)``, or one number for all classes.
        clamp: the literal loss; ``False`` uses the signed difference, which also lifts positives that lie
            below the threshold.
        reduction: ``"batch"`` divides the sum by the batch size, ``"sum"`` not at all, ``"known"`` by the
            number of known cells.

    Returns:
        A scalar; 0 if nothing is known. With several processes it is their mean that is the loss of the batch.

    >>> scores = torch.tensor([[0.9, 0.6, 0.1]], requires_grad=True)
    >>> loss = differential_ranking(scores, torch.tensor([[1, -1, 1]]), torch.tensor([0.5, 0.5, 0.5]))
    >>> loss
    tensor(2.7000, grad_fn=<DivBackward0>)
    >>> loss.backward(); scores.grad
    tensor([[-1.,  1.,  0.]])
    """
    check_cells(scores, labels, "scores")
    thresholds = as_thresholds(scores, thresholds)
    scores = scores.float()
    known = known_cells(labels) & ~scores.isnan()
    sign = torch.where(known, labels.float(), 0.0)
    difference = torch.where(known, scores - thresholds.detach().float(), 0.0)
    if clamp:
        difference = difference.relu()
    cost = ((1.0 - sign * difference) * known).sum()
    if reduction == "batch":
        return cost / max(scores.shape[0], 1)
    if reduction == "sum":
        return cost * world_size()
    if reduction == "known":
        return cost / count_per_process(known.sum())
    raise ValueError(f"reduction must be 'batch', 'sum' or 'known', got {reduction!r}.")


class DifferentialRankingLoss(nn.Module):
    """The differential ranking loss; see :func:`satl.functional.differential_ranking`.

    Args:
        clamp: as in :func:`satl.functional.differential_ranking`.
        reduction: as in :func:`satl.functional.differential_ranking`.
        encoding: what the labels mean that the loss is called with, by a name of :data:`satl.labels.ENCODINGS`. None:
            +1, -1 and 0 for unknown; until a batch holds -1, 1 beside 0 is refused. Other values are refused (on an
            accelerator: in the first batch).

    >>> loss = DifferentialRankingLoss()
    >>> loss(torch.tensor([[0.9]]), torch.tensor([[-1]]), torch.tensor([0.5]))
    tensor(1.4000)
    """

    def __init__(
        self, clamp: bool = True, reduction: RankingReduction = "batch", encoding: str | None = None
    ) -> None:
        super().__init__()
        if reduction not in ("batch", "sum", "known"):
            raise ValueError(f"reduction must be 'batch', 'sum' or 'known', got {reduction!r}.")
        self.clamp = clamp
        self.reduction: RankingReduction = reduction
        self._labels = LabelReader(encoding)

    def forward(self, scores: Tensor, labels: Tensor, thresholds: Tensor | float) -> Tensor:
        """Return the scalar loss of ``scores`` and ``labels`` ``(B, C)`` and ``thresholds`` ``(C,)``."""
        return differential_ranking(scores, self._labels(labels), thresholds, self.clamp, self.reduction)
