"""Cut square crops out of images and resize them, antialiased, bicubic or bilinear, in two ways.

*By products*, for a GPU and for small images: a resize is linear and separable, so one crop is
``rows @ image @ columns^T`` with two matrices that depend only on the crop. There are few sizes of crops, so
their matrices are made once; the position of a crop only shifts the columns of its matrix, and a flip
reverses the rows. All images of a batch are done at once: no loop over images, nothing that waits for the
device.

*By bytes*, for larger images on a CPU: torch's own resize of bytes, image by image. It skips the zeros of the
matrices and rounds to bytes as Pillow does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.images.input_format import Interpolation

# Up to this many pixels in times pixels out, products are the faster way on a CPU.
_SMALL = 80 * 80


def by_bytes(device: torch.device, input_size: int, output_size: int) -> bool:
    """Whether images on this device are resized as bytes, image by image, rather than by products."""
    return device.type == "cpu" and input_size * output_size > _SMALL


def product_dtype(device: torch.device) -> torch.dtype:
    """Precision of the products.

    On a GPU it is float16: pixels are exact in it, a weight is off by at most 2^-12 of itself and sums are
    float32, so a result is within 0.3 of a grey level of the exact one (0.03 on average), at a fraction of
    the time.
    """
    return torch.float16 if device.type == "cuda" else torch.float32


def resize_matrices(
    length: Tensor, input_size: int, output_size: int, interpolation: Interpolation = "bicubic"
) -> Tensor:
    """Matrices that crop the first ``length`` pixels of a line and resize them.

    The kernel is bicubic with a = -0.5, or a triangle (bilinear), widened by the factor of a reduction (antialiasing);
    weights outside the crop are zero and every row sums to one, as in Pillow's ``crop`` followed by ``resize``.

    Args:
        length: (K,) pixels in the crop.
        input_size: pixels in the line.
        output_size: pixels in the result.
        interpolation: the kernel.

    Returns:
        float32 (K, output_size, input_size).

    >>> resize_matrices(torch.tensor([2]), input_size=4, output_size=2)[0].tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """
    device = length.device
    scale = (length.float() / output_size)[:, None, None]
    position = torch.arange(input_size, device=device) + 0.5
    centre = (torch.arange(output_size, device=device)[:, None] + 0.5) * scale
    distance = ((position - centre) / scale.clamp(min=1.0)).abs_().clamp_(max=2.0)
    if interpolation == "bilinear":
        weights = (1 - distance).clamp_(min=0.0)
    else:
        # The cubic of 1 <= t <= 2, plus what the other cubic differs by where t < 1; both end smoothly in zero.
        outer = -0.5 * (distance - 1) * (distance - 2).square()
        inner = (1 - distance).clamp_(min=0.0).square_() * (2 * distance - 1)
        weights = outer + inner
    weights = weights * (position < length[:, None, None])
    return weights / weights.sum(dim=2, keepdim=True)


def byte_matrix(
    input_size: int, output_size: int, interpolation: Interpolation = "bicubic"
) -> tuple[Tensor, int]:
    """Matrix by which torch resizes a whole line of bytes, in the whole numbers that it computes with.

    A line of bytes x becomes ``floor((W x + 2^(p-1)) / 2^p)``, clamped to 0 to 255, first the rows of an image and
    then its columns. This says in a formula what a resize *by bytes* does, so that a program without torch can do
    the same to the bit.

    Returns:
        W, float64 (output_size, input_size), whole numbers of at most 16 bits; and p.

    >>> matrix, bits = byte_matrix(4, 2)
    >>> bits, (matrix.sum(dim=1) / 2**bits).tolist()
    (16, [1.0, 1.0])
    """
    scale = input_size / output_size
    centre = scale * (torch.arange(output_size, dtype=torch.float64)[:, None] + 0.5)
    position = torch.arange(input_size, dtype=torch.float64)
    t = ((position - centre + 0.5) / max(scale, 1.0)).abs()
    if interpolation == "bilinear":
        weights = torch.where(t < 1, 1 - t, 0.0)
    else:
        inner, outer = (1.5 * t - 2.5) * t * t + 1, (((t - 5) * t + 8) * t - 4) * -0.5
        weights = torch.where(t < 1, inner, torch.where(t < 2, outer, 0.0))
    weights = weights / weights.sum(dim=1, keepdim=True)
    # As many binary places as the largest weight leaves room for in 16 bits with a sign.
    largest, bits = float(weights.max()), 0
    while bits < 22 and int(0.5 + largest * 2 ** (bits + 1)) < 2**15:
        bits += 1
    scaled = weights * 2**bits
    return torch.trunc(scaled + torch.where(scaled < 0, -0.5, 0.5)), bits


def crop_matrices(
    length: Tensor, input_size: int, output_size: int, interpolation: Interpolation = "bicubic"
) -> Tensor:
    """Matrices of :func:`resize_matrices`, plain and then mirrored, ready for :func:`shift_matrices`.

    Returns:
        float32 (2 K, output_size, 2 input_size): as many zeros in front as a crop can be shifted.
    """
    plain = resize_matrices(length, input_size, output_size, interpolation)
    return F.pad(torch.cat([plain, plain.flip(1)]), (input_size, 0))


def shift_matrices(matrices: Tensor, kind: Tensor, start: Tensor) -> Tensor:
    """Matrices of crops that begin at ``start``.

    Args:
        matrices: (M, h, 2 H) of :func:`crop_matrices`.
        kind: int64 (B,), which of the matrices.
        start: int64 (B,), first pixel of the crop.

    Returns:
        (B, h, H).
    """
    size = matrices.shape[2] // 2
    # A window of the padded matrix that begins s columns earlier is the matrix of a crop s pixels later.
    return matrices.unfold(2, size, 1)[kind, :, size - start]


def resample(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Apply ``rows`` @ image @ ``columns``^T to every channel, on the grey scale 0 to 255.

    Values are clamped to that range after each direction, as Pillow does when it stores bytes.

    Args:
        images: (B, 3, H, W), uint8 or floating, in any memory format.
        rows: (B or 1, h, H), floating.
        columns: (B or 1, w, W), of the same dtype.

    Returns:
        (B, 3, h, w) of the dtype of the matrices; its memory is in the order (B, h, 3, w).
    """
    batch, channels, height, width = images.shape
    # With the channels between rows and columns both directions are one product for each image.
    lines = images.permute(0, 2, 1, 3).to(rows.dtype, memory_format=torch.contiguous_format)
    lines = lines.reshape(batch, height * channels, width)  # copies only what was floating before
    across = torch.matmul(lines, columns.transpose(1, 2)).clamp_(0.0, 255.0)
    across = across.reshape(batch, height, channels * columns.shape[1])
    result = torch.matmul(rows, across).clamp_(0.0, 255.0)
    return result.reshape(batch, rows.shape[1], channels, columns.shape[1]).permute(0, 2, 1, 3)


