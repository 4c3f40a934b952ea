"""Average precision of tensors, on the device where they are, without a host synchronisation."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.errors import SatlError


@torch.no_grad()
def average_precision_tensor(scores: Tensor, labels: Tensor, *, interpolated: bool = True) -> Tensor:
    """Like :func:`satl.evaluation.average_precision`, for tensors of any device.

    Because it must not wait for the device, it does not refuse NaN: a class with a NaN score at a known
    cell has a NaN average precision.

    Args:
        scores: (N, C) floating point, higher means more likely present.
        labels: (N, C) in {+1 present, -1 absent, 0 unknown}.
        interpolated: the papers' number, or scikit-learn's (plain).

    Returns:
        (C,) float64 (float32 on devices without it) on the device of ``scores``; NaN means not
        measurable.

    >>> scores = torch.tensor([[0.9], [0.8], [0.7], [0.6]])
    >>> labels = torch.tensor([[1], [-1], [1], [1]])
    >>> average_precision_tensor(scores, labels)
    tensor([0.8333], dtype=torch.float64)
    """
    if scores.ndim != 2 or scores.shape != labels.shape:
        raise SatlError(
            f"scores and labels must have one shape (images, classes), not {tuple(scores.shape)} "
            f"and {tuple(labels.shape)}."
        )
    real = torch.float32 if scores.device.type == "mps" else torch.float64
    num_images, num_classes = scores.shape
    if num_images == 0:
        return torch.full((num_classes,), float("nan"), dtype=real, device=scores.device)
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    by_class = labels.T
    ranking = wide.T.masked_fill(by_class == 0, -torch.inf)  # unknown cells come last and count nowhere
    ranking, order = ranking.sort(dim=1, descending=True)
    sorted_labels = by_class.gather(1, order)
    present = sorted_labels == 1
    hits = present.cumsum(dim=1)
    ranked = (sorted_labels != 0).cumsum(dim=1)
    positives = hits[:, -1]

    # A group of equal scores is one threshold: only its last member is a point of the curve.
    ends_tie = torch.ones_like(present)
    ends_tie[:, :-1] = ranking[:, :-1] != ranking[:, 1:]
    precision = hits.to(real) / ranked.clamp(min=1).to(real)
    if interpolated:
        points = torch.where(ends_tie, precision, 0.0)
        best_from_here = points.flip(1).cummax(dim=1).values.flip(1)
        total = (best_from_here * present).sum(dim=1)
    else:
        hits_at_ends = torch.where(ends_tie, hits, 0).cummax(dim=1).values
        hits_before = torch.nn.functional.pad(hits_at_ends[:, :-1], (1, 0))
        total = torch.where(ends_tie, precision * (hits - hits_before), 0.0).sum(dim=1)
    undefined = (positives == 0) | ranking.isnan().any(dim=1)
    return torch.where(undefined, torch.nan, total / positives.clamp(min=1))
