"""HST's dynamic threshold learning (DTL): thresholds that the optimiser moves like any other weight."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from satl.checks.tensor_checks import as_thresholds, check_cells, known_cells
from satl.distributed import count_per_process
from satl.thresholds.rule import HistogramThreshold, check_shares


def threshold_learning(scores: Tensor, labels: Tensor, thresholds: Tensor) -> Tensor:
    """Judge scores by the known cells, in a way that thresholds can learn from (HST's DTL loss), in float32.

    The difference ``d = clip(score - threshold, 0, 1)`` is taken for a logit, and the result is the mean binary
    cross-entropy over the known cells. Known positives at or above the threshold thus pull it down and pull their
    scores up, known negatives there do the opposite, and cells below it do nothing.

    Args:
        scores: ``(B, C)`` generator scores; cells whose score is NaN do not count.
        labels: ``(B, C)`` with +1, -1, 0.
        thresholds: ``(C,)``.

    Returns:
        A scalar with gradients for scores and thresholds; 0 if nothing is known. With several processes it is their
        mean that is the mean over the known cells of all of them.

    >>> thresholds = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    >>> loss = threshold_learning(torch.tensor([[0.9, 0.6, 0.1]]), torch.tensor([[1, -1, 1]]), thresholds)
    >>> loss.backward(); thresholds.grad
    tensor([ 0.1338, -0.1750,  0.0000])
    """
    check_cells(scores, labels, "scores")
    thresholds = as_thresholds(scores, thresholds)
    known = known_cells(labels) & ~scores.isnan()
    sign = torch.where(known, labels.float(), 0.0)
    difference = torch.where(known, scores.float() - thresholds.float(), 0.0)
    # The ends of the clip have a gradient, as in HST, where a score of 1 is the first to move a threshold of 1;
    # whether those of torch.clamp have one depends on its version.
    inside = (difference >= 0.0) & (difference <= 1.0)
    difference = torch.where(inside, difference, difference.detach().clamp(0.0, 1.0))
    cost = F.softplus(-sign * difference) * known
    return cost.sum() / count_per_process(known.sum())


def resting_thresholds(counts: Tensor) -> Tensor:
    """Find where thresholds that come down from 1 would stop under :func:`threshold_learning`.

    A threshold sinks as long as its gradient does not push it up: weight decay carries it through places without
    any. It rests at the first bin edge from above at which the known negatives above it outweigh the positives.

    Args:
        counts: ``(2, C, bins)`` of :func:`satl.functional.score_histogram`.

    Returns:
        ``(C,)`` float64; 0 where nothing stops it, NaN for classes with nothing known.

    >>> counts = torch.zeros(2, 1, 10, dtype=torch.int64)
    >>> counts[1, 0, 8], counts[0, 0, 3] = 4, 5
    >>> resting_thresholds(counts)
    tensor([0.4000], dtype=torch.float64)
    """
    bins = counts.shape[-1]
    edges = torch.arange(bins, dtype=torch.float64, device=counts.device) / bins
    distance = (edges + 0.5 / bins).unsqueeze(1) - edges  # of the middle of a bin above an edge
    push = torch.where(distance > 0, torch.sigmoid(distance), 0.0)
    pull = torch.where(distance > 0, torch.sigmoid(-distance), 0.0)
    upwards = counts[0].double() @ push - counts[1].double() @ pull > 0  # (C, bins)
    highest = torch.where(upwards, torch.arange(1, bins + 1, device=counts.device), 0).amax(-1)
    return torch.where(counts.sum(dim=(0, 2)) > 0, highest.double() / bins, torch.nan)


class LearnedThreshold(HistogramThreshold):
    """Learn thresholds by gradient descent, together with the network (HST's DTL).

    ``value`` is a parameter that starts at ``initial``. :meth:`loss` has to be part of what is minimised; training
    adds it in stage 2 and keeps the optimiser away from the thresholds before. At 1.0 hardly any cell lies above, so it
    is the optimiser's weight decay that lowers the threshold at first: with Adam by about the learning rate a step,
    until scores of known cells lie above it. Without weight decay (``decay=False``), or in a loop whose optimiser keeps
    it apart from the gradient (AdamW; ``satl train`` has it in the gradient of thresholds with any optimiser), a
    threshold can stay at 1.0 for ever. A short training, or a low learning rate, wants a lower ``initial`` or an own
    ``rate``.

    Args:
        num_classes: C.
        weight: what the loss is multiplied by (HST: 0.1).
        shared: one threshold for all classes, as in HST's code; otherwise each class learns its own.
        decay: let weight decay act on the thresholds, as HST's code does.
        bins: resolution of :meth:`limit`, which is for looking at thresholds outside of training.
        initial: the threshold of every class before any step (HST: 1).
        rate: the learning rate of the thresholds; None: that of the network's head, as in HST's code.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    >>> rule = LearnedThreshold(num_classes=2, encoding="signed")
    >>> rule.loss(torch.tensor([[1.0, 0.5]]), torch.tensor([[1, 0]])).backward()
    >>> rule.value.grad
    tensor([0.0500, 0.0500])
    """

    value: nn.Parameter
    learns_by_gradient = True

    def __init__(
        self,
        num_classes: int,
        weight: float = 0.1,
        shared: bool = True,
        decay: bool = True,
        bins: int = 2048,
        initial: float = 1.0,
        rate: float | None = None,
        encoding: str | None = None,
    ) -> None:
        super().__init__(num_classes, 2, bins, min_count=1, encoding=encoding)
        if weight < 0.0:
            raise ValueError(f"weight must be at least 0, got {weight}.")
        if rate is not None and not rate > 0.0:
            raise ValueError(f"rate must be above 0, got {rate}.")
        check_shares(initial=initial)
        del self._buffers["value"]
        self.value = nn.Parameter(torch.full((num_classes,), float(initial)))
        self.weight = weight
        self.shared = shared
        self.undecayed = not decay
        """Asked for by the optimiser: whether weight decay leaves the parameters of this module alone."""
        self.own_rate = rate
        """Asked for by the optimiser: the learning rate of the parameters of this module, if other than the head's."""

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted loss of scores and labels, both ``(B, C)``."""
        thresholds: Tensor = self.value
        if self.shared:
            # The value of every class, the gradient of all of them: as if there were one number.
            total = self.value.sum()
            thresholds = self.value.detach() + (total - total.detach())
        return self.weight * threshold_learning(scores, self.check_batch(scores, labels), thresholds)

    def thresholds_of(self, counts: Tensor) -> Tensor:
        """Return where the thresholds would come to rest; see :func:`resting_thresholds`."""
        if not self.shared:
            return resting_thresholds(counts)
        return resting_thresholds(counts.sum(1, keepdim=True)).expand(self.num_classes)

    @torch.no_grad()
    def update(self) -> None:
        """Start new histograms; it is the optimiser that moves the thresholds."""
        self.counts.zero_()
