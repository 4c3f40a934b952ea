"""Wide Parquet: columns ``image[, split], <class>...``; class columns of numbers, booleans or words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from satl.errors import Argument, Sentence, TableError, first_line
from satl.labels.encodings import ENCODINGS, Encoding, require_writable
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.wide import check_header, code_columns, decode_coded, wide_header, without_ignored
from satl.labels.table import UNKNOWN, LabelTable

EXTENSIONS = (".parquet", ".pq")
ENCODING_KEY = b"satl.encoding"
_PANDAS_INDEX = "__index_level_"


def read_parquet(path: Path, encoding: str | None, ignore: Sequence[str] = ()) -> TableFile:
    """Read a wide Parquet file; one written by :func:`write_parquet` states its encoding itself."""
    import pyarrow as pa

    header, columns, stated = parquet_columns(path)
    kept = without_ignored(header, ignore, path)
    header, columns = [header[i] for i in kept], [columns[i] for i in kept]
    image_at, _ = check_header(header, path)
    for position, column in enumerate(columns):
        kind = column.type
        if position != image_at and (pa.types.is_nested(kind) or pa.types.is_temporal(kind)):
            raise TableError(
                f"column {header[position]!r} holds {kind}, not labels",
                where=path,
                remedy=Sentence(
                    "remove it if it is not a class, or pass {ignore}",
                    ignore=Argument("ignore_columns", header[position]),
                ),
            )
    return decode_coded(code_columns(header, columns, path), path, "parquet", encoding, stated)


def parquet_columns(path: Path) -> tuple[list[str], list[Any], str | None]:
    """Return the names of the columns, the columns, and the encoding that the file states, or None."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        arrow = pyarrow.parquet.ParquetFile(path).read()
    except (pa.ArrowInvalid, pa.ArrowException, OSError, ValueError) as error:
        raise TableError(
            f"{path} is not a readable Parquet file ({first_line(error)}): save it again."
        ) from None
    stated = (arrow.schema.metadata or {}).get(ENCODING_KEY)
    header = arrow.schema.names
    # pandas stores the row numbers of a frame under this name: they are not a class.
    kept = [i for i, name in enumerate(header) if not name.startswith(_PANDAS_INDEX)]
    if not kept:
        raise TableError(f"{path} is empty: write a column 'image' and one column per class.")
    return [header[i] for i in kept], [arrow.column(i) for i in kept], stated.decode() if stated else None


def parquet_header(path: Path) -> list[str]:
    """Return the column names of a file that may be Parquet; empty where it is not."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        names = pyarrow.parquet.read_schema(path).names
    except (pa.ArrowInvalid, pa.ArrowException, OSError, ValueError):
        return []
    return [name for name in names if not name.startswith(_PANDAS_INDEX)]


def write_parquet(table: LabelTable, path: Path, encoding: Encoding | None) -> None:
    """Write a wide Parquet file, as int8 columns with gaps (``blank``) unless another encoding is given."""
    import pyarrow as pa
    import pyarrow.parquet

    chosen = encoding or ENCODINGS["blank"]
    require_writable(table.cells, chosen)
    header = wide_header(table)
    columns = [pa.array(table.images, pa.string())]
    if table.split is not None:
        columns.append(pa.array(table.split.tolist(), pa.string()).dictionary_encode())
    texts = [chosen.writes.get(state, "") for state in (-1, 0, 1)]
    gaps = chosen.writes.get(UNKNOWN) == ""
    for column in np.ascontiguousarray(table.cells.T):
        if chosen.name == "words":
            indices = pa.array(column + np.int8(1), pa.int8())
            columns.append(pa.DictionaryArray.from_arrays(indices, pa.array(texts)))
        else:
            lookup = np.array([int(text or 0) for text in texts], dtype=np.int8)
            columns.append(
                pa.array(lookup[column + 1], pa.int8(), mask=(column == UNKNOWN) if gaps else None)
            )
    arrow = pa.table(columns, names=header).replace_schema_metadata({ENCODING_KEY: chosen.name.encode()})
    pyarrow.parquet.write_table(arrow, path, compression="zstd")


register_format(Format("parquet", EXTENSIONS, read_parquet, write_parquet, ignores_columns=True))
