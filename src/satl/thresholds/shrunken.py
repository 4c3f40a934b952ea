"""The lowest threshold that is precise enough, where classes with little evidence lean on all classes together."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.thresholds.functional import accepted_from, below_bin
from satl.thresholds.rule import HistogramThreshold, check_shares


def shrunken_thresholds(
    counts: Tensor, precision: float = 0.97, strength: float = 30.0, floor: float = 0.0, min_count: int = 1
) -> Tensor:
    """Compute the lowest thresholds above which a precision that is shrunk towards all classes' is high enough.

    With r right and w wrong known cells of a class from a bin on, and p the share of right ones among the known cells
    of all classes from that bin on, the estimate is ``(r + strength * p) / (r + w + strength)``: a class with few
    known cells above a score is taken to be as precise there as the others are, one with many to be what it is.
    Candidates are the bins that hold a known positive of any class. A class in which none of them is enough gets 1.0.
    One without known positives, without known negatives or with fewer than ``min_count`` known cells has no such
    threshold: NaN.

    Args:
        counts: ``(2, C, bins)`` or more rows; known negatives and known positives are the first two.
        precision: wanted share of positives.
        strength: how many known cells the other classes' precision counts for.
        floor: the lowest threshold.
        min_count: least number of known cells.

    Returns:
        ``(C,)`` float64.

    >>> from satl.functional import score_histogram
    >>> scores = torch.tensor([[0.95, 0.55], [0.85, 0.15], [0.55, 0.0], [0.55, 0.0]])
    >>> labels = torch.tensor([[1, 1], [1, -1], [-1, 0], [-1, 0]])
    >>> counts = score_histogram(scores, labels, bins=10)
    >>> shrunken_thresholds(counts, precision=0.75, strength=0)  # one positive of the second class is proof enough
    tensor([0.8000, 0.5000], dtype=torch.float64)
    >>> shrunken_thresholds(counts, precision=0.75)
    tensor([0.8000, 0.8000], dtype=torch.float64)
    """
    bins = counts.shape[-1]
    wrong, right = (part.double() for part in accepted_from(counts))
    known = right + wrong
    together = right.sum(0) / known.sum(0).clamp(min=1.0)
    estimate = (right + strength * together) / (known + strength).clamp(min=1e-12)
    position = torch.arange(bins, device=counts.device)
    # The small constants keep 9 of 10 at 0.9, and the bin at the floor, whatever the rounding.
    enough = (estimate >= precision - 1e-9) & (counts[1].sum(0) > 0) & (known + strength > 0)
    lowest = torch.where(enough & (position >= floor * bins - 1e-6), position, bins).amin(-1)
    negatives, positives = wrong[:, 0], right[:, 0]
    usable = (positives > 0) & (negatives > 0) & (positives + negatives >= min_count)
    return torch.where(usable, below_bin(lowest, bins), torch.nan)


class ShrunkenThreshold(HistogramThreshold):
    """Bound the precision on the known cells, as :class:`PrecisionThreshold` does, in rare classes too.

    Of a class with a dozen known positives any precision can be seen above some score, by chance. Here it takes what
    all classes show above that score for ``strength`` known cells of its own, so that it needs as many of its own to
    differ. On scores that were not learned from the same cells the mean precision over classes is then about the
    wanted one; on cells that the network was trained on every estimate is too high, as that of every rule is.

    A class without known positives or without known negatives keeps its threshold; one in which no threshold is
    precise enough emits nothing.

    Args:
        num_classes: number of classes.
        precision: wanted share of positives among the known cells above the threshold.
        strength: how many known cells the precision of all classes counts for; 0: each class for itself.
        floor: the lowest threshold it moves to; one half makes sense where scores are probabilities.
        rate: share of the way to that threshold that one update goes.
        bins: resolution of the histograms on [0, 1].
        min_count: a class with fewer known cells since the last update keeps its threshold.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    >>> rule = ShrunkenThreshold(num_classes=1, precision=0.75, bins=10)
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
        strength: float = 30.0,
        floor: float = 0.0,
        rate: float = 1.0,
        bins: int = 2048,
        min_count: int = 1,
        encoding: str | None = None,
    ) -> None:
        check_shares(precision=precision, floor=floor, rate=rate)
        if not strength >= 0.0:
            raise ValueError(f"strength must be 0 or larger, got {strength}.")
        super().__init__(num_classes, 2, bins, min_count, encoding)
        self.precision = precision
        self.strength = strength
        self.floor = floor
        self.rate = rate

    @property
    def step(self) -> float:
        """The share of the way to the ideal thresholds that one update goes."""
        return self.rate

    def thresholds_of(self, counts: Tensor) -> Tensor:
        """Return the thresholds ``(C,)`` of counts ``(2, C, bins)``."""
        return shrunken_thresholds(counts, self.precision, self.strength, self.floor, self.min_count)
