"""Checks of tensors: labels, scores and thresholds of losses, generators and rules.

They look at shapes and types only, never at values: reading a value would wait for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from satl.checks import LABELS
from satl.errors import ArrayError


def check_cells(values: Tensor, labels: Tensor, name: str = "logits", labels_name: str = "labels") -> None:
    """Require labels of a signed type with the shape of the values: another shape would be broadcast.

    Args:
        values: ``(B, C)``.
        labels: ``(B, C)``.
        name: of ``values``.
        labels_name: of ``labels``.

    Raises:
        ArrayError: the shapes differ, or the labels are unsigned.

    >>> import torch
    >>> check_cells(torch.zeros(4, 3), torch.ones(4, 1))
    Traceback (most recent call last):
    satl.errors.ArrayError: logits and labels must have the same shape, got (4, 3) and (4, 1).
    """
    check_signed(labels, labels_name)
    if values.shape != labels.shape:
        raise ArrayError(
            f"{name} and {labels_name} must have the same shape, "
            f"got {tuple(values.shape)} and {tuple(labels.shape)}."
        )


def check_signed(labels: Tensor, name: str = "labels") -> None:
    """Require labels of a signed type: in an unsigned or boolean one an absent class is 255 or true, which is present.

    Raises:
        ArrayError: the labels are unsigned or boolean.

    >>> import torch
    >>> check_signed(torch.tensor([[True, False]]))
    Traceback (most recent call last):
    satl.errors.ArrayError: labels must be of a signed type, got torch.bool, which cannot hold -1 (absent); use +1
    present, -1 absent, 0 unknown.
    """
    if not labels.dtype.is_signed:
        raise ArrayError(
            f"{name} must be of a signed type, got {labels.dtype}, which cannot hold -1 (absent)",
            remedy=LABELS,
        )


def as_thresholds(scores: Tensor, thresholds: Tensor | float) -> Tensor:
    """Return one threshold for each class of the scores, or one for all; another shape would be broadcast.

    Raises:
        ArrayError: the thresholds have another shape.

    >>> import torch
    >>> as_thresholds(torch.zeros(4, 1), 0.5)
    tensor(0.5000)
    >>> as_thresholds(torch.zeros(4, 1), torch.ones(3))
    Traceback (most recent call last):
    satl.errors.ArrayError: thresholds must be one for each class of the scores or a scalar, got (3,) for scores (4, 1).
    """
    if not isinstance(thresholds, Tensor):
        return scores.new_full(
            (), thresholds, dtype=torch.float32
        )  # by the device itself: nothing is copied to it
    if thresholds.ndim and thresholds.shape != scores.shape[-1:]:
        raise ArrayError(
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
