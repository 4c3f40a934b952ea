"""What one training step reads, what its loss terms see, and what it computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from satl.models.semantic_transfer import NetworkOutput
from satl.scoring import GeneratorInputs, GeneratorScores
from satl.thresholds import ThresholdRule


class StepInputs(NamedTuple):
    """Everything a step reads. Tensors are on the device and of the same shape in every step of a kind."""

    pixels: Tensor
    """``(B, 3, H, W)`` augmented and normalised; where features come in ``(B, D)``, or the maps that they became."""
    labels: Tensor
    """``(B, C)`` with +1, -1, 0."""
    indices: Tensor
    """``(B,)`` position of each image in the table."""
    stage: int
    """1 or 2."""
    observe: bool
    """Whether the threshold rules take note of the scores."""
    ramp: Tensor | float = 1.0
    """Weight in [0, 1] of the terms that grow during the first epoch."""
    noise: Tensor | None = None
    """``(C, pairs)`` in [0, 1), for terms that choose pairs of images at random: the B (B - 1) / 2 pairs of each
    micro-batch of all processes, one micro-batch after the other. Drawn where it is not given, which one process alone
    may do."""
    clean: Tensor | None = None
    """``(B, 3, H, W)`` the same images not augmented, for the teacher."""
    truth: Tensor | None = None
    """``(B, C)`` hidden labels, only to measure pseudo-labels."""
    shares: Tensor | None = None
    """``(B,)`` how much of each mixed image is the image itself, for methods that mix images."""
    teacher: Tensor | None = None
    """``(B, C)`` probabilities of the teacher; the step computes them."""
    all_labels: Tensor | None = None
    """``(N, C)`` labels of the whole batch of this process, where ``labels`` are those of a micro-batch."""

    def split(self, num: int) -> list[StepInputs]:
        """Return ``num`` micro-batches of consecutive images."""
        if num == 1:
            return [self]
        of_images = ("pixels", "labels", "indices", "clean", "truth", "shares", "teacher")
        chunks = {
            name: value.chunk(num, dim=1 if name == "noise" else 0)
            for name in (*of_images, "noise")
            if (value := getattr(self, name)) is not None
        }
        return [
            self._replace(all_labels=self.labels, **{name: parts[number] for name, parts in chunks.items()})
            for number in range(num)
        ]


@dataclass(frozen=True)
class StepContext:
    """What a loss term sees: the inputs of the step, and what network, generators and rules made of them."""

    inputs: StepInputs
    output: NetworkOutput
    """Of the network, for the images or, in terms that need ``mixed``, for the mixed images."""
    scores: dict[str, GeneratorScores] = field(default_factory=dict)
    """By generator, in stage 2 and wherever scores are observed."""
    pseudo: dict[str, Tensor] = field(default_factory=dict)
    """``(B, C)`` labels with pseudo-labels, by generator, in stage 2."""
    rules: dict[str, ThresholdRule] = field(default_factory=dict)
    """By generator."""
    positive_share: float = 0.0
    """Of the known cells of the training table, the share that is positive."""

    @property
    def labels(self) -> Tensor:
        """``(B, C)`` with +1, -1, 0."""
        return self.inputs.labels

    @property
    def all_labels(self) -> Tensor:
        """``(N, C)`` labels of the whole batch of this process, whatever micro-batches it is done in."""
        return self.inputs.labels if self.inputs.all_labels is None else self.inputs.all_labels


class StepResult(NamedTuple):
    """What one training step computes before the backward pass."""

    loss: Tensor
    parts: dict[str, Tensor]
    """The weighted terms of the loss, detached."""
    pseudo: dict[str, Tensor]
    """``(B, C)`` labels filled by each generator, in stage 2."""
    generator_inputs: GeneratorInputs | None
    """For :meth:`Learner.remember`, after the backward pass."""
