"""The features of a timm model as a map, token by token; principal components, from their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


def components_by_deflation(vectors: FloatArray, count: int) -> FloatArray:
    """Return the directions (count, D) along which vectors (N, D) vary most, one after the other.

    Each is found by multiplying a start with the covariance until it stays, and is then taken out of the vectors.
    """
    left = vectors - vectors.mean(0)
    found = []
    for _ in range(count):
        direction = np.ones(vectors.shape[1])
        for _ in range(5000):
            direction = left.T @ (left @ direction)
            direction /= np.linalg.norm(direction)
        if direction[np.abs(direction).argmax()] < 0:
            direction = -direction
        found.append(direction)
        left = left - np.outer(left @ direction, direction)
    return np.stack(found)


@torch.no_grad()
def feature_map(model: nn.Module, images: Tensor, prefix: int, side: int) -> Tensor:
    """Put what ``forward_features`` gives into places of a map (B, C, side, side).

    Args:
        model: a whole timm model in eval mode.
        images: (B, 3, H, W).
        prefix: class and register tokens in front of those of patches.
        side: of the map.
    """
    features = model.forward_features(images)
    if features.ndim == 4 and getattr(model, "output_fmt", "NCHW") == "NCHW":
        return features
    channels = features.shape[-1]
    result = torch.zeros(len(images), channels, side, side)
    for b in range(len(images)):
        for row in range(side):
            for column in range(side):
                token = (
                    features[b, row, column]
                    if features.ndim == 4
                    else features[b, prefix + row * side + column]
                )
                result[b, :, row, column] = token
    return result
