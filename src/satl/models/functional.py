"""Formulas of the network as pure functions, in forms that never hold their largest tensor.

The decoupling attention and the pair scores are sums over a tensor that would not fit into memory for many
classes. Both are evaluated in chunks, and the backward pass computes each chunk again instead of storing it.
All reductions are dense: results do not depend on the order of threads, and nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK_ROWS = 65536
# A chunk should stay in the processor's cache; an accelerator wants few, large launches.
_MAX_ELEMENTS_CPU = 2**18
_MAX_ELEMENTS_DEVICE = 2**24


def _budget(max_elements: int | None, tensor: Tensor) -> int:
    if max_elements is None:
        return _MAX_ELEMENTS_CPU if tensor.device.type == "cpu" else _MAX_ELEMENTS_DEVICE
    if max_elements < 1:
        raise ValueError(f"max_elements is {max_elements}, but must be positive")
    return max_elements


def full_precision(tensor: Tensor) -> Tensor:
    """The tensor, in float32 if it is in half precision."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def no_autocast(tensor: Tensor) -> torch.autocast:
    """A context in which operations on the tensor's device keep the precision of their inputs."""
    return torch.autocast(tensor.device.type, enabled=False)


def _attention_chunks(rows: int, classes: int, dim: int, budget: int) -> Iterator[tuple[slice, slice]]:
    class_step = max(1, min(classes, budget // max(dim, 1)))
    row_step = max(1, budget // max(class_step * dim, 1))
    for row in range(0, rows, row_step):
        for first in range(0, classes, class_step):
            yield slice(row, min(row + row_step, rows)), slice(first, min(first + class_step, classes))


class _SemanticAttention(torch.autograd.Function):
    """Rows (R, A), queries (C, A), weight (A,) -> (R, C)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, queries: Tensor, weight: Tensor, budget: int) -> Tensor:
        ctx.save_for_backward(rows, queries, weight)
        ctx.budget = budget
        logits = rows.new_empty(rows.shape[0], queries.shape[0])
        with no_autocast(rows):
            for r, c in _attention_chunks(rows.shape[0], queries.shape[0], queries.shape[1], budget):
                gates = (rows[r, None, :] * queries[None, c, :]).tanh_()
                logits[r, c] = gates @ weight
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        rows, queries, weight = ctx.saved_tensors
        grad = grad.to(rows.dtype)
        grad_rows, grad_queries = torch.zeros_like(rows), torch.zeros_like(queries)
        grad_weight = torch.zeros_like(weight)
        with no_autocast(rows):
            for r, c in _attention_chunks(rows.shape[0], queries.shape[0], queries.shape[1], ctx.budget):
                gates = (rows[r, None, :] * queries[None, c, :]).tanh_()
                part = grad[r, c]
                grad_weight += part.reshape(-1) @ gates.reshape(-1, weight.shape[0])
                # d tanh = 1 - tanh^2; from here on `gates` holds grad * (1 - tanh^2).
                gates.square_().neg_().add_(1).mul_(part[:, :, None])
                grad_queries[c] += (gates * rows[r, None, :]).sum(0)
                grad_rows[r] += gates.mul_(queries[None, c, :]).sum(1)
            grad_rows *= weight
            grad_queries *= weight
        return grad_rows, grad_queries, grad_weight, None


def semantic_attention(
    projected: Tensor, class_queries: Tensor, weight: Tensor, max_elements: int | None = None
) -> Tensor:
    """Attention logit of every class at every location: sum_a w_a tanh(p[b,l,a] q[c,a]).

    Args:
        projected: (B, L, A), the projected features U f_l.
        class_queries: (C, A), the projected class embeddings V x_c.
        weight: (A,), the folded output weight W3^T w4.
        max_elements: numbers held at a time by the largest intermediate tensor (at least A); the result does
            not depend on it. By default it is chosen for the device.

    Returns:
        (B, C, L); half-precision inputs are computed and returned in float32.

    >>> projected, queries = torch.randn(2, 9, 4), torch.randn(3, 4)
    >>> semantic_attention(projected, queries, torch.ones(4)).shape
    torch.Size([2, 3, 9])
    """
    batch, locations, dim = projected.shape
    rows = full_precision(projected).reshape(batch * locations, dim)
    logits: Tensor = _SemanticAttention.apply(
        rows, full_precision(class_queries), full_precision(weight), _budget(max_elements, rows)
    )
    return logits.reshape(batch, locations, -1).transpose(1, 2)


def _first_pair(i: int, classes: int) -> int:
    """Position of the pair (i, i+1) in the row-major upper triangle."""
    return i * (classes - 1) - i * (i - 1) // 2


def _pair_blocks(classes: int, batch: int, dim: int, budget: int) -> Iterator[tuple[int, int, int, int]]:
    """Cut the upper triangle into blocks (first row, end row, first column, end column)."""
    affordable = max(1, budget // max(1, batch * dim))
    i = 0
    while i < classes - 1:
        columns = classes - 1 - i
        rows = min(affordable // columns, columns)
        if rows > 1:
            yield i, i + rows, i + 1, classes
            i += rows
        else:
            for j in range(i + 1, classes, affordable):
                yield i, i + 1, j, min(j + affordable, classes)
            i += 1


def _take_block(pairs: Tensor, classes: int, block: tuple[int, int, int, int]) -> Tensor:
    """Pairs (Q, X) -> (rows, columns, X) of a block, zero on and below the diagonal."""
    i0, i1, j0, j1 = block
    if i1 - i0 == 1:
        start = _first_pair(i0, classes) + j0 - i0 - 1
        return pairs[start : start + j1 - j0].unsqueeze(0)
    dense = pairs.new_zeros(i1 - i0, j1 - j0, pairs.shape[1])
    for i in range(i0, i1):
        start = _first_pair(i, classes)
        dense[i - i0, i - i0 :] = pairs[start : start + classes - 1 - i]
    return dense


def _put_block(pairs: Tensor, classes: int, block: tuple[int, int, int, int], dense: Tensor) -> None:
    """Write the part above the diagonal of (rows, columns, X) into pairs (Q, X)."""
    i0, i1, j0, j1 = block
    if i1 - i0 == 1:
        start = _first_pair(i0, classes) + j0 - i0 - 1
        pairs[start : start + j1 - j0] = dense[0]
        return
    start, end = _first_pair(i0, classes), _first_pair(i1, classes)
    pairs[start:end] = torch.cat([dense[row, row:] for row in range(i1 - i0)])


class _PairScores(torch.autograd.Function):
    """Class-major left, right (C, B, D), vectors (Q, D) -> (Q, B)."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, vectors: Tensor, budget: int) -> Tensor:
        ctx.save_for_backward(left, right, vectors)
        ctx.budget = budget
        classes, batch, dim = left.shape
        scores = left.new_empty(vectors.shape[0], batch)
        with no_autocast(left):
            for block in _pair_blocks(classes, batch, dim, budget):
                i0, i1, j0, j1 = block
                hidden = (left[i0:i1, None] + right[None, j0:j1]).relu_().flatten(0, 1)
                vector = _take_block(vectors, classes, block).flatten(0, 1)
                dense = torch.bmm(hidden, vector[:, :, None])
                _put_block(scores, classes, block, dense.view(i1 - i0, j1 - j0, batch))
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        left, right, vectors = ctx.saved_tensors
        classes, batch, dim = left.shape
        grad = grad.to(left.dtype)
        grad_left, grad_right = torch.zeros_like(left), torch.zeros_like(right)
        grad_vectors = torch.empty_like(vectors)
        with no_autocast(left):
            for block in _pair_blocks(classes, batch, dim, ctx.budget):
                i0, i1, j0, j1 = block
                shape = (i1 - i0, j1 - j0, batch, dim)
                hidden = (left[i0:i1, None] + right[None, j0:j1]).relu_().flatten(0, 1)
                vector = _take_block(vectors, classes, block).flatten(0, 1)
                part = _take_block(grad, classes, block).flatten(0, 1)
                _put_block(
                    grad_vectors, classes, block, torch.bmm(part[:, None, :], hidden).view(*shape[:2], dim)
                )
                # Gradient of the hidden layer: grad * vector where the rectifier was open.
                open_part = torch.mul(part[:, :, None], vector[:, None, :])
                open_part = torch.ops.aten.threshold_backward(open_part, hidden, 0).view(shape)
                grad_left[i0:i1] += open_part.sum(1)
                grad_right[j0:j1] += open_part.sum(0)
        return grad_left, grad_right, grad_vectors, None


def pair_scores(left: Tensor, right: Tensor, vectors: Tensor, max_elements: int | None = None) -> Tensor:
    """Score of every pair of classes i < j: relu(left_i + right_j) . v_ij.

    Args:
        left: (B, C, D), the first class's part of the hidden layer (with its bias).
        right: (B, C, D), the second class's part.
        vectors: (Q, D), Q = C (C - 1) / 2, the folded vectors v_ij in the order of :func:`pair_indices`.
        max_elements: numbers held at a time by the largest intermediate tensor (at least B x D); the result
            does not depend on it. By default it is chosen for the device.

    Returns:
        (B, Q); half-precision inputs are computed and returned in float32.

    >>> pair_scores(torch.randn(2, 4, 8), torch.randn(2, 4, 8), torch.randn(6, 8)).shape
    torch.Size([2, 6])
    """
    classes = left.shape[1]
    if vectors.shape[0] != classes * (classes - 1) // 2:
        raise ValueError(
            f"{classes} classes have {classes * (classes - 1) // 2} pairs, not {vectors.shape[0]}"
        )
    left, right = (full_precision(side).transpose(0, 1).contiguous() for side in (left, right))
    scores: Tensor = _PairScores.apply(left, right, full_precision(vectors), _budget(max_elements, left))
    return scores.transpose(0, 1)


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


def cooccurrence_counts(labels: Tensor | NDArray[np.int8]) -> Tensor:
    """In how many images two classes are known to be present together: (C, C) float64.

    Args:
        labels: (N, C) with +1 present, -1 absent, 0 unknown.

    >>> cooccurrence_counts(np.array([[1, 1, 0], [1, -1, 0]], dtype=np.int8)).tolist()
    [[2.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    table = torch.as_tensor(labels) if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
    counts = torch.zeros(table.shape[1], table.shape[1], dtype=torch.float64, device=table.device)
    for rows in table.split(_CHUNK_ROWS):
        positive = (rows == 1).float()
        counts += (positive.T @ positive).double()
    return counts


def cooccurrence_graph(labels: Tensor | NDArray[np.int8]) -> Tensor:
    """Row-normalised co-occurrence of known positives: A[i, j] = P(j present | i present).

    Args:
        labels: (N, C) with +1 present, -1 absent, 0 unknown.

    Returns:
        (C, C) float32 with a unit diagonal; a class without a known positive is connected to itself only.

    >>> cooccurrence_graph(np.array([[1, 1, 0], [1, -1, 0]], dtype=np.int8)).tolist()
    [[1.0, 0.5, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    counts = cooccurrence_counts(labels)
    graph = counts / counts.diagonal().clamp(min=1)[:, None]
    return graph.fill_diagonal_(1.0).float()
