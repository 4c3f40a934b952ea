"""``satl::pair_scores``: relu(left_i + right_j) . v_ij for every pair, never holding a vector per image and pair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from satl.models.kernels.precision import budget, computed_dtype, fused, no_autocast

_Block = tuple[int, int, int, int]


def _first_pair(i: int, classes: int) -> int:
    """Position of the pair (i, i+1) in the row-major upper triangle."""
    return i * (classes - 1) - i * (i - 1) // 2


def _blocks(classes: int, batch: int, dim: int, limit: int) -> Iterator[_Block]:
    """Cut the upper triangle into blocks (first row, end row, first column, end column)."""
    affordable = max(1, limit // max(1, batch * dim))
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


def _take_block(pairs: Tensor, classes: int, block: _Block) -> Tensor:
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


def _put_block(pairs: Tensor, classes: int, block: _Block, dense: Tensor) -> None:
    """Write the part above the diagonal of (rows, columns, X) into pairs (Q, X)."""
    i0, i1, j0, j1 = block
    if i1 - i0 == 1:
        start = _first_pair(i0, classes) + j0 - i0 - 1
        pairs[start : start + j1 - j0] = dense[0]
        return
    start, end = _first_pair(i0, classes), _first_pair(i1, classes)
    pairs[start:end] = torch.cat([dense[row, row:] for row in range(i1 - i0)])


def _class_major(side: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, C, D) -> (C, B, D), so that a block of classes is a slice."""
    return side.to(dtype).transpose(0, 1).contiguous()


def pair_scores_in_chunks(left: Tensor, right: Tensor, vectors: Tensor, limit: int) -> Tensor:
    """Left, right (B, C, D), vectors (Q, D) -> (B, Q), holding ``limit`` numbers at a time."""
    dtype = computed_dtype(left, right, vectors)
    left, right, vectors = _class_major(left, dtype), _class_major(right, dtype), vectors.to(dtype)
    classes, batch, dim = left.shape
    scores = left.new_empty(vectors.shape[0], batch)
    with no_autocast(left):
        for block in _blocks(classes, batch, dim, limit):
            i0, i1, j0, j1 = block
            hidden = (left[i0:i1, None] + right[None, j0:j1]).relu_().flatten(0, 1)
            vector = _take_block(vectors, classes, block).flatten(0, 1)
            dense = torch.bmm(hidden, vector[:, :, None])
            _put_block(scores, classes, block, dense.view(i1 - i0, j1 - j0, batch))
    return scores.T.contiguous()


def pair_gradients_in_chunks(
    grad: Tensor, left: Tensor, right: Tensor, vectors: Tensor, limit: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of the scores (B, Q) -> gradients of left, right and vectors, in their precision."""
    dtype = computed_dtype(left, right, vectors)
    first, second, vector_of = _class_major(left, dtype), _class_major(right, dtype), vectors.to(dtype)
    classes, batch, dim = first.shape
    grad = grad.to(dtype).T.contiguous()
    grad_left, grad_right = torch.zeros_like(first), torch.zeros_like(second)
    grad_vectors = vector_of.new_empty(vector_of.shape)
    with no_autocast(left):
        for block in _blocks(classes, batch, dim, limit):
            i0, i1, j0, j1 = block
            shape = (i1 - i0, j1 - j0, batch, dim)
            hidden = (first[i0:i1, None] + second[None, j0:j1]).relu_().flatten(0, 1)
            vector = _take_block(vector_of, classes, block).flatten(0, 1)
            part = _take_block(grad, classes, block).flatten(0, 1)
            _put_block(
                grad_vectors, classes, block, torch.bmm(part[:, None, :], hidden).view(*shape[:2], dim)
            )
            # Gradient of the hidden layer: grad * vector where the rectifier was open.
            open_part = torch.mul(part[:, :, None], vector[:, None, :])
            open_part = torch.ops.aten.threshold_backward(open_part, hidden, 0).view(shape)
            grad_left[i0:i1] += open_part.sum(1)
            grad_right[j0:j1] += open_part.sum(0)
    return (
        grad_left.transpose(0, 1).to(left.dtype).contiguous(),
        grad_right.transpose(0, 1).to(right.dtype).contiguous(),
        grad_vectors.to(vectors.dtype),
    )


@torch.library.custom_op("satl::pair_scores", mutates_args=())
def pair_scores(left: Tensor, right: Tensor, vectors: Tensor, max_elements: int | None = None) -> Tensor:
    """Left, right (B, C, D), vectors (Q, D) -> (B, Q) in float32 (float64 where an input has it)."""
    if fused(left, right, vectors):
        from satl.models.kernels import triton_pairs

        return triton_pairs.pair_scores(left, right, vectors)
    return pair_scores_in_chunks(left, right, vectors, budget(max_elements, left))


@torch.library.custom_op("satl::pair_scores_backward", mutates_args=())
def pair_scores_backward(
    grad: Tensor, left: Tensor, right: Tensor, vectors: Tensor, max_elements: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of the scores (B, Q) -> gradients of left, right and vectors, in their precision."""
    if fused(grad, left, right, vectors):
        from satl.models.kernels import triton_pairs

        return triton_pairs.pair_gradients(grad, left, right, vectors)
    return pair_gradients_in_chunks(grad, left, right, vectors, budget(max_elements, left))


@pair_scores.register_fake
def _scores_like(left: Tensor, right: Tensor, vectors: Tensor, max_elements: int | None = None) -> Tensor:
    dtype = computed_dtype(left, right, vectors)
    return left.new_empty((left.shape[0], vectors.shape[0]), dtype=dtype)


@pair_scores_backward.register_fake
def _gradients_like(
    grad: Tensor, left: Tensor, right: Tensor, vectors: Tensor, max_elements: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return left.new_empty(left.shape), right.new_empty(right.shape), vectors.new_empty(vectors.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.max_elements = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    return *pair_scores_backward(grad, *ctx.saved_tensors, ctx.max_elements), None


pair_scores.register_autograd(_backward, setup_context=_save)
