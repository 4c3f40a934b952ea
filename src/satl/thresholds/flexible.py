"""FlexMatch's curriculum: a lower threshold for classes of which less has been learned."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.checks.tensor_checks import known_cells
from satl.thresholds.functional import flexible_thresholds
from satl.thresholds.rule import CountingThreshold


class FlexibleThreshold(CountingThreshold):
    """Scale one confidence by how much of each class the scores already show.

    Published: the learning status of a class is the number of unlabelled samples that are put into it above the
    confidence, beta that number divided by the largest of all classes, or by the number of samples not used yet
    while that is larger, and the threshold ``confidence * beta / (2 - beta)``.

    Decided here, since the paper has one label an image: every unknown cell is a sample of its own class. The
    samples not used yet are the positives still expected, the share of positives among the known cells of each
    class times its unknown cells, less those already above the confidence. The counts are those of the last
    epoch, not kept for each cell. A prediction "present" also needs a score above ``floor``, as the largest
    of two probabilities exceeds one half; without it a class of which nothing is learned would take every cell.
    A class without known positives keeps its threshold, because no score of it means anything yet.

    Args:
        num_classes: number of classes.
        confidence: the threshold of the class that is learned best (published: 0.95).
        floor: the lowest threshold.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    Reference: Zhang et al., FlexMatch, 2021.

    >>> rule = FlexibleThreshold(num_classes=2, confidence=0.9)
    >>> rule.observe(torch.tensor([[0.95, 0.95], [0.97, 0.6], [0.1, 0.1], [0.8, 0.7]]),
    ...              torch.tensor([[0, 0], [0, 0], [-1, -1], [1, 1]]))
    >>> rule.update()
    >>> rule.value
    tensor([0.9000, 0.5000])
    """

    def __init__(
        self, num_classes: int, confidence: float = 0.95, floor: float = 0.5, encoding: str | None = None
    ) -> None:
        if not 0.0 <= floor <= confidence <= 1.0:
            raise ValueError(f"0 <= floor <= confidence <= 1 is needed, got {floor} and {confidence}.")
        super().__init__(num_classes, 4, num_classes, encoding=encoding)
        self.confidence = confidence
        self.floor = floor

    @torch.no_grad()
    def observe(self, scores: Tensor, labels: Tensor) -> None:
        """Count the unknown cells above the confidence, all unknown cells, and the known ones of either sign."""
        labels = self.check_batch(scores, labels)
        scores = scores.detach().float()
        counted = ~scores.isnan()
        unknown = counted & ~known_cells(labels)
        above = unknown & (scores > self.confidence)
        self.counts += torch.stack(
            [cells.sum(0) for cells in (above, unknown, counted & (labels > 0), counted & (labels < 0))]
        )

    def thresholds_of(self, counts: Tensor) -> Tensor:
        """Return the thresholds ``(C,)`` of counts ``(4, C)``."""
        return flexible_thresholds(counts, self.confidence, self.floor)
