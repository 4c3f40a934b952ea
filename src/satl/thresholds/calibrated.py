"""The thresholds that fill in most, as precise as wanted, as far as calibrated scores of the unknown cells can say."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.thresholds.functional import below_bin
from satl.thresholds.rule import HistogramThreshold, check_shares

_NEWTON_STEPS = 50
_HALVINGS = 60
_HIGHEST_PRICE = 1000.0
"""All that a class recalls is worth a thousandth of precision then: by no more can the wanted one be missed."""


def calibrated_probabilities(counts: Tensor) -> Tensor:
    """Compute how likely a cell of each bin is present, by the known cells of all classes together.

    The log-odds of a bin's middle are stretched and shifted, by two numbers that make the known cells likeliest
    (Platt, 1999). One known cell's worth of doubt holds them near 1 and 0, where they stay if nothing is known.
    The call does not synchronise with the host.

    Args:
        counts: ``(2, C, bins)`` or more rows; known negatives and known positives are the first two.

    Returns:
        ``(bins,)`` float64, the higher the higher the score.

    >>> from satl.functional import score_histogram
    >>> nothing = torch.zeros(2, 1, 4, dtype=torch.int64)
    >>> calibrated_probabilities(nothing)  # scores are taken at their word
    tensor([0.1250, 0.3750, 0.6250, 0.8750], dtype=torch.float64)
    >>> doubtful = nothing.index_fill(2, torch.tensor([3]), 500)  # as often absent as present
    >>> round(float(calibrated_probabilities(doubtful)[3]), 2)
    0.5
    """
    bins = counts.shape[-1]
    odds = ((torch.arange(bins, dtype=torch.float64, device=counts.device) + 0.5) / bins).logit()
    absent, present = counts[:2].sum(1).double()
    known = absent + present
    stretch, shift = torch.ones_like(odds[0]), torch.zeros_like(odds[0])
    for _ in range(_NEWTON_STEPS):
        chance = (stretch * odds + shift).sigmoid()
        wrong, weight = chance * known - present, known * chance * (1.0 - chance)
        first, second = (wrong * odds).sum() + (stretch - 1.0), wrong.sum() + shift
        a, b, c = (weight * odds.square()).sum() + 1.0, (weight * odds).sum(), weight.sum() + 1.0
        of_both = a * c - b.square()
        # Far from the solution a full step can overshoot.
        stretch = stretch - ((c * first - b * second) / of_both).clamp(-1.0, 1.0)
        shift = shift - ((a * second - b * first) / of_both).clamp(-1.0, 1.0)
    return (stretch.clamp(min=0.0) * odds + shift).sigmoid()


def calibrated_thresholds(
    counts: Tensor, precision: float = 0.9, floor: float = 0.5, min_count: int = 1
) -> Tensor:
    """Compute the thresholds of the highest mean recall that are expected to have a mean precision.

    Each unknown cell counts as present by its calibrated probability. So precision and recall of a threshold can
    be expected for the unknown cells themselves, of which there are many even in rare classes. Both are means
    over classes, precision over those that accept anything. Where more can be had for it, a class goes below the
    wanted precision and another stays above. The best thresholds for a price on precision are found class by
    class, the lowest price that pays for the wanted mean by bisection; only one class can be given more.

    Args:
        counts: ``(3, C, bins)``: known negatives, known positives and unknown cells.
        precision: wanted mean over classes of the share of positives among the unknown cells above the threshold.
        floor: the lowest calibrated probability that is accepted.
        min_count: least number of known cells.

    Returns:
        ``(C,)`` float64; 1.0 for a class in which nothing is worth its price. NaN without known positives, known
        negatives or unknown cells, or with fewer than ``min_count`` known ones.

    >>> counts = torch.zeros(3, 2, 10, dtype=torch.int64)
    >>> counts[0, :, 0] = counts[1, :, 9] = 1
    >>> counts[2, 0, [6, 8, 9]] = torch.tensor([0, 10, 90])
    >>> counts[2, 1, [6, 8, 9]] = torch.tensor([90, 0, 10])
    >>> calibrated_thresholds(counts, precision=0.9)
    tensor([0.8000, 0.9000], dtype=torch.float64)
    """
    bins = counts.shape[-1]
    chance = calibrated_probabilities(counts)
    known, unknown = counts[:2].sum(-1), counts[2].double()
    usable = (known > 0).all(0) & (known.sum(0) >= min_count) & (counts[2].sum(-1) > 0)
    accepted = unknown.flip(-1).cumsum(-1).flip(-1)
    right = (unknown * chance).flip(-1).cumsum(-1).flip(-1)
    surplus = right / accepted.clamp(min=1.0) - precision
    recall = right / right[:, :1].clamp(min=1e-12)
    # The small constant keeps a floor of one half at a probability of one half, whatever the rounding.
    possible = (unknown > 0) & (chance >= floor - 1e-9) & usable.unsqueeze(-1)

    def best(price: Tensor) -> tuple[Tensor, Tensor]:
        worth, place = torch.where(possible, recall + price * surplus, -1.0).max(-1)
        paid = torch.where(worth > 0, surplus.gather(-1, place.unsqueeze(-1)).squeeze(-1), 0.0)
        # A class can be worth nothing to the last digit; sums of rounding errors must not decide.
        return torch.where(worth > 0, place, bins), paid.sum() >= -1e-12

    # Where precision is free the wanted one may be had already.
    low, high = torch.zeros_like(chance[0]), torch.full_like(chance[0], _HIGHEST_PRICE)
    high = torch.where(best(low)[1], low, high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        enough = best(middle)[1]
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return torch.where(usable, below_bin(best(high)[0], bins), torch.nan)


class CalibratedThreshold(HistogramThreshold):
    """Expect a precision of the unknown cells themselves, by scores that known cells have calibrated.

    Other rules count known cells above a score. A class with a dozen known positives says little that way, and a
    network knows the cells that it was trained on too well. This one takes two numbers from the known cells of all
    classes, which make probabilities of scores, and then asks the unknown cells: the mean of their probabilities
    above a threshold is its precision to be expected. Classes share one budget: the mean precision over classes is
    the wanted one, and their mean recall the highest that goes with it. So it fills in more than rules that hold
    each class to the same precision. The probabilities are too high if the network was trained on the known
    cells, and so is the expected precision, by some points.

    For scores that mean the same in every class, as probabilities do; similarities do not.

    A class without known positives, without known negatives or without unknown cells keeps its threshold; one in
    which no threshold is worth its price emits nothing.

    Args:
        num_classes: number of classes.
        precision: wanted mean over classes of the share of positives among the unknown cells above the threshold.
        floor: the lowest calibrated probability of a cell that is accepted.
        rate: share of the way to the wanted thresholds that one update goes.
        bins: resolution of the histograms on [0, 1].
        min_count: a class with fewer known cells since the last update keeps its threshold.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    >>> rule = CalibratedThreshold(num_classes=1, precision=0.8, bins=10)
    >>> rule.observe(
    ...     torch.tensor([[0.95], [0.05], [0.95], [0.65], [0.45]]), torch.tensor([[1], [-1], [0], [0], [0]])
    ... )
    >>> rule.update()
    >>> rule.value
    tensor([0.6000])
    """

    def __init__(
        self,
        num_classes: int,
        precision: float = 0.9,
        floor: float = 0.5,
        rate: float = 1.0,
        bins: int = 2048,
        min_count: int = 1,
        encoding: str | None = None,
    ) -> None:
        check_shares(precision=precision, floor=floor, rate=rate)
        super().__init__(num_classes, 3, bins, min_count, encoding)
        self.precision = precision
        self.floor = floor
        self.rate = rate

    @property
    def step(self) -> float:
        """The share of the way to the ideal thresholds that one update goes."""
        return self.rate

    def thresholds_of(self, counts: Tensor) -> Tensor:
        """Return the thresholds ``(C,)`` of counts ``(3, C, bins)``."""
        return calibrated_thresholds(counts, self.precision, self.floor, self.min_count)
