"""Sums, counts and concatenations over the training processes; with one process they do nothing.

Every process holds an equal share of each batch, and the gradients that the processes find are averaged. A loss
that is a mean over its own share is thus right by itself; one that divides by a count has to divide by
:func:`count_per_process`, and what compares images needs all of them (:func:`gather_with_gradient`).

Nothing here waits for the device, and all of it can be compiled without a graph break.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

if dist.is_available():
    # For a sum with a gradient. The public ones write into their argument, and some versions of torch compile that
    # wrongly: 2.11 drops the gradient.
    import torch.distributed._functional_collectives as functional


def world_size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_rank() -> int:
    """Return the number of this process, from 0 on."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def launched_rank() -> int:
    """Return the number of this process as its launcher says, before the processes have found each other.

    The variables are those that accelerate reads, in its order: of torchrun, and of three kinds of MPI.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    names = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
    found = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in found if value.isdigit()), 0)


def leave(status: int = 0) -> NoReturn:
    """End this process, one of several, at once: exit functions run, but Python is not taken down piece by piece.

    A thread of gloo may hold the tensors of an exchange a moment longer than the exchange takes. Where it lets go of
    them while Python is being taken down, torch aborts the process, though all of its work is done: on a busy machine
    trainings that had ended well were reported as failed.

    Call it when the work of this process is on the disk and, where ``status`` is 0, when no other process needs it.
    """
    if status == 0 and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()  # after a mistake the others may still wait for this one, and so would it
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def sum_across(tensor: Tensor) -> Tensor:
    """Return the sum of ``tensor`` over all processes; the argument itself is not changed.

    Gradients flow: what every process makes of the sum reaches what every process put in.
    """
    if world_size() == 1:
        return tensor
    total: Tensor = _Sum.apply(tensor)
    return total


def of_first_process(tensor: Tensor) -> Tensor:
    """Return the ``tensor`` of the first process in every process. No gradient flows.

    >>> of_first_process(torch.arange(3))
    tensor([0, 1, 2])
    """
    own = tensor.detach()
    return sum_across(own if process_rank() == 0 else torch.zeros_like(own))


def gather_across(tensor: Tensor) -> Tensor:
    """Concatenate ``tensor`` (same shape in every process) along its first axis, in the order of the ranks.

    No gradient flows.
    """
    if world_size() == 1:
        return tensor
    # What is sent and what is received must be laid out alike, whatever the strides of the argument.
    tensor = tensor.detach().contiguous()
    parts = [torch.empty_like(tensor) for _ in range(world_size())]
    dist.all_gather(parts, tensor)
    return torch.cat(parts)


def gather_with_gradient(tensor: Tensor) -> Tensor:
    """Concatenate as :func:`gather_across` does, with a gradient, for a loss that all processes compute from the whole.

    All processes compute the same number, so each of them knows the gradient of its own part without asking the
    others. That gradient is multiplied by the number of processes, because their gradients are averaged afterwards.
    """
    processes, rank = world_size(), process_rank()
    if processes == 1:
        return tensor
    parts = list(gather_across(tensor).chunk(processes))
    # The value of the part itself, with its gradient multiplied.
    parts[rank] = tensor + (processes - 1) * (tensor - tensor.detach())
    return torch.cat(parts)


def own_part(tensor: Tensor) -> Tensor:
    """Return the rows of a concatenation that came from this process.

    >>> own_part(gather_across(torch.arange(3))).tolist()
    [0, 1, 2]
    """
    return tensor.chunk(world_size())[process_rank()]


def count_per_process(count: Tensor) -> Tensor:
    """Return the divisor of a process's own sum, for a mean over the cells of all processes.

    That is the mean of ``count`` over the processes, at least one cell in all of them together. No gradient. Where
    gradients are off there is no training, and a process may call this alone: it then counts its own cells.

    >>> count_per_process(torch.tensor(0))
    tensor(1)
    """
    if world_size() == 1 or not torch.is_grad_enabled():
        return count.detach().clamp(min=1)
    return sum_across(count.detach()).clamp(min=1) / world_size()


class _Sum(torch.autograd.Function):
    """The sum over processes. What it is used for is averaged over processes, so its gradient is the sum too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return _sum(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _sum(gradient)


def _sum(tensor: Tensor) -> Tensor:
    assert dist.group.WORLD is not None
    return functional.wait_tensor(functional.all_reduce(tensor.contiguous(), "sum", dist.group.WORLD))
