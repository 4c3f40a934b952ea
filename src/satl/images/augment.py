"""Crop, resize, flip and normalise whole batches on the device.

A resize is linear and separable, so cropping, antialiased bicubic resizing and flipping one image is
``W_y @ image @ W_x^T`` with two matrices that depend only on its crop. There are few sizes of crops, so their
matrices are made once; the position of a crop only shifts the columns of its matrix, and a flip reverses the
rows. All images of a batch are done at once: no loop over images, nothing that waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_LUMA = (0.299, 0.587, 0.114)


class Crops(NamedTuple):
    """A square crop for every image, all (B,)."""

    top: Tensor
    """First row, int64."""
    left: Tensor
    """First column, int64."""
    kind: Tensor
    """Which of the crop sizes is its side, int64."""
    flip: Tensor
    """Whether to mirror left and right, bool."""


def default_crop_sizes(input_size: int) -> tuple[int, ...]:
    """Crop sizes of the published pipeline for a first resize to ``input_size``.

    For 640 they are the published list; otherwise the ratios of the list for 512.

    >>> default_crop_sizes(512)
    (512, 448, 384, 320, 256)
    >>> default_crop_sizes(640)
    (640, 576, 512, 448, 384, 320)
    >>> default_crop_sizes(64)
    (64, 56, 48, 40, 32)
    """
    if input_size == 640:
        return (640, 576, 512, 448, 384, 320)
    return tuple(max(1, round(input_size * ratio)) for ratio in (1.0, 0.875, 0.75, 0.625, 0.5))


def random_crops(
    num: int, input_size: int, crop_sizes: Tensor, generator: torch.Generator, *, flip: bool = True
) -> Crops:
    """Draw ``num`` crops: the size uniformly from ``crop_sizes`` (K,), then the position, then the flip.

    Numbers are drawn from ``generator`` on its device and the crops are on the device of ``crop_sizes``. The
    same amount is drawn with and without ``flip``.
    """
    drawn = torch.rand((4, num), generator=generator, device=generator.device)
    drawn = drawn.to(crop_sizes.device, non_blocking=True)
    kinds = crop_sizes.shape[0]
    # The clamps guard against a product that rounds up to the open end of its range.
    kind = (drawn[0] * kinds).long().clamp_(max=kinds - 1)
    room = input_size - crop_sizes[kind]
    top = torch.minimum((drawn[1] * (room + 1)).long(), room)
    left = torch.minimum((drawn[2] * (room + 1)).long(), room)
    return Crops(top, left, kind, (drawn[3] < 0.5) & flip)


def resize_matrices(length: Tensor, input_size: int, output_size: int) -> Tensor:
    """Matrices that crop the first ``length`` pixels of a line and resize them.

    The kernel is bicubic with a = -0.5, widened by the factor of a reduction (antialiasing); weights outside
    the crop are zero and every row sums to one, as in Pillow's ``crop`` followed by ``resize``.

    Args:
        length: (K,) pixels in the crop.
        input_size: pixels in the line.
        output_size: pixels in the result.

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
    # The cubic of 1 <= t <= 2, plus what the other cubic differs by where t < 1; both end smoothly in zero.
    outer = -0.5 * (distance - 1) * (distance - 2).square()
    inner = (1 - distance).clamp_(min=0.0).square_() * (2 * distance - 1)
    weights = (outer + inner) * (position < length[:, None, None])
    return weights / weights.sum(dim=2, keepdim=True)


