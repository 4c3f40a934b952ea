"""One constant threshold for all classes: FixMatch, and UPS without its uncertainty."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.thresholds.rule import ThresholdRule, check_shares


class FixedThreshold(ThresholdRule):
    """Accept every unknown cell whose score lies above one constant.

    Before the first update the threshold is 1.0, so stage 1 emits nothing. FixMatch's published constant is
    0.95 and UPS's 0.7.

    UPS also asks that a prediction be certain: the spread of several stochastic passes must be at most 0.05. A
    rule sees one score a cell, so that part stands before it: a cell that is too uncertain is given the score
    NaN, which lies above no threshold. ``satl thresholds --max-uncertainty`` does this for a file with an array
    ``uncertainty``; the networks of this library have no dropout, so training has no such spread. UPS's
    negative pseudo-labels are no part of a threshold rule; the method ``curriculum`` makes some.

    Args:
        num_classes: number of classes.
        confidence: the constant.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    References: Sohn et al., FixMatch, 2020; Rizve et al., In defense of pseudo-labeling (UPS), 2021.

    >>> rule = FixedThreshold(num_classes=2, confidence=0.7)
    >>> rule.update()
    >>> rule.pseudo_labels(torch.tensor([[0.8, torch.nan]]), torch.tensor([[0, 0]]))
    tensor([[1, 0]])
    """

    def __init__(self, num_classes: int, confidence: float = 0.95, encoding: str | None = None) -> None:
        super().__init__(num_classes, encoding)
        check_shares(confidence=confidence)
        self.confidence = confidence

    @torch.no_grad()
    def update(self) -> None:
        """Set the constant."""
        self.value.fill_(self.confidence)

    def limit(self) -> Tensor:
        """Return the constant ``(C,)``."""
        return torch.full_like(self.value, self.confidence)
