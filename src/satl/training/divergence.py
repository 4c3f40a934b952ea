"""Stop a run that has diverged, before its checkpoints are overwritten."""

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
    """Raise if the loss of an epoch or a weight is not finite; every process must call it.

    It waits for the device, so call it only where a run saves or validates.

    Args:
        losses: means over the steps of the epoch so far, with ``total``.
        learner: its weights are checked as well, because no loss was computed after the last step.
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
