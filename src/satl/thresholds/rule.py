"""The interface of all threshold rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from satl.checks.tensor_checks import LabelReader
from satl.distributed import sum_across
from satl.errors import ArrayError
from satl.thresholds.functional import add_to_histogram, move_thresholds, pseudo_labels


def check_shares(**shares: float) -> None:
    """Refuse parameters that do not lie in [0, 1]; the error names the first."""
    for name, share in shares.items():
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1], got {share}.")


class ThresholdRule(nn.Module):
    """One threshold per class for the scores of one generator.

    A rule starts at 1.0, where it emits no pseudo-label, and moves at each :meth:`update`. Training calls
    :meth:`observe` at every step and :meth:`update` at the start of each epoch of stage 2. All state lives in
    buffers, so checkpoints hold it; what differs between processes until an update adds it up is called
    ``counts``.

    Args:
        num_classes: number of classes.
        encoding: what the labels mean that the rule is called with, by a name of :data:`satl.labels.ENCODINGS`. None:
            +1, -1 and 0 for unknown; until a batch holds -1, 1 beside 0 is refused. Other values are refused (on an
            accelerator: in the first batch).
    """

    value: Tensor
    learns_by_gradient: bool = False
    """Whether :meth:`loss` is a further loss term of stage 2, by which the optimiser moves the thresholds."""
    update_every: int | None = None
    """About so many steps between updates within an epoch, spread evenly; None: only at its start."""

    def __init__(self, num_classes: int, encoding: str | None = None) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}.")
        self.num_classes = num_classes
        self._labels = LabelReader(encoding)
        self.register_buffer("value", torch.ones(num_classes))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Go to another device with the model, but stay in float32.

        Rounded down, a threshold would let the scores pass from which it was estimated.
        """
        exact = self.value.detach()
        super()._apply(fn, recurse)
        if self.value.dtype != exact.dtype:
            kept = exact.to(self.value.device)
            if isinstance(self.value, nn.Parameter):
                self.value.data = kept  # optimisers hold the parameter itself
            else:
                self.value = kept
        return self

    def extra_repr(self) -> str:
        """Show the parameters: all plain attributes, and the encoding unless it is satl's own."""
        hidden = ("training", "_")
        shown = {k: v for k, v in vars(self).items() if not k.startswith(hidden)}
        if self.encoding != "signed":
            shown["encoding"] = self.encoding
        return ", ".join(f"{k}={v!r}" for k, v in shown.items())

    @property
    def encoding(self) -> str:
        """What the labels mean that the rule is called with."""
        return self._labels.encoding

    def take_signed(self) -> None:
        """Be called with labels that somebody has read already: +1, -1 and 0, whatever a batch holds of them.

        Raises:
            ArrayError: the rule was told another encoding, by which it would read them a second time.
        """
        if self.encoding != "signed":
            raise ArrayError(
                f"the rule was made for encoding '{self.encoding}', and is handed labels that are read already",
                remedy="leave out encoding where the rule is made",
            )
        self._labels = LabelReader("signed")

    def observe(self, scores: Tensor, labels: Tensor) -> None:
        """Take note of one batch of scores ``(B, C)`` and labels ``(B, C)``; rules without memory ignore it.

        A score that means nothing is NaN and is left out, whether its cell is known or not.
        """

    def check_batch(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the labels of a batch with +1, -1, 0.

        Scores and labels that are not of this rule's classes are refused: they would be broadcast to them.
        """
        if scores.shape != labels.shape or scores.dim() != 2 or scores.shape[1] != self.num_classes:
            raise ArrayError(
                f"scores and labels must be (B, {self.num_classes}), got {tuple(scores.shape)} and "
                f"{tuple(labels.shape)}."
            )
        return self._labels(labels)

    def update(self) -> None:
        """Move the thresholds."""
        raise NotImplementedError

    def updates_after(self, step: int, steps: int) -> bool:
        """Whether thresholds move after a step of an epoch, other than the last, which an update always follows.

        Updates are spread evenly: a last one that rests on a few steps only would undo the others.

        >>> rule = ThresholdRule(num_classes=1)
        >>> rule.update_every = 3
        >>> [step for step in range(10) if rule.updates_after(step, 10)]
        [3, 6]
        >>> rule.update_every = 15
        >>> [step for step in range(31) if rule.updates_after(step, 31)]
        [15]
        """
        if self.update_every is None:
            return False
        updates = max(1, round(steps / self.update_every))
        return step + 1 < steps and (step + 1) * updates // steps > step * updates // steps

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss, a scalar, that moves the thresholds; only rules that learn by gradient have one.

        Args:
            scores: ``(B, C)``.
            labels: ``(B, C)``.
        """
        raise NotImplementedError

    def limit(self) -> Tensor:
        """Return the thresholds ``(C,)`` at which updates would end if they observed the same scores for ever.

        Like :meth:`update` it must be called by all of several processes.
        """
        raise NotImplementedError

    def pseudo_labels(self, scores: Tensor, labels: Tensor, images: Tensor | None = None) -> Tensor:
        """Return ``labels`` in which unknown cells strictly above the threshold are 1; known cells stay.

        ``images`` ``(B,)``, the index of each image in the training set, is for rules that remember cells.
        Labels come back in the encoding they had: present is 1 in all of them.
        """
        signed = self._labels(labels)
        return self._as_given(pseudo_labels(scores, signed, self.value), signed, labels)

    def _as_given(self, filled: Tensor, signed: Tensor, labels: Tensor) -> Tensor:
        """Return filled labels in the encoding of ``labels``, of which ``signed`` has the meaning."""
        return filled if signed is labels else torch.where(filled != signed, torch.ones_like(labels), labels)


class CountingThreshold(ThresholdRule):
    """A rule that adds up what it observes in ``counts`` and moves to the thresholds that follow from it.

    With several processes the counts are added up in :meth:`update`, so every process ends with the same
    thresholds; ``update`` must then be called by all of them. A class without evidence keeps its threshold.
    """

    counts: Tensor

    def __init__(self, num_classes: int, *shape: int, encoding: str | None = None) -> None:
        super().__init__(num_classes, encoding)
        self.register_buffer("counts", torch.zeros(*shape, dtype=torch.int64))

    @property
    def step(self) -> float:
        """The share of the way to the ideal thresholds that one update goes."""
        return 1.0

    def thresholds_of(self, counts: Tensor) -> Tensor:
        """Return the ideal thresholds ``(C,)`` that follow from counts (NaN: no evidence)."""
        raise NotImplementedError

    @torch.no_grad()
    def ideal(self) -> Tensor:
        """Return the ideal thresholds ``(C,)`` of what was observed so far (NaN: no evidence).

        Counts are added up over processes, so all of them must call it.
        """
        return self.thresholds_of(sum_across(self.counts))

    @torch.no_grad()
    def update(self) -> None:
        """Move ``value`` towards the ideal thresholds and start counting anew."""
        self.value.copy_(move_thresholds(self.value, self.ideal(), self.step))
        self.counts.zero_()

    @torch.no_grad()
    def limit(self) -> Tensor:
        """Return the ideal thresholds, or the present one where a class has none or updates go nowhere."""
        return move_thresholds(self.value, self.ideal(), 1.0 if self.step > 0 else 0.0)


class HistogramThreshold(CountingThreshold):
    """A rule whose counts are histograms of scores on [0, 1] per class: ``(rows, C, bins)``.

    Args:
        num_classes: number of classes.
        rows: 2 for known negatives and known positives, 3 for unknown cells as well.
        bins: resolution of the histograms.
        min_count: a class with fewer known cells since the last update keeps its threshold.
        encoding: what the labels mean, see :class:`ThresholdRule`.
    """

    def __init__(
        self, num_classes: int, rows: int, bins: int, min_count: int, encoding: str | None = None
    ) -> None:
        if bins < 2 or min_count < 1:
            raise ValueError(f"bins must be at least 2 and min_count at least 1, got {bins} and {min_count}.")
        super().__init__(num_classes, rows, num_classes, bins, encoding=encoding)
        self.bins = bins
        self.min_count = min_count

    @torch.no_grad()
    def observe(self, scores: Tensor, labels: Tensor) -> None:
        """Add the scores of one batch to the histograms."""
        add_to_histogram(self.counts, scores, self.check_batch(scores, labels))
