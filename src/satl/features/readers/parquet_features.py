"""Parquet with a column of ids and a column of lists, read in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from satl.features.feature_reader import FeatureFile, FeatureReader, register_feature_reader
from satl.features.list_columns import column_ids, find_columns, list_blocks
from satl.labels.io.arrow_files import arrow_errors, checked
from satl.labels.io.parquet_pages import open_parquet_file
from satl.scores.score_reader import has_extension

_ROWS_AT_ONCE = 4096
_BUFFER = 1 << 16


@contextmanager
def open_parquet(path: Path) -> Iterator[FeatureFile]:
    """Open a Parquet file of features."""
    import pyarrow as pa

    with ExitStack() as opened:
        opened.callback(pa.default_memory_pool().release_unused)
        opened.enter_context(arrow_errors(path, "Parquet"))
        # Pages are read as they are needed: a row group may hold the whole table.
        file = open_parquet_file(path, buffer_size=_BUFFER, pre_buffer=False)
        opened.callback(file.close)

        def read(name: str) -> Iterator[Any]:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[name], use_threads=False):
                yield checked(batch).column(0)

        ids, features = find_columns(file.schema_arrow, path)
        yield FeatureFile(column_ids(read(ids)), list_blocks(read(features), path))


register_feature_reader(FeatureReader(".parquet", has_extension(".parquet", ".pq"), open_parquet))
