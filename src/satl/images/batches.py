"""Batches of uint8 images in an order that depends on the seed and the epoch alone.

Nothing here reads or changes a global random state, so a run that is resumed, or split over more processes,
sees the same global batches as one left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from satl.errors import ConfigError, ImageError
from satl.images.source import BulkSource, ImageSource


class Batch(NamedTuple):
    """Images of one step and where they are in the source."""

    images: torch.Tensor
    """uint8 (B, 3, S, S), contiguous."""
    indices: torch.Tensor
    """int64 (B,), positions in the source (not in the order of the epoch)."""


class Share(NamedTuple):
    """One process's part of a global batch: ``num`` images from position ``first`` of ``total``."""

    first: int
    num: int
    total: int


class _Failure(NamedTuple):
    """What a worker sends instead of a batch; an exception would arrive wrapped in a traceback."""

    message: str


def epoch_order(num: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Order of ``num`` images in an epoch, a permutation fixed by ``(seed, epoch)``.

    It is made from the raw bits of PCG64, which NumPy promises never to change, so that a run can be resumed
    under another version.

    >>> epoch_order(5, seed=0, epoch=0).tolist() == epoch_order(5, seed=0, epoch=0).tolist()
    True
    >>> sorted(epoch_order(5, seed=0, epoch=1).tolist())
    [0, 1, 2, 3, 4]
    """
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(num)
    return np.argsort(bits, kind="stable").astype(np.int64)


class Batches:
    """Deterministic, resumable batches of one source for one of ``world_size`` processes.

    The batch size is that of the global batch. Process ``rank`` takes its contiguous share of every global
    batch, so that the global batches are the same with any number of processes. Every process makes the same
    number of steps; where a last batch is smaller than ``world_size``, a share can be empty. No image is
    dropped (unless ``drop_last``) or handed out twice in an epoch.

    Args:
        source: where images come from.
        indices: positions in the source to use; ``None`` for all of them.
        batch_size: images in a global batch.
        seed: seed of the order; used only with ``shuffle``.
        shuffle: a new order in every epoch; otherwise the order of ``indices``.
        drop_last: leave out a last batch that is not full.
        rank: number of this process.
        world_size: number of processes.
        workers: processes that decode; 0 decodes in this one. A source in memory needs none and uses none.
        pin_memory: put images in page-locked memory for faster copies to a GPU; ignored without one.

    Raises:
        ConfigError: the batch size cannot work with this number of images or processes.

    >>> from satl.images import ArrayImages
    >>> source = ArrayImages(np.zeros((10, 8, 8, 3), dtype=np.uint8))
    >>> batches = Batches(source, batch_size=4)
    >>> [tuple(batch.images.shape) for batch in batches.epoch(0)]
    [(4, 3, 8, 8), (4, 3, 8, 8), (2, 3, 8, 8)]
    """

    def __init__(
        self,
        source: ImageSource,
        indices: Sequence[int] | NDArray[np.integer] | None = None,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = False,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        self.source = source
        self.indices: NDArray[np.int64] = (
            np.arange(len(source)) if indices is None else np.asarray(indices, dtype=np.int64).reshape(-1)
        )
        if len(self.indices) and not (self.indices.min() >= 0 and self.indices.max() < len(source)):
            raise ValueError(f"indices must lie in 0..{len(source) - 1}")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in 0..{world_size - 1}, not {rank}")
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; use at least 1")
        if drop_last and batch_size % world_size:
            raise ConfigError(
                f"batch_size {batch_size} cannot be shared equally by {world_size} processes; use a multiple"
                f" of {world_size}"
            )
        if drop_last and len(self.indices) < batch_size:
            raise ConfigError(
                f"batch_size {batch_size} is larger than the {len(self.indices)} images to train on, which"
                f" leaves no full batch; use a batch_size of at most {len(self.indices)}"
            )
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.rank = rank
        self.world_size = world_size
        self.workers = workers
        self.pin_memory = pin_memory and torch.cuda.is_available()

    def __len__(self) -> int:
        """Steps in an epoch, the same for every process."""
        num = len(self.indices)
        return num // self.batch_size if self.drop_last else -(-num // self.batch_size)

    def share(self, step: int) -> Share:
        """Which part of the global batch of ``step`` this process takes.

        >>> from satl.images import ArrayImages
        >>> source = ArrayImages(np.zeros((10, 8, 8, 3), dtype=np.uint8))
        >>> Batches(source, batch_size=4, rank=1, world_size=2).share(0)
        Share(first=2, num=2, total=4)
        """
        if not 0 <= step < len(self):
            raise ValueError(f"step must lie in 0..{len(self) - 1}, not {step}")
        total = min(self.batch_size, len(self.indices) - step * self.batch_size)
        first = total * self.rank // self.world_size
        return Share(first, total * (self.rank + 1) // self.world_size - first, total)

    def rows(self, epoch: int) -> list[NDArray[np.int64]]:
        """Positions in the source that this process reads, one array (B,) for every step of ``epoch``."""
        order = self.indices
        if self.shuffle:
            order = order[epoch_order(len(order), self.seed, epoch)]
        steps = []
        for step in range(len(self)):
            share = self.share(step)
            begin = step * self.batch_size + share.first
            steps.append(order[begin : begin + share.num])
        return steps

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """Batches of an epoch from ``start_step`` on; what comes before is skipped without being decoded.

        Raises:
            ImageError: an image cannot be decoded, in this process or in a worker.
        """
        if not 0 <= start_step <= len(self):
            raise ValueError(f"start_step must lie in 0..{len(self)}, not {start_step}")
        steps = self.rows(epoch)[start_step:]
        if isinstance(self.source, BulkSource):
            return self._gather(self.source, steps)
        return self._decode(steps)

    def _gather(self, source: BulkSource, steps: list[NDArray[np.int64]]) -> Iterator[Batch]:
        for rows in steps:
            indices = torch.from_numpy(rows.copy())
            images = source.gather(indices)
            if self.pin_memory and not images.is_cuda:
                images, indices = images.pin_memory(), indices.pin_memory()
            yield Batch(images, indices)

    def _decode(self, steps: list[NDArray[np.int64]]) -> Iterator[Batch]:
        loader: DataLoader[Batch | _Failure] = DataLoader(
            _Decoded(self.source),
            batch_size=None,
            sampler=steps,  # one array of rows for every step
            num_workers=min(self.workers, len(steps)),
            pin_memory=self.pin_memory,
            collate_fn=_unchanged,
            # Without a generator of its own the loader would draw from torch's global one.
            generator=torch.Generator().manual_seed(0),
        )
        for item in loader:
            if isinstance(item, _Failure):
                raise ImageError(item.message)
            yield item


class _Decoded(Dataset["Batch | _Failure"]):
    """Whole batches, decoded one image after the other in whichever process asks."""

    def __init__(self, source: ImageSource) -> None:
        self._source = source

    def __getitem__(self, rows: NDArray[np.int64]) -> Batch | _Failure:
        size = self._source.size
        images = torch.empty((len(rows), 3, size, size), dtype=torch.uint8)
        pixels = images.numpy()
        try:
            for k, row in enumerate(rows):
                pixels[k] = self._source.image(int(row)).transpose(2, 0, 1)
        except ImageError as error:
            return _Failure(str(error))
        return Batch(images, torch.from_numpy(rows.copy()))


def _unchanged(item: Any) -> Any:
    return item
