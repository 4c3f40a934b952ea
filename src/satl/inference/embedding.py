"""Vectors of pictures, written part by part into a folder of features.

Pictures are decoded in threads while the network computes, batches of the next part included. A part depends on its own
pictures only, so work that was killed and resumed ends with the same bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from satl import __version__
from satl.errors import Argument, ConfigError, ImageError, RunError
from satl.features.feature_folder import RECORD, FeatureFolder, FeatureWriter
from satl.files import atomic_path, check_out, check_out_folder, remove_folder, remove_leftovers
from satl.images import is_store
from satl.images.broken_list import BROKEN
from satl.images.source import FileFinder, available_cores
from satl.inference.embedder import Embedder, Embedding
from satl.models.kept_memory import memory_is_kept
from satl.remote.copies import fill
from satl.runs.run_lock import RunLock
from satl.training.forward import FloatArray

Progress = Callable[[int, int], Any]
LARGEST_BROKEN_SHARE = 0.05
"""Share of pictures that cannot be read above which there is something wrong with all of them."""
_BATCHES_AHEAD = 3


class EmbeddingPart(NamedTuple):
    """Pictures whose vectors are written to one file: the number of the part, ids, paths."""

    number: int
    ids: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class EmbeddingJob:
    """What a worker must know to make parts; it is sent to other machines.

    Attributes:
        embedding: what makes a vector.
        folder: absolute path, the same on all machines.
        ids: of all pictures.
        made_by: what the folder says about its features.
        batch_size: pictures in a batch.
        part_rows: pictures in a part.
        version: of satl, which must be the same everywhere.
    """

    embedding: Embedding
    folder: str
    ids: tuple[str, ...]
    made_by: Mapping[str, Any]
    batch_size: int
    part_rows: int
    version: str = __version__


EmbedParts = Callable[[EmbeddingJob, Sequence[EmbeddingPart]], Iterable[int]]
"""Makes parts, in this process or elsewhere; yields how many pictures are done, again and again."""


class PartEmbedder:
    """Makes parts with one network, which is built for the first of them.

    Args:
        job: what to do.
        threads: that decode pictures; 0 takes one for every core.
        embedder: the network, where it is built already.
    """

    def __init__(self, job: EmbeddingJob, threads: int = 0, embedder: Embedder | None = None) -> None:
        self.job = job
        self.threads = threads or available_cores()
        self._embedder = embedder
        self._writer: FeatureWriter | None = None

    def embed(self, part: EmbeddingPart) -> int:
        """Make a part and write it; return how many pictures it has.

        Raises:
            RunError: this machine has another version of satl, or other weights.
        """
        return sum(self.embed_all([part]))

    def embed_all(self, parts: Sequence[EmbeddingPart]) -> Iterator[int]:
        """Make parts and write each when it is complete; yield the number of pictures of every batch."""
        embedder, job = self._ready(), self.job
        if self._writer is None:
            self._writer = FeatureWriter(
                job.folder, job.ids, embedder.dim, job.embedding.views, job.made_by, part_rows=job.part_rows
            )
        vectors: list[FloatArray] = []
        broken: list[tuple[str, str]] = []
        good: list[str] = []
        with memory_is_kept():
            for batch in decoded_batches(embedder, parts, job.batch_size, self.threads):
                vectors.append(batch.vectors(embedder))
                good += [name for name, why in zip(batch.ids, batch.reasons, strict=True) if why is None]
                broken += [
                    (name, why) for name, why in zip(batch.ids, batch.reasons, strict=True) if why is not None
                ]
                if batch.ends_part:
                    self._writer.write_part(batch.number, good, np.concatenate(vectors), broken)
                    vectors, broken, good = [], [], []
                yield len(batch.ids)

    def _ready(self) -> Embedder:
        job = self.job
        if job.version != __version__:
            raise RunError(
                f"a machine of the cluster has satl {__version__}, and the one that started it satl {job.version}",
                remedy="install the same version on all of them",
            )
        if self._embedder is None:
            self._embedder = Embedder(job.embedding)
            if self._embedder.made_by() != job.made_by:
                raise RunError(
                    "a machine of the cluster has other weights of the backbone",
                    remedy="give the same weight file to all of them",
                )
        return self._embedder


class DecodedBatch(NamedTuple):
    """Pictures of a part as pixels (B, side, side, 3); for each the reason why it cannot be read, or None."""

    number: int
    ids: tuple[str, ...]
    pixels: Tensor
    reasons: list[str | None]
    ends_part: bool

    def vectors(self, embedder: Embedder) -> FloatArray:
        """Return the vectors (n, V, D) of the pictures that can be read."""
        read = [place for place, reason in enumerate(self.reasons) if reason is None]
        if not read:
            return np.empty((0, embedder.embedding.views, embedder.dim), dtype=np.float32)
        return embedder.vectors(self.pixels if len(read) == len(self.ids) else self.pixels[read])


def decoded_batches(
    embedder: Embedder, parts: Sequence[EmbeddingPart], batch_size: int, threads: int
) -> Iterator[DecodedBatch]:
    """Yield the pictures of parts in their order, decoded in threads a few batches ahead of the network."""
    waiting: deque[tuple[DecodedBatch, list[Future[str | None]]]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for batch, files in _batches(embedder, parts, batch_size):
            pixels = batch.pixels.numpy()
            tasks = [pool.submit(embedder.decode, file, pixels[place]) for place, file in enumerate(files)]
            waiting.append((batch, tasks))
            if len(waiting) > _BATCHES_AHEAD:
                yield _awaited(*waiting.popleft())
        while waiting:
            yield _awaited(*waiting.popleft())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _batches(
    embedder: Embedder, parts: Sequence[EmbeddingPart], size: int
) -> Iterator[tuple[DecodedBatch, tuple[str, ...]]]:
    side = embedder.side
    for part in parts:
        for first in range(0, len(part.ids), size):
            ids = part.ids[first : first + size]
            pixels = torch.empty(
                (len(ids), side, side, 3), dtype=torch.uint8, pin_memory=embedder.device.type == "cuda"
            )
            ends = first + size >= len(part.ids)
            yield DecodedBatch(part.number, ids, pixels, [], ends), part.files[first : first + size]


def _awaited(batch: DecodedBatch, tasks: Sequence[Future[str | None]]) -> DecodedBatch:
    return batch._replace(reasons=[task.result() for task in tasks])


@dataclass(frozen=True)
class EmbeddingResult:
    """What :func:`embed` did.

    Attributes:
        path: the folder or file of the features.
        rows: pictures in it.
        dim: numbers in a vector.
        broken: ids of pictures that could not be read, each with the reason.
        found: pictures whose vectors were there already.
    """

    path: Path
    rows: int
    dim: int
    broken: tuple[tuple[str, str], ...]
    found: int


def embed(
    embedding: Embedding,
    ids: Sequence[str],
    files: Sequence[str | Path],
    out: str | Path,
    *,
    batch_size: int = 32,
    part_rows: int = 1024,
    force: bool = False,
    embed_parts: EmbedParts | None = None,
    progress: Progress | None = None,
) -> EmbeddingResult:
    """Write the vectors of pictures into a folder, or go on with one that was not finished.

    Args:
        embedding: what makes a vector.
        ids: of the pictures, each once.
        files: their paths.
        out: the folder.
        batch_size: pictures in a batch.
        part_rows: pictures in a part: what is lost when the work is killed.
        force: replace features that are there.
        embed_parts: makes the parts, such as :func:`satl.inference.ray_cluster.embed_on_ray` does; None: this process.
        progress: called as ``progress(done, total)``.

    Raises:
        ConfigError: the backbone cannot be built, or the folder holds something else.
        RunError: another process is writing there.
        ImageError: none of the pictures, or too many of them, can be read.
    """
    path, paths = Path(out), [str(Path(file).absolute()) for file in files]
    check_out_folder(path)
    embedder = Embedder(embedding)
    made_by = embedder.made_by()
    path.mkdir(parents=True, exist_ok=True)
    lock = RunLock(path, "written")
    try:
        writer = FeatureWriter(
            path, ids, embedder.dim, embedding.views, made_by, part_rows=part_rows, force=force
        )
        if writer.finished:
            return EmbeddingResult(path, writer.finish().rows, embedder.dim, tuple(writer.broken()), len(ids))
        writer.forget_broken()
        parts = [
            EmbeddingPart(
                number, writer.ids_of(number), tuple(paths[number * part_rows : (number + 1) * part_rows])
            )
            for number in writer.missing()
        ]
        found = done = len(ids) - sum(len(part.ids) for part in parts)
        job = EmbeddingJob(embedding, str(path.absolute()), tuple(ids), made_by, batch_size, part_rows)
        make = embed_parts or (lambda job, parts: PartEmbedder(job, embedder=embedder).embed_all(parts))
        if progress is not None:
            progress(done, len(ids))
        for count in make(job, parts) if parts else ():
            done += count
            if progress is not None:
                progress(done, len(ids))
        broken = tuple(writer.broken())
        _require_few(broken, len(ids), path)
        return EmbeddingResult(path, writer.finish().rows, embedder.dim, broken, found)
    finally:
        lock.release()


def embed_to_parquet(
    embedding: Embedding,
    ids: Sequence[str],
    files: Sequence[str | Path],
    out: str | Path,
    *,
    force: bool = False,
    **options: Any,
) -> EmbeddingResult:
    """Write the vectors of pictures into one Parquet file: ``image`` and ``features``, lists of float16.

    The parts are made in a hidden folder beside it, which is removed when the file is complete. The other arguments are
    those of :func:`embed`.

    Raises:
        ConfigError: there are several views, or the file must not be written.
    """
    path = Path(out)
    folder = path.with_name(f".{path.stem}.features")
    if path.is_file():
        _remove_finished(folder)
    check_out(path, ".parquet", overwrite=force)
    if embedding.views > 1:
        raise ConfigError(
            "a Parquet file has one vector for each picture",
            where=Argument("views", embedding.views),
            remedy="give the name of a folder, without an ending",
        )
    result = embed(embedding, ids, files, folder, force=force, **options)
    _write_parquet(FeatureFolder.open(folder), path)
    remove_folder(folder)
    return replace(result, path=path)


def _remove_finished(folder: Path) -> None:
    """Remove the parts of a file that is complete, if a process was killed before it had done so."""
    remove_leftovers(folder.parent)
    if (folder / RECORD).is_file():
        with suppress(RunError, OSError):  # another process is writing the file again
            lock = RunLock(folder, "written")
            try:
                remove_folder(folder)
            finally:
                lock.release()


def _write_parquet(folder: FeatureFolder, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, first = folder.read_ids(), 0
    schema = pa.schema([("image", pa.string()), ("features", pa.list_(pa.float16(), folder.dim))])
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for array in folder.arrays():
            flat = pa.array(np.ascontiguousarray(array[:, 0]).ravel(), pa.float16())
            vectors = pa.FixedSizeListArray.from_arrays(flat, folder.dim)
            images = pa.array(names[first : first + len(array)], pa.string())
            writer.write_table(pa.table([images, vectors], schema=schema))
            first += len(array)


def find_files(folder: Path, ids: Sequence[str]) -> list[Path]:
    """Return the file of every image id; one that is not there is told when it is read.

    Raises:
        ImageError: the folder is none, or a packed store, or an id stands for several files.
    """
    if is_store(folder):
        raise ImageError(
            "is a packed store, whose pictures have a size of their own",
            where=folder,
            remedy="give the folder that it was packed from",
        )
    if not folder.is_dir():
        raise ImageError(
            "is no folder", where=Argument("images", folder), remedy="give the folder of the pictures"
        )
    fill(folder, ids)
    finder = FileFinder(folder)
    files = []
    for name in ids:
        found = finder.find(name)
        if len(found) > 1:
            raise ImageError(
                f"image id '{name}' matches {len(found)} files in '{found[0].parent}'",
                remedy="write the id with its extension",
            )
        files.append(found[0] if found else folder / name)
    return files


def _require_few(broken: Sequence[tuple[str, str]], total: int, path: Path) -> None:
    if len(broken) <= LARGEST_BROKEN_SHARE * total:
        return
    what = "none of the pictures" if len(broken) == total else f"{len(broken):,} of {total:,} pictures"
    verb = "can be read" if len(broken) == total else "cannot be read"
    raise ImageError(
        f"{what} {verb} ({path / BROKEN} says why), such as {broken[0][0]}",
        where=path,
        remedy="replace them and do the same again, which makes only what is missing",
    )
