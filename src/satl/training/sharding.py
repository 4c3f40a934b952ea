"""A head whose weights are spread over the processes, for one that outgrows a card (PyTorch's FSDP).

Each process keeps a part of the pair head's weights, gradients and moments; the whole is put together only while the
head computes. All other weights stay whole in every process. Checkpoints hold whole tensors and know nothing of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from satl.distributed import world_size


def shard_heads(network: nn.Module, device: torch.device) -> list[str]:
    """Spread the pair head of a network over the processes; return the names of its parameters.

    Nothing is done with one process or without such a head.
    """
    head = getattr(network, "pair_head", None)
    if world_size() == 1 or head is None:
        return []
    from torch.distributed.fsdp import fully_shard

    fully_shard(head, mesh=init_device_mesh(device.type, (world_size(),)))
    return [f"pair_head.{name}" for name, _ in head.named_parameters()]


def leave_to_shards(learner: nn.Module, names: list[str]) -> None:
    """Keep ``DistributedDataParallel`` away from parameters of ``learner.network`` that are sharded."""
    if names:
        ignored = [f"network.{name}" for name in names]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(learner, ignored)


def local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds: all of it where it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(content: Any) -> Any:
    """Return nested data with every sharded tensor put together; every process must call it."""
    if isinstance(content, DTensor):
        return content.full_tensor().cpu()  # one at a time: all of them together may not fit on the device
    if isinstance(content, dict):
        return {key: whole(value) for key, value in content.items()}
    if isinstance(content, list):
        return [whole(value) for value in content]
    return content


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """Return ``tensor``, which is whole, spread over the processes as ``other`` is."""
    if not isinstance(other, DTensor) or tensor.shape != other.shape:
        return tensor
    placed = tensor.to(other.device, other.dtype)
    return distribute_tensor(placed, other.device_mesh, other.placements)


@torch.no_grad()
def clip_gradients(parameters: list[nn.Parameter], largest: float) -> None:
    """Scale all gradients together so that their norm is at most ``largest``; no host synchronisation."""
    groups: tuple[list[Tensor], list[Tensor]] = ([], [])
    for parameter in parameters:
        if parameter.grad is not None:
            groups[isinstance(parameter.grad, DTensor)].append(parameter.grad)
    norms = [nn.utils.get_total_norm(group, foreach=True) for group in groups if group]
    norms = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    norm = norms[0] if len(norms) == 1 else torch.stack(norms).norm()
    factor = (largest / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_([local(gradient) for group in groups for gradient in group], factor)
