"""The interface of all threshold rules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from satl.thresholds.functional import pseudo_labels


class ThresholdRule(nn.Module):
    """One threshold per class for the scores of one generator.

    A rule starts at 1.0, where it emits no pseudo-label, and moves at each :meth:`update`. Training calls
    :meth:`observe` at every step and :meth:`update` at the start of each epoch of stage 2. All state lives in
    buffers, so checkpoints hold it.
    """

    value: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}.")
        self.num_classes = num_classes
        self.register_buffer("value", torch.ones(num_classes))

    def observe(self, scores: Tensor, labels: Tensor) -> None:
        """Take note of one batch of scores ``(B, C)`` and labels ``(B, C)``; rules without memory ignore it."""

    def update(self) -> None:
        """Move the thresholds."""
        raise NotImplementedError

    def pseudo_labels(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return ``labels`` in which unknown cells strictly above the threshold are 1; known cells stay."""
        return pseudo_labels(scores, labels, self.value)
