"""The lowest threshold that is precise enough on the known cells."""

from __future__ import annotations

from torch import Tensor

from satl.thresholds.functional import precision_thresholds
from satl.thresholds.rule import HistogramThreshold, check_shares


class PrecisionThreshold(HistogramThreshold):
    """Set each threshold at the lowest known positive that a wanted precision on the known cells allows.

    A quantile of the known negatives bounds the share of negatives that pass, whatever the share of positives
    among the cells: a common class then gets a threshold far higher than it needs, a rare one too low a precision.
    This rule bounds the precision itself. It is taken on cells that the network was trained on, so that of the
    unknown cells is lower, most of all in classes with few known positives, where any precision is soon reached.

    A class without known positives or without known negatives keeps its threshold; one in which no threshold is
    precise enough emits nothing.

    Args:
        num_classes: number of classes.
        precision: wanted share of positives among the known cells above the threshold.
        rate: share of the way to that threshold that one update goes.
        bins: resolution of the histograms on [0, 1].
        min_count: a class with fewer known cells since the last update keeps its threshold.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    >>> import torch
    >>> rule = PrecisionThreshold(num_classes=1, precision=0.75, bins=10)
    >>> rule.observe(
    ...     torch.tensor([[0.95], [0.85], [0.75], [0.65], [0.35]]), torch.tensor([[1], [1], [-1], [1], [-1]])
    ... )
    >>> rule.update()
    >>> rule.value
    tensor([0.6000])
    """

    def __init__(
        self,
        num_classes: int,
        precision: float = 0.97,
        rate: float = 1.0,
        bins: int = 2048,
        min_count: int = 1,
        encoding: str | None = None,
    ) -> None:
        check_shares(precision=precision, rate=rate)
        super().__init__(num_classes, 2, bins, min_count, encoding)
        self.precision = precision
        self.rate = rate

    @property
    def step(self) -> float:
        """The share of the way to the ideal thresholds that one update goes."""
        return self.rate

    def thresholds_of(self, counts: Tensor) -> Tensor:
        """Return the thresholds ``(C,)`` of counts ``(2, C, bins)``."""
        return precision_thresholds(counts, self.precision, self.min_count)
