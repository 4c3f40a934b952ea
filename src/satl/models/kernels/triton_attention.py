# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
"""Fused attention logits on CUDA; imported only there.

With x = p q, tanh x = 1 - 2 y and 1 - tanh^2 x = 4 y (1 - y) for y = 1 / (1 + exp 2x). An element takes one
exponential and, two elements sharing one reciprocal, half a reciprocal: 1.5 operations of the special function
units, of which a multiprocessor does 16 in a cycle, so 3 cycles for the 32 elements of a warp. All instructions of
an element are 10 in the forward and 17 in the backward pass (counted in the code compiled for an H200), or 2.5 and
4.3 cycles at four in a cycle: the special functions bound the one, the instructions the other. 1568 x 80 x 512
elements are 2 million warps, hence 26 us and 37 us on 132 multiprocessors at 1.75 GHz. The memory's part is small:
the inputs come from the caches, and the backward pass writes and reads 21 MB of partial sums (8 us).

The lanes of a warp lie along A, and a program is one warp: what a thread needs of p and q is in its registers,
sums over rows need no other thread, and sums over A are taken once at the end. The loops use no shared memory, and
no number is added atomically.

Strides are not specialised on purpose: Triton would find out that they are multiples of 16, give each lane several
neighbouring numbers of A and spread the rows over the lanes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

_TWO_LOG2_E = tl.constexpr(2.8853900817779268)
# 1 + 2^60 is as good as infinite for y, and the product of two such numbers is still finite.
_LARGEST_EXPONENT = tl.constexpr(60.0)


class AttentionBlocks(NamedTuple):
    """Sizes of the tiles: rows are locations of all images, and always even (two halves share reciprocals)."""

    rows: int
    classes: int
    """Classes of a tile, forward; backward there is a loop over the classes of a slice."""
    dim: int
    unroll: int
    """Tiles along A (forward) per round of the loop: their addresses differ by a constant."""
    warps: int = 1


def forward_blocks(rows: int, classes: int, dim: int) -> AttentionBlocks:
    """Tile of the forward pass: 8 x 4 sums in the registers of each lane, from 12 loads per 32 elements."""
    return AttentionBlocks(rows=8, classes=4, dim=32, unroll=2)


def backward_blocks(rows: int, classes: int, dim: int) -> AttentionBlocks:
    """Tile of the backward pass: 32 rows x 32 numbers of A; ``classes`` is the length of a slice of classes.

    A tile writes a sum over its rows for every class, hence rows / 32 x C x A numbers, and each slice a sum over
    its classes for every row, hence C / classes x rows x A numbers. Slices of a quarter of the classes (at least
    16) are enough programs (49 x 16 x 4 for 1568 rows) and write about as much as the tiles do.
    """
    return AttentionBlocks(rows=32, classes=max(16, triton.cdiv(classes, 4)), dim=32, unroll=1)


# Triton's interpreter, which the tests use, does not know the functions of the device's library.
_INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def _inverses(x, y):
    """1 / (1 + 2^x) and 1 / (1 + 2^y) with one reciprocal."""
    x = tl.minimum(x, _LARGEST_EXPONENT, propagate_nan=tl.PropagateNan.ALL)
    y = tl.minimum(y, _LARGEST_EXPONENT, propagate_nan=tl.PropagateNan.ALL)
    if _INTERPRETED:
        x, y = 1.0 + tl.exp2(x), 1.0 + tl.exp2(y)
        inverse = 1.0 / (x * y)
    else:
        # Without the guards against denormal numbers, which would be four instructions of fourteen.
        x, y = 1.0 + libdevice.exp2(x), 1.0 + libdevice.exp2(y)
        inverse = libdevice.fast_dividef(1.0, x * y)
    return y * inverse, x * inverse


@triton.jit(
    do_not_specialize=[
        *("rows", "locations", "classes", "dim"),
        *("projected_b", "projected_l", "queries_c"),
    ]
)
def _forward(
    projected,
    queries,
    weight,
    logits,
    rows,
    locations,
    classes,
    dim,
    projected_b,
    projected_l,
    queries_c,
    HALF: tl.constexpr,
    CLASSES: tl.constexpr,
    DIM: tl.constexpr,
    UNROLL: tl.constexpr,
    EVEN: tl.constexpr,
):
    low = tl.program_id(0) * (2 * HALF) + tl.arange(0, HALF)
    high = low + HALF
    column = tl.program_id(1) * CLASSES + tl.arange(0, CLASSES)
    # What lies beyond the end reads the last row or class again, and is not stored.
    b_low, l_low = tl.minimum(low, rows - 1) // locations, tl.minimum(low, rows - 1) % locations
    b_high, l_high = tl.minimum(high, rows - 1) // locations, tl.minimum(high, rows - 1) % locations
    lane = tl.arange(0, DIM)
    p_low = projected + (b_low.to(tl.int64) * projected_b + l_low * projected_l)[:, None] + lane[None, :]
    p_high = projected + (b_high.to(tl.int64) * projected_b + l_high * projected_l)[:, None] + lane[None, :]
    q_of = queries + (tl.minimum(column, classes - 1).to(tl.int64) * queries_c)[:, None] + lane[None, :]
    sum_low = tl.zeros((HALF, CLASSES, DIM), tl.float32)
    sum_high = tl.zeros((HALF, CLASSES, DIM), tl.float32)
    for start in range(0, dim, DIM * UNROLL):
        for step in tl.static_range(UNROLL):
            a = start + step * DIM
            if EVEN:
                x_low, x_high = tl.load(p_low + a), tl.load(p_high + a)
                q, w = tl.load(q_of + a), tl.load(weight + a + lane)
            else:
                inside = a + lane < dim
                x_low = tl.load(p_low + a, mask=inside[None, :], other=0.0)
                x_high = tl.load(p_high + a, mask=inside[None, :], other=0.0)
                q = tl.load(q_of + a, mask=inside[None, :], other=0.0)
                w = tl.load(weight + a + lane, mask=inside, other=0.0)
            q = (q.to(tl.float32) * _TWO_LOG2_E)[None, :, :]
            w = w.to(tl.float32)[None, None, :]
            y_low, y_high = _inverses(
                x_low.to(tl.float32)[:, None, :] * q, x_high.to(tl.float32)[:, None, :] * q
            )
            sum_low += w * (1.0 - 2.0 * y_low)
            sum_high += w * (1.0 - 2.0 * y_high)
    # (B, C, L), contiguous: the softmax that follows runs over L.
    at_low = (b_low.to(tl.int64) * classes * locations + l_low)[:, None] + (column * locations)[None, :]
    at_high = (b_high.to(tl.int64) * classes * locations + l_high)[:, None] + (column * locations)[None, :]
    present = (column < classes)[None, :]
    tl.store(logits + at_low, tl.sum(sum_low, 2), mask=(low < rows)[:, None] & present)
    tl.store(logits + at_high, tl.sum(sum_high, 2), mask=(high < rows)[:, None] & present)


@triton.jit(
    do_not_specialize=[
        *("rows", "locations", "classes", "dim", "slice_classes"),
        *("projected_b", "projected_l", "queries_c", "grad_b", "grad_c", "grad_l"),
    ]
)
def _backward(
    grad,
    projected,
    queries,
    part_projected,
    part_queries,
    part_weight,
    rows,
    locations,
    classes,
    dim,
    slice_classes,
    grad_b,
    grad_c,
    grad_l,
    projected_b,
    projected_l,
    queries_c,
    HALF: tl.constexpr,
    DIM: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Sums over the classes of a slice (S, R, A) and over the rows of a tile (T, C, A), without the factor 4 w."""
    tile, block, piece = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    low = tile * (2 * HALF) + tl.arange(0, HALF)
    high = low + HALF
    a = block * DIM + tl.arange(0, DIM)
    # EVEN tiles lie within rows and A as a whole; that saves the predicates.
    inside = (a < dim) | EVEN
    low_present, high_present = (low < rows) | EVEN, (high < rows) | EVEN
    b_low, l_low = tl.minimum(low, rows - 1) // locations, tl.minimum(low, rows - 1) % locations
    b_high, l_high = tl.minimum(high, rows - 1) // locations, tl.minimum(high, rows - 1) % locations
    p_low = (b_low.to(tl.int64) * projected_b + l_low * projected_l)[:, None] + a[None, :]
    p_high = (b_high.to(tl.int64) * projected_b + l_high * projected_l)[:, None] + a[None, :]
    x_low = tl.load(projected + p_low, mask=inside[None, :], other=0.0).to(tl.float32) * _TWO_LOG2_E
    x_high = tl.load(projected + p_high, mask=inside[None, :], other=0.0).to(tl.float32) * _TWO_LOG2_E
    first = piece * slice_classes
    last = tl.minimum(first + slice_classes, classes)
    g_low_of, g_high_of = b_low * grad_b + l_low * grad_l, b_high * grad_b + l_high * grad_l
    q_of = queries + first * queries_c + a
    out = part_queries + (tile.to(tl.int64) * classes + first) * dim + a
    sum_low = tl.zeros((HALF, DIM), tl.float32)
    sum_high = tl.zeros((HALF, DIM), tl.float32)
    sum_weight = tl.zeros((DIM,), tl.float32)
    for c in range(first, last):
        q = tl.load(q_of, mask=inside, other=0.0).to(tl.float32)[None, :]
        g_low = tl.load(grad + c * grad_c + g_low_of, mask=low_present, other=0.0).to(tl.float32)[:, None]
        g_high = tl.load(grad + c * grad_c + g_high_of, mask=high_present, other=0.0).to(tl.float32)[:, None]
        y_low, y_high = _inverses(x_low * q, x_high * q)
        slope_low, slope_high = g_low * (y_low - y_low * y_low), g_high * (y_high - y_high * y_high)
        sum_low += slope_low * q
        sum_high += slope_high * q
        tl.store(out, tl.sum(slope_low * x_low + slope_high * x_high, 0), mask=inside)
        sum_weight += tl.sum(g_low * (1.0 - 2.0 * y_low) + g_high * (1.0 - 2.0 * y_high), 0)
        q_of += queries_c
        out += dim
    at = part_projected + (piece.to(tl.int64) * rows) * dim + a[None, :]
    tl.store(at + low[:, None] * dim, sum_low, mask=(low < rows)[:, None] & inside[None, :])
    tl.store(at + high[:, None] * dim, sum_high, mask=(high < rows)[:, None] & inside[None, :])
    slot = tile * tl.num_programs(2) + piece
    tl.store(part_weight + slot * dim + a, sum_weight, mask=inside)


