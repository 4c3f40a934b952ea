"""The packed store: every image of a table in one file, resized once, memory-mapped, checksummed.

A store is a folder of three files; ``docs/images.md`` describes them. ``pack.py`` writes it.
"""

from __future__ import annotations

import hashlib
import mmap
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from satl.checks.plain_files import refuse_endless_files
from satl.errors import ImageError, Sentence, TableError, Task, first_line
from satl.images.broken_list import BROKEN, read_broken
from satl.images.decode import jpeg_decoder
from satl.images.source import gather_rows
from satl.labels.cells import NameIndex
from satl.labels.io.arrays import ArrayFile
from satl.parsing import parse_json

if TYPE_CHECKING:
    import torch

FORMAT = "satl packed images"
VERSION = 1
HEADER = "store.json"
INDEX = "index.npz"
PIXELS = "pixels.bin"
JOURNAL = "journal.jsonl"
RESIZE = "bicubic to size x size, aspect ratio not kept"

Kind = Literal["jpeg", "raw"]
WRONG_CHECKSUM = "its checksum is wrong"
_PACK_AGAIN = "delete the folder and pack the images again"


@dataclass(frozen=True, eq=False, repr=False)
class Store:
    """A store as its header and index describe it.

    Attributes:
        path: the folder.
        kind: ``jpeg`` or ``raw``.
        size: side S of every image in pixels.
        quality: of the JPEGs; None where they are raw.
        ids: N image ids, in the order of the pixels.
        offsets: int64 (N,), where an image begins in ``pixels.bin``.
        lengths: int64 (N,), its bytes.
        crc32: uint32 (N,), their checksum.
    """

    path: Path
    kind: Kind
    size: int
    quality: int | None
    ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    crc32: NDArray[np.uint32]

    @property
    def num_bytes(self) -> int:
        """Bytes of all images together."""
        return int(self.lengths.sum())

    def map(self) -> np.memmap[Any, np.dtype[np.uint8]]:
        """Map ``pixels.bin``: uint8 (bytes,). Writing to it changes nothing but the caller's memory."""
        # Copy-on-write, because torch does not take memory that says it is read-only.
        try:
            return np.memmap(self.path / PIXELS, dtype=np.uint8, mode="c")
        except OSError as error:
            raise _unreadable(self.path, PIXELS, error) from None


def is_store(path: str | Path) -> bool:
    """Whether a folder is a packed store, or one that is not finished."""
    with suppress(OSError):  # what cannot be looked into is reported by whoever reads it
        return any((Path(path) / name).is_file() for name in (HEADER, JOURNAL))
    return False


def open_store(path: str | Path) -> Store:
    """Read header and index of a store; check both and the length of ``pixels.bin``, but no pixels.

    Raises:
        ImageError: it is not a store, not finished, of another version, or damaged.
    """
    folder = Path(path)
    refuse_endless_files(folder, ImageError, _PACK_AGAIN)
    try:
        header = parse_json((folder / HEADER).read_text(encoding="utf-8"))
        if header["format"] != FORMAT:
            raise ValueError
        version, digest = header["version"], header["index_sha256"]
        kind, size, quality, count = (header[key] for key in ("kind", "size", "quality", "count"))
        numbers = (size, count) if quality is None else (size, count, quality)
        if version == VERSION and not all(type(one) is int and 0 < one < 1 << 31 for one in numbers):
            raise ValueError
    except (FileNotFoundError, NotADirectoryError):
        if (folder / JOURNAL).is_file():
            raise ImageError(
                f"packed store '{folder}' is not finished", remedy="pack the same table again to resume"
            ) from None
        raise ImageError(
            f"'{folder}' is not a packed store, it has no {HEADER}",
            remedy=Sentence("make one with {pack}", pack=Task("pack", "TABLE", images="DIR", out="STORE")),
        ) from None
    except OSError as error:
        raise _unreadable(folder, HEADER, error) from None
    except (ValueError, KeyError, TypeError):
        raise ImageError(f"packed store '{folder}': {HEADER} is damaged", remedy=_PACK_AGAIN) from None
    if version != VERSION:
        raise ImageError(
            f"packed store '{folder}' has format version {version}, and this program reads {VERSION}",
            remedy="pack the images again, or use the program that wrote it",
        )
    store = Store(folder, kind, size, quality, *_read_index(folder, digest, count))
    if kind not in ("jpeg", "raw") or (kind == "raw" and (store.lengths != size * size * 3).any()):
        raise ImageError(f"packed store '{folder}': {HEADER} does not fit {INDEX}", remedy=_PACK_AGAIN)
    actual = (folder / PIXELS).stat().st_size if (folder / PIXELS).is_file() else 0
    if actual != store.num_bytes:
        raise ImageError(
            f"packed store '{folder}': {PIXELS} has {actual:,} bytes instead of {store.num_bytes:,}",
            remedy=f"copy it again, or {_PACK_AGAIN}",
        )
    return store


