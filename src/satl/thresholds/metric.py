"""MAT: the threshold that is best on the known cells by a metric."""

from __future__ import annotations

from torch import Tensor

from satl.thresholds.functional import metric_thresholds
from satl.thresholds.rule import HistogramThreshold


class MetricThreshold(HistogramThreshold):
    """Set each threshold where F-beta on the known cells of the class is largest.

    Published: class-wise thresholds that maximise a metric, F1 by default, of the model's predictions on the
    labelled data, searched on a grid once an epoch. The scores of cells that the network was trained on are
    better separated than those of unknown ones, so the threshold tends to be too low.

    Decided here: streaming histograms instead of a further pass over the data, so the grid has ``bins`` points;
    of several best thresholds the highest; a class without known positives or without known negatives keeps
    its threshold, because every threshold would be as good.

    Args:
        num_classes: number of classes.
        beta: what recall weighs beside precision; 1 is F1, below 1 counts precision more.
        bins: resolution of the histograms on [0, 1].
        min_count: a class with fewer known cells since the last update keeps its threshold.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    Reference: Xiao et al., Dual-decoupling learning and metric-adaptive thresholding for semi-supervised
    multi-label learning, 2024.

    >>> import torch
    >>> rule = MetricThreshold(num_classes=1, bins=10)
    >>> rule.observe(torch.tensor([[0.95], [0.65], [0.4], [0.1]]), torch.tensor([[1], [1], [-1], [-1]]))
    >>> rule.update()
    >>> rule.value
    tensor([0.6000])
    """

    def __init__(
        self,
        num_classes: int,
        beta: float = 1.0,
        bins: int = 2048,
        min_count: int = 1,
        encoding: str | None = None,
    ) -> None:
        if not beta > 0.0:
            raise ValueError(f"beta must be above 0, got {beta}.")
        super().__init__(num_classes, 2, bins, min_count, encoding)
        self.beta = beta

    def thresholds_of(self, counts: Tensor) -> Tensor:
        """Return the thresholds ``(C,)`` of counts ``(2, C, bins)``."""
        return metric_thresholds(counts, self.beta, self.min_count)
