"""CAP: accept as large a share of the unknown cells as is positive among the known ones."""

from __future__ import annotations

from torch import Tensor

from satl.thresholds.functional import proportion_thresholds
from satl.thresholds.rule import HistogramThreshold


class ProportionThreshold(HistogramThreshold):
    """Set each threshold so that a class is as frequent among the unknown cells as among the known ones.

    Published: the threshold of a class is the score above which a share of the unlabelled samples lies that
    equals the share of positives among the labelled ones. That is right as far as known and unknown cells are
    drawn alike; where people labelled positives first, it accepts too much.

    Decided here: streaming histograms, so thresholds are exact to one bin and never accept more than the share;
    only positive pseudo-labels; a class without known positives or without known negatives keeps its threshold,
    because its share is not known.

    Args:
        num_classes: number of classes.
        bins: resolution of the histograms on [0, 1].
        min_count: a class with fewer known cells since the last update keeps its threshold.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    Reference: Xie et al., Class-distribution-aware pseudo-labeling for semi-supervised multi-label learning, 2023.

    >>> import torch
    >>> rule = ProportionThreshold(num_classes=1, bins=10)
    >>> rule.observe(torch.tensor([[0.9], [0.1], [0.15], [0.75]]), torch.tensor([[1], [-1], [0], [0]]))
    >>> rule.update()
    >>> rule.pseudo_labels(torch.tensor([[0.15], [0.75]]), torch.tensor([[0], [0]]))
    tensor([[0],
            [1]])
    """

    def __init__(
        self, num_classes: int, bins: int = 2048, min_count: int = 1, encoding: str | None = None
    ) -> None:
        super().__init__(num_classes, 3, bins, min_count, encoding)

    def thresholds_of(self, counts: Tensor) -> Tensor:
        """Return the thresholds ``(C,)`` of counts ``(3, C, bins)``."""
        return proportion_thresholds(counts, self.min_count)