def _read_index(
    folder: Path, digest: str, count: int
) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]:
    path = folder / INDEX
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""  # no index has this digest
    except OSError as error:
        raise _unreadable(folder, INDEX, error) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise ImageError(
            f"packed store '{folder}': {INDEX} is missing or not the one that {HEADER} describes",
            remedy=_PACK_AGAIN,
        )
    try:
        with ArrayFile(path) as arrays:
            text, ends, lengths, crc32 = (
                arrays.read(name) for name in ("ids", "id_ends", "lengths", "crc32")
            )
        ids = _ids(text, ends, count)
    except (TableError, KeyError, ValueError) as error:
        raise ImageError(
            f"packed store '{folder}': {INDEX} is damaged ({first_line(error)})", remedy=_PACK_AGAIN
        ) from None
    shapes = {lengths.shape, crc32.shape}
    if shapes != {(count,)} or lengths.dtype != np.int64 or crc32.dtype != np.uint32 or not _add_up(lengths):
        raise ImageError(f"packed store '{folder}': {INDEX} does not fit {HEADER}", remedy=_PACK_AGAIN)
    return ids, np.concatenate([[0], lengths.cumsum()[:-1]]), lengths, crc32


def _ids(text: NDArray[Any], ends: NDArray[Any], count: int) -> tuple[str, ...]:
    """Return the ids that lie in ``text`` one after the other, each up to its end.

    Raises:
        ValueError: they are not ``count`` texts.
    """
    if text.dtype != np.uint8 or ends.dtype != np.int64 or ends.shape != (count,) or text.ndim != 1:
        raise ValueError(f"it does not hold {count:,} ids")
    places = [0, *ends.tolist()]
    if places != sorted(places) or places[-1] != len(text):
        raise ValueError("its ids do not follow each other")
    data = text.tobytes()
    return tuple(data[begin:end].decode() for begin, end in pairwise(places))


