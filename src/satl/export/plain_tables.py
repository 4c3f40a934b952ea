"""Wide and long tables, CSV or Parquet: known cells in the table itself, suggestions in a table beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from satl.errors import TableError
from satl.export.collecting import Collector
from satl.export.content import Source
from satl.export.escaping import number, open_text
from satl.export.registry import MAIN, Imported, ToolFormat, beside, register_tool
from satl.export.suggestions import Suggestions
from satl.labels import open_table
from satl.labels.bands import SUGGESTED_BANDS
from satl.labels.io import find_format
from satl.labels.io.arrow_files import PARQUET as _PARQUET
from satl.labels.io.arrow_files import arrow_columns, arrow_errors
from satl.labels.io.text_files import csv_field
from satl.labels.io.wide_csv import csv_columns, delimiter_of

SUGGESTIONS = "suggestions"
COLUMNS = ("image", "label", "value", "score", "band")
_EXTENSIONS = (".csv", ".tsv", *_PARQUET)
_ROWS_AT_ONCE = 1 << 18


def write_tables(source: Source, files: Mapping[str, Path], *, long: bool) -> None:
    """Write the table, and the suggestions where the source can have any."""
    main = files[MAIN]
    kind = find_format(main, writing=True, name="long" if long else None)
    assert kind.write is not None
    kind.write(source.table, main, None)
    if SUGGESTIONS in files:
        if main.suffix.lower() in _PARQUET:
            _write_parquet(source, files[SUGGESTIONS])
        else:
            _write_csv(source, files[SUGGESTIONS])


def _write_csv(source: Source, path: Path) -> None:
    mark = delimiter_of(path)
    names = [csv_field(name, mark) for name in source.table.classes]
    with open_text(path) as stream:
        stream.write(mark.join(COLUMNS) + "\n")
        for image in source.images():
            id = csv_field(image.image, mark)
            for at, value, score, band in image.suggested:
                stream.write(
                    mark.join((id, names[at], str(value), number(score), SUGGESTED_BANDS[band])) + "\n"
                )


def _write_parquet(source: Source, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    proposed = source.suggestions
    assert proposed is not None
    words = pa.dictionary(pa.int32(), pa.string())
    kinds = (words, words, pa.int8(), pa.float64(), words)
    schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)))
    texts = [
        pa.array(list(names), pa.string())
        for names in (source.table.images, source.table.classes, SUGGESTED_BANDS)
    ]

    def named(indices: Any, names: Any) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), names)

    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(0, len(proposed), _ROWS_AT_ONCE):
            part = proposed.select(np.arange(first, min(first + _ROWS_AT_ONCE, len(proposed))))
            columns = [
                named(part.rows, texts[0]),
                named(part.columns, texts[1]),
                pa.array(part.values),
                pa.array(part.scores),
                named(part.bands.astype(np.int32), texts[2]),
            ]
            writer.write_table(pa.table(columns, schema=schema))


def read_tables(path: Path, encoding: str | None) -> Imported:
    """Read a table as ``satl`` reads it, and the suggestions beside it where they are."""
    table = open_table(path, encoding).table.with_truth(None)
    file = _files(path)[SUGGESTIONS]
    if not file.is_file():
        return Imported(table, Suggestions.of(()))
    collected = Collector(file, table.classes, "image")
    row_of = {image: collected.image(image) for image in table.images}
    for entry, (image, label, value, score, band) in enumerate(_rows(file), start=1):
        if image not in row_of:
            raise TableError(
                f"{file}: row {entry} is about image {image!r}, which {path} lacks: export both again."
            )
        collected.suggested(row_of[image], label, value, score, band)
    return Imported(table, collected.finish().suggestions)


def _rows(path: Path) -> Iterator[tuple[str, str, int, float, str]]:
    header, columns = arrow_columns(path)[:2] if path.suffix.lower() in _PARQUET else csv_columns(path)
    if tuple(header) != COLUMNS:
        raise TableError(f"{path}: its columns are not '{','.join(COLUMNS)}': export it again.")
    # Through NumPy, because a list of repeated words made one by one takes several times as long.
    with arrow_errors(path, "Parquet"):
        rows = zip(*(column.to_numpy(zero_copy_only=False).tolist() for column in columns), strict=True)
    for entry, (image, label, value, score, band) in enumerate(rows, start=1):
        try:
            yield str(image), str(label), int(value), float(score), band
        except (TypeError, ValueError, OverflowError):
            raise TableError(
                f"{path}: row {entry} (image {image!r}) has no value or score: export it again."
            ) from None


def _files(path: Path) -> dict[str, Path]:
    return {MAIN: path, SUGGESTIONS: beside(path, SUGGESTIONS)}


for _name, _long in (("wide", False), ("long", True)):
    register_tool(
        ToolFormat(
            _name,
            f"{_name.capitalize()} table (.csv, .tsv, .parquet) of the known cells, and the suggestions beside it",
            _EXTENSIONS,
            _files,
            lambda source: (MAIN, SUGGESTIONS) if source.suggestions else (MAIN,),
            partial(write_tables, long=_long),
            read_tables,
        )
    )
