"""Image pipelines one image at a time with Pillow: slow, plain, obviously right; and images to try them on."""

from __future__ import annotations

import math
import random

import numpy as np
import torch
from PIL import Image

from satl.images import IMAGENET_MEAN, IMAGENET_STD
from satl.images.augment import Crops


def crop_resize_flip(
    image: np.ndarray, top: int, left: int, length: int, output_size: int, flip: bool
) -> np.ndarray:
    """Square crop, bicubic resize and mirror of one uint8 image (S, S, 3), as uint8 (out, out, 3)."""
    cropped = Image.fromarray(image).crop((left, top, left + length, top + length))
    resized = cropped.resize((output_size, output_size), Image.Resampling.BICUBIC)
    if flip:
        resized = resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(resized)


def normalise(image: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> np.ndarray:
    """A uint8 image (H, W, 3) as float64 (3, H, W), normalised."""
    return ((image / 255.0 - np.array(mean)) / np.array(std)).transpose(2, 0, 1)


def published_pipeline(
    image: np.ndarray,
    output_size: int,
    crop_sizes: tuple[int, ...],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    draws: random.Random,
) -> np.ndarray:
    """One random view of a uint8 image (S, S, 3) as float64 (3, out, out), normalised."""
    length = draws.choice(crop_sizes)
    top, left = (draws.randint(0, image.shape[0] - length) for _ in range(2))
    return normalise(crop_resize_flip(image, top, left, length, output_size, draws.random() < 0.5), mean, std)


def bicubic(x: float) -> float:
    """The cubic convolution kernel with a = -0.5."""
    a, x = -0.5, abs(x)
    if x < 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    if x < 2:
        return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return 0.0


def resize_matrix(length: int, input_size: int, output_size: int) -> np.ndarray:
    """Weights (output_size, input_size) that resize the first pixels of a line, entry by entry."""
    matrix = np.zeros((output_size, input_size))
    scale = length / output_size
    widening = max(scale, 1.0)
    for o in range(output_size):
        centre = (o + 0.5) * scale
        first = max(math.floor(centre - 2 * widening + 0.5), 0)
        last = min(math.floor(centre + 2 * widening + 0.5), length)
        for i in range(first, last):
            matrix[o, i] = bicubic((i + 0.5 - centre) / widening)
        matrix[o] /= matrix[o].sum()
    return matrix


def resample_in_half(image: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """``rows`` @ channel @ ``columns``^T of (3, H, W) in 0 to 255 as a GPU does it: float16 in, float32 sums.

    Everything that is written to memory is rounded to float16: the weights, the lines between the two
    directions and the result.
    """

    def rounded(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float16).astype(np.float32)

    rows, columns = rounded(rows), rounded(columns)
    across = [rounded(np.clip(rounded(channel @ columns.T), 0, 255)) for channel in image.astype(np.float32)]
    return np.stack([np.clip(rounded(rows @ lines), 0, 255) for lines in across])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(num: int, size: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (num, 3, size, size), dtype=torch.uint8, generator=generator(seed))


def pictures(num: int, size: int) -> torch.Tensor:
    """Edges, gradients and a little noise, as photographs have."""
    coarse = torch.nn.functional.interpolate(noise(num, max(2, size // 12)).float(), (size, size))
    slope = torch.linspace(0, 40, size)
    return (0.7 * coarse + slope + noise(num, size, 1) / 20).to(torch.uint8)


def channels_last(images: torch.Tensor) -> np.ndarray:
    return images.permute(0, 2, 3, 1).contiguous().numpy()


def boxes(crops: Crops, crop_sizes: torch.Tensor) -> list[list[int]]:
    """Top, left and side of every crop."""
    return torch.stack([crops.top, crops.left, crop_sizes[crops.kind]], dim=1).tolist()


def grey(normalised: torch.Tensor) -> torch.Tensor:
    """Normalised (B, 3, H, W) back on the scale 0 to 255."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (normalised.float() * std + mean) * 255
