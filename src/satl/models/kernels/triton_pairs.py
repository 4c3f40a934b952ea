# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# mypy: disable-error-code="import-untyped, import-not-found"
"""Fused pair scores on CUDA; imported only there.

The sum relu(left[b,i,d] + right[b,j,d]) v[q,d] runs over B x Q x D elements and knows no matrix product: an
element is an addition, a maximum and a multiplication. Reuse is all that can be gained besides. A tile of I x J x B
sums in the registers of each lane (the lanes lie along D, a program is one warp) loads I B + J B + I J numbers for
I J B elements: 0.75 for 4 x 4 x 4, each with its address and its conversion to float32. That makes 5.5 instructions
of an element (counted in the code compiled for an H200), or 1.4 cycles of a multiprocessor for the 32 elements of a
warp, and 48 bytes in half precision from the second-level cache, 2 cycles: what bounds it. 32 x 3160 x 1024
elements are 3.2 million warps, 28 us on 132 multiprocessors at 1.75 GHz; 200 classes take 6.3 times as long. Larger
tiles would need more than the 255 registers of a thread.

The three gradients are three such sums, over b, over j and over i, each in a fixed order within one program: no
workspace, nothing added atomically, and a gradient is rounded to half precision once.

Strides are not specialised on purpose, as in :mod:`~satl.models.kernels.triton_attention`: the lanes shall hold
single numbers of D, neighbouring lanes neighbouring numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class PairBlocks(NamedTuple):
    """Sizes of the tiles; a kernel uses those it sums into."""

    left: int
    """Classes i of a tile."""
    right: int
    """Classes j of a tile."""
    batch: int
    dim: int
    unroll: int = 1
    """Tiles along D (forward) per round of the loop: their addresses differ by a constant."""
    warps: int = 1


def forward_blocks(batch: int, classes: int, dim: int) -> PairBlocks:
    """Tile of the forward pass: 64 sums per lane."""
    return PairBlocks(left=4, right=4, batch=4, dim=32)


def vectors_blocks(batch: int, classes: int, dim: int) -> PairBlocks:
    """Tile of the vectors' gradient, 4 x 4 pairs x 128 numbers of D in a loop over the images."""
    return PairBlocks(left=4, right=4, batch=1, dim=128)


def side_blocks(batch: int, classes: int, dim: int) -> PairBlocks:
    """Tile of left's (right's) gradient, 4 classes x 4 images x 128 numbers of D in a loop over the partners."""
    return PairBlocks(left=4, right=4, batch=4, dim=128)


@triton.jit
def _first_pair(i, classes):
    """Position of the pair (i, i + 1) in the row-major upper triangle."""
    return i * (2 * classes - i - 1) // 2


@triton.jit(
    do_not_specialize=[
        *("batch", "classes", "dim", "pairs"),
        *("left_b", "left_c", "right_b", "right_c", "vectors_q"),
    ]
)
def _forward(
    left,
    right,
    vectors,
    scores,
    batch,
    classes,
    dim,
    pairs,
    left_b,
    left_c,
    right_b,
    right_c,
    vectors_q,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    BATCH: tl.constexpr,
    DIM: tl.constexpr,
    UNROLL: tl.constexpr,
    EVEN: tl.constexpr,
):
    # Neighbouring programs share the vectors, by far the largest input: images run fastest.
    groups = tl.cdiv(batch, BATCH)
    tile = tl.program_id(0) // groups
    first_i = tile // tl.cdiv(classes, RIGHT) * LEFT
    first_j = tile % tl.cdiv(classes, RIGHT) * RIGHT
    if first_j + RIGHT - 1 <= first_i:
        return
    i = (first_i + tl.arange(0, LEFT))[:, None, None, None]
    j = (first_j + tl.arange(0, RIGHT))[None, :, None, None]
    b = (tl.program_id(0) % groups * BATCH + tl.arange(0, BATCH))[None, None, :, None]
    lane = tl.arange(0, DIM)[None, None, None, :]
    # What lies beyond the end reads the last class or image, or the first pair, and is not stored.
    present = (i < j) & (j < classes)
    pair = tl.where(present, _first_pair(i, classes) + (j - i - 1), 0).to(tl.int64)
    image = tl.minimum(b, batch - 1).to(tl.int64)
    left_of = left + image * left_b + tl.minimum(i, classes - 1) * left_c + lane
    right_of = right + image * right_b + tl.minimum(j, classes - 1) * right_c + lane
    vector_of = vectors + pair * vectors_q + lane
    total = tl.zeros((LEFT, RIGHT, BATCH, DIM), tl.float32)
    for start in range(0, dim, DIM * UNROLL):
        for step in tl.static_range(UNROLL):
            d = start + step * DIM
            if EVEN:
                x, y, v = tl.load(left_of + d), tl.load(right_of + d), tl.load(vector_of + d)
            else:
                inside = d + lane < dim
                x = tl.load(left_of + d, mask=inside, other=0.0)
                y = tl.load(right_of + d, mask=inside, other=0.0)
                v = tl.load(vector_of + d, mask=inside, other=0.0)
            hidden = x.to(tl.float32) + y.to(tl.float32)
            hidden = tl.maximum(hidden, 0.0, propagate_nan=tl.PropagateNan.ALL)
            total += hidden * v.to(tl.float32)
    at = scores + b.to(tl.int64) * pairs + pair
    tl.store(at, tl.sum(total, 3, keep_dims=True), mask=present & (b < batch))


