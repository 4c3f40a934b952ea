"""Parquet and Arrow files of strangers: what pyarrow answers damaged ones with, and data that is safe to touch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from satl.errors import TableError, first_line
from satl.files import file_ending
from satl.labels.io.arrow_sizes import message_size
from satl.labels.io.compressed import most_bytes, too_large
from satl.labels.io.parquet_pages import open_parquet_file

Data = TypeVar("Data", bound=Any)

PARQUET = (".parquet", ".pq")
FEATHER = (".feather", ".arrow")
ARROW_ENDINGS = (*PARQUET, *FEATHER)
ENCODING_KEY = b"satl.encoding"
_PANDAS_INDEX = "__index_level_"
_FILE_MAGIC = b"ARROW1"
_FILE_START = 8
"""Where the messages of an Arrow file begin: after the magic, filled up to eight bytes."""


@contextmanager
def arrow_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn what pyarrow raises about damaged bytes, or columns that it has no function for, into one sentence.

    Args:
        path: the file.
        kind: what it should be, "Parquet" or "Arrow".

    Raises:
        TableError: it is something else.
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, struct.error) as error:
        raise TableError(
            f"is not a readable {kind} file ({first_line(error)})", where=path, remedy="save it again"
        ) from None


def checked(data: Data) -> Data:
    """Return a table or record batch whose offsets and indices are within bounds, and whose text is UTF-8.

    pyarrow takes them from the file as they are, and reads whatever memory they point to.

    Raises:
        pyarrow.ArrowInvalid: they are not.
    """
    data.validate(full=True)
    return data


def arrow_kind(path: Path) -> str:
    """Return what messages call a file with this ending."""
    return "Arrow" if file_ending(path) in FEATHER else "Parquet"


def arrow_columns(path: Path) -> tuple[list[str], list[Any], str | None]:
    """Return the names of the columns of a Parquet or Arrow file, the columns, and the encoding that it states."""
    with arrow_errors(path, arrow_kind(path)):
        arrow = _read_feather(path) if file_ending(path) in FEATHER else _read_parquet(path)
        stated = (arrow.schema.metadata or {}).get(ENCODING_KEY)
        header = arrow.schema.names
    # pandas stores the row numbers of a frame under this name: they are not a class.
    kept = [i for i, name in enumerate(header) if not name.startswith(_PANDAS_INDEX)]
    if not kept:
        raise TableError(f"{path} is empty: write a column 'image' and one column per class.")
    encoding = stated.decode("utf-8", "replace") if stated else None
    return [header[i] for i in kept], [arrow.column(i) for i in kept], encoding


def arrow_header(path: Path) -> list[str]:
    """Return the column names of a file that may be Parquet or Arrow; empty where it is not."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with arrow_errors(path, arrow_kind(path)):
            if file_ending(path) in FEATHER:
                with pa.memory_map(str(path)) as source:
                    names = _open_feather(source).schema.names
            else:
                names = pyarrow.parquet.read_schema(path).names
    except TableError:
        return []
    return [name for name in names if not name.startswith(_PANDAS_INDEX)]


def write_arrow(arrow: Any, path: Path) -> None:
    """Write an Arrow table as Parquet or as an Arrow file, as the ending says."""
    import pyarrow as pa
    import pyarrow.parquet

    if file_ending(path) not in FEATHER:
        pyarrow.parquet.write_table(arrow, path, compression="zstd")
        return
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, arrow.schema, options=options) as writer:
        writer.write_table(arrow)


def _read_parquet(path: Path) -> Any:
    with open_parquet_file(path) as file:
        return checked(file.read())


def _open_feather(source: Any) -> Any:
    """Open an Arrow file, or the stream of messages that some programs store under the same ending."""
    import pyarrow as pa

    is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    source.seek(0)
    return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)


def _read_feather(path: Path) -> Any:
    """Read the messages of a file or stream in their order, after all of them have said how much they unpack to."""
    import pyarrow as pa

    most = most_bytes()
    with pa.memory_map(str(path)) as source:
        opened = _open_feather(source)
        batches = getattr(opened, "num_record_batches", None)  # None: a stream
        start = 0 if batches is None else _FILE_START
        source.seek(start)
        size = 0
        for message in pa.ipc.MessageReader.open_stream(source):
            size += message_size(message)
            if size > most:
                raise too_large(path, most)
        source.seek(start)
        read = [checked(batch) for batch in pa.ipc.open_stream(source)]
        if batches not in (None, len(read)):
            raise pa.ArrowInvalid(f"it speaks of {batches} parts and has {len(read)}")
        return pa.Table.from_batches(read, schema=opened.schema)