def resample(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Apply ``rows`` @ image @ ``columns``^T to every channel, on the grey scale 0 to 255.

    Values are clamped to that range after each direction, as Pillow does when it stores bytes.

    Args:
        images: (B, 3, H, W), uint8 or floating.
        rows: (B or 1, h, H), floating.
        columns: (B or 1, w, W), of the same dtype.

    Returns:
        (B, 3, h, w) of the dtype of the matrices.
    """
    batch, channels, height, width = images.shape
    lines = images.to(rows.dtype).reshape(batch, channels * height, width)
    across = torch.matmul(lines, columns.transpose(1, 2)).clamp_(0.0, 255.0)
    across = across.reshape(batch, channels, height, columns.shape[1])
    return torch.matmul(rows[:, None], across).clamp_(0.0, 255.0)


def jitter_colours(images: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor) -> Tensor:
    """Change brightness, then contrast, then saturation, each by a factor for every image.

    Args:
        images: floating (B, 3, H, W), grey scale 0 to 255.
        brightness: (B,) factor; 1 leaves the image as it is, 0 makes it black.
        contrast: (B,) factor; 0 makes it as grey as its mean luminance.
        saturation: (B,) factor; 0 makes every pixel as grey as its luminance.

    Returns:
        Of the same shape, clamped to 0 to 255.
    """

    def blend(factor: Tensor, image: Tensor, other: Tensor | float) -> Tensor:
        factor = factor.to(image.dtype)[:, None, None, None]
        return (image * factor + other * (1 - factor)).clamp(0.0, 255.0)

    def luminance(image: Tensor) -> Tensor:
        red, green, blue = (image[:, k : k + 1] * _LUMA[k] for k in range(3))
        return red + green + blue

    images = blend(brightness, images, 0.0)
    images = blend(contrast, images, luminance(images).mean(dim=(2, 3), keepdim=True))
    return blend(saturation, images, luminance(images))


class _Normalise(nn.Module):
    """Grey scale 0 to 255 to ``(x / 255 - mean) / std``; keeps the constants on the device of the images."""

    scale: Tensor
    shift: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        means, stds = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (mean, std))
        self.register_buffer("scale", (1 / (255 * stds)).float(), persistent=False)
        self.register_buffer("shift", (-means / stds).float(), persistent=False)

    def normalise(self, images: Tensor) -> Tensor:
        return torch.addcmul(self.shift, images.float(), self.scale).to(self.dtype)

    def follow(self, images: Tensor) -> None:
        if images.device != self.scale.device:
            self.to(images.device)


class TrainAugment(_Normalise):
    """The published training pipeline for a batch: random square crop, resize, flip, normalise.

    A crop size is drawn uniformly from ``crop_sizes``, then a position uniformly, then a flip with
    probability 1/2. The module follows the device of the images and has no state worth saving.

    Args:
        input_size: side of the images that come in.
        output_size: side of the images that go out.
        crop_sizes: sides to draw from; by default those of :func:`default_crop_sizes`.
        flip: mirror half of the images.
        mean: mean of every channel, for images in 0 to 1.
        std: standard deviation of every channel.
        jitter: brightness, contrast and saturation are each multiplied by a factor drawn uniformly from
            ``1 - jitter`` to ``1 + jitter``; 0, as published, leaves colours alone.
        dtype: of the matrix products and the result; ``torch.bfloat16`` costs about one grey level.

    >>> augment = TrainAugment(input_size=64, output_size=56)
    >>> images = torch.zeros(4, 3, 64, 64, dtype=torch.uint8)
    >>> augment(images, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 56, 56])
    """

    crop_sizes: Tensor
    matrices: Tensor

    def __init__(
        self,
        input_size: int,
        output_size: int,
        crop_sizes: Sequence[int] | None = None,
        *,
        flip: bool = True,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        jitter: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(mean, std, dtype)
        sizes = tuple(crop_sizes) if crop_sizes is not None else default_crop_sizes(input_size)
        if not sizes or min(sizes) < 1 or max(sizes) > input_size:
            raise ValueError(f"crop_sizes must lie in 1..{input_size}, not {list(sizes)}")
        if not 0 <= jitter <= 1:
            raise ValueError(f"jitter must lie between 0 and 1, not {jitter}")
        self.input_size = input_size
        self.output_size = output_size
        self.flip = flip
        self.jitter = jitter
        self.register_buffer("crop_sizes", torch.tensor(sizes), persistent=False)
        plain = resize_matrices(self.crop_sizes, input_size, output_size)
        # Plain and mirrored (2 K, out, S), with as many zeros in front as a crop can be shifted.
        both = F.pad(torch.cat([plain, plain.flip(1)]), (input_size, 0))
        self.register_buffer("matrices", both.to(dtype), persistent=False)

    @torch.no_grad()
    def forward(
        self, images: Tensor, generator: torch.Generator, *, first: int = 0, total: int | None = None
    ) -> Tensor:
        """Augment uint8 images (B, 3, S, S) to ``dtype`` (B, 3, out, out).

        ``total`` draws are made and those from ``first`` on are used: processes that hold shares of one
        global batch (:meth:`satl.images.Batches.share`) and equal generators augment it as one process would.
        """
        if images.shape[1:] != (3, self.input_size, self.input_size):
            expected = f"(B, 3, {self.input_size}, {self.input_size})"
            raise ValueError(f"images must be {expected}, not {tuple(images.shape)}")
        num = images.shape[0]
        total = first + num if total is None else total
        if first + num > total:
            raise ValueError(f"images {first} to {first + num} of a batch of {total}")
        self.follow(images)
        own = slice(first, first + num)
        crops = random_crops(total, self.input_size, self.crop_sizes, generator, flip=self.flip)
        with torch.autocast(images.device.type, enabled=False):
            result = self.crop(images, Crops(*(values[own] for values in crops)))
            if self.jitter > 0:
                drawn = torch.rand((3, total), generator=generator, device=generator.device)
                factors = 1 + self.jitter * (2 * drawn[:, own].to(images.device, non_blocking=True) - 1)
                result = jitter_colours(result, *factors.unbind(0))
            return self.normalise(result)

    def crop(self, images: Tensor, crops: Crops) -> Tensor:
        """Cut out ``crops`` of ``images``, resize and flip them: ``dtype`` (B, 3, out, out) in 0 to 255."""
        # A window of the padded matrix that begins s columns earlier is the matrix of a crop s pixels later.
        shifted = self.matrices.unfold(2, self.input_size, 1)
        rows = shifted[crops.kind, :, self.input_size - crops.top]
        mirrored = crops.kind + self.crop_sizes.shape[0] * crops.flip
        columns = shifted[mirrored, :, self.input_size - crops.left]
        return resample(images, rows, columns)


class EvalTransform(_Normalise):
    """The published test pipeline for a batch: resize the whole image, normalise; no crop, no flip.

    Images that have the output size already are only normalised, which is exact; read a source at that size
    where speed or the published numbers matter.

    Args:
        output_size: side of the images that go out.
        mean: mean of every channel, for images in 0 to 1.
        std: standard deviation of every channel.
        dtype: of the matrix products and the result.

    >>> EvalTransform(56)(torch.zeros(4, 3, 64, 64, dtype=torch.uint8)).shape
    torch.Size([4, 3, 56, 56])
    """

    def __init__(
        self,
        output_size: int,
        *,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(mean, std, dtype)
        self.output_size = output_size

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Resize and normalise uint8 images (B, 3, S, S) to ``dtype`` (B, 3, out, out)."""
        self.follow(images)
        size = images.shape[-1]
        with torch.autocast(images.device.type, enabled=False):
            if size != self.output_size:
                whole = torch.full((1,), size, device=images.device)
                matrix = resize_matrices(whole, size, self.output_size).to(self.dtype)
                images = resample(images, matrix, matrix)
            return self.normalise(images)
