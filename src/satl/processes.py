"""What several training processes agree on: sums and concatenations, nothing when there is one process."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_across(tensor: Tensor) -> Tensor:
    """Return the sum of ``tensor`` over all processes; the argument itself is not changed."""
    if world_size() == 1:
        return tensor
    total = tensor.clone()
    dist.all_reduce(total)
    return total


def gather_across(tensor: Tensor) -> Tensor:
    """Concatenate ``tensor`` (same shape in every process) along its first axis, in the order of the ranks."""
    if world_size() == 1:
        return tensor
    # What is sent and what is received must be laid out alike, whatever the strides of the argument.
    tensor = tensor.contiguous()
    parts = [torch.empty_like(tensor) for _ in range(world_size())]
    dist.all_gather(parts, tensor)
    return torch.cat(parts)
