"""Sources of images behind one small protocol: a folder, an array; a packed store is in ``store.py``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from satl.errors import ArrayError, ImageError, Sentence, Task
from satl.images.decode import decode_image
from satl.images.input_format import Interpolation
from satl.labels.cells import without_extension
from satl.remote.copies import fill

if TYPE_CHECKING:
    import torch

_PASS_FOLDER = "pass the folder that the image ids of the table are relative to"


@runtime_checkable
class ImageSource(Protocol):
    """Images of one square size, by position."""

    @property
    def size(self) -> int:
        """Side S of every image in pixels."""

    def __len__(self) -> int: ...

    def image(self, i: int) -> NDArray[np.uint8]:
        """Image at position ``i``, uint8 (S, S, 3)."""


@runtime_checkable
class RowSource(Protocol):
    """Rows of anything, images or features, handed out many at once."""

    def __len__(self) -> int: ...

    def gather(self, rows: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Rows at ``rows`` (int64, B); ``out`` is the memory to use, such as a page-locked one."""


@runtime_checkable
class BulkSource(ImageSource, RowSource, Protocol):
    """A source that hands out many images at once without a Python loop, so that it needs no workers."""

    def gather(self, rows: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Images at ``rows`` (int64, B), uint8 (B, 3, S, S), channels last in memory.

        ``out``, uint8 (B, S, S, 3) and contiguous, is the memory to use, such as a page-locked one.
        """


class FolderImages:
    """Image files in a folder, decoded when asked for.

    Every file is looked for at construction, so that a missing one is reported before hours of training.
    An id is a path relative to ``folder``; an absolute path and ``..`` are allowed, because the table belongs
    to the person who runs the program. An id without an extension finds its file if exactly one file of that
    name has an image extension.

    Args:
        folder: folder that ids are relative to.
        image_ids: one id for every image, in the order of the rows of the table.
        size: side S of the square that every image is resized to.
        rows: 1-based row of every id in the table of the user, for messages; counted from 1 if not given.
        in_table: whether the ids come from a table at all; messages name no row otherwise.
        interpolation: how images are resized.
        allow_missing: whether a file may be missing; it is then an image that cannot be decoded.

    Raises:
        ImageError: the folder or a file is missing, or an id without extension matches several files.
    """

    def __init__(
        self,
        folder: str | Path,
        image_ids: Sequence[str],
        size: int,
        *,
        rows: Sequence[int] | None = None,
        in_table: bool = True,
        interpolation: Interpolation = "bicubic",
        allow_missing: bool = False,
    ) -> None:
        _require_size(size)
        self._allow_missing = allow_missing
        self._folder = Path(folder)
        self._size = size
        self._in_table = in_table
        self._interpolation: Interpolation = interpolation
        self._rows = np.arange(1, len(image_ids) + 1) if rows is None else np.asarray(rows, dtype=np.int64)
        if len(self._rows) != len(image_ids):
            raise ValueError(f"{len(self._rows)} rows for {len(image_ids)} image ids")
        try:
            exists = self._folder.is_dir()
        except OSError as error:
            raise _unreadable(self._folder, error) from None
        if not exists:
            raise ImageError(f"image folder '{folder}' does not exist", remedy=_PASS_FOLDER)
        fill(self._folder, image_ids)
        self._files = self._find(image_ids)

    @property
    def size(self) -> int:
        """Side S of every image in pixels."""
        return self._size

    @property
    def files(self) -> tuple[str, ...]:
        """Path of every file, in the order of the ids."""
        return self._files

    def __len__(self) -> int:
        return len(self._files)

    def image(self, i: int) -> NDArray[np.uint8]:
        """Decode image ``i``: uint8 (S, S, 3)."""
        row = int(self._rows[i]) if self._in_table else None
        return decode_image(self._files[i], self._size, row=row, interpolation=self._interpolation)

    def select(self, rows: NDArray[np.int64]) -> FolderImages:
        """Return some of the images, by position, without looking for their files again."""
        chosen = copy(self)
        chosen._files = tuple(self._files[row] for row in rows.tolist())
        chosen._rows = self._rows[rows]
        return chosen

    def _find(self, image_ids: Sequence[str]) -> tuple[str, ...]:
        finder = FileFinder(self._folder)
        files: list[str] = []
        missing: list[int] = []
        for i, image_id in enumerate(image_ids):
            found = finder.find(image_id)
            if len(found) > 1:
                raise ImageError(
                    f"image id '{image_id}' of row {self._rows[i]} matches"
                    f" {len(found)} files in folder '{found[0].parent}'"
                    f" ({', '.join(file.name for file in found[:3])})",
                    remedy="write the id with its extension",
                )
            if not found:
                missing.append(i)
            files.append(str(found[0] if found else self._folder / image_id))
        if missing and not self._allow_missing:
            self._refuse_store()
            first = missing[0]
            if not self._in_table:
                raise ImageError(
                    f"image file '{files[first]}' is missing", remedy="replace it or leave it out"
                )
            raise ImageError(
                f"image file '{files[first]}' of row {self._rows[first]} is missing ({len(missing)} of"
                f" {len(files)} files are missing from '{self._folder}')",
                remedy=Sentence(
                    "pass the right image folder, or run {inspect} to list them all",
                    inspect=Task("inspect", "TABLE", images=self._folder, all=True),
                ),
            )
        return tuple(files)

    def _refuse_store(self) -> None:
        """Raise if the folder is a packed store, in which no image file can be found."""
        from satl.images.store import is_store  # which imports this module

        if is_store(self._folder):
            raise ImageError(
                f"'{self._folder}' is a packed store, and the image files themselves are needed here, with their"
                " names and sizes",
                remedy="pass the folder that they were packed from",
            )


class FileFinder:
    """Finds the files that image ids stand for; every folder is read once.

    Args:
        folder: folder that ids are relative to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listings: dict[Path, _Listing] = {}

    def find(self, image_id: str) -> list[Path]:
        """Return the file called so, else those with an image extension after the id: none, one or several.

        Raises:
            ImageError: the folder that the file should be in cannot be read.
        """
        path = self._folder / image_id
        if path.parent not in self._listings:
            self._listings[path.parent] = _Listing(path.parent)
        return [path.parent / name for name in self._listings[path.parent].find(path.name)]


class _Listing:
    """Names of the files of one folder, read once instead of asking for every file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: set[str] = set()
        self._by_stem: dict[str, list[str]] | None = None
        self._error: OSError | None = None
        try:
            with os.scandir(folder) as entries:
                self._names = {entry.name for entry in entries if _is_file_entry(entry)}
        except (FileNotFoundError, NotADirectoryError, ValueError):
            pass  # all of its files are missing
        except OSError as error:
            self._error = error  # a folder that may not be listed can still hold files that may be read

    def find(self, name: str) -> list[str]:
        """Names of the files that ``name`` stands for: itself, or itself with an image extension."""
        # The second question is for file systems that do not tell upper from lower case.
        if name in self._names or (name and _is_file(self._folder / name)):
            return [name]
        if self._error is not None:
            raise _unreadable(self._folder, self._error)
        if self._by_stem is None:
            self._by_stem = {}
            for file in sorted(self._names):
                if (stem := without_extension(file)) != file:
                    self._by_stem.setdefault(stem, []).append(file)
        return self._by_stem.get(name, [])


class ArrayImages:
    """Images in memory.

    Args:
        array: uint8 (N, S, S, 3). It is copied once.

    >>> images = ArrayImages(np.zeros((5, 8, 8, 3), dtype=np.uint8))
    >>> len(images), images.size, images.image(0).shape
    (5, 8, (8, 8, 3))
    >>> import torch
    >>> images.gather(torch.tensor([3, 1])).shape
    torch.Size([2, 3, 8, 8])
    """

    def __init__(self, array: NDArray[np.uint8]) -> None:
        array = np.asarray(array)
        square = array.ndim == 4 and array.shape[1] == array.shape[2] and array.shape[3] == 3
        if array.dtype != np.uint8 or not square:
            raise ArrayError(f"images must be uint8 (N, S, S, 3), not {array.dtype} {array.shape}")
        _require_size(array.shape[1])
        # np.array, not ascontiguousarray: always a copy, so that nobody else can change the pixels.
        self._pixels: NDArray[np.uint8] = np.array(array, order="C").transpose(0, 3, 1, 2)

    @classmethod
    def from_channels_first(cls, pixels: NDArray[np.uint8]) -> ArrayImages:
        """Take over ``pixels``, uint8 (N, 3, S, S), writeable, without a copy.

        Batches are gathered fastest where the channels come last in memory, as in the transpose of
        (N, S, S, 3).
        """
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1] != 3:
            raise ArrayError(f"images must be uint8 (N, 3, S, S), not {pixels.dtype} {pixels.shape}")
        source = cls.__new__(cls)
        source._pixels = pixels
        return source

    @property
    def size(self) -> int:
        """Side S of every image in pixels."""
        return int(self._pixels.shape[2])

    def __len__(self) -> int:
        return len(self._pixels)

    def image(self, i: int) -> NDArray[np.uint8]:
        """Image ``i``: uint8 (S, S, 3), a copy."""
        return np.array(self._pixels[i].transpose(1, 2, 0), order="C")

    def gather(self, rows: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Images at ``rows`` (int64, B): uint8 (B, 3, S, S), channels last in memory."""
        return gather_rows(self._pixels.transpose(0, 2, 3, 1), rows, out)


class ChosenImages:
    """Some images of a source, which is not asked for the others.

    Args:
        source: where they come from.
        rows: positions in the source, int64 (N,).

    >>> pixels = np.arange(3, dtype=np.uint8)[:, None, None, None] + np.zeros((3, 2, 2, 3), dtype=np.uint8)
    >>> some = ChosenImages(ArrayImages(pixels), np.array([2, 0]))
    >>> len(some), some.size, int(some.image(0).max())
    (2, 2, 2)
    """

    def __init__(self, source: ImageSource, rows: NDArray[np.int64]) -> None:
        self._source, self._rows = source, rows

    @property
    def size(self) -> int:
        """Side S of every image in pixels."""
        return self._source.size

    def __len__(self) -> int:
        return len(self._rows)

    def image(self, i: int) -> NDArray[np.uint8]:
        """Image ``i`` of those chosen: uint8 (S, S, 3)."""
        return self._source.image(int(self._rows[i]))


def gather_rows(pixels: NDArray[np.uint8], rows: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Copy images at ``rows`` (B,) of ``pixels`` (N, S, S, 3) to ``out``: uint8 (B, 3, S, S), channels last."""
    import torch

    source = torch.from_numpy(pixels)
    chosen = source.index_select(0, rows) if out is None else torch.index_select(source, 0, rows, out=out)
    return chosen.permute(0, 3, 1, 2)


def cached(
    source: ImageSource,
    workers: int = 0,
    *,
    limit_bytes: int = 4 << 30,
    progress: Callable[[int, int], Any] | None = None,
) -> ImageSource:
    """Read all images into memory once, if they fit.

    Args:
        source: where to read from.
        workers: threads that decode (decoding releases Python's lock); 0 takes one for every core.
        limit_bytes: a source that needs more than this is returned unchanged.
        progress: called as ``progress(done, total)`` in the calling thread, from 0 to the number of images.

    Returns:
        An :class:`ArrayImages` with the same images, or ``source`` itself if it is in memory or too large.

    Raises:
        ImageError: an image cannot be decoded; of several, the one with the lowest position.
    """
    total, size = len(source), source.size
    if isinstance(source, BulkSource) or total * size * size * 3 > limit_bytes:
        return source
    pixels = np.empty((total, size, size, 3), dtype=np.uint8)
    read_images(source, pixels, workers=workers, progress=progress)
    return ArrayImages.from_channels_first(pixels.transpose(0, 3, 1, 2))


def read_images(
    source: ImageSource,
    pixels: NDArray[np.uint8],
    first: int = 0,
    *,
    workers: int = 0,
    broken: dict[int, str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> None:
    """Fill ``pixels``, uint8 (B, S, S, 3), with the images from position ``first`` on, in several threads.

    The other arguments are those of :func:`each_image`.
    """

    def read(k: int) -> None:
        pixels[k] = source.image(first + k)

    each_image(read, len(pixels), workers=workers, broken=broken, progress=progress)


def each_image(
    use: Callable[[int], Any],
    total: int,
    *,
    workers: int = 0,
    broken: dict[int, str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> None:
    """Do something with each of so many images, in several threads: decoding releases Python's lock.

    Args:
        use: called with each position.
        total: number of images.
        workers: threads; 0 takes one for every core.
        broken: takes position and reason of images that raise ImageError; None raises the error of the first.
        progress: called as ``progress(done, total)`` in the calling thread.
    """
    chunk = 8

    def read(begin: int) -> int:
        end = min(begin + chunk, total)
        for k in range(begin, end):
            try:
                use(k)
            except ImageError as error:
                if broken is None:
                    raise
                broken[k] = reason_of(error)
        return end

    if progress is not None:
        progress(0, total)
    executor = ThreadPoolExecutor(workers or available_cores())
    try:
        for done in executor.map(read, range(0, total, chunk)):
            if progress is not None:
                progress(done, total)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def reason_of(error: ImageError) -> str:
    """Return why an image cannot be read, in one line and without what to do about it."""
    return " ".join(str(error.what).split())


def available_cores() -> int:
    """Cores that this process may use, which a container or ``taskset`` can make fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_file_entry(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):  # a link in a loop is no file, and no reason to leave the others out
        return entry.is_file()
    return False


def _is_file(path: Path) -> bool:
    with suppress(OSError):  # a name that is too long, a folder that may not be entered: no file for us
        return path.is_file()
    return False


def _unreadable(folder: Path, error: OSError) -> ImageError:
    return ImageError(
        f"image folder '{folder}' cannot be read ({error.strerror or error})",
        remedy=f"make it readable, or {_PASS_FOLDER}",
    )


def _require_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"the size of images must be at least 1 pixel, not {size}")
