"""Which precision the operators compute in, and where their fused form is used."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)
# A chunk should stay in the processor's cache; an accelerator wants few, large launches.
_MAX_ELEMENTS_CPU = 2**18
_MAX_ELEMENTS_DEVICE = 2**24


def full_precision(tensor: Tensor) -> Tensor:
    """The tensor, in float32 if it is in half precision."""
    return tensor.float() if tensor.dtype in _HALF else tensor


def no_autocast(tensor: Tensor) -> torch.autocast:
    """A context in which operations on the tensor's device keep the precision of their inputs."""
    return torch.autocast(tensor.device.type, enabled=False)


def computed_dtype(*tensors: Tensor) -> torch.dtype:
    """What the operators compute in and return: float32, or float64 where an input has it.

    >>> computed_dtype(torch.ones(1, dtype=torch.bfloat16), torch.ones(1))
    torch.float32
    """
    return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32


def budget(max_elements: int | None, tensor: Tensor) -> int:
    """How many numbers the largest chunk may hold."""
    if max_elements is not None:
        return max_elements
    return _MAX_ELEMENTS_CPU if tensor.device.type == "cpu" else _MAX_ELEMENTS_DEVICE


@cache
def _triton_installed() -> bool:
    return find_spec("triton") is not None


def fused(*tensors: Tensor) -> bool:
    """Whether the fused kernels take these inputs: on CUDA, with Triton, in float32 or half precision.

    >>> fused(torch.ones(1))
    False
    """
    return (
        all(tensor.is_cuda for tensor in tensors)
        and computed_dtype(*tensors) == torch.float32
        and _triton_installed()
    )
