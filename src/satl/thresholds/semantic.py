"""Semantic-Aware Threshold Estimation: one threshold per class from the scores of the known cells."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from satl.processes import sum_across
from satl.thresholds.base import ThresholdRule
from satl.thresholds.functional import add_to_histogram, ideal_thresholds, move_thresholds


class SemanticAwareThreshold(ThresholdRule):
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

    Shapes:
        scores and labels ``(B, C)``; labels are +1 present, -1 absent, 0 unknown; ``value`` ``(C,)``.

    Reference: SATL, arXiv 2507.23263, equations 3 to 5.

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

    counts: Tensor

    def __init__(
        self,
        num_classes: int,
        negative_quantile: float = 0.999,
        positive_quantile: float = 0.1,
        rate: float = 0.3,
        bins: int = 2048,
        min_count: int = 1,
        convention: Literal["rate", "eq5"] = "rate",
    ) -> None:
        super().__init__(num_classes)
        for name, level in (
            ("negative_quantile", negative_quantile),
            ("positive_quantile", positive_quantile),
            ("rate", rate),
        ):
            if not 0.0 <= level <= 1.0:
                raise ValueError(f"{name} must lie in [0, 1], got {level}.")
        if bins < 2 or min_count < 1:
            raise ValueError(f"bins must be at least 2 and min_count at least 1, got {bins} and {min_count}.")
        if convention not in ("rate", "eq5"):
            raise ValueError(f"convention must be 'rate' or 'eq5', got {convention!r}.")
        self.negative_quantile = negative_quantile
        self.positive_quantile = positive_quantile
        self.rate = rate
        self.bins = bins
        self.min_count = min_count
        self.convention = convention
        self.register_buffer("counts", torch.zeros(2, num_classes, bins, dtype=torch.int64))

    @torch.no_grad()
    def observe(self, scores: Tensor, labels: Tensor) -> None:
        """Add the scores of the known cells of one batch to the histograms."""
        add_to_histogram(self.counts, scores, labels)

    @torch.no_grad()
    def ideal(self) -> Tensor:
        """Return the ideal thresholds ``(C,)`` of what was observed so far (NaN: no evidence)."""
        counts = sum_across(self.counts)
        return ideal_thresholds(counts, self.negative_quantile, self.positive_quantile, self.min_count)

    @torch.no_grad()
    def update(self) -> None:
        """Move ``value`` towards the ideal thresholds and start new histograms."""
        rate = self.rate if self.convention == "rate" else 1.0 - self.rate
        self.value.copy_(move_thresholds(self.value, self.ideal(), rate))
        self.counts.zero_()

    def extra_repr(self) -> str:
        """Show the parameters that matter."""
        return (
            f"{self.num_classes}, negative_quantile={self.negative_quantile}, "
            f"positive_quantile={self.positive_quantile}, rate={self.rate}, bins={self.bins}"
        )
