"""``.npz`` files that may be larger than one wants to hold twice: arrays by name, rows in blocks."""

from __future__ import annotations

import io
import lzma
import math
import os
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError, first_line
from satl.labels.table import LabelTable

_BYTES_AT_ONCE = 16 << 20
_LONGEST_HEADER = 1 << 16
_LARGEST_ENTRY = 1 << 24
_LARGEST_RATIO = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
"""Bytes that can come out of one byte of a file."""
BROKEN = (
    *(ValueError, TypeError, OSError, EOFError, MemoryError, OverflowError, SyntaxError, RecursionError),
    # Encrypted; a compression that Python does not know; damaged data.
    *(
        RuntimeError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        tokenize.TokenError,
    ),
)
"""What NumPy and zipfile answer damaged or hostile bytes with."""


class ArrayFile:
    """The arrays of an ``.npz`` file, read when they are asked for; Python objects are never loaded.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.npz"
    >>> np.savez(file, scores=np.arange(6.0).reshape(3, 2))
    >>> with ArrayFile(file) as arrays:
    ...     "scores" in arrays, arrays.shape("scores"), arrays.first(("labels", "cells"))
    ...     [(first, block.shape) for first, block in arrays.row_blocks("scores")]
    (True, (3, 2), None)
    [(0, (3, 2))]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except BROKEN as error:
            raise TableError(f"{path} is not a readable .npz file: save it with numpy.savez.") from error
        self._names = {
            name.removesuffix(".npy"): name for name in self._zip.namelist() if name.endswith(".npy")
        }
        self._headers: dict[str, tuple[tuple[int, ...], bool, np.dtype[Any]]] = {}

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def __contains__(self, name: object) -> bool:
        return name in self._names

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays."""
        return tuple(self._names)

    @property
    def listed(self) -> str:
        """The names of the arrays, for a message."""
        return f"arrays: {', '.join(map(repr, self._names)) or 'none'}"

    def first(self, names: tuple[str, ...]) -> str | None:
        """Return the first of ``names`` that is there."""
        return next((name for name in names if name in self), None)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an array that is not read."""
        return self._header(name)[0]

    def kind(self, name: str) -> str:
        """NumPy's letter for the kind of numbers an array holds."""
        return self._header(name)[2].kind

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return a whole array."""
        self._header(name)
        with self._open(name) as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
            _require_unicode(array)
        return array

    def row_blocks(self, name: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield an array of at least one axis in blocks of rows, each with the number of its first row."""
        (rows, *inner), fortran, dtype = self._header(name)
        columns = math.prod(inner)
        at_once = max(1, _BYTES_AT_ONCE // max(1, columns * dtype.itemsize))
        if fortran:
            whole = self.read(name)
            for first in range(0, rows, at_once):
                yield first, whole[first : first + at_once]
            return
        with self._open(name) as stream:
            _skip_header(stream)
            for first in range(0, rows, at_once):
                count = min(at_once, rows - first)
                wanted = count * columns * dtype.itemsize
                data = stream.read(wanted)
                if len(data) != wanted:
                    raise ValueError("the file ends too early")
                yield first, np.frombuffer(data, dtype=dtype).reshape(count, *inner)

    def _header(self, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        if name not in self._headers:
            with self._open(name) as stream:
                header = shape, _, dtype = _skip_header(stream)
                # Entries of no bytes take none here, and whatever they are turned into takes many.
                self._require_room(name, math.prod(shape) * max(1, dtype.itemsize))
            self._headers[name] = header
        return self._headers[name]

    def _require_room(self, name: str, wanted: int) -> None:
        """Refuse, before anything is allocated, an array that is not in the file or fits into no memory."""
        entry = self._zip.getinfo(self._names[name])
        held = entry.file_size
        if entry.compress_type in _LARGEST_RATIO:  # what the directory says of an entry may be a lie as well
            held = min(held, self.path.stat().st_size * _LARGEST_RATIO[entry.compress_type])
        if wanted > held:
            raise ValueError(f"its header speaks of {wanted} bytes, and the file holds {held}")
        memory = machine_memory()
        if memory is not None and wanted > memory:
            gigabytes = f"{wanted / 1e9:.3g} GB, and this machine has {memory / 1e9:.3g}"
            raise ValueError(f"it would take {gigabytes}")

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        try:
            with self._zip.open(self._names[name]) as stream:
                yield stream
        except BROKEN as error:
            if "Object arrays" in str(error):
                raise TableError(
                    f"{self.path}: {name!r} holds Python objects, which are not loaded for safety: save names as "
                    "text, np.array(names, dtype=str), and numbers as numbers, np.array(values, dtype=np.float32)."
                ) from None
            raise TableError(
                f"{self.path}: {name!r} cannot be read ({first_line(error)}): save the file again with numpy.savez."
            ) from None


def map_array_file(path: Path) -> npt.NDArray[Any]:
    """Map the array of an ``.npy`` file into memory, to be read only; Python objects are never loaded.

    Not ``numpy.load``, which divides by the size of an entry: one of no bytes ends the process.

    Raises:
        one of BROKEN: it holds no plain array, or less than it says.
    """
    with path.open("rb") as stream:
        shape, fortran, dtype = _skip_header(stream)
        start, held = stream.tell(), stream.seek(0, os.SEEK_END)
    wanted = math.prod(shape) * max(1, dtype.itemsize)
    if wanted > held - start:
        raise ValueError(f"its header speaks of {wanted} bytes, and the file holds {held - start}")
    if not wanted:
        return np.empty(shape, dtype=dtype)
    return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")


def _skip_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    first = version == (1, 0)
    size = stream.read(2 if first else 4)
    if int.from_bytes(size, "little") > _LONGEST_HEADER:  # NumPy would take that much memory before it looks
        raise ValueError(f"its header is longer than {_LONGEST_HEADER:,} bytes")
    header = io.BytesIO(size + stream.read(int.from_bytes(size, "little")))
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(header)
    except SystemError:  # Python 3.12 fails so on a zero in what it is to take apart
        raise ValueError("its header cannot be read") from None
    if dtype.hasobject:
        raise ValueError("Object arrays")
    if dtype.itemsize > _LARGEST_ENTRY:  # of an empty array NumPy takes memory for one
        raise ValueError(f"its header speaks of entries of {dtype.itemsize:,} bytes")
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"its header speaks of the shape {shape}")
    return shape, fortran and math.prod(shape) > 0, dtype


def _require_unicode(array: npt.NDArray[Any]) -> None:
    """Refuse numbers that stand for no character: Python would make a text of them that nothing can read.

    Raises:
        ValueError: there is one.
    """
    if array.dtype.kind == "U":
        numbers = np.frombuffer(array.tobytes(), dtype=np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if len(numbers) and int(numbers.max()) > sys.maxunicode:
            raise ValueError("it holds text that is not Unicode")


def machine_memory() -> int | None:
    """Bytes of memory of this machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an ``.npz`` file like ``numpy.savez_compressed``, five times faster and a little larger."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


def write_label_arrays(
    path: Path, table: LabelTable, cells: npt.NDArray[np.int8], encoding: str = "signed"
) -> None:
    """Write a label table with other cells (N, C) as the ``.npz`` file that ``satl.labels`` reads.

    No second table is made of them, which for a large one takes seconds. ``encoding`` is signed or csl.
    """
    write_arrays(path, label_arrays(table, cells, encoding))


def label_arrays(
    table: LabelTable, cells: npt.NDArray[np.int8], encoding: str
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an ``.npz`` file with these cells (N, C) for a table; ``encoding`` is signed or csl."""
    csl = np.array([0, -1, 1], dtype=np.int8)
    arrays = {
        "images": np.array(table.images, dtype=np.str_),
        "classes": np.array(table.classes, dtype=np.str_),
        "cells": np.ascontiguousarray(cells if encoding == "signed" else csl[cells + 1]),
        "encoding": np.array(encoding),
    }
    return arrays if table.split is None else {**arrays, "split": table.split}
