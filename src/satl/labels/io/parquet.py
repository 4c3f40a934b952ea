"""Wide Parquet and Arrow (Feather): columns ``image[, split], <class>...``, classes as numbers, booleans or words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from satl.errors import Argument, Sentence, TableError
from satl.files import file_ending
from satl.labels.encodings import ENCODINGS, Encoding, require_writable
from satl.labels.io.arrow_files import (
    ENCODING_KEY,
    FEATHER,
    PARQUET,
    arrow_columns,
    arrow_errors,
    arrow_kind,
    write_arrow,
)
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.wide import check_header, code_columns, decode_coded, wide_header, without_ignored
from satl.labels.table import UNKNOWN, LabelTable


def read_parquet(path: Path, encoding: str | None, ignore: Sequence[str] = ()) -> TableFile:
    """Read a wide Parquet or Arrow file; one written by :func:`write_parquet` states its encoding itself."""
    import pyarrow as pa

    header, columns, stated = arrow_columns(path)
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
    with arrow_errors(path, arrow_kind(path)):
        coded = code_columns(header, columns, path)
    return decode_coded(
        coded, path, "feather" if file_ending(path) in FEATHER else "parquet", encoding, stated
    )


def write_parquet(table: LabelTable, path: Path, encoding: Encoding | None) -> None:
    """Write a wide Parquet or Arrow file, as int8 columns with gaps (``blank``) unless another encoding is given."""
    import pyarrow as pa

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
    write_arrow(arrow, path)


register_format(Format("parquet", PARQUET, read_parquet, write_parquet, ignores_columns=True))
register_format(Format("feather", FEATHER, read_parquet, write_parquet, ignores_columns=True))
