"""Mixup: each image of a batch is mixed with its neighbour, 0 with 1, 2 with 3 and so on.

Batches are shuffled, so neighbours are random images. Pairs that follow from the position are the same however a
batch is shared by processes and micro-batches, as long as each of them holds an even number of images; the last of
an odd number stays as it is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def draw_shares(num: int, generator: torch.Generator) -> Tensor:
    """Return, for each of ``num`` mixed images, how much of it is the image itself: ``(num,)`` from 0.5 to 1.

    The larger part of two that follow the distribution Beta(0.5, 0.5): most mixtures are almost one image, and
    every ratio occurs.

    >>> shares = draw_shares(1000, torch.Generator().manual_seed(0))
    >>> bool(shares.min() >= 0.5), bool(shares.max() <= 1.0)
    (True, True)
    """
    # Beta(0.5, 0.5) is the distribution of cos(v)**2 for a uniform v, so that nothing has to be rejected and redrawn.
    uniform = torch.rand(num, generator=generator, device=generator.device)
    return torch.cos(uniform * (math.pi / 4)).square()


def neighbours(num: int, device: torch.device) -> Tensor:
    """Return the index ``(num,)`` of the image that each of ``num`` images is mixed with.

    >>> neighbours(5, torch.device("cpu")).tolist()
    [1, 0, 3, 2, 4]
    """
    return torch.bitwise_xor(torch.arange(num, device=device), 1).clamp(max=num - 1)


def mix(values: Tensor, shares: Tensor) -> Tensor:
    """Mix each image, or row of targets, with that of its neighbour.

    Args:
        values: ``(B, ...)``.
        shares: ``(B,)`` how much of each result is the row itself.

    >>> mix(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([1.0, 0.75, 0.5])).tolist()
    [[0.0], [0.75], [5.0]]
    """
    others = neighbours(values.shape[0], values.device)
    rest = (1 - shares).to(values.dtype).reshape(-1, *[1] * (values.ndim - 1))
    # In this order the result has the memory format of the images.
    return torch.lerp(values, values.index_select(0, others), rest)
