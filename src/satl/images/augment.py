"""Crop, resize, flip and normalise whole batches on the device.

:mod:`satl.images.resample` resizes the crops; here they are drawn at random, and bytes become what a network takes.
Drawing is separate from applying: applying given crops waits for nothing and can be compiled or captured in a CUDA
graph.

Ours, and not torchvision's transforms, because those crop one image at a time: on a CPU this is 2 to 8 times as fast
(``benchmarks/augmentation.py``), on a GPU a batch is a few matrix products, and the draws depend on the position in
the global batch only, so that any number of processes augments alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from satl.errors import ArrayError
from satl.images.input_format import IMAGENET_MEAN, IMAGENET_STD, Interpolation
from satl.images.resample import (
    by_bytes,
    crop_matrices,
    crop_resize,
    product_dtype,
    resample,
    resize_matrices,
    shift_matrices,
)

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
    top, left = torch.minimum((drawn[1:3] * (room + 1)).long(), room)
    return Crops(top, left, kind, (drawn[3] < 0.5) & flip)


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

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        interpolation: Interpolation,
        dtype: torch.dtype,
        channels_last: bool,
    ) -> None:
        super().__init__()
        self.interpolation: Interpolation = interpolation
        self.dtype = dtype
        self.channels_last = channels_last
        self.factors = [1 / (255 * deviation) for deviation in std]
        self.summands = [-middle / deviation for middle, deviation in zip(mean, std, strict=True)]
        for name, values in (("scale", self.factors), ("shift", self.summands)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise uint8 or floating (B, 3, H, W) in any memory format to ``dtype`` in the format asked for."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        if torch.compiler.is_compiling():  # fuses the steps by itself, and knows no `out` of another format
            normalised = torch.addcmul(self.shift, images.float(), self.scale).to(self.dtype)
            return normalised.contiguous(memory_format=layout)
        result = torch.empty(images.shape, dtype=self.dtype, device=images.device, memory_format=layout)
        return torch.addcmul(self.shift, images, self.scale, out=result)

    def resize_bytes(self, images: Tensor, crops: Crops, length: Tensor, size: int, *, grey: bool) -> Tensor:
        """Crop, resize and flip on the CPU; normalised unless ``grey``."""
        scale, shift = ([1.0] * 3, [0.0] * 3) if grey else (self.factors, self.summands)
        top, left, _, flip = crops
        result: Tensor = crop_resize(
            images, top, left, length, flip, size, scale, shift, self.channels_last, self.interpolation
        )
        return result if grey else result.to(self.dtype)

    def move_to_device_of(self, images: Tensor) -> None:
        """Move the constants to the device of the images."""
        if images.device != self.scale.device:
            self.to(images.device)


class TrainAugment(_Normalise):
    """The published training pipeline for a batch: random square crop, resize, flip, normalise.

    A crop size is drawn uniformly from ``crop_sizes``, then a position uniformly, then a flip with
    probability 1/2. The module moves to the device of the images and has no state to save. A call is
    :meth:`draw`, then :meth:`perform`.

    Args:
        input_size: side of the images that come in.
        output_size: side of the images that go out.
        crop_sizes: sides to draw from; by default those of :func:`default_crop_sizes`.
        flip: mirror half of the images.
        mean: mean of every channel, for images in 0 to 1.
        std: standard deviation of every channel.
        interpolation: how images are resized.
        jitter: brightness, contrast and saturation are each multiplied by a factor drawn uniformly from
            ``1 - jitter`` to ``1 + jitter``; 0, as published, leaves colours alone.
        dtype: of the result.
        channels_last: memory format of the result.

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
        interpolation: Interpolation = "bicubic",
        jitter: float = 0.0,
        dtype: torch.dtype = torch.float32,
        channels_last: bool = False,
    ) -> None:
        super().__init__(mean, std, interpolation, dtype, channels_last)
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
        matrices = crop_matrices(self.crop_sizes, input_size, output_size, interpolation)
        self.register_buffer("matrices", matrices, persistent=False)

    @torch.no_grad()
    def forward(
        self, images: Tensor, generator: torch.Generator, *, first: int = 0, total: int | None = None
    ) -> Tensor:
        """Augment uint8 images (B, 3, S, S) to ``dtype`` (B, 3, out, out).

        ``total`` draws are made and those from ``first`` on are used: processes that hold shares of one
        global batch (:meth:`satl.images.Batches.share`) and equal generators augment it as one process would.
        """
        self.move_to_device_of(images)
        return self.perform(images, *self.draw(images.shape[0], generator, first=first, total=total))

    def draw(
        self, num: int, generator: torch.Generator, *, first: int = 0, total: int | None = None
    ) -> tuple[Crops, Tensor | None]:
        """Draw the crops and colour factors of images ``first`` to ``first + num`` of a global batch of ``total``.

        Returns:
            The crops, and the factors of brightness, contrast and saturation, (3, num), or ``None`` without
            jitter; on the device of the module.
        """
        total = first + num if total is None else total
        if first + num > total:
            raise ValueError(f"images {first} to {first + num} of a batch of {total}")
        own = slice(first, first + num)
        crops = random_crops(total, self.input_size, self.crop_sizes, generator, flip=self.flip)
        crops = Crops(*(values[own] for values in crops))
        if self.jitter == 0:
            return crops, None
        drawn = torch.rand((3, total), generator=generator, device=generator.device)
        return crops, 1 + self.jitter * (2 * drawn[:, own].to(self.scale.device, non_blocking=True) - 1)

    @torch.no_grad()
    def perform(self, images: Tensor, crops: Crops, factors: Tensor | None = None) -> Tensor:
        """Apply what was drawn to uint8 images (B, 3, S, S): ``dtype`` (B, 3, out, out).

        Nothing in here waits for the device or depends on a random number.
        """
        if images.shape[1:] != (3, self.input_size, self.input_size):
            expected = f"(B, 3, {self.input_size}, {self.input_size})"
            raise ArrayError(f"images must be {expected}, not {tuple(images.shape)}")
        self.move_to_device_of(images)
        with torch.autocast(images.device.type, enabled=False):
            if factors is None and by_bytes(images.device, self.input_size, self.output_size):
                length = self.crop_sizes[crops.kind]
                return self.resize_bytes(images, crops, length, self.output_size, grey=False)
            result = self.crop(images, crops)
            if factors is not None:
                result = jitter_colours(result.float(), *factors.unbind(0))
            return self.normalise(result)

    def crop(self, images: Tensor, crops: Crops) -> Tensor:
        """Cut out ``crops`` of ``images``, resize and flip them: floating (B, 3, out, out) in 0 to 255."""
        if by_bytes(images.device, self.input_size, self.output_size):
            length = self.crop_sizes[crops.kind]
            return self.resize_bytes(images, crops, length, self.output_size, grey=True)
        matrices = self.matrices.to(product_dtype(images.device))
        rows = shift_matrices(matrices, crops.kind, crops.top)
        mirrored = crops.kind + self.crop_sizes.shape[0] * crops.flip
        return resample(images, rows, shift_matrices(matrices, mirrored, crops.left))


