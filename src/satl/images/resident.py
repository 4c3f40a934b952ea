"""Images in the memory of the device: a data set that fits is copied there once, and a batch is one gather."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from satl.errors import ArrayError
from satl.images.source import BulkSource, ImageSource, read_images

_CHUNK_BYTES = 64 << 20
_HOST_LIMIT = 4 << 30


class ResidentImages:
    """Images on a device.

    Args:
        pixels: uint8 (N, S, S, 3) on the device, contiguous.

    >>> images = ResidentImages(torch.zeros(5, 8, 8, 3, dtype=torch.uint8))
    >>> len(images), images.size, images.gather(torch.tensor([3, 1])).shape
    (5, 8, torch.Size([2, 3, 8, 8]))
    """

    def __init__(self, pixels: Tensor) -> None:
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[3] != 3:
            raise ArrayError(f"images must be uint8 (N, S, S, 3), not {pixels.dtype} {tuple(pixels.shape)}")
        self._pixels = pixels

    @property
    def size(self) -> int:
        """Side S of every image in pixels."""
        return int(self._pixels.shape[1])

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self._pixels.device

    def __len__(self) -> int:
        return len(self._pixels)

    def image(self, i: int) -> NDArray[np.uint8]:
        """Image ``i`` on the host: uint8 (S, S, 3), a copy."""
        copied: NDArray[np.uint8] = self._pixels[i].cpu().numpy().copy()
        return copied

    def gather(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Images at ``rows`` (int64, B): uint8 (B, 3, S, S) on the device, channels last in memory.

        Nothing waits for the device; ``rows`` in page-locked memory are copied asynchronously.
        """
        rows = rows.to(self.device, non_blocking=True)
        if out is None:
            return self._pixels.index_select(0, rows).permute(0, 3, 1, 2)
        return torch.index_select(self._pixels, 0, rows, out=out).permute(0, 3, 1, 2)


def default_limit(device: torch.device | str) -> int:
    """Return how many bytes :func:`cached_on_device` may use: a quarter of the free GPU memory, 4 GiB on a CPU.

    Three quarters are left to weights, activations and other processes.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return _HOST_LIMIT
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) // 4


def cached_on_device(
    source: ImageSource,
    device: torch.device | str,
    limit_bytes: int | None = None,
    *,
    progress: Callable[[int, int], Any] | None = None,
) -> ImageSource:
    """Copy all images to a device once, if they fit.

    Args:
        source: where to read from.
        device: where to keep them.
        limit_bytes: a source that needs more than this is returned unchanged; by default :func:`default_limit`.
        progress: called as ``progress(done, total)``, from 0 to the number of images.

    Returns:
        A :class:`ResidentImages` with the same images, or ``source`` itself if it is there or too large.

    Raises:
        ImageError: an image cannot be decoded.

    >>> from satl.images import ArrayImages
    >>> type(cached_on_device(ArrayImages(np.zeros((5, 8, 8, 3), dtype=np.uint8)), "cpu")).__name__
    'ResidentImages'
    """
    device = torch.device(device)
    total, size = len(source), source.size
    limit = default_limit(device) if limit_bytes is None else limit_bytes
    if isinstance(source, ResidentImages) or total * size * size * 3 > limit:
        return source
    pixels = torch.empty((total, size, size, 3), dtype=torch.uint8, device=device)
    chunk = max(1, _CHUNK_BYTES // (size * size * 3))
    if progress is not None:
        progress(0, total)
    for first in range(0, total, chunk):
        last = min(first + chunk, total)
        # A new piece of the pool each time: the pool waits for the copy of the last one, the host does not.
        host = torch.empty((last - first, size, size, 3), dtype=torch.uint8, pin_memory=device.type == "cuda")
        if isinstance(source, BulkSource):
            source.gather(torch.arange(first, last), host)
        else:
            read_images(source, host.numpy(), first)
        pixels[first:last].copy_(host, non_blocking=True)
        if progress is not None:
            progress(last, total)
    return ResidentImages(pixels)
