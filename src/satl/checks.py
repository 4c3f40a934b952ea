"""What losses and threshold rules ask of labels; checks look at shapes and types only, never at values."""

from __future__ import annotations

import torch
from torch import Tensor


def check_cells(values: Tensor, labels: Tensor, name: str = "logits", labels_name: str = "labels") -> None:
    """Refuse labels that are not of the shape of what they are about, which would be broadcast, or are unsigned.

    Args:
        values: ``(B, C)``.
        labels: ``(B, C)``.
        name: of ``values``.
        labels_name: of ``labels``.

    >>> import torch
    >>> check_cells(torch.zeros(4, 3), torch.ones(4, 1))
    Traceback (most recent call last):
    ValueError: logits and labels must have the same shape, got (4, 3) and (4, 1).
    """
    check_signed(labels, labels_name)
    if values.shape != labels.shape:
        raise ValueError(
            f"{name} and {labels_name} must have the same shape, "
            f"got {tuple(values.shape)} and {tuple(labels.shape)}."
        )


def check_signed(labels: Tensor, name: str = "labels") -> None:
    """Refuse unsigned labels, booleans included: in them an absent class is 255 or true, which is present.

    >>> import torch
    >>> check_signed(torch.tensor([[True, False]]))
    Traceback (most recent call last):
    ValueError: labels must be of a signed type, got torch.bool, which cannot hold -1 (absent).
    """
    if not labels.dtype.is_signed:
        raise ValueError(
            f"{name} must be of a signed type, got {labels.dtype}, which cannot hold -1 (absent)."
        )


def as_thresholds(scores: Tensor, thresholds: Tensor | float) -> Tensor:
    """Return one threshold for each class of the scores, or one for all; refuse others, which would be broadcast.

    >>> import torch
    >>> as_thresholds(torch.zeros(4, 1), 0.5)
    tensor(0.5000)
    >>> as_thresholds(torch.zeros(4, 1), torch.ones(3))
    Traceback (most recent call last):
    ValueError: thresholds must be one for each class of the scores or a scalar, got (3,) for scores (4, 1).
    """
    if not isinstance(thresholds, Tensor):
        return scores.new_full(
            (), thresholds, dtype=torch.float32
        )  # by the device itself: nothing is copied to it
    if thresholds.ndim and thresholds.shape != scores.shape[-1:]:
        raise ValueError(
            f"thresholds must be one for each class of the scores or a scalar, "
            f"got {tuple(thresholds.shape)} for scores {tuple(scores.shape)}."
        )
    return thresholds


def known_cells(labels: Tensor) -> Tensor:
    """Return where labels are +1 or -1; NaN counts as unknown.

    >>> import torch
    >>> known_cells(torch.tensor([1.0, -1.0, 0.0, float("nan")]))
    tensor([ True,  True, False, False])
    """
    return (labels > 0) | (labels < 0)
