"""Parquet, wide or long, read in blocks of rows; only the columns that are wanted are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from satl.labels.io.arrow_files import arrow_errors, checked
from satl.labels.io.parquet_pages import open_parquet_file
from satl.scores.arrow_columns import open_columns, require_numbers
from satl.scores.score_reader import ScoreFile, ScoreReader, has_extension, register_reader

_ROWS_AT_ONCE = 16_384
_BUFFER = 1 << 16


@contextmanager
def open_parquet(
    path: Path, classes: Sequence[str] | None, leave_out: Sequence[str] = ()
) -> Iterator[ScoreFile]:
    """Open a Parquet file of scores; columns called ``leave_out`` are not classes."""
    import pyarrow as pa

    with ExitStack() as opened:
        opened.callback(pa.default_memory_pool().release_unused)
        opened.enter_context(arrow_errors(path, "Parquet"))
        # Pages are read as they are needed: a row group may hold the whole table.
        file = open_parquet_file(path, buffer_size=_BUFFER, pre_buffer=False)
        opened.callback(file.close)
        header = [name for name in file.schema_arrow.names if name not in leave_out]

        def read(texts: Sequence[int], numbers: Sequence[int]) -> Iterator[Any]:
            columns = [header[position] for position in (*texts, *numbers)]
            for position in numbers:
                require_numbers(file.schema_arrow.field(header[position]), path)
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
                yield checked(batch.select(columns))

        yield open_columns(path, header, read, classes, file.metadata.num_rows)


register_reader(ScoreReader(".parquet", has_extension(".parquet", ".pq"), open_parquet))
