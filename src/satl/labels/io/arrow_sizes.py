"""What an Arrow file will take in memory, from its messages alone: compressed parts state their sizes, and may lie."""

from __future__ import annotations

import struct
from typing import Any

_DICTIONARY, _RECORDS = 2, 3
"""Kinds of messages that carry data."""
_LARGEST_RATIO = 1 << 15
"""Bytes that can come out of one byte: Zstandard repeats 128 KiB in a block of four bytes, LZ4 far less."""


class _FlatTable:
    """A table of a FlatBuffers message; a place outside the message is a ``struct.error``."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.names_at = at - self.number("<i", at)

    def number(self, kind: str, at: int) -> int:
        """Return the number at a place."""
        if at < 0:
            raise struct.error("a place before the message")
        return int(struct.unpack_from(kind, self.data, at)[0])

    def place(self, field: int) -> int | None:
        """Return where a field lies, or None where the message leaves it out."""
        entry = 4 + 2 * field
        if entry >= self.number("<H", self.names_at):
            return None
        offset = self.number("<H", self.names_at + entry)
        return self.at + offset if offset else None

    def table(self, field: int) -> _FlatTable | None:
        """Return the table that a field points to."""
        at = self.place(field)
        return None if at is None else _FlatTable(self.data, at + self.number("<I", at))


def message_size(message: Any) -> int:
    """Return the bytes that one message takes when it is unpacked, at least one for every cell.

    Args:
        message: a ``pyarrow.ipc.Message``.

    Raises:
        struct.error: it is damaged.
    """
    data = message.metadata.to_pybytes()
    root = _FlatTable(data, struct.unpack_from("<I", data)[0])
    kind_at = root.place(1)
    kind = 0 if kind_at is None else root.number("<B", kind_at)
    batch = root.table(2)
    if kind == _DICTIONARY and batch is not None:
        batch = batch.table(1)
    if kind not in (_DICTIONARY, _RECORDS) or batch is None:
        return 0
    rows_at, columns_at, parts_at = (batch.place(field) for field in range(3))
    rows = 0 if rows_at is None else batch.number("<q", rows_at)
    columns = 0 if columns_at is None else batch.number("<I", columns_at + batch.number("<I", columns_at))
    if rows < 0:
        raise struct.error("a negative number of rows")
    size = rows * columns
    if parts_at is None:
        return size
    packed = batch.table(3) is not None
    start = parts_at + batch.number("<I", parts_at)
    body = message.body
    for part in range(batch.number("<I", start)):
        offset, length = struct.unpack_from("<qq", data, start + 4 + 16 * part)
        if packed and length >= 8:
            if not 0 <= offset <= body.size - 8:
                raise struct.error("a part outside the message")
            # The size before compression, or -1 for a part that is stored as it is.
            stated = struct.unpack("<q", body.slice(offset, 8).to_pybytes())[0]
            if not -1 <= stated <= length * _LARGEST_RATIO:
                raise struct.error("a part of a size that it cannot have")
            length = max(stated, length)
        size += max(length, 0)
    return size
