"""Text tables that may be compressed (``.csv.gz``): unpacked as a stream, and never beyond what memory can hold."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from satl.errors import TableError, first_line
from satl.labels.io.arrays import machine_memory

LARGEST = 8 << 30
"""Bytes of an unpacked table that are read at most; less where the machine has less than four times as much."""
_BLOCK = 1 << 20
_BROKEN = (gzip.BadGzipFile, EOFError, zlib.error)


def is_compressed(path: Path) -> bool:
    """Whether the name of a file says that it is compressed."""
    return path.suffix.lower() == ".gz"


def most_bytes() -> int:
    """Return the size of an unpacked table from which on it is refused."""
    memory = machine_memory()
    return LARGEST if memory is None else min(LARGEST, memory // 4)


def too_large(path: Path, most: int) -> TableError:
    """Return the error of a file that unpacks to more than ``most`` bytes."""
    return TableError(
        f"unpacks to more than {most / (1 << 20):,.0f} MiB, which is too much for the memory of this machine",
        where=path,
        remedy="choose fewer images or classes, or check that it is a label table",
    )


def table_bytes(path: Path) -> bytes:
    """Return the content of a text table, unpacked where its name ends in ``.gz``."""
    if not is_compressed(path):
        return path.read_bytes()
    most, unpacked = most_bytes(), io.BytesIO()
    try:
        with gzip.open(path, "rb") as stream:
            while block := stream.read(_BLOCK):
                if unpacked.tell() + len(block) > most:
                    raise too_large(path, most)
                unpacked.write(block)
    except _BROKEN as error:
        cut = isinstance(error, EOFError)
        raise TableError(
            "was copied or downloaded only in part"
            if cut
            else f"is not a readable gzip file ({first_line(error)})",
            where=path,
            remedy="download it again" if cut else "compress it again, or remove .gz from its name",
        ) from None
    return unpacked.getvalue()


def table_start(path: Path, size: int) -> bytes:
    """Return the first bytes of a text table, at most ``size``; of a damaged one those that can be read."""
    if not is_compressed(path):
        with path.open("rb") as plain:
            return plain.read(size)
    start = b""
    try:
        with gzip.open(path, "rb") as stream:
            while len(start) < size and (block := stream.read1(size - len(start))):
                start += block
    except _BROKEN:
        pass
    return start


@contextmanager
def new_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file for bytes, which are compressed where its name ends in ``.gz``."""
    with path.open("wb") as plain:
        if not is_compressed(path):
            yield plain
            return
        # Neither name nor time, so that the same table gives the same file.
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=plain, mtime=0) as packed:
            yield cast("IO[bytes]", packed)


@contextmanager
def new_text(path: Path) -> Iterator[IO[str]]:
    """Open a new file for UTF-8 text with the line ends as they are written; see :func:`new_bytes`."""
    with new_bytes(path) as stream, io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        yield text
