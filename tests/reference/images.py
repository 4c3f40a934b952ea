"""Image pipelines one image at a time with Pillow: slow, plain, obviously right."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image


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
