"""Pages of Parquet that claim gigabytes are refused before memory is taken; those of every writer's kind are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from satl.errors import TableError
from satl.features import read_features
from satl.labels import read_table
from satl.labels.io.parquet_pages import open_parquet_file
from satl.scores import read_scores

ROWS = 300
NAMES = [f"{row}.jpg" for row in range(ROWS)]
VALUES = np.random.default_rng(0).random((ROWS, 2)).astype(np.float32)


def number(value: int) -> bytes:
    """Return a number as a page header holds it."""
    value, found = value * 2, b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def claimed(file: Path, column: int, field: bytes, old: int, new: int) -> None:
    """Let the first page of a column claim another number in one field of its header."""
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(column)
    data, first = file.read_bytes(), chunk.dictionary_page_offset
    at = data.index(field + number(old), first)
    assert at < first + 20
    end = at + len(field + number(old))
    file.write_bytes(data[:at] + field + number(new) + data[end:])


def write_features(file: Path) -> None:
    rows = pa.array(list(VALUES), pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": NAMES, "features": rows}), file, compression="snappy")


def write_columns(file: Path) -> None:
    table = {"image": NAMES, "cat": VALUES[:, 0], "dog": VALUES[:, 1]}
    pq.write_table(pa.table(table), file, compression="snappy")


@pytest.mark.parametrize(
    ("write", "read", "values"),
    [
        (write_features, read_features, 2 * ROWS),
        (write_columns, read_scores, ROWS),
        (write_columns, read_table, ROWS),
    ],
)
def test_values_that_no_page_can_hold(
    write: Callable[[Path], None], read: Callable[[Path], object], values: int, tmp_path: Path
) -> None:
    file = tmp_path / "t.parquet"
    write(file)
    claimed(file, 1, b"\x4c\x15", values, 1 << 30)  # 4 GiB of them
    with pytest.raises(TableError, match="more values than its page can hold"):
        read(file)


def test_a_page_that_claims_gigabytes(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    write_features(file)
    claimed(file, 1, b"\x15\x04\x15", 4 * 2 * ROWS, (1 << 31) - 1)
    with pytest.raises(TableError, match="a page of a size that it cannot have"):
        read_features(file)


def test_a_footer_that_pyarrow_cannot_show(tmp_path: Path) -> None:
    """Asked for such a column, pyarrow ends the process."""
    file = tmp_path / "t.parquet"
    write_features(file)
    data = file.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    refused = 0
    for at in range(len(data) - 8 - length, len(data) - 8, 3):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0x12]) + data[at + 1 :])
        try:
            read_features(file)
        except TableError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_every_kind_of_page_is_read(version: str, compression: str, dictionary: bool, tmp_path: Path) -> None:
    table = pa.table(
        {
            "names": NAMES,
            "numbers": VALUES[:, 0],
            "same": np.zeros(ROWS),
            "flags": [row % 3 == 0 for row in range(ROWS)],
            "gaps": [row if row % 5 else None for row in range(ROWS)],
            "lists": pa.array([[1.0] * (row % 4) for row in range(ROWS)]),
            "short": pa.array([b"a", b"b", b"c"] * (ROWS // 3), pa.binary(1)),
            "nothing": pa.nulls(ROWS),
        }
    )
    file = tmp_path / "t.parquet"
    pq.write_table(
        table,
        file,
        compression=compression,
        use_dictionary=dictionary,
        data_page_version=version,
        row_group_size=ROWS // 3,
        data_page_size=64,
        write_page_index=True,
        write_page_checksum=True,
    )
    assert open_parquet_file(file).read().equals(table)


def test_large_pages_of_one_value_are_read(tmp_path: Path) -> None:
    table = pa.table({"same": np.zeros(4_000_000)})
    file = tmp_path / "t.parquet"
    pq.write_table(table, file, compression="zstd", use_dictionary=False, data_page_size=1 << 30)
    assert open_parquet_file(file).read().equals(table)
    empty = table.slice(0, 0)
    pq.write_table(empty, file)
    assert open_parquet_file(file).read().equals(empty)