# An operation of its own, because a compiler cannot look into a loop that depends on the values of a tensor.
@torch.library.custom_op(
    "satl::crop_resize",
    mutates_args=(),
    schema="(Tensor images, Tensor top, Tensor left, Tensor length, Tensor flip, SymInt output_size,"
    " float[] scale, float[] shift, bool channels_last, str interpolation='bicubic') -> Tensor",
)
def crop_resize(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    length: Tensor,
    flip: Tensor,
    output_size: int,
    scale: Sequence[float],
    shift: Sequence[float],
    channels_last: bool,
    interpolation: str = "bicubic",
) -> Tensor:
    """Crop, resize, mirror and normalise images on the CPU, one after the other.

    Args:
        images: uint8 (B, 3, H, W); channels last in memory is the quicker format.
        top: int64 (B,), first row of the square crop.
        left: int64 (B,), first column.
        length: int64 (B,), its side.
        flip: bool (B,), whether to mirror left and right.
        output_size: side of the result.
        scale: factor of every channel (3).
        shift: summand of every channel (3).
        channels_last: memory format of the result.
        interpolation: the kernel, "bicubic" or "bilinear".

    Returns:
        float32 (B, 3, output_size, output_size), ``scale * bytes + shift``.
    """
    result = _empty(images, output_size, channels_last)
    summands = [torch.tensor(value) for value in shift]
    pixel_scale, pixel_shift = (torch.tensor(values).repeat(output_size) for values in (scale, shift))
    boxes = torch.stack([top, left, length, flip.to(top.dtype)], dim=1).tolist()
    for image, target, (y, x, side, mirrored) in zip(images, result, boxes, strict=True):
        crop = image[:, y : y + side, x : x + side]
        if side != output_size:
            crop = _resize_bytes(crop, output_size, interpolation)
        target.copy_(crop.flip(2) if mirrored else crop)
        # While the image is in the cache, and without a broadcast, which torch does not vectorise.
        if channels_last:
            lines = target.permute(1, 2, 0).view(output_size, -1)
            torch.addcmul(pixel_shift, lines, pixel_scale, out=lines)
        else:
            for plane, factor, summand in zip(target, scale, summands, strict=True):
                torch.add(summand, plane, alpha=factor, out=plane)
    return result


@crop_resize.register_fake
def _(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    length: Tensor,
    flip: Tensor,
    output_size: int,
    scale: Sequence[float],
    shift: Sequence[float],
    channels_last: bool,
    interpolation: str = "bicubic",
) -> Tensor:
    return _empty(images, output_size, channels_last)


def _empty(images: Tensor, output_size: int, channels_last: bool) -> Tensor:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    shape = (images.shape[0], 3, output_size, output_size)
    return torch.empty(shape, dtype=torch.float32, device=images.device, memory_format=layout)


def _resize_bytes(image: Tensor, output_size: int, interpolation: str) -> Tensor:
    """Resize uint8 (3, H, W) to (3, output_size, output_size), channels last in memory."""
    packed = image.permute(1, 2, 0)
    if packed.stride(2) != 1:
        packed = torch.stack(image.unbind(0), dim=2)  # twice as fast as `contiguous`
    resized = F.interpolate(
        packed[None].permute(0, 3, 1, 2), (output_size, output_size), mode=interpolation, antialias=True
    )
    return resized[0]