def _add_up(lengths: NDArray[np.int64]) -> bool:
    """Whether the lengths of images can be those of parts of one file."""
    return not len(lengths) or (int(lengths.min()) > 0 and int(lengths.max()) < (1 << 62) // len(lengths))


def write_index(path: Path, ids: Sequence[str], lengths: Sequence[int], crc32: Sequence[int]) -> None:
    """Write ``index.npz``; the same images give the same bytes."""
    encoded = [image_id.encode() for image_id in ids]
    np.savez(
        path,
        ids=np.frombuffer(b"".join(encoded), dtype=np.uint8),
        id_ends=np.cumsum([len(text) for text in encoded], dtype=np.int64),
        lengths=np.array(lengths, dtype=np.int64),
        crc32=np.array(crc32, dtype=np.uint32),
    )


def check_store(path: str | Path, progress: Callable[[int, int], Any] | None = None) -> tuple[str, ...]:
    """Compare every image of a store with its checksum.

    Returns:
        The ids of the images that are damaged.

    Raises:
        ImageError: header, index or the length of the pixels are wrong already.
    """
    store = open_store(path)
    pixels = store.map()
    damaged = []
    for i, image_id in enumerate(store.ids):
        if zlib.crc32(_bytes_of(store, pixels, i).data) != store.crc32[i]:
            damaged.append(image_id)
        if progress is not None:
            progress(i + 1, len(store.ids))
    return tuple(damaged)


def read_stored(store: Store, position: int) -> bytes:
    """Read one image as it is stored, a JPEG file or uint8 (S, S, 3), and compare its checksum.

    The file is read and not mapped: a server that lives for days outlives a store that is cut off or replaced
    under it, whereas touching mapped memory behind the end of its file ends the process.

    Raises:
        ImageError: the bytes are not those that were packed.
        OSError: the file is gone or cannot be read.
    """
    with (store.path / PIXELS).open("rb") as file:
        file.seek(int(store.offsets[position]))
        data = file.read(int(store.lengths[position]))
    if zlib.crc32(data) != store.crc32[position]:
        raise _damaged(store, position)
    return data


def _unreadable(folder: Path, name: str, error: OSError) -> ImageError:
    return ImageError(
        f"packed store '{folder}': {name} cannot be read ({error.strerror or error})",
        remedy="make the files of the store readable, or copy it again",
    )


def _name(store: Store, position: int) -> str:
    return f"image '{store.ids[position]}' of packed store '{store.path}'"


def _damaged(store: Store, position: int) -> ImageError:
    return ImageError(
        f"{_name(store, position)} is damaged, {WRONG_CHECKSUM}",
        remedy=Sentence(
            "run {check} to find all damaged images, then copy the store again or pack it again",
            check=Task("pack", check=store.path),
        ),
    )


def _bytes_of(store: Store, pixels: NDArray[np.uint8], i: int) -> NDArray[np.uint8]:
    begin = int(store.offsets[i])
    return pixels[begin : begin + int(store.lengths[i])]


class PackedImages:
    """Images of a store, decoded when asked for; make one with :func:`packed_images`.

    The checksum of a JPEG is compared whenever it is read, which costs a hundredth of decoding it.

    Args:
        store: the store.
        positions: (N,) which of its images, in the order wanted.
    """

    def __init__(self, store: Store, positions: NDArray[np.int64]) -> None:
        self._store = store
        self._positions = positions
        self._pixels: NDArray[np.uint8] = store.map()
        if store.kind == "jpeg":
            jpeg_decoder()  # found once, here, and not by every worker

    # A process that is started afresh maps the file itself; the bytes are not sent to it.
    def __getstate__(self) -> dict[str, Any]:
        return {"store": self._store, "positions": self._positions}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def size(self) -> int:
        """Side S of every image in pixels."""
        return self._store.size

    @property
    def kind(self) -> Kind:
        """How the images are stored, ``jpeg`` or ``raw``."""
        return self._store.kind

    @property
    def ids(self) -> tuple[str, ...]:
        """Id of every image."""
        return tuple(self._store.ids[i] for i in self._positions.tolist())

    @property
    def checksums(self) -> NDArray[np.uint64]:
        """Checksum and length of every image in one number, uint64 (N,), as the index of the store has them."""
        crc32, lengths = (
            values[self._positions].astype(np.uint64) for values in (self._store.crc32, self._store.lengths)
        )
        return crc32 << np.uint64(32) | lengths

    def __len__(self) -> int:
        return len(self._positions)

    def select(self, rows: NDArray[np.int64]) -> PackedImages:
        """Return some of the images, by position."""
        return type(self)(self._store, self._positions[rows])

    def require_sound(self, i: int) -> NDArray[np.uint8]:
        """Return the bytes of image ``i`` as they are stored, uint8 (n,).

        Raises:
            ImageError: their checksum is not that of the packing.
        """
        position = int(self._positions[i])
        data = _bytes_of(self._store, self._pixels, position)
        if zlib.crc32(data.data) != self._store.crc32[position]:
            raise _damaged(self._store, position)
        return data

    def image(self, i: int) -> NDArray[np.uint8]:
        """Image ``i``: uint8 (S, S, 3)."""
        store, data = self._store, self.require_sound(i)
        name = _name(store, int(self._positions[i]))
        try:
            decoded = jpeg_decoder()(data)
        except Exception as error:
            raise ImageError(f"{name} cannot be decoded ({error})", remedy=_PACK_AGAIN) from None
        if decoded.shape != (store.size, store.size, 3):
            raise ImageError(f"{name} has another shape than its store, {decoded.shape}", remedy=_PACK_AGAIN)
        return decoded


class RawPackedImages(PackedImages):
    """Images of a store that holds plain bytes: a batch is one copy out of the mapped file."""

    def __init__(self, store: Store, positions: NDArray[np.int64]) -> None:
        super().__init__(store, positions)
        self._images = self._pixels.reshape(-1, store.size, store.size, 3)

    def image(self, i: int) -> NDArray[np.uint8]:
        """Image ``i``: uint8 (S, S, 3), a copy."""
        return np.array(self._images[self._positions[i]])

    def gather(self, rows: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Images at ``rows`` (int64, B): uint8 (B, 3, S, S), channels last in memory."""
        import torch

        positions = self._positions[rows.numpy()]
        self._announce(positions)
        return gather_rows(self._images, torch.from_numpy(positions), out)

    def _announce(self, positions: NDArray[np.int64]) -> None:
        """Ask the system to read the pages of these images at once, not one after the other when touched."""
        mapped = getattr(self._pixels, "_mmap", None)
        if mapped is None or not hasattr(mmap, "MADV_WILLNEED"):
            return
        length = int(self._store.lengths[0])
        for begin in (positions * length).tolist():
            first = begin - begin % mmap.PAGESIZE
            mapped.madvise(mmap.MADV_WILLNEED, first, begin + length - first)


def absent_images(path: str | Path, image_ids: Sequence[str]) -> dict[str, str]:
    """Return the images that a store lacks, with the reason, such as that they could not be read when it was packed."""
    store = open_store(path)
    reasons = {row["image"]: row["reason"] for row in read_broken(store.path / BROKEN)}
    missing = np.flatnonzero(NameIndex(store.ids).find(image_ids) < 0).tolist()
    otherwise = f"is not in packed store '{store.path}'"
    return {image_ids[row]: reasons.get(image_ids[row], otherwise) for row in missing}


def packed_images(
    path: str | Path, image_ids: Sequence[str] | None = None, *, rows: Sequence[int] | None = None
) -> PackedImages:
    """Open a store for the images of a table; the store may hold more.

    Args:
        path: folder of the store.
        image_ids: ids of the table, in its order; ``None`` for all images of the store in their order.
        rows: 1-based row of every id in the table of the user, for messages; counted from 1 if not given.

    Returns:
        A source of the images; for a raw store also a :class:`satl.images.BulkSource`.

    Raises:
        ImageError: the store is damaged or not finished, or lacks an image of the table.
    """
    store = open_store(path)
    if image_ids is None:
        positions = np.arange(len(store.ids))
    else:
        positions = NameIndex(store.ids).find(image_ids)
        missing = np.flatnonzero(positions < 0)
        if len(missing):
            first = int(missing[0])
            row = first + 1 if rows is None else rows[first]
            raise ImageError(
                f"image '{image_ids[first]}' of row {row} is not in packed store '{store.path}'"
                f" ({len(missing)} of {len(image_ids)} images are missing)",
                remedy=Sentence(
                    "pack this table into a new folder with {pack}",
                    pack=Task("pack", "TABLE", images="DIR", size=store.size, out="STORE"),
                ),
            )
    return (PackedImages if store.kind == "jpeg" else RawPackedImages)(store, positions)
