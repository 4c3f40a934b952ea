"""Formulas of the network as pure functions, in forms that never hold their largest tensor.

The decoupling attention and the pair scores are sums over a tensor that would not fit into memory for many
classes. Both are operators of :mod:`satl.models.kernels`: in chunks on a CPU, fused on CUDA, and the backward
pass computes each part again instead of storing it. All reductions are dense: results do not depend on the order
of threads, and nothing waits for the device.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from satl.checks.tensor_checks import as_signed
from satl.errors import ArrayError
from satl.models.kernels import attention, pairs
from satl.models.kernels.precision import full_precision, no_autocast

__all__ = [
    "cooccurrence_counts",
    "cooccurrence_graph",
    "full_precision",
    "no_autocast",
    "pair_indices",
    "pair_scores",
    "semantic_attention",
    "symmetric_pairs",
]

_CHUNK_ROWS = 65536


def _check(max_elements: int | None) -> None:
    if max_elements is not None and max_elements < 1:
        raise ValueError(f"max_elements is {max_elements}, but must be positive")


def semantic_attention(
    projected: Tensor, class_queries: Tensor, weight: Tensor, max_elements: int | None = None
) -> Tensor:
    """Attention logit of every class at every location: sum_a w_a tanh(p[b,l,a] q[c,a]).

    Args:
        projected: (B, L, A), the projected features U f_l.
        class_queries: (C, A), the projected class embeddings V x_c.
        weight: (A,), the folded output weight W3^T w4.
        max_elements: numbers held at a time by the largest intermediate tensor (at least A); the result does
            not depend on it. By default it is chosen for the device; the fused form on CUDA holds none.

    Returns:
        (B, C, L); half-precision inputs are read as they are, computed and returned in float32.

    >>> projected, queries = torch.randn(2, 9, 4), torch.randn(3, 4)
    >>> semantic_attention(projected, queries, torch.ones(4)).shape
    torch.Size([2, 3, 9])
    """
    _check(max_elements)
    return attention.semantic_attention(projected, class_queries, weight, max_elements)


def pair_scores(left: Tensor, right: Tensor, vectors: Tensor, max_elements: int | None = None) -> Tensor:
    """Score of every pair of classes i < j: relu(left_i + right_j) . v_ij.

    Args:
        left: (B, C, D), the first class's part of the hidden layer (with its bias).
        right: (B, C, D), the second class's part.
        vectors: (Q, D), Q = C (C - 1) / 2, the folded vectors v_ij in the order of :func:`pair_indices`.
        max_elements: numbers held at a time by the largest intermediate tensor (at least B x D); the result
            does not depend on it. By default it is chosen for the device; the fused form on CUDA holds none.

    Returns:
        (B, Q); half-precision inputs are read as they are, computed and returned in float32.

    >>> pair_scores(torch.randn(2, 4, 8), torch.randn(2, 4, 8), torch.randn(6, 8)).shape
    torch.Size([2, 6])
    """
    classes = left.shape[1]
    if vectors.shape[0] != classes * (classes - 1) // 2:
        raise ArrayError(
            f"{classes} classes have {classes * (classes - 1) // 2} pairs, not {vectors.shape[0]}."
        )
    _check(max_elements)
    return pairs.pair_scores(left, right, vectors, max_elements)


def pair_indices(num_classes: int, device: torch.device | str | None = None) -> Tensor:
    """Classes i < j of every pair, row-major upper triangle: (2, Q).

    >>> pair_indices(3).tolist()
    [[0, 0, 1], [1, 2, 2]]
    """
    return torch.triu_indices(num_classes, num_classes, offset=1, device=device)


def symmetric_pairs(pair_values: Tensor, num_classes: int, diagonal: float = 1.0) -> Tensor:
    """Values of the pairs (B, Q) as symmetric matrices (B, C, C) with a constant diagonal.

    The backward pass is a gather, hence deterministic on every device.

    >>> symmetric_pairs(torch.tensor([[.1, .2, .3]]), 3).tolist()[0][0]
    [1.0, 0.10..., 0.20...]
    """
    batch = pair_values.shape[0]
    i, j = pair_indices(num_classes, pair_values.device)
    flat = pair_values.new_zeros(batch, num_classes * num_classes)
    upper = flat.index_copy(1, i * num_classes + j, pair_values).view(batch, num_classes, num_classes)
    constant = torch.eye(num_classes, dtype=pair_values.dtype, device=pair_values.device) * diagonal
    return upper + upper.transpose(1, 2) + constant


def cooccurrence_counts(labels: Tensor | NDArray[np.generic], *, encoding: str | None = None) -> Tensor:
    """In how many images two classes are known to be present together: (C, C) float64.

    Args:
        labels: (N, C) with +1 present, -1 absent, 0 unknown.
        encoding: how ``labels`` are written, if not +1, -1, 0. Labels with 0 and without -1 are refused unless one is
            named.

    >>> cooccurrence_counts(np.array([[1, 1, 0], [1, -1, 0]], dtype=np.int8)).tolist()
    [[2.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    given = labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
    table = as_signed(given, encoding)
    counts = torch.zeros(table.shape[1], table.shape[1], dtype=torch.float64, device=table.device)
    for rows in table.split(_CHUNK_ROWS):
        positive = (rows == 1).float()
        counts += (positive.T @ positive).double()
    return counts


def cooccurrence_graph(labels: Tensor | NDArray[np.generic], *, encoding: str | None = None) -> Tensor:
    """Row-normalised co-occurrence of known positives: A[i, j] = P(j present | i present).

    Args:
        labels: (N, C) with +1 present, -1 absent, 0 unknown.
        encoding: as in :func:`cooccurrence_counts`.

    Returns:
        (C, C) float32 with a unit diagonal; a class without a known positive is connected to itself only.

    >>> cooccurrence_graph(np.array([[1, 1, 0], [1, -1, 0]], dtype=np.int8)).tolist()
    [[1.0, 0.5, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    counts = cooccurrence_counts(labels, encoding=encoding)
    graph = counts / counts.diagonal().clamp(min=1)[:, None]
    return graph.fill_diagonal_(1.0).float()
