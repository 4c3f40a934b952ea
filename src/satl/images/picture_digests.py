"""Tell cheaply whether a picture is still the one it was: a digest of its size and of three pieces of its file."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from satl.images.source import FolderImages, ImageSource, available_cores
from satl.images.store import PackedImages

Digests = NDArray[np.uint64]
Origin = Literal["files", "store", ""]
"""What digests are made of: files, a packed store, or nothing, where pictures are drawn or only features are known."""
UNREADABLE = 0
"""Digest of a file that cannot be read."""
_PIECE = 1024


def picture_digests(source: object) -> tuple[Origin, Digests]:
    """Return a digest for each picture of a source, uint64 (N,), and what it is made of.

    Of a file: its size and a kilobyte from its beginning, its middle and its end, which another picture, or the same
    one saved again, does not share; a few bytes that were changed elsewhere are not noticed. Of a store: the checksum
    and length that its index has. Digests are comparable only where they are made of the same.
    """
    if isinstance(source, PackedImages):
        return "store", source.checksums
    if not isinstance(source, FolderImages):
        return "", np.zeros(len(source) if isinstance(source, ImageSource) else 0, dtype=np.uint64)
    # Reading waits for the disk, so threads help. Few files a call: a call costs more than a small file.
    files, chunk = source.files, 256
    parts = [files[begin : begin + chunk] for begin in range(0, len(files), chunk)]
    with ThreadPoolExecutor(min(16, 2 * available_cores())) as pool:
        found = [digest for part in pool.map(_digests_of, parts) for digest in part]
    return "files", np.array(found, dtype=np.uint64)


def _digests_of(files: tuple[str, ...]) -> list[int]:
    return [file_digest(file) for file in files]


def file_digest(file: str) -> int:
    """Return the digest of one file; :data:`UNREADABLE` if it cannot be read."""
    try:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            size = os.fstat(descriptor).st_size
            digest = hashlib.blake2b(size.to_bytes(8, "little"), digest_size=8)
            digest.update(os.read(descriptor, _PIECE))
            for place in (size // 2, size - _PIECE):
                if place > _PIECE:  # a small file is read from its beginning already, or nearly so
                    os.lseek(descriptor, place, os.SEEK_SET)
                    digest.update(os.read(descriptor, _PIECE))
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return UNREADABLE
    return int.from_bytes(digest.digest(), "little") | 1  # never that of an unreadable one
