"""The interface of all pseudo-label generators."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn


class GeneratorInputs(NamedTuple):
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
    """``(B, C)`` class probabilities of an average of past weights on a clean view, where a method needs it."""
    vectors: Tensor | None = None
    """``(B, D)`` of the pictures as they came in, for runs on features."""


class GeneratorScores(NamedTuple):
    """Generator scores and where they mean anything, both ``(B, C)``."""

    values: Tensor
    informative: Tensor


class Survey(NamedTuple):
    """Class features of known positives of the training set, all taken with the same weights and unaugmented."""

    features: Tensor
    """``(C, M, D)`` float32; slots that are not filled are zero."""
    images: Tensor
    """``(C, M)`` index of the image in each slot, -1 where it is not filled; the filled slots come first."""


class Generator(nn.Module):
    """Scores every cell of a batch by how much it looks like a positive."""

    probability: bool = False
    """Whether a score is the probability that the class is present."""

    def forward(self, inputs: GeneratorInputs) -> GeneratorScores:
        """Score a batch; gradients flow into the network."""
        raise NotImplementedError

    def remember(self, inputs: GeneratorInputs) -> None:
        """Take in a batch; generators without memory ignore it.

        Called after the backward pass, since the gradient of the scores still needs the old memory.
        """

    def use_bfloat16_memory(self) -> None:
        """Keep what is remembered in bfloat16; generators without memory have nothing to change."""

    def survey_size(self, epoch: int) -> int:
        """Return how many known positives of each class to show before an epoch of stage 2.

        Args:
            epoch: epochs of stage 2 that are done; 0 for the first.

        Returns:
            0 for generators that need no survey, or none before this epoch.
        """
        return 0

    def study(self, survey: Survey, seed: int) -> None:
        """Learn from a survey, the same in every process; called only for generators that need one."""
        raise NotImplementedError
