"""Arrow files (``.arrow``, ``.feather``) and Hugging Face data sets on disk, with a column of lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from satl.errors import TableError, first_line
from satl.features.feature_reader import FeatureFile, FeatureReader, register_feature_reader
from satl.features.list_columns import column_ids, find_columns, list_blocks
from satl.labels.io.arrow_files import arrow_errors, checked
from satl.parsing import parse_json
from satl.scores.score_reader import has_extension

_STATE, _SPLITS = "state.json", "dataset_dict.json"
"""Files that `datasets.save_to_disk` writes beside the Arrow files of a data set, and beside those of its splits."""


@contextmanager
def open_arrow(path: Path) -> Iterator[FeatureFile]:
    """Open an Arrow file, or a stream of one, which is mapped into memory while it is read."""
    with _open_all([path], path) as opened:
        yield opened


@contextmanager
def open_hugging_face(path: Path) -> Iterator[FeatureFile]:
    """Open a folder that ``datasets.Dataset.save_to_disk`` wrote."""
    if (path / _SPLITS).is_file():
        splits = ", ".join(sorted(state.parent.name for state in path.glob(f"*/{_STATE}")))
        raise TableError(
            f"holds several splits ({splits})",
            where=path,
            remedy="give the folder of one, or join them first",
        )
    try:
        state = parse_json((path / _STATE).read_text(encoding="utf-8"))
        files = [path / str(one["filename"]) for one in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TableError(
            f"cannot be read ({first_line(error)})", where=path / _STATE, remedy="save the data set again"
        ) from None
    if state.get("_indices_files"):
        raise TableError(
            "its rows are chosen by an index", where=path, remedy="call flatten_indices() and save it again"
        )
    with _open_all(files, path) as opened:
        yield opened


@contextmanager
def _open_all(files: Sequence[Path], path: Path) -> Iterator[FeatureFile]:
    import pyarrow as pa

    if not files:
        raise TableError("names no Arrow file", where=path, remedy="save the data set again")
    with ExitStack() as stack:
        stack.enter_context(arrow_errors(path, "Arrow"))
        sources = [stack.enter_context(pa.memory_map(str(file))) for file in files]
        schema = _batches(sources[0])[0]
        ids, features = find_columns(schema, path)

        def read(name: str) -> Iterator[Any]:
            for source in sources:
                found, batches = _batches(source)
                if found.names.count(name) != 1:
                    raise TableError(f"not all of its files have one column {name!r}", where=path)
                for batch in batches:
                    yield checked(batch.select([name])).column(0)

        yield FeatureFile(column_ids(read(ids)), list_blocks(read(features), path))


def _batches(source: Any) -> tuple[Any, Iterator[Any]]:
    """Return schema and record batches of a file or stream, from its beginning."""
    import pyarrow as pa

    source.seek(0)
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return stream.schema, iter(stream)
    return file.schema, (file.get_batch(index) for index in range(file.num_record_batches))


def _is_hugging_face(path: Path) -> bool:
    return (path / _STATE).is_file() or (path / _SPLITS).is_file()


register_feature_reader(FeatureReader(".arrow", has_extension(".arrow", ".feather"), open_arrow))
register_feature_reader(FeatureReader("a Hugging Face data set", _is_hugging_face, open_hugging_face))
