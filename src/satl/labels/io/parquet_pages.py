"""What the pages of a Parquet file claim to unpack to, looked at before pyarrow takes memory for it."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

_ROOM = 1 << 24
"""Bytes that any page may unpack to: writers make pages of about one MiB."""
_LARGEST_RATIO = 1 << 15
"""Bytes that can come out of one byte of a larger page: Zstandard repeats 128 KiB in a block of four bytes."""
_LONGEST_HEADER = 1 << 22
_DEEPEST = 16
"""Structures in structures: a footer has six."""
_GROUPS, _COLUMNS, _FACTS = 4, 1, 3
"""Fields of the footer, of a group of rows, and of a column in it."""
_KIND, _VALUES, _SIZE, _DATA_AT, _DICTIONARY_AT = 1, 5, 7, 9, 11
"""Fields of what is known about a column."""
_UNPACKED, _PACKED, _DICTIONARY = 2, 3, 7
"""Fields of a page header: size after and before unpacking, and what only a page of different values has."""
_FIXED_BYTES = 7
"""Kind of column whose values are all of one number of bytes; those of others take four or more."""


def open_parquet_file(path: Path, **options: Any) -> Any:
    """Return the ``pyarrow.parquet.ParquetFile`` of a file whose pages claim no more than they can hold.

    pyarrow takes the memory that a page speaks of before it reads the page: gigabytes, for a changed byte. Its own view
    of the footer ends the process for some damaged ones, so the footer is read here.

    Raises:
        pyarrow.ArrowException, OSError, struct.error: it is damaged.
    """
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path, **options)
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check_pages(data)
    except BaseException:
        file.close()
        raise
    return file


def _check_pages(data: mmap.mmap) -> None:
    length = struct.unpack("<I", data[-8:-4])[0]
    footer = _Structure(data, len(data) - 8 - length, length).fields()
    for group in _entries(footer, _GROUPS):
        for column in _entries(group, _COLUMNS):
            _check_column(data, _structure(column, _FACTS))


def _check_column(data: mmap.mmap, column: dict[int, Any]) -> None:
    if _number(column, _VALUES) <= 0:
        return  # no page of it is read, and it may have none
    at, first = _number(column, _DATA_AT), _number(column, _DICTIONARY_AT)
    if 0 < first < at:
        at = first
    end = min(at + _number(column, _SIZE), len(data))
    least = 1 if _number(column, _KIND) == _FIXED_BYTES else 4
    while 0 <= at < end:
        header = _Structure(data, at, _LONGEST_HEADER)
        page = header.fields()
        unpacked, packed = _number(page, _UNPACKED), _number(page, _PACKED)
        if not 0 <= unpacked <= max(_ROOM, packed * _LARGEST_RATIO):
            raise struct.error("a page of a size that it cannot have")
        if _DICTIONARY in page and not 0 <= _number(_structure(page, _DICTIONARY), 1) * least <= unpacked:
            raise struct.error("more values than its page can hold")
        at = header.at + max(packed, 0)


def _number(fields: dict[int, Any], name: int) -> int:
    found = fields.get(name, 0)
    if not isinstance(found, int):
        raise struct.error("a number is missing")
    return found


def _structure(fields: Any, name: int) -> dict[int, Any]:
    found = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(found, dict):
        raise struct.error("a part of it is missing")
    return found


def _entries(fields: Any, name: int) -> list[Any]:
    found = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(found, list):
        raise struct.error("a list is missing")
    return found


class _Structure:
    """A structure in Thrift's compact form; one that ends outside its room is a ``struct.error``."""

    def __init__(self, data: mmap.mmap, at: int, room: int) -> None:
        if at < 0:
            raise struct.error("a place before the file")
        self.data, self.at, self.end = data, at, min(at + room, len(data))

    def fields(self, depth: int = 0) -> dict[int, Any]:
        """Return its numbers, lists and structures by the numbers of their fields, and go to its end."""
        found, name = dict[int, Any](), 0
        while kind := self._byte():
            name = name + (kind >> 4) if kind >> 4 else self._signed()
            found[name] = self._value(kind & 15, depth)
        return found

    def _value(self, kind: int, depth: int, in_list: bool = False) -> Any:
        if depth > _DEEPEST:
            raise struct.error("structures in structures without end")
        if kind in (1, 2):  # of a field, the kind is the value
            return self._byte() if in_list else kind
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind in (7, 8):
            self._skip(8 if kind == 7 else self._size())
            return None
        if kind in (9, 10):
            size = self._byte()
            entries = range(size >> 4 if size >> 4 < 15 else self._size())
            return [self._value(size & 15, depth + 1, in_list=True) for _ in entries]
        if kind == 12:
            return self.fields(depth + 1)
        raise struct.error("a part of it cannot be read")  # 11 is a map: Parquet has none

    def _byte(self) -> int:
        self.at += 1
        if self.at > self.end:
            raise struct.error("a part outside of it")
        return self.data[self.at - 1]

    def _size(self) -> int:
        size = shift = 0
        while True:
            byte = self._byte()
            size |= (byte & 127) << shift
            if byte < 128:
                return size
            shift += 7
            if shift > 63:
                raise struct.error("a number without end")

    def _signed(self) -> int:
        size = self._size()
        return (size >> 1) ^ -(size & 1)

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > self.end:
            raise struct.error("a part outside of it")
