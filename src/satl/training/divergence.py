"""Runs that have diverged end before anything good is replaced by what is left of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from satl.distributed import sum_across
from satl.errors import RunError
from satl.training.sharding import local


@torch.no_grad()
def require_finite(losses: Mapping[str, float], learner: nn.Module, run: Path, epoch: int) -> None:
    """Refuse to go on where the loss of an epoch, or a weight, is no number any more; all processes must ask.

    It waits for the device, so it is for the times at which a run saves or validates.

    Args:
        losses: means over the steps of the epoch so far, with ``total``.
        learner: whose weights are looked at: the last step can leave some behind that no loss has seen yet.
        run: its folder, for the message.
        epoch: counted from 0.

    Raises:
        RunError: the run has diverged.
    """
    broken = torch.stack([(~local(weight).isfinite()).any() for weight in learner.parameters()]).any()
    seen = not math.isfinite(losses["total"])
    if seen or bool(sum_across(broken.float()) > 0):
        what = "loss is no longer a finite number" if seen else "weights are no longer finite numbers"
        raise RunError(
            f"{run}: the {what} in epoch {epoch + 1} ({losses}); lower training.lr, or set training.clip_norm."
        )
