"""Semantic-Aware Threshold Estimation: one threshold per class from the scores of the known cells."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from satl.thresholds.functional import ideal_thresholds
from satl.thresholds.rule import HistogramThreshold, check_shares


class SemanticAwareThreshold(HistogramThreshold):
    """Learn one threshold per class from the score distributions of known positives and known negatives.

    Call :meth:`observe` on every batch, :meth:`update` once in a while (the paper: once an epoch, since a
    0.999 quantile needs many scores), and :meth:`pseudo_labels` to fill unknown cells. ``observe`` never
    synchronises with the host. With several processes the histograms are added up in ``update``, so every
    process ends with the same thresholds; ``update`` must then be called by all of them.

    Args:
        num_classes: number of classes.
        negative_quantile: level on the scores of known negatives (the paper's 0.999).
        positive_quantile: level on the scores of known positives (the paper's 0.1).
        rate: share of the way to the ideal threshold that one update goes (the paper's gamma).
        bins: resolution of the histograms on [0, 1]; thresholds are exact to one bin.
        min_count: a class with fewer known cells since the last update keeps its threshold.
        convention: ``"rate"`` moves by ``value <- (1 - rate) * value + rate * ideal``, which is what the
            paper's text and figures describe. ``"eq5"`` is its literal equation 5,
            ``value <- rate * value + (1 - rate) * ideal``; the two agree at 0.5.
        negatives_per_positive: known negatives that may lie above the ideal threshold for each known positive of
            the class, where that is more than ``negative_quantile`` lets pass. 0 is the paper's rule, under which
            a single odd negative decides in a class that most images show.
        floor: the lowest ideal threshold. For scores that are probabilities one half makes sense: what is more
            likely absent than present is no positive, however low the few known positives of its class lie.
        update_every: about so many steps between updates within an epoch; training asks :meth:`updates_after`.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    Shapes:
        scores and labels ``(B, C)``; labels are +1 present, -1 absent, 0 unknown, or as ``encoding`` says;
        ``value`` ``(C,)``.

    Reference: SATL, arXiv 2507.23263, equations 3 to 5.

    >>> import torch
    >>> rule = SemanticAwareThreshold(num_classes=1, rate=1.0, bins=10)
    >>> scores = torch.tensor([[0.05], [0.15], [0.75], [0.85], [0.65]])
    >>> labels = torch.tensor([[-1], [-1], [1], [1], [0]])
    >>> rule.observe(scores, labels)
    >>> rule.update()
    >>> rule.value
    tensor([0.8000])
    >>> rule.pseudo_labels(torch.tensor([[0.9], [0.7]]), torch.tensor([[0], [0]]))
    tensor([[1], [0]])
    """

    def __init__(
        self,
        num_classes: int,
        negative_quantile: float = 0.999,
        positive_quantile: float = 0.1,
        rate: float = 0.3,
        bins: int = 2048,
        min_count: int = 1,
        convention: Literal["rate", "eq5"] = "rate",
        negatives_per_positive: float = 0.0,
        floor: float = 0.0,
        update_every: int | None = None,
        encoding: str | None = None,
    ) -> None:
        check_shares(
            negative_quantile=negative_quantile, positive_quantile=positive_quantile, rate=rate, floor=floor
        )
        if convention not in ("rate", "eq5"):
            raise ValueError(f"convention must be 'rate' or 'eq5', got {convention!r}.")
        if not negatives_per_positive >= 0.0:
            raise ValueError(f"negatives_per_positive must be 0 or larger, got {negatives_per_positive}.")
        super().__init__(num_classes, 2, bins, min_count, encoding)
        self.negatives_per_positive = negatives_per_positive
        self.floor = floor
        self.negative_quantile = negative_quantile
        self.positive_quantile = positive_quantile
        self.rate = rate
        self.convention = convention
        self.update_every = update_every

    @property
    def step(self) -> float:
        """The share of the way to the ideal thresholds that one update goes."""
        return self.rate if self.convention == "rate" else 1.0 - self.rate

    def thresholds_of(self, counts: Tensor) -> Tensor:
        """Return the ideal thresholds ``(C,)`` of counts ``(2, C, bins)`` (NaN: no evidence)."""
        return ideal_thresholds(
            counts,
            self.negative_quantile,
            self.positive_quantile,
            self.min_count,
            self.negatives_per_positive,
            self.floor,
        )