@triton.jit(
    do_not_specialize=[
        *("batch", "classes", "dim"),
        *("left_b", "left_c", "right_b", "right_c", "grad_b", "grad_q"),
    ]
)
def _vectors_gradient(
    grad,
    left,
    right,
    result,
    batch,
    classes,
    dim,
    grad_b,
    grad_q,
    left_b,
    left_c,
    right_b,
    right_c,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    DIM: tl.constexpr,
    EVEN: tl.constexpr,
):
    blocks = tl.cdiv(dim, DIM)
    tile = tl.program_id(0) // blocks
    first_i = tile // tl.cdiv(classes, RIGHT) * LEFT
    first_j = tile % tl.cdiv(classes, RIGHT) * RIGHT
    if first_j + RIGHT - 1 <= first_i:
        return
    i = (first_i + tl.arange(0, LEFT))[:, None, None]
    j = (first_j + tl.arange(0, RIGHT))[None, :, None]
    d = (tl.program_id(0) % blocks * DIM + tl.arange(0, DIM))[None, None, :]
    inside = (d < dim) | EVEN
    present = (i < j) & (j < classes)
    pair = tl.where(present, _first_pair(i, classes) + (j - i - 1), 0).to(tl.int64)
    left_of = left + tl.minimum(i, classes - 1).to(tl.int64) * left_c + d
    right_of = right + tl.minimum(j, classes - 1).to(tl.int64) * right_c + d
    grad_of = grad + pair * grad_q
    total = tl.zeros((LEFT, RIGHT, DIM), tl.float32)
    for _ in range(batch):
        hidden = tl.load(left_of, mask=inside, other=0.0).to(tl.float32)
        hidden += tl.load(right_of, mask=inside, other=0.0).to(tl.float32)
        hidden = tl.maximum(hidden, 0.0, propagate_nan=tl.PropagateNan.ALL)
        total += hidden * tl.load(grad_of).to(tl.float32)
        left_of += left_b
        right_of += right_b
        grad_of += grad_b
    tl.store(result + pair * dim + d, total, mask=present & inside)