@triton.jit(do_not_specialize=["slices", "count", "dim"])
def _sum_slices(
    parts,
    weight,
    total,
    slices,
    count,
    dim,
    factor,
    WEIGHTED: tl.constexpr,
    SLICES: tl.constexpr,
    N: tl.constexpr,
):
    """Parts (slices, count) -> their sum in a fixed order, times ``factor`` and the weight of n mod dim."""
    n = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    inside = n < count
    result = tl.zeros((N,), tl.float32)
    for start in range(0, slices, SLICES):
        s = start + tl.arange(0, SLICES)
        at = s.to(tl.int64)[:, None] * count + n[None, :]
        result += tl.sum(tl.load(parts + at, mask=(s < slices)[:, None] & inside[None, :], other=0.0), 0)
    if WEIGHTED:
        result *= tl.load(weight + n % dim, mask=inside, other=0.0).to(tl.float32)
    tl.store(total + n, result * factor, mask=inside)


def _unit_stride(tensor: Tensor) -> Tensor:
    """The tensor itself if its last dimension is contiguous, as the kernels take for granted."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def attention(
    projected: Tensor, queries: Tensor, weight: Tensor, blocks: AttentionBlocks | None = None
) -> Tensor:
    """Projected (B, L, A), queries (C, A), weight (A,), each float32 or half precision -> (B, C, L) float32."""
    batch, locations, dim = projected.shape
    rows, classes = batch * locations, queries.shape[0]
    logits = projected.new_empty((batch, classes, locations), dtype=torch.float32)
    if not logits.numel():
        return logits
    projected, queries, weight = _unit_stride(projected), _unit_stride(queries), weight.contiguous()
    blocks = blocks or forward_blocks(rows, classes, dim)
    with torch.cuda.device_of(projected):
        _forward[(triton.cdiv(rows, blocks.rows), triton.cdiv(classes, blocks.classes))](
            projected,
            queries,
            weight,
            logits,
            rows,
            locations,
            classes,
            dim,
            *projected.stride()[:2],
            queries.stride(0),
            HALF=blocks.rows // 2,
            CLASSES=blocks.classes,
            DIM=blocks.dim,
            UNROLL=blocks.unroll,
            EVEN=dim % (blocks.dim * blocks.unroll) == 0,
            num_warps=blocks.warps,
            enable_fp_fusion=True,
        )
    return logits


def attention_gradients(
    grad: Tensor, projected: Tensor, queries: Tensor, weight: Tensor, blocks: AttentionBlocks | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of the logits (B, C, L) -> gradients of projected, queries and weight, in their precision."""
    batch, locations, dim = projected.shape
    rows, classes = batch * locations, queries.shape[0]
    totals = (
        projected.new_empty(projected.shape),
        queries.new_empty(queries.shape),
        weight.new_empty(weight.shape),
    )
    if not rows * classes * dim:
        return totals[0].zero_(), totals[1].zero_(), totals[2].zero_()
    projected, queries, weight = _unit_stride(projected), _unit_stride(queries), weight.contiguous()
    blocks = blocks or backward_blocks(rows, classes, dim)
    tiles, slices = triton.cdiv(rows, blocks.rows), triton.cdiv(classes, blocks.classes)
    part_projected = grad.new_empty((slices, rows, dim), dtype=torch.float32)
    part_queries = grad.new_empty((tiles, classes, dim), dtype=torch.float32)
    part_weight = grad.new_empty((tiles * slices, dim), dtype=torch.float32)
    with torch.cuda.device_of(projected):
        _backward[(tiles, triton.cdiv(dim, blocks.dim), slices)](
            grad,
            projected,
            queries,
            part_projected,
            part_queries,
            part_weight,
            rows,
            locations,
            classes,
            dim,
            blocks.classes,
            *grad.stride(),
            *projected.stride()[:2],
            queries.stride(0),
            HALF=blocks.rows // 2,
            DIM=blocks.dim,
            EVEN=rows % blocks.rows == 0 and dim % blocks.dim == 0,
            num_warps=blocks.warps,
            enable_fp_fusion=True,
        )
        # d tanh(p q) = 4 y (1 - y) (q dp + p dq); the kernel's p carried the factor of the exponent.
        for parts, total, factor in (
            (part_projected, totals[0], 4.0),
            (part_queries, totals[1], 4.0 / _TWO_LOG2_E.value),
            (part_weight, totals[2], 1.0),
        ):
            _sum_slices[(triton.cdiv(total.numel(), 64),)](
                parts,
                weight,
                total,
                parts.shape[0],
                total.numel(),
                dim,
                factor,
                WEIGHTED=total is not totals[2],
                SLICES=16,
                N=64,
                num_warps=4,
                enable_fp_fusion=True,
            )
    return totals
