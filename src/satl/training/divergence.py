"""Stop a run that has diverged, before its checkpoints are overwritten, and refuse one that is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from satl.distributed import sum_across
from satl.errors import RunError
from satl.training.sharding import local


@torch.no_grad()
def require_finite(losses: Mapping[str, float], learner: nn.Module, run: Path, epoch: int) -> None:
    """Raise if the loss of an epoch or a weight is not finite; every process must call it.

    It waits for the device, so call it only where a run saves or validates.

    Args:
        losses: means over the steps of the epoch so far, with ``total``.
        learner: its weights are checked as well, because no loss was computed after the last step, and the
            statistics of its network.
        run: its folder, for the message.
        epoch: counted from 0.

    Raises:
        RunError: the run has diverged.
    """
    broken = torch.stack([(~local(value).isfinite()).any() for _, value in _numbers(learner)]).any()
    seen = not math.isfinite(losses["total"])
    if seen or bool(sum_across(broken.float()) > 0):
        what = "loss is no longer a finite number" if seen else "weights are no longer finite numbers"
        raise RunError(
            f"{run}: the {what} in epoch {epoch + 1} ({losses}); lower training.lr, or set training.clip_norm."
        )


@torch.no_grad()
def require_finite_weights(learner: nn.Module, checkpoint: Path) -> None:
    """Raise if a weight, or a statistic of the network, is not finite: every prediction would be worthless.

    Args:
        learner: as it was loaded.
        checkpoint: where it was loaded from, for the message.

    Raises:
        RunError: a number is NaN or infinite.
    """
    for name, value in _numbers(learner):
        broken = int((~local(value).isfinite()).sum())
        if broken:
            raise RunError(
                f"{broken} of {value.numel()} values of {name} are NaN or infinite, so the model predicts nothing",
                where=checkpoint,
                remedy="use another checkpoint, or train again with a lower training.lr",
            )


def _numbers(learner: nn.Module) -> list[tuple[str, Tensor]]:
    """Return what a network computes with: weights, and buffers such as the statistics of batch normalisation."""
    weights = list(learner.named_parameters())
    buffers = learner.get_submodule("network").named_buffers(prefix="network")
    return weights + [(name, value) for name, value in buffers if value.is_floating_point()]
