"""Large losses: the unknown cells of a batch that look most like positives, a few more each epoch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from satl.checks.tensor_checks import known_cells
from satl.distributed import gather_across, own_part
from satl.thresholds.functional import largest_cells, share_threshold
from satl.thresholds.rule import HistogramThreshold

_EMPTY = torch.iinfo(torch.int64).max


class LargeLossThreshold(HistogramThreshold):
    """Accept a share of each batch: the unknown cells with the largest scores, whatever their class.

    Published: unknown cells count as negative, and those with the largest loss of a batch are taken for missed
    positives; the loss of a cell that counts as negative grows with its score, so they are the cells with the
    largest scores. Their share of all cells of the batch grows by a step with every epoch. In the permanent
    variant it stays at one step, but what was accepted once stays accepted.

    With several processes the batch is that of all of them.

    Decided here: exactly the share is accepted, the earlier of equal scores first, and only unknown cells; the
    permanent variant remembers cells as numbers in a ring of fixed size, because a rule does not know how many
    images there are, and forgets the oldest where it is full. ``value`` decides nothing: it says above which
    score the same share of the last epoch's cells lies.

    Args:
        num_classes: number of classes.
        share_step: share of a batch's cells that each update adds (published: 0.001 to 0.005).
        permanent: remember accepted cells; :meth:`pseudo_labels` then needs the index of each image.
        memory: how many cells the permanent variant remembers, at 16 bytes each.
        bins: resolution of the histograms behind ``value``.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    Reference: Kim et al., Large loss matters in weakly supervised multi-label classification, 2022.

    >>> rule = LargeLossThreshold(num_classes=2, share_step=0.25)
    >>> scores, labels = torch.tensor([[0.3, 0.9], [0.8, 0.1]]), torch.tensor([[0, -1], [0, 0]])
    >>> rule.pseudo_labels(scores, labels)
    tensor([[ 0, -1],
            [ 0,  0]])
    >>> rule.update(); rule.pseudo_labels(scores, labels)
    tensor([[ 0, -1],
            [ 1,  0]])
    >>> rule.update(); rule.pseudo_labels(scores, labels)
    tensor([[ 1, -1],
            [ 1,  0]])
    """

    updates: Tensor
    keys: Tensor
    sorted_keys: Tensor
    written: Tensor

    def __init__(
        self,
        num_classes: int,
        share_step: float = 0.002,
        permanent: bool = False,
        memory: int = 1_000_000,
        bins: int = 2048,
        encoding: str | None = None,
    ) -> None:
        if not 0.0 <= share_step <= 1.0 or memory < 1:
            raise ValueError(
                f"share_step must lie in [0, 1] and memory be at least 1, got {share_step} and {memory}."
            )
        super().__init__(num_classes, 3, bins, min_count=1, encoding=encoding)
        self.share_step = share_step
        self.permanent = permanent
        self.memory = memory
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        if permanent:
            # One spare place takes what is not to be stored: writing needs no choice of places on the host.
            self.register_buffer("keys", torch.full((memory + 1,), _EMPTY))
            self.register_buffer("sorted_keys", torch.full((memory,), _EMPTY))
            self.register_buffer("written", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self) -> None:
        """Let the share grow; from now on the cells accepted in the last epoch are remembered."""
        self.updates += 1
        if self.permanent:
            self.sorted_keys.copy_(self.keys[:-1].sort().values)
        super().update()

    def thresholds_of(self, counts: Tensor) -> Tensor:
        """Return the one threshold ``(C,)`` above which the present share of all counted cells lies."""
        steps = self.updates.clamp(max=1) if self.permanent else self.updates
        return share_threshold(counts.sum(1), steps.double() * self.share_step).expand(self.num_classes)

    def limit(self) -> Tensor:
        """Refuse: the share grows with every update."""
        raise NotImplementedError("the share of accepted cells grows with every update.")

    @torch.no_grad()
    def pseudo_labels(self, scores: Tensor, labels: Tensor, images: Tensor | None = None) -> Tensor:
        """Return ``labels`` in which the chosen unknown cells are 1; known cells stay.

        A score of -1 means nothing and is never chosen.
        """
        own = self.check_batch(scores, labels)
        # The largest of all processes: each looks at the cells of all and takes its own from the answer.
        given, scores, labels = labels, gather_across(scores), gather_across(own)
        unknown = ~known_cells(labels)
        candidates = unknown & (scores.detach() > -1.0)
        step = labels.numel() * self.share_step
        if not self.permanent:
            # The small constant keeps ceil(0.002 * 500) at 1 whatever the rounding of the product.
            chosen = largest_cells(scores, candidates, (self.updates.double() * step - 1e-9).ceil())
        else:
            if images is None:
                raise ValueError("the permanent variant needs the index of each image.")
            keys = gather_across(images).long().unsqueeze(1) * self.num_classes + torch.arange(
                self.num_classes, device=scores.device
            )
            remembered = unknown & self._known_keys(keys)
            count = self.updates.clamp(max=1) * math.ceil(step - 1e-9)
            fresh = largest_cells(scores, candidates & ~remembered, count)
            if self.training:
                self._remember(torch.where(fresh, keys, _EMPTY))
            chosen = remembered | fresh
        return torch.where(own_part(chosen), torch.ones_like(given), given)

    def _known_keys(self, keys: Tensor) -> Tensor:
        place = torch.searchsorted(self.sorted_keys, keys).clamp(max=self.memory - 1)
        return self.sorted_keys.take(place) == keys

    def _remember(self, keys: Tensor) -> None:
        """Write the keys of the accepted cells of the batch, over the oldest where the ring is full."""
        keys = keys.flatten()
        valid = keys != _EMPTY
        order, arrived = valid.long().cumsum(0) - 1, valid.sum()
        stored = valid & (order >= arrived - self.memory)
        place = torch.where(stored, (self.written + order) % self.memory, self.memory)
        self.keys.index_copy_(0, place, keys)
        self.keys[self.memory :].fill_(_EMPTY)
        self.written += arrived
