"""SATL as one loss: thresholds, pseudo-labels, cross-entropy and ranking, for a training loop of somebody else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from satl.checks.tensor_checks import LabelReader
from satl.losses.partial_bce import PartialReduction, check_reduction, partial_bce
from satl.losses.ranking import differential_ranking
from satl.thresholds.rule import ThresholdRule
from satl.thresholds.semantic_aware import SemanticAwareThreshold


class SATLLoss(nn.Module):
    """The loss of a loop that learns from labels with holes; put it where the loop has its loss, and update it.

    Each call fills unknown cells above the threshold of their class with pseudo-labels, returns the cross-entropy of
    known and filled cells plus the ranking loss of the known ones, and takes note of the scores of the known cells.
    :meth:`update`, once an epoch, moves the thresholds. Scores are the probabilities of the classifier. Nothing waits
    for the device, and a call without gradients, as in validation, takes note of nothing.

    Args:
        num_classes: number of classes.
        warm_up: epochs before thresholds begin to move; until then nothing is filled, because the scores of an
            untrained network mean nothing.
        ranking_weight: weight of the ranking loss (the paper's 0.01).
        rule: the threshold rule, which is told no encoding of its own; None: :class:`SemanticAwareThreshold` with its
            defaults.
        reduction: of the cross-entropy, as in :class:`PartialBCELoss`.
        encoding: what the labels mean, as in :class:`PartialBCELoss`.

    Shapes:
        logits and labels ``(B, C)``.

    >>> loss = SATLLoss(num_classes=1, warm_up=0, rule=SemanticAwareThreshold(1, rate=1.0))
    >>> logits = torch.tensor([[-2.0], [-1.0], [2.0], [3.0]], requires_grad=True)
    >>> loss(logits, torch.tensor([[-1], [-1], [1], [0]])).item() > 0
    True
    >>> loss.thresholds.tolist()
    [1.0]
    >>> loss.update()
    >>> 0.88 < loss.thresholds.item() < 0.89  # that of the known positive
    True
    >>> loss.pseudo_labels(logits, torch.tensor([[-1], [-1], [1], [0]])).T
    tensor([[-1, -1,  1,  1]])
    """

    def __init__(
        self,
        num_classes: int,
        warm_up: int = 1,
        ranking_weight: float = 0.01,
        rule: ThresholdRule | None = None,
        reduction: PartialReduction = "known",
        encoding: str | None = None,
    ) -> None:
        super().__init__()
        if warm_up < 0:
            raise ValueError(f"warm_up must be 0 or larger, got {warm_up}.")
        check_reduction(reduction)
        if rule is not None and rule.learns_by_gradient:
            raise ValueError("rule must move by updates, and this one learns by a loss of its own.")
        if rule is not None and rule.num_classes != num_classes:
            raise ValueError(f"rule is for {rule.num_classes} classes instead of {num_classes}.")
        self.rule = SemanticAwareThreshold(num_classes) if rule is None else rule
        self.rule.take_signed()  # the labels that this loss has read by its encoding
        self.warm_up, self.ranking_weight = warm_up, ranking_weight
        self.reduction: PartialReduction = reduction
        self._labels = LabelReader(encoding)
        self.epochs = 0
        """Epochs that are done: calls of :meth:`update`."""

    @property
    def thresholds(self) -> Tensor:
        """The thresholds ``(C,)``; 1.0 fills nothing."""
        return self.rule.value

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the scalar loss of ``logits`` and ``labels``, both ``(B, C)``."""
        labels = self._labels(labels)
        scores = logits.float().sigmoid()
        filled = self.rule.pseudo_labels(scores.detach(), labels)
        loss = partial_bce(logits, filled, self.reduction)
        if self.epochs >= self.warm_up:
            loss = loss + self.ranking_weight * differential_ranking(scores, labels, self.rule.value)
        if self.training and logits.requires_grad and self.epochs >= self.warm_up - 1:
            self.rule.observe(scores.detach(), labels)
        return loss

    @torch.no_grad()
    def pseudo_labels(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return ``labels`` in which unknown cells above their threshold are 1; nothing is learned from it."""
        return self.rule.pseudo_labels(logits.float().sigmoid(), self._labels(labels))

    def update(self) -> None:
        """End an epoch: move the thresholds, once the warm-up is over. All of several processes must call it."""
        self.epochs += 1
        if self.epochs >= self.warm_up:
            self.rule.update()

    def get_extra_state(self) -> Tensor:
        """Return the epochs that are done, for checkpoints."""
        return torch.tensor(self.epochs)

    def set_extra_state(self, state: Tensor) -> None:
        """Take over the epochs that were done."""
        self.epochs = int(state)
