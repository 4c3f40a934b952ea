"""Batches of uint8 images, or of features, in an order that depends on the seed and the epoch alone.

Nothing here reads or changes a global random state, so a run that is resumed, or split over more processes,
sees the same global batches as an uninterrupted one. Worker processes are those of torch's ``DataLoader``; ours is the
order by position, which its samplers do not promise across versions and numbers of processes.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, get_worker_info

from satl.errors import ArrayError, ConfigError, ImageError
from satl.images.resident import ResidentImages
from satl.images.source import BulkSource, ImageSource, RowSource, reason_of
from satl.images.store import PackedImages

_PREFETCHED = 2  # batches that are gathered while the caller is busy with the one before


class Batch(NamedTuple):
    """Images, or rows of features, of one step and where they are in the source."""

    images: torch.Tensor
    """uint8 (B, 3, S, S), in memory with the channels last (``torch.channels_last``), as decoders give them; features
    as their source gives them, float16 (B, V, D)."""
    indices: torch.Tensor
    """int64 (B,), positions in the source (not in the order of the epoch)."""


class BatchShare(NamedTuple):
    """One process's part of a global batch: ``num`` images from position ``first`` of ``total``."""

    first: int
    num: int
    total: int


class _Failure(NamedTuple):
    """What a worker sends instead of a batch; an exception that it raised would arrive wrapped in a traceback."""

    error: ImageError


class _Mended(NamedTuple):
    """A batch in which other images of it stand in for those that cannot be decoded."""

    images: torch.Tensor
    places: list[tuple[int, int, str]]
    """Place in the batch, place of the image that stands in, and the reason."""