@triton.jit(
    do_not_specialize=[
        *("batch", "classes", "dim"),
        *("own_b", "own_c", "partner_b", "partner_c", "vectors_q", "grad_b", "grad_q"),
    ]
)
def _side_gradient(
    grad,
    own,
    partner,
    vectors,
    result,
    batch,
    classes,
    dim,
    grad_b,
    grad_q,
    own_b,
    own_c,
    partner_b,
    partner_c,
    vectors_q,
    IS_LEFT: tl.constexpr,
    OWN: tl.constexpr,
    BATCH: tl.constexpr,
    DIM: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Gradient of left (own is i, the partners are j > i) or of right (own is j, the partners are i < j)."""
    block = tl.program_id(0)
    if not IS_LEFT:
        block = tl.num_programs(0) - 1 - block  # the longest loops start first on either side
    first_c, first_b, first_d = block * OWN, tl.program_id(1) * BATCH, tl.program_id(2) * DIM
    c = (first_c + tl.arange(0, OWN))[:, None, None]
    b = (first_b + tl.arange(0, BATCH))[None, :, None]
    lane = tl.arange(0, DIM)[None, None, :]
    inside = (first_d + lane < dim) | EVEN
    known = tl.minimum(c, classes - 1)
    image = tl.minimum(b, batch - 1) - first_b
    own += first_b.to(tl.int64) * own_b + first_c * own_c + first_d
    mine = tl.load(own + image * own_b + (known - first_c) * own_c + lane, mask=inside, other=0.0)
    mine = mine.to(tl.float32)
    partner += first_b.to(tl.int64) * partner_b + first_d
    partner_at = image * partner_b + lane
    grad += first_b.to(tl.int64) * grad_b
    grad_at = image * grad_b
    vectors += first_d
    # The partners k, and the pair of k and the class c as a start common to the tile plus a short offset.
    if IS_LEFT:
        first, last = first_c + 1, classes
        start = _first_pair(first_c, classes) - first_c - 1
        pair_of = _first_pair(known, classes) - known - 1 - start
    else:
        first, last = 0, tl.minimum(first_c + OWN, classes) - 1
        start = 0
        pair_of = known
    total = tl.zeros((OWN, BATCH, DIM), tl.float32)
    for k in range(first, last):
        if IS_LEFT:
            before, pair, present = start + k, pair_of, (c < k) & (c < classes)
        else:
            before, pair = _first_pair(k, classes) - k - 1, tl.maximum(pair_of, k + 1)
            present = (k < c) & (c < classes)
        g = tl.load(
            grad + tl.cast(before, tl.int64) * grad_q + grad_at + pair * grad_q, mask=present, other=0.0
        )
        vector = vectors + tl.cast(before, tl.int64) * vectors_q
        v = tl.load(vector + pair * vectors_q + lane, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(partner + tl.cast(k, tl.int64) * partner_c + partner_at, mask=inside, other=0.0)
        total = tl.where(mine + other.to(tl.float32) > 0, total + g.to(tl.float32) * v, total)
    at = result + (b.to(tl.int64) * classes + c) * dim + first_d + lane
    tl.store(at, total, mask=(c < classes) & (b < batch) & inside)


def _unit_stride(tensor: Tensor) -> Tensor:
    """The tensor itself if its last dimension is contiguous, as the kernels take for granted."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def pair_scores(left: Tensor, right: Tensor, vectors: Tensor, blocks: PairBlocks | None = None) -> Tensor:
    """Left, right (B, C, D), vectors (Q, D), each float32 or half precision -> (B, Q) float32."""
    batch, classes, dim = left.shape
    scores = left.new_empty((batch, vectors.shape[0]), dtype=torch.float32)
    if not scores.numel():
        return scores
    left, right, vectors = _unit_stride(left), _unit_stride(right), _unit_stride(vectors)
    blocks = blocks or forward_blocks(batch, classes, dim)
    tiles = triton.cdiv(classes, blocks.left) * triton.cdiv(classes, blocks.right)
    with torch.cuda.device_of(left):
        _forward[(tiles * triton.cdiv(batch, blocks.batch),)](
            left,
            right,
            vectors,
            scores,
            batch,
            classes,
            dim,
            vectors.shape[0],
            *left.stride()[:2],
            *right.stride()[:2],
            vectors.stride(0),
            LEFT=blocks.left,
            RIGHT=blocks.right,
            BATCH=blocks.batch,
            DIM=blocks.dim,
            UNROLL=blocks.unroll,
            EVEN=dim % (blocks.dim * blocks.unroll) == 0,
            num_warps=blocks.warps,
            enable_fp_fusion=True,
        )
    return scores


def pair_gradients(
    grad: Tensor,
    left: Tensor,
    right: Tensor,
    vectors: Tensor,
    for_vectors: PairBlocks | None = None,
    for_sides: PairBlocks | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of the scores (B, Q) -> gradients of left, right and vectors, in their precision."""
    batch, classes, dim = left.shape
    grad_left, grad_right = left.new_empty(left.shape), right.new_empty(right.shape)
    grad_vectors = vectors.new_empty(vectors.shape)
    if not grad.numel() * dim:
        return grad_left.zero_(), grad_right.zero_(), grad_vectors.zero_()
    left, right, vectors = _unit_stride(left), _unit_stride(right), _unit_stride(vectors)
    blocks = for_vectors or vectors_blocks(batch, classes, dim)
    tiles = triton.cdiv(classes, blocks.left) * triton.cdiv(classes, blocks.right)
    with torch.cuda.device_of(left):
        _vectors_gradient[(tiles * triton.cdiv(dim, blocks.dim),)](
            grad,
            left,
            right,
            grad_vectors,
            batch,
            classes,
            dim,
            *grad.stride(),
            *left.stride()[:2],
            *right.stride()[:2],
            LEFT=blocks.left,
            RIGHT=blocks.right,
            DIM=blocks.dim,
            EVEN=dim % blocks.dim == 0,
            num_warps=blocks.warps,
            enable_fp_fusion=True,
        )
        blocks = for_sides or side_blocks(batch, classes, dim)
        for is_left, own, partner, result, size in (
            (True, left, right, grad_left, blocks.left),
            (False, right, left, grad_right, blocks.right),
        ):
            grid = (
                triton.cdiv(classes, size),
                triton.cdiv(batch, blocks.batch),
                triton.cdiv(dim, blocks.dim),
            )
            _side_gradient[grid](
                grad,
                own,
                partner,
                vectors,
                result,
                batch,
                classes,
                dim,
                *grad.stride(),
                *own.stride()[:2],
                *partner.stride()[:2],
                vectors.stride(0),
                IS_LEFT=is_left,
                OWN=size,
                BATCH=blocks.batch,
                DIM=blocks.dim,
                EVEN=dim % blocks.dim == 0,
                num_warps=blocks.warps,
                enable_fp_fusion=True,
            )
    return grad_left, grad_right, grad_vectors
