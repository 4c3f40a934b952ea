"""``satl::semantic_attention``: logits sum_a w_a tanh(p[b,l,a] q[c,a]), never holding a number per (b, l, c, a)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from satl.models.kernels.precision import budget, computed_dtype, fused, no_autocast


def _chunks(rows: int, classes: int, dim: int, limit: int) -> Iterator[tuple[slice, slice]]:
    class_step = max(1, min(classes, limit // max(dim, 1)))
    row_step = max(1, limit // max(class_step * dim, 1))
    for row in range(0, rows, row_step):
        for first in range(0, classes, class_step):
            yield slice(row, min(row + row_step, rows)), slice(first, min(first + class_step, classes))


def attention_in_chunks(projected: Tensor, queries: Tensor, weight: Tensor, limit: int) -> Tensor:
    """Projected (B, L, A), queries (C, A), weight (A,) -> (B, C, L), holding ``limit`` numbers at a time."""
    dtype = computed_dtype(projected, queries, weight)
    batch, locations, dim = projected.shape
    rows, queries, weight = projected.to(dtype).reshape(-1, dim), queries.to(dtype), weight.to(dtype)
    logits = rows.new_empty(rows.shape[0], queries.shape[0])
    with no_autocast(rows):
        for r, c in _chunks(rows.shape[0], queries.shape[0], dim, limit):
            gates = (rows[r, None, :] * queries[None, c, :]).tanh_()
            logits[r, c] = gates @ weight
    return logits.view(batch, locations, -1).transpose(1, 2).contiguous()


def attention_gradients_in_chunks(
    grad: Tensor, projected: Tensor, queries: Tensor, weight: Tensor, limit: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of the logits (B, C, L) -> gradients of projected, queries and weight, in their precision."""
    dtype = computed_dtype(projected, queries, weight)
    dim = projected.shape[2]
    rows, q, w = projected.to(dtype).reshape(-1, dim), queries.to(dtype), weight.to(dtype)
    grad = grad.to(dtype).transpose(1, 2).reshape(rows.shape[0], -1)
    grad_rows, grad_queries, grad_weight = (x.new_zeros(x.shape) for x in (rows, q, w))
    with no_autocast(rows):
        for r, c in _chunks(rows.shape[0], q.shape[0], dim, limit):
            gates = (rows[r, None, :] * q[None, c, :]).tanh_()
            part = grad[r, c]
            grad_weight += part.reshape(-1) @ gates.reshape(-1, dim)
            # d tanh = 1 - tanh^2; from here on `gates` holds grad * (1 - tanh^2).
            gates.square_().neg_().add_(1).mul_(part[:, :, None])
            grad_queries[c] += (gates * rows[r, None, :]).sum(0)
            grad_rows[r] += gates.mul_(q[None, c, :]).sum(1)
        grad_rows *= w
        grad_queries *= w
    return (
        grad_rows.view(projected.shape).to(projected.dtype),
        grad_queries.to(queries.dtype),
        grad_weight.to(weight.dtype),
    )


@torch.library.custom_op("satl::semantic_attention", mutates_args=())
def semantic_attention(
    projected: Tensor, queries: Tensor, weight: Tensor, max_elements: int | None = None
) -> Tensor:
    """Projected (B, L, A), queries (C, A), weight (A,) -> (B, C, L) in float32 (float64 where an input has it)."""
    if fused(projected, queries, weight):
        from satl.models.kernels.triton_attention import attention

        return attention(projected, queries, weight)
    return attention_in_chunks(projected, queries, weight, budget(max_elements, projected))


@torch.library.custom_op("satl::semantic_attention_backward", mutates_args=())
def semantic_attention_backward(
    grad: Tensor, projected: Tensor, queries: Tensor, weight: Tensor, max_elements: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of the logits (B, C, L) -> gradients of projected, queries and weight, in their precision."""
    if fused(grad, projected, queries, weight):
        from satl.models.kernels.triton_attention import attention_gradients

        return attention_gradients(grad, projected, queries, weight)
    return attention_gradients_in_chunks(grad, projected, queries, weight, budget(max_elements, projected))


@semantic_attention.register_fake
def _logits_like(
    projected: Tensor, queries: Tensor, weight: Tensor, max_elements: int | None = None
) -> Tensor:
    shape = (projected.shape[0], queries.shape[0], projected.shape[1])
    return projected.new_empty(shape, dtype=computed_dtype(projected, queries, weight))


@semantic_attention_backward.register_fake
def _gradients_like(
    grad: Tensor, projected: Tensor, queries: Tensor, weight: Tensor, max_elements: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        projected.new_empty(projected.shape),
        queries.new_empty(queries.shape),
        weight.new_empty(weight.shape),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.max_elements = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    return *semantic_attention_backward(grad, *ctx.saved_tensors, ctx.max_elements), None


semantic_attention.register_autograd(_backward, setup_context=_save)
