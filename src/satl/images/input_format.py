"""What a network takes: the side of its images, their normalisation, and how they are resized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Interpolation = Literal["bicubic", "bilinear"]
Channels = tuple[float, float, float]
IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_STD: Channels = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class InputFormat:
    """What a network takes.

    Attributes:
        size: side of its square images in pixels.
        mean: mean of every channel, for images in 0 to 1.
        std: standard deviation of every channel.
        interpolation: how images are resized.
    """

    size: int
    mean: Channels = IMAGENET_MEAN
    std: Channels = IMAGENET_STD
    interpolation: Interpolation = "bicubic"
