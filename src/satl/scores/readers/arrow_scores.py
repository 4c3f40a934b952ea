"""Arrow IPC files (``.arrow``, ``.feather``), wide or long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from satl.labels.io.arrow_files import arrow_errors, checked
from satl.scores.arrow_columns import open_columns, require_numbers
from satl.scores.score_reader import ScoreFile, ScoreReader, has_extension, register_reader


@contextmanager
def open_arrow(path: Path, classes: Sequence[str] | None) -> Iterator[ScoreFile]:
    """Open an Arrow file of scores; it is mapped into memory and read one record batch at a time."""
    import pyarrow as pa

    with arrow_errors(path, "Arrow"), pa.memory_map(str(path)) as source:
        file = pa.ipc.open_file(source)

        def read(texts: Sequence[int], numbers: Sequence[int]) -> Iterator[Any]:
            for position in numbers:
                require_numbers(file.schema.field(position), path)
            for index in range(file.num_record_batches):
                yield checked(file.get_batch(index).select([*texts, *numbers]))

        yield open_columns(path, file.schema.names, read, classes)


register_reader(ScoreReader(".arrow", has_extension(".arrow", ".feather"), open_arrow))
