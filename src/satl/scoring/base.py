"""The interface of all pseudo-label generators."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn


class Evidence(NamedTuple):
    """What a generator may look at: the network's output for one batch, and its labels."""

    features: Tensor
    """``(B, C, D)`` class features."""
    pair_probabilities: Tensor | None
    """``(B, C, C)`` symmetric co-occurrence probabilities, for methods with a pair branch."""
    labels: Tensor
    """``(B, C)`` with +1, -1, 0."""
    images: Tensor
    """``(B,)`` index of each image in the training set."""
    logits: Tensor | None = None
    """``(B, C)`` of the class head."""
    teacher: Tensor | None = None
    """``(B, C)`` class probabilities of an average of past weights on a clean view, where a method asks for it."""


class Scores(NamedTuple):
    """Generator scores and where they mean anything, both ``(B, C)``."""

    values: Tensor
    informative: Tensor


class Generator(nn.Module):
    """Scores every cell of a batch by how much it looks like a positive."""

    def forward(self, evidence: Evidence) -> Scores:
        """Score a batch; gradients flow into the network."""
        raise NotImplementedError

    def remember(self, evidence: Evidence) -> None:
        """Take in a batch; generators without memory ignore it.

        Called after the backward pass, since the gradient of the scores still needs the old memory.
        """
