"""An exponential moving average of weights, for evaluation."""

from __future__ import annotations

import copy

import torch
from torch import nn

from satl.training.sharding import local


class MovingAverage(nn.Module):
    """A copy of a module that follows it slowly.

    Frozen weights are shared with it. Other floating-point weights and buffers move by ``1 - decay`` of the way at
    each step, more at the start (after n steps at most ``(1 + n) / (10 + n)`` of the old value is kept); everything
    else is copied.

    A step is :meth:`advance`, then :meth:`update`: the first counts on the host, the second is the same work on
    the device in every step, so that it can be captured in a graph.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.steps = 0
        self.module = copy.deepcopy(module).requires_grad_(False).eval()
        for own, other in zip(self.module.parameters(), module.parameters(), strict=True):
            if not other.requires_grad:
                own.data = other.data  # frozen: the same memory will do
        device = next(module.parameters()).device
        self._keep, self._take = torch.ones((), device=device), torch.zeros((), device=device)

    def advance(self) -> None:
        """Count a step; no host synchronisation."""
        self.steps += 1
        keep = min(self.decay, (1 + self.steps) / (10 + self.steps))
        self._keep.fill_(keep)
        self._take.fill_(1.0 - keep)

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Move towards ``module``; no host synchronisation."""
        mine, theirs = [], []
        # With their own flags: what is frozen was copied, and stays as it is.
        sources = module.state_dict(keep_vars=True)
        for (name, own), (other_name, other) in zip(
            self.module.state_dict().items(), sources.items(), strict=True
        ):
            assert name == other_name
            if isinstance(other, nn.Parameter) and not other.requires_grad:
                continue
            if own.is_floating_point():
                mine.append(local(own))
                theirs.append(local(other))
            else:
                own.copy_(other)
        torch._foreach_mul_(mine, self._keep)
        torch._foreach_add_(mine, torch._foreach_mul(theirs, self._take))