class EvalTransform(_Normalise):
    """The published test pipeline for a batch: resize the whole image, normalise; no crop, no flip.

    Images that have the output size already are only normalised, which is exact; read a source at that size
    where speed or the published numbers matter.

    Args:
        output_size: side of the images that go out.
        mean: mean of every channel, for images in 0 to 1.
        std: standard deviation of every channel.
        interpolation: how images are resized.
        dtype: of the result.
        channels_last: memory format of the result.

    >>> EvalTransform(56)(torch.zeros(4, 3, 64, 64, dtype=torch.uint8)).shape
    torch.Size([4, 3, 56, 56])
    """

    def __init__(
        self,
        output_size: int,
        *,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        interpolation: Interpolation = "bicubic",
        dtype: torch.dtype = torch.float32,
        channels_last: bool = False,
    ) -> None:
        super().__init__(mean, std, interpolation, dtype, channels_last)
        self.output_size = output_size

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Resize and normalise uint8 images (B, 3, S, S) to ``dtype`` (B, 3, out, out)."""
        self.move_to_device_of(images)
        num, _, _, size = images.shape
        with torch.autocast(images.device.type, enabled=False):
            if by_bytes(images.device, size, self.output_size):
                none = torch.zeros(num, dtype=torch.int64)
                whole = Crops(none, none, none, none.bool())
                return self.resize_bytes(images, whole, none + size, self.output_size, grey=False)
            if size == self.output_size:
                return self.normalise(images)
            length = torch.full((1,), size, device=images.device)
            matrix = resize_matrices(length, size, self.output_size, self.interpolation)
            matrix = matrix.to(product_dtype(images.device))
            return self.normalise(resample(images, matrix, matrix))
