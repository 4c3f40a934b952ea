"""Average precision of tensors, on the device where they are, without a host synchronisation."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.checks.tensor_checks import as_signed, check_cells, known_cells
from satl.errors import ArrayError


def average_precision_tensor(
    scores: Tensor, labels: Tensor, *, interpolated: bool = True, encoding: str | None = None
) -> Tensor:
    """Like :func:`satl.evaluation.average_precision`, for tensors of any device.

    With an ``encoding`` it never waits for the device, so it does not refuse NaN: a class with a NaN score at a known
    cell has a NaN average precision, and a cell whose label is NaN is unknown.

    Args:
        scores: (N, C) real numbers, higher means more likely present.
        labels: (N, C) in {+1 present, -1 absent, 0 unknown}.
        interpolated: the papers' number, or scikit-learn's (plain).
        encoding: what the values of ``labels`` mean. None: the values are looked at once, and labels with 0 and without
            -1 are refused; ``"signed"`` for +1, -1, 0 that need no look.

    Returns:
        (C,) float64 (float32 on devices without it) on the device of ``scores``; NaN means not
        measurable.

    >>> scores = torch.tensor([[0.9], [0.8], [0.7], [0.6]])
    >>> labels = torch.tensor([[1], [-1], [1], [1]])
    >>> average_precision_tensor(scores, labels)
    tensor([0.8333], dtype=torch.float64)
    """
    return average_precision_pair_tensor(scores, labels, encoding=encoding)[0 if interpolated else 1]


@torch.no_grad()
def average_precision_pair_tensor(
    scores: Tensor, labels: Tensor, *, encoding: str | None = None
) -> tuple[Tensor, Tensor]:
    """Interpolated and plain average precision, each (C,), for the price of one sort.

    >>> interpolated, plain = average_precision_pair_tensor(
    ...     torch.tensor([[0.9], [0.8], [0.7]]), torch.tensor([[-1], [1], [1]])
    ... )
    >>> interpolated.tolist() == [2 / 3], plain.tolist() == [(1 / 2 + 2 / 3) / 2]
    (True, True)
    """
    labels = as_signed(labels, encoding)
    check_cells(scores, labels, "scores")
    if scores.ndim != 2:
        raise ArrayError(f"scores must have the shape (images, classes), not {tuple(scores.shape)}.")
    real = torch.float32 if scores.device.type == "mps" else torch.float64
    num_images, num_classes = scores.shape
    if num_images == 0:
        nothing = torch.full((num_classes,), float("nan"), dtype=real, device=scores.device)
        return nothing, nothing.clone()
    if not scores.is_floating_point():
        scores = scores.to(real)
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    by_class = torch.where(known_cells(labels), labels, 0).T
    ranking = wide.T.masked_fill(by_class == 0, -torch.inf)  # unknown cells come first and count nowhere
    ranking, order = ranking.sort(dim=1)
    sorted_labels = by_class.gather(1, order)
    present, known = sorted_labels == 1, sorted_labels != 0
    positives = present.sum(dim=1, keepdim=True)
    # How many score at least as high, counted from the end of the line without turning it round.
    hits = positives - present.cumsum(dim=1, dtype=torch.int32) + present
    ranked = known.sum(dim=1, keepdim=True) - known.cumsum(dim=1, dtype=torch.int32) + known

    # A group of equal scores is one threshold: only its first member is a point of the curve.
    opens_tie = torch.ones_like(present)
    opens_tie[:, 1:] = ranking[:, 1:] != ranking[:, :-1]
    points = torch.where(opens_tie, hits.to(real) / ranked.clamp(min=1), 0.0)
    best = points.cummax(dim=1).values  # at this recall or a higher one, which has a lower threshold
    place = torch.arange(num_images, device=scores.device)
    own = points.gather(1, torch.where(opens_tie, place, 0).cummax(dim=1).values)
    undefined = (positives[:, 0] == 0) | ranking.isnan().any(dim=1)
    count = positives[:, 0].clamp(min=1)
    interpolated, plain = (
        torch.where(undefined, torch.nan, (precision * present).sum(dim=1) / count)
        for precision in (best, own)
    )
    return interpolated, plain