@contextmanager
def translate_worker_crash() -> Iterator[None]:
    """Raise torch's error about a killed worker process as an error of satl.

    torch notices it by a signal and raises wherever the program happens to be, so this belongs around everything that
    is done while batches are being loaded.

    Raises:
        ImageError: in place of torch's error.
    """
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise ImageError(
            "a worker process that decodes images was killed by the system, as happens where memory or shared memory "
            "(/dev/shm) runs out",
            remedy="set images.workers to a smaller number, or to 0, or give them more memory",
        ) from error


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
        indices: positions in the source to use; ``None`` for all of them. A mask is refused: give
            ``np.flatnonzero(mask)``.
        batch_size: images in a global batch.
        seed: seed of the order; used only with ``shuffle``.
        shuffle: a new order in every epoch; otherwise the order of ``indices``.
        drop_last: leave out a last batch that is not full.
        rank: number of this process.
        world_size: number of processes.
        workers: processes that decode; 0 decodes in this one. A :class:`RowSource` uses none: its batches are
            gathered one thread ahead where that hides something, a disk or a copy, and ``workers`` is not 0.
        pin_memory: put images in page-locked memory for faster copies to a GPU; ignored without one.
        epochs: how many epochs will be asked for, one after the other. The workers then live for all of them
            and begin the next epoch while the caller still finishes this one; :meth:`close` ends them early.
            ``None``: the workers of an epoch end with it.
        stand_in: whether, in place of an image that cannot be decoded, the next one of its batch that can be is handed
            out once more, with its own position; :attr:`broken` then says which. Otherwise that is an error.

    Attributes:
        broken: position in the source -> reason, of images that another one has stood in for.

    Raises:
        ConfigError: the batch size cannot work with this number of images or processes.
        ArrayError: ``indices`` are not positions in the source.

    >>> from satl.images import ArrayImages
    >>> source = ArrayImages(np.zeros((10, 8, 8, 3), dtype=np.uint8))
    >>> batches = Batches(source, batch_size=4)
    >>> [tuple(batch.images.shape) for batch in batches.epoch(0)]
    [(4, 3, 8, 8), (4, 3, 8, 8), (2, 3, 8, 8)]
    """

    def __init__(
        self,
        source: ImageSource | RowSource,
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
        epochs: int | None = None,
        stand_in: bool = False,
    ) -> None:
        self.source = source
        self.stand_in = stand_in
        self.broken: dict[int, str] = {}
        given = np.arange(len(source)) if indices is None else np.asarray(indices)
        if given.dtype == np.bool_:  # as numbers they would be the positions 0 and 1
            raise ArrayError(
                "indices must be positions in the source, not booleans", remedy="pass np.flatnonzero(mask)"
            )
        self.indices: NDArray[np.int64] = given.astype(np.int64).reshape(-1)
        if len(self.indices) and not (self.indices.min() >= 0 and self.indices.max() < len(source)):
            raise ArrayError(f"indices must lie in 0..{len(source) - 1}.")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in 0..{world_size - 1}, not {rank}")
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}", remedy="use at least 1")
        if drop_last and batch_size % world_size:
            raise ConfigError(
                f"batch_size {batch_size} cannot be shared equally by {world_size} processes",
                remedy=f"use a multiple of {world_size}",
            )
        if drop_last and len(self.indices) < batch_size:
            raise ConfigError(
                f"batch_size {batch_size} is larger than the {len(self.indices)} images to train on, which"
                " leaves no full batch",
                remedy=f"use a batch_size of at most {len(self.indices)}",
            )
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.rank = rank
        self.world_size = world_size
        self.workers = workers
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self.epochs = epochs
        self._kept: _Stream | None = None

    def __len__(self) -> int:
        """Steps in an epoch, the same for every process."""
        num = len(self.indices)
        return num // self.batch_size if self.drop_last else -(-num // self.batch_size)

    def share(self, step: int) -> BatchShare:
        """Which part of the global batch of ``step`` this process takes.

        >>> from satl.images import ArrayImages
        >>> source = ArrayImages(np.zeros((10, 8, 8, 3), dtype=np.uint8))
        >>> Batches(source, batch_size=4, rank=1, world_size=2).share(0)
        BatchShare(first=2, num=2, total=4)
        """
        if not 0 <= step < len(self):
            raise ValueError(f"step must lie in 0..{len(self) - 1}, not {step}")
        total = min(self.batch_size, len(self.indices) - step * self.batch_size)
        first = total * self.rank // self.world_size
        return BatchShare(first, total * (self.rank + 1) // self.world_size - first, total)

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
        if isinstance(self.source, RowSource):
            return self._gather(self.source, self.rows(epoch)[start_step:])
        return self._decode(epoch, start_step)

    def close(self) -> None:
        """End the workers that ``epochs`` keeps; another epoch would start new ones."""
        self._kept = None

    def _gather(self, source: RowSource, steps: list[NDArray[np.int64]]) -> Iterator[Batch]:
        on_disk = isinstance(source, PackedImages) or not getattr(source, "in_memory", True)
        if self.workers == 0 or _is_resident(source) or not (self.pin_memory or on_disk):
            for rows in steps:
                yield self._gathered(source, rows)
            return
        executor = ThreadPoolExecutor(1)
        try:
            pending: deque[Future[Batch]] = deque()
            for rows in steps:
                pending.append(executor.submit(self._gathered, source, rows))
                if len(pending) > _PREFETCHED:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            executor.shutdown(wait=True, cancel_futures=True)

    def _gathered(self, source: RowSource, rows: NDArray[np.int64]) -> Batch:
        indices = torch.from_numpy(rows.copy())
        if self.pin_memory:
            indices = indices.pin_memory()
        if not self.pin_memory or _is_resident(source):
            return Batch(source.gather(indices), indices)
        if not isinstance(source, BulkSource):
            return Batch(source.gather(indices).pin_memory(), indices)
        # Page-locked memory comes from a pool that knows when a copy out of it has ended.
        locked = torch.empty((len(rows), source.size, source.size, 3), dtype=torch.uint8, pin_memory=True)
        return Batch(source.gather(indices, locked), indices)

    def _decode(self, epoch: int, start_step: int) -> Iterator[Batch]:
        if start_step == len(self):
            return
        stream, self._kept = self._kept, None
        if stream is None or stream.position != (epoch, start_step):
            stream = None  # ends the workers of another position before new ones start
            stream = _Stream(self, epoch, start_step)
        try:
            for step, rows in enumerate(self.rows(epoch)[start_step:], start=start_step + 1):
                with translate_worker_crash():
                    item = next(stream.items)
                if isinstance(item, _Failure):
                    raise item.error
                present = rows
                if isinstance(item, _Mended):
                    present, item = self._mended(rows, item), item.images
                if step == len(self) and self.epochs is not None and epoch + 1 < self.epochs:
                    stream.position = (epoch + 1, 0)
                    self._kept = stream
                # Made here: every tensor that a worker sends keeps a file open for as long as it lives.
                indices = torch.from_numpy(present.copy())
                yield Batch(item.permute(0, 3, 1, 2), indices.pin_memory() if self.pin_memory else indices)
        finally:
            del stream  # the traceback of an error would keep its workers alive

    def _mended(self, rows: NDArray[np.int64], batch: _Mended) -> NDArray[np.int64]:
        """Return the positions of the images that are in a batch, and remember those that are not."""
        present = rows.copy()
        for place, other, reason in batch.places:
            self.broken[int(rows[place])] = reason
            present[place] = rows[other]
        return present


class _Stream:
    """Decoded batches from a position on: to the end of its epoch, or of all epochs where ``epochs`` is given."""

    def __init__(self, batches: Batches, epoch: int, start_step: int) -> None:
        self.position = (epoch, start_step)
        source = batches.source
        assert isinstance(source, ImageSource)  # rows are gathered, not decoded
        last = epoch + 1 if batches.epochs is None else max(batches.epochs, epoch + 1)
        steps = len(batches) * (last - epoch) - start_step
        workers = min(batches.workers, steps)
        loader: DataLoader[torch.Tensor | _Mended | _Failure] = DataLoader(
            _Decoded(source, batches.stand_in),
            batch_size=None,
            sampler=_rows_from(batches, epoch, start_step, last),  # one array of rows for every step
            num_workers=workers,
            # On Linux Python no longer forks by default since 3.14, and a worker would import and copy everything anew.
            multiprocessing_context="fork" if workers > 0 and sys.platform == "linux" else None,
            pin_memory=batches.pin_memory,
            collate_fn=_unchanged,
            # Without a generator of its own the loader would draw from torch's global one.
            generator=torch.Generator().manual_seed(0),
        )
        self.items = iter(loader)


def _is_resident(source: RowSource) -> bool:
    """Whether rows come from the memory of a device already."""
    return isinstance(source, ResidentImages) or hasattr(source, "device")


def _rows_from(batches: Batches, epoch: int, start_step: int, last: int) -> Iterator[NDArray[np.int64]]:
    for number in range(epoch, last):
        yield from batches.rows(number)[start_step:]
        start_step = 0


class _Decoded(Dataset["torch.Tensor | _Mended | _Failure"]):
    """Whole batches, uint8 (B, S, S, 3), decoded one image after the other in whichever process asks."""

    def __init__(self, source: ImageSource, stand_in: bool = False) -> None:
        self._source, self._stand_in = source, stand_in

    def __getitem__(self, rows: NDArray[np.int64]) -> torch.Tensor | _Mended | _Failure:
        images = _new_images(len(rows), self._source.size)
        pixels = images.numpy()
        reasons: dict[int, str] = {}
        for k, row in enumerate(rows):
            try:
                pixels[k] = self._source.image(int(row))
            except ImageError as error:
                reasons[k] = reason_of(error)
                if not self._stand_in or len(reasons) == len(rows):
                    return _Failure(error)
        if not reasons:
            return images
        places = []
        for k, reason in reasons.items():
            other = next(n % len(rows) for n in range(k + 1, k + len(rows)) if n % len(rows) not in reasons)
            pixels[k] = pixels[other]
            places.append((k, other, reason))
        return _Mended(images, places)


def _new_images(num: int, size: int) -> torch.Tensor:
    """Memory for a batch, uint8 (num, size, size, 3); in a worker it is shared, so that sending it copies nothing."""
    shape = (num, size, size, 3)
    if get_worker_info() is None or num == 0:
        return torch.empty(shape, dtype=torch.uint8)
    storage = torch.UntypedStorage._new_shared(num * size * size * 3)
    return torch.empty(0, dtype=torch.uint8).set_(storage).view(shape)


def _unchanged(item: Any) -> Any:
    return item
