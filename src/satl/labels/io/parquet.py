"""Wide Parquet: columns ``image[, split], <class>...``; class columns of numbers, booleans or words."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from satl.errors import TableError
from satl.labels.encodings import ENCODINGS, Encoding, require_writable
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.wide import check_header, code_columns, decode_coded, wide_header
from satl.labels.table import UNKNOWN, LabelTable

_ENCODING_KEY = b"satl.encoding"
_PANDAS_INDEX = "__index_level_"


def read_parquet(path: Path, encoding: str | None) -> TableFile:
    """Read a wide Parquet file; one written by :func:`write_parquet` states its encoding itself."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        arrow = pyarrow.parquet.ParquetFile(path).read()
    except (pa.ArrowInvalid, pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")[:160]
        raise TableError(f"{path} is not a readable Parquet file ({reason}): save it again.") from None
    stated = (arrow.schema.metadata or {}).get(_ENCODING_KEY)
    header = arrow.schema.names
    # pandas stores the row numbers of a frame under this name: they are no class.
    kept = [i for i, name in enumerate(header) if not name.startswith(_PANDAS_INDEX)]
    header = [header[i] for i in kept]
    if not header:
        raise TableError(f"{path} is empty: write a column 'image' and one column per class.")
    image_at, _ = check_header(header, path)
    for position, source in enumerate(kept):
        kind = arrow.schema.types[source]
        if position != image_at and (pa.types.is_nested(kind) or pa.types.is_temporal(kind)):
            raise TableError(
                f"{path}: column {header[position]!r} holds {kind}, not labels: "
                f"remove it if it is not a class."
            )
    coded = code_columns(header, [arrow.column(i) for i in kept], path)
    return decode_coded(coded, path, "parquet", encoding, None if stated is None else stated.decode())


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
    arrow = pa.table(columns, names=header).replace_schema_metadata({_ENCODING_KEY: chosen.name.encode()})
    pyarrow.parquet.write_table(arrow, path, compression="zstd")


register_format(Format("parquet", (".parquet", ".pq"), read_parquet, write_parquet))
