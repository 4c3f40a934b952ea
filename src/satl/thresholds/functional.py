"""Pure functions of Semantic-Aware Threshold Estimation (SATE).

The paper writes the thresholds as tau, the quantile levels as kappa and the rate as gamma. Its section on
implementation calls the level of the negatives kappa^- (0.999) and that of the positives kappa^+ (0.1); its
section on analysis swaps the two names. Here they are ``negative_quantile`` and ``positive_quantile``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def score_histogram(scores: Tensor, labels: Tensor, bins: int) -> Tensor:
    """Count the scores of known cells per sign, class and bin.

    Scores are clipped to [0, 1] and sorted into ``bins`` equal bins. Unknown cells and scores that are not
    numbers are left out. The call does not synchronise with the host.

    Args:
        scores: ``(B, C)`` generator scores.
        labels: ``(B, C)`` with +1 present, -1 absent, 0 unknown.
        bins: number of bins on [0, 1].

    Returns:
        ``(2, C, bins)`` int64 counts: row 0 for known negatives, row 1 for known positives.

    >>> labels = torch.tensor([[1, -1], [1, 0]])
    >>> score_histogram(torch.tensor([[0.9, 0.2], [1.0, 0.3]]), labels, bins=2)
    tensor([[[0, 0], [1, 0]],
            [[0, 2], [0, 0]]])
    """
    counts = torch.zeros(2, scores.shape[1], bins, dtype=torch.int64, device=scores.device)
    return add_to_histogram(counts, scores, labels)


def add_to_histogram(counts: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    """Add a batch to the counts ``(2, C, bins)`` of :func:`score_histogram`, in place, and return them.

    The cost depends on the batch, not on the number of bins.
    """
    _, num_classes, bins = counts.shape
    scores = scores.detach().float()
    counted = (labels != 0) & ~scores.isnan()
    bin_index = (scores.nan_to_num(0.0).clamp(0.0, 1.0) * bins).long().clamp(max=bins - 1)
    class_index = torch.arange(num_classes, device=scores.device)
    cell = ((labels > 0).long() * num_classes + class_index) * bins + bin_index
    counts.view(-1).scatter_add_(0, cell.reshape(-1), counted.long().reshape(-1))
    return counts


def histogram_quantile(counts: Tensor, level: float) -> Tensor:
    """Invert histograms on [0, 1]: the upper edge of the first bin at which the CDF reaches ``level``.

    This is the order statistic ``ceil(level * n)`` ("inverted CDF"), rounded up to the next bin edge, so at
    least a share ``level`` of the counted scores is not above the result. Empty histograms give NaN.

    Args:
        counts: ``(..., bins)`` integer counts.
        level: quantile level in [0, 1].

    Returns:
        ``(...)`` float64 quantiles.

    >>> histogram_quantile(torch.tensor([[0, 3, 0, 1], [0, 0, 0, 0]]), 0.5)
    tensor([0.5000,    nan], dtype=torch.float64)
    """
    bins = counts.shape[-1]
    total = counts.sum(-1)
    # The small constant keeps ceil(0.1 * 30) at 3 whatever the rounding of the product.
    rank = (total.double() * level - 1e-9).ceil().clamp(min=1.0)
    below = (counts.cumsum(-1) < rank.unsqueeze(-1)).sum(-1)
    edge = (below.double() + 1.0) / bins
    return torch.where(total > 0, edge, torch.nan)


def ideal_thresholds(
    counts: Tensor, negative_quantile: float = 0.999, positive_quantile: float = 0.1, min_count: int = 1
) -> Tensor:
    """Compute the ideal threshold of every class, the paper's tau*.

    The threshold is the larger of the ``negative_quantile`` of the known negatives' scores and the
    ``positive_quantile`` of the known positives' scores. Separated classes thus get the foot of the positive
    distribution, mixed classes the far tail of the negative one. A class without known positives takes the
    negative quantile, one without known negatives the positive quantile, and one with fewer than
    ``min_count`` known cells (both signs together) has no ideal threshold: NaN.

    Args:
        counts: ``(2, C, bins)`` from :func:`score_histogram`.
        negative_quantile: level on the known negatives.
        positive_quantile: level on the known positives.
        min_count: least number of known cells.

    Returns:
        ``(C,)`` float64.
    """
    negative = histogram_quantile(counts[0], negative_quantile)
    positive = histogram_quantile(counts[1], positive_quantile)
    ideal = torch.fmax(negative, positive)
    return torch.where(counts.sum(dim=(0, 2)) >= min_count, ideal, torch.nan)


def move_thresholds(value: Tensor, ideal: Tensor, rate: float) -> Tensor:
    """Move thresholds towards the ideal ones; classes whose ideal is NaN stay where they are.

    >>> move_thresholds(torch.tensor([1.0, 1.0]), torch.tensor([0.5, torch.nan]), rate=0.5)
    tensor([0.7500, 1.0000])
    """
    target = ideal.to(value.dtype)
    # lerp is exact where both agree: a threshold whose ideal is 1.0 stays at 1.0 and emits nothing.
    return torch.where(target.isnan(), value, torch.lerp(value, target, rate))


def pseudo_labels(scores: Tensor, labels: Tensor, thresholds: Tensor) -> Tensor:
    """Turn unknown cells whose score lies strictly above the threshold of their class into positives.

    Known cells are never changed, other unknown cells stay unknown, and no gradient flows.

    Args:
        scores: ``(B, C)``.
        labels: ``(B, C)`` with +1, -1, 0.
        thresholds: ``(C,)`` or a scalar tensor.

    Returns:
        ``(B, C)`` labels of the same type as ``labels``.

    >>> labels = torch.tensor([[0, 0, -1]])
    >>> pseudo_labels(torch.tensor([[0.9, 0.5, 0.9]]), labels, torch.tensor([0.5, 0.5, 0.5]))
    tensor([[ 1,  0, -1]])
    """
    confident = (labels == 0) & (scores.detach().float() > thresholds.detach().float())
    return torch.where(confident, torch.ones_like(labels), labels)
