"""SST's schedule: one threshold for all classes, lowered by a fixed step per update."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.thresholds.rule import ThresholdRule


class LinearDecayThreshold(ThresholdRule):
    """Lower one threshold for all classes by the same step at each update.

    The first update sets ``start``, each further one subtracts ``step`` until ``end`` is reached; before the
    first update the threshold is 1.0. The defaults are SST's published schedule for epochs 5 to 19; in a training of
    few epochs it ends far above most scores, unless the steps are larger or ``update_every`` makes more of them.

    Args:
        num_classes: C.
        start: the threshold after the first update.
        step: how much lower each further update is.
        end: the lowest threshold.
        update_every: about so many training steps between updates; None: once an epoch.
        encoding: what the labels mean that the rule is called with; see :class:`ThresholdRule`.

    >>> rule = LinearDecayThreshold(num_classes=2)
    >>> rule.update(); rule.update()
    >>> rule.value
    tensor([0.9250, 0.9250])
    """

    updates: Tensor

    def __init__(
        self,
        num_classes: int,
        start: float = 0.95,
        step: float = 0.025,
        end: float = 0.75,
        update_every: int | None = None,
        encoding: str | None = None,
    ) -> None:
        super().__init__(num_classes, encoding)
        if update_every is not None and update_every < 1:
            raise ValueError(f"update_every must be at least 1, got {update_every}.")
        if not 0.0 <= end <= start <= 1.0 or step < 0.0:
            raise ValueError(
                "a linear decay needs 0 <= end <= start <= 1 and step >= 0, "
                f"got start {start}, end {end}, step {step}."
            )
        self.start, self.step, self.end = start, step, end
        self.update_every = update_every
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self) -> None:
        """Go one step down."""
        self.value.copy_((self.start - self.step * self.updates).clamp(min=self.end).expand_as(self.value))
        self.updates += 1

    def limit(self) -> Tensor:
        """Return the lowest threshold that the steps reach ``(C,)``."""
        return torch.full_like(self.value, self.end if self.step > 0.0 else self.start)
