"""Tables that are compressed, and Arrow files: round trips, damage, and files that unpack to more than memory."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from satl.errors import TableError
from satl.files import atomic_path, remove_leftovers, temporary_path
from satl.labels import LabelTable, open_table, read_table, truth_path, write_table
from satl.labels.io import compressed, write_alike

TABLE = LabelTable(
    ("a.jpg", "b, c.jpg", "é.jpg"),
    ("cat", "big dog"),
    np.array([[1, 0], [-1, 1], [0, 0]]),
    np.array(["train", "val", "train"]),
)
PACKED = (".csv.gz", ".tsv.gz", ".jsonl.gz", ".ndjson.gz")
ARROW = (".feather", ".arrow")


@pytest.mark.parametrize("ending", [*PACKED, *ARROW])
def test_round_trip_with_truth(ending: str, tmp_path: Path) -> None:
    hidden = TABLE.with_truth(np.array([[1, -1], [-1, 1], [1, 1]]), "signed")
    file = tmp_path / f"t{ending}"
    assert write_table(hidden, file) == (file, tmp_path / f"t.truth{ending}")
    assert read_table(file, truth=truth_path(file)) == hidden
    assert {entry.name for entry in tmp_path.iterdir()} == {f"t.truth{ending}", f"t{ending}"}


@pytest.mark.parametrize("ending", [".csv.gz", ".tsv.gz", *ARROW])
def test_long_tables(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"t{ending}"
    write_table(TABLE, file, format="long")
    opened = open_table(file)
    assert (opened.format, opened.table) == ("long", TABLE)


def test_lists_of_positives(tmp_path: Path) -> None:
    file = tmp_path / "t.csv.gz"
    file.write_bytes(gzip.compress(b'image,labels\na,"cat,dog"\nb,dog\n'))
    opened = open_table(file)
    assert opened.format == "positives"
    write_alike(opened, opened.table, tmp_path / "again.csv.gz")
    assert gzip.decompress((tmp_path / "again.csv.gz").read_bytes()) == b'image,labels\na,"cat,dog"\nb,dog\n'


def test_a_packed_table_is_the_plain_one_packed(tmp_path: Path) -> None:
    for name in ("t.csv", "t.csv.gz", "other.csv.gz"):
        write_table(TABLE, tmp_path / name, "csl")
    packed = (tmp_path / "t.csv.gz").read_bytes()
    assert packed[:2] == b"\x1f\x8b"
    assert gzip.decompress(packed) == (tmp_path / "t.csv").read_bytes()
    assert packed == (tmp_path / "other.csv.gz").read_bytes()


def test_write_alike_keeps_ending_and_encoding(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.tsv.gz", "csl")
    opened = open_table(tmp_path / "t.tsv.gz", "csl")
    write_alike(opened, opened.table, tmp_path / "again.tsv.gz")
    assert (tmp_path / "again.tsv.gz").read_bytes() == (tmp_path / "t.tsv.gz").read_bytes()


def test_several_members_are_one_table(tmp_path: Path) -> None:
    file = tmp_path / "t.csv.gz"
    file.write_bytes(gzip.compress(b"image,cat\na,1\n") + gzip.compress(b"b,\n"))
    assert read_table(file).images == ("a", "b")


def test_the_row_is_named_as_in_a_plain_table(tmp_path: Path) -> None:
    file = tmp_path / "t.csv.gz"
    file.write_bytes(gzip.compress(b"image,cat\na,1\nb,maybe so\n"))
    with pytest.raises(TableError, match=r"t\.csv\.gz: row 2 \(image 'b'\), column 'cat': 'maybe so'"):
        read_table(file)


@pytest.mark.parametrize("ending", PACKED)
def test_every_cut_is_refused(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"t{ending}"
    write_table(TABLE, file)
    whole = file.read_bytes()
    for size in range(1, len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(TableError, match=r"only in part|is not a readable gzip file"):
            read_table(file)


@pytest.mark.parametrize("content", [b"image,cat\na,1\n", b"", b"PK\x03\x04"])
def test_what_is_not_gzip(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "t.csv.gz"
    file.write_bytes(content)
    with pytest.raises(TableError, match=r"t\.csv\.gz"):
        read_table(file)


def test_damaged_bytes_are_noticed(tmp_path: Path) -> None:
    file = tmp_path / "t.csv.gz"
    write_table(TABLE, file)
    whole = file.read_bytes()
    refused = 0
    for at in range(10, len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:  # the last bits before the checksum are only filled up
            assert read_table(file) == TABLE
        except TableError:
            refused += 1
    assert refused >= len(whole) - 11


@pytest.mark.parametrize("ending", PACKED)
def test_a_bomb_is_refused_before_it_fills_memory(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"t{ending}"
    file.write_bytes(gzip.compress(b"image,cat\n" + b"\n" * (64 << 20), compresslevel=1))
    monkeypatch.setattr(compressed, "LARGEST", 4 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match=r"unpacks to more than 4 MiB"):
            read_table(file)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_of_others(compression: str, tmp_path: Path) -> None:
    frame = pa.table({"image": ["a", "b"], "cat": [1.0, None], "dog": [False, True]})
    pyarrow.feather.write_feather(frame, tmp_path / "t.feather", compression=compression)
    opened = open_table(tmp_path / "t.feather")
    assert (opened.format, opened.encoding) == ("feather", "blank")
    assert opened.table.cells.tolist() == [[1, -1], [0, 1]]


def test_a_stream_of_arrow_messages(tmp_path: Path) -> None:
    frame = pa.table({"image": ["a", "b"], "cat": [1, None]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_stream(sink, frame.schema) as writer:
        writer.write_table(frame)
    assert read_table(tmp_path / "t.arrow").cells.tolist() == [[1], [0]]


def test_cut_arrow_files(tmp_path: Path) -> None:
    file = tmp_path / "t.feather"
    write_table(TABLE, file)
    whole = file.read_bytes()
    for size in range(0, len(whole), 7):
        file.write_bytes(whole[:size])
        with pytest.raises(TableError, match=r"t\.feather"):
            read_table(file)


def test_rows_without_bytes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of nothing takes no bytes in a file, whatever its length."""
    frame = pa.table({"image": pa.nulls(10 << 20), "cat": pa.nulls(10 << 20)})
    pyarrow.feather.write_feather(frame, tmp_path / "t.feather")
    assert (tmp_path / "t.feather").stat().st_size < 10_000 * 1024
    monkeypatch.setattr(compressed, "LARGEST", 4 << 20)
    with pytest.raises(TableError, match="unpacks to more than 4 MiB"):
        read_table(tmp_path / "t.feather")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_packed_part_that_states_a_wrong_size(compression: str, tmp_path: Path) -> None:
    frame = pa.table({"image": [f"{n}.jpg" for n in range(100)], "cat": [1] * 100})
    file = tmp_path / "t.feather"
    pyarrow.feather.write_feather(frame, file, compression=compression)
    whole = file.read_bytes()
    stated = struct.pack("<q", 100 * 8)
    assert whole.count(stated) == 1
    for size in (4 << 30, 1 << 60, -5):
        file.write_bytes(whole.replace(stated, struct.pack("<q", size)))
        with pytest.raises(TableError, match="a part of a size that it cannot have"):
            read_table(file)


def test_a_completed_table_keeps_the_ending(tmp_path: Path) -> None:
    from satl.completion.outputs.completed_folder import CompletedFolder

    for ending in (*PACKED, *ARROW):
        write_table(TABLE, tmp_path / f"t{ending}")
        opened = open_table(tmp_path / f"t{ending}")
        assert CompletedFolder(tmp_path).new_completed(opened).name == f"completed{ending}"


def test_leftovers_of_packed_files_are_removed(tmp_path: Path) -> None:
    temporary = temporary_path(tmp_path / "t.csv.gz")
    assert temporary.name.endswith(".partial.csv.gz")
    import re

    # A process number that no process has.
    gone = temporary.with_name(re.sub(r"(\.[0-9a-f]{6})[0-9a-f]{6,}-", r"\g<1>7ffffff0-", temporary.name))
    gone.write_bytes(b"")
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with atomic_path(tmp_path / "t.csv.gz") as place:
        place.write_bytes(b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv.gz"]
