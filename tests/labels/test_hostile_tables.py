"""Tables that are damaged or made up end in a sentence: Parquet, JSON, XML and text in arrays."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuzz.targets.registry import CORPUS
from satl.errors import ConfigError, TableError
from satl.features import read_features
from satl.labels import read_dataset, read_table
from satl.models.embeddings import load_word_vectors

BROKEN_TEXT = pa.StringArray.from_buffers(
    2, pa.py_buffer(struct.pack("<3i", 0, 1, 2)), pa.py_buffer(b"\xff\xfe")
)
COLUMNS = {
    "broken text": BROKEN_TEXT,
    "lists": pa.array([[1], [2]]),
    "objects": pa.array([{"a": 1}, {"a": 2}]),
    "maps": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int8())),
    "bytes": pa.array([b"\xff", b"\xfe"]),
}


@pytest.mark.parametrize("kind", list(COLUMNS))
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("layout", ["wide", "long"])
def test_parquet_columns_that_are_no_labels(kind: str, place: int, layout: str, tmp_path: Path) -> None:
    names = ["image", "cat", "dog"] if layout == "wide" else ["image", "label", "value"]
    columns = [
        pa.array(["a", "b"]),
        pa.array(["cat", "dog"]) if layout == "long" else pa.array([1, None]),
        pa.array([0, 1]),
    ]
    columns[place] = COLUMNS[kind]
    pq.write_table(pa.table(columns, names=names), tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"t\.parquet"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip"])
def test_a_damaged_page(compression: str, tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    table = pa.table({"image": [f"{n}.jpg" for n in range(500)], "cat": [n % 2 for n in range(500)]})
    pq.write_table(table, file, compression=compression, use_dictionary=False)
    content = bytearray(file.read_bytes())
    refused = 0
    for at in range(40, 1500, 60):
        damaged = bytearray(content)
        damaged[at : at + 8] = b"\xff" * 8
        file.write_bytes(bytes(damaged))
        try:
            read_table(file, "signed")
        except TableError:
            refused += 1
    assert refused


def test_an_encoding_that_is_no_text(tmp_path: Path) -> None:
    table = pa.table({"image": ["a"], "cat": [1]}).replace_schema_metadata({b"satl.encoding": b"\xff"})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(TableError, match="encoding"):
        read_table(tmp_path / "t.parquet")


HOSTILE = {
    "digits": '{"images": [{"id": ' + "9" * 5000 + "}]}",
    "brackets": '{"images": ' + "[" * 100_000,
    "half a pair": '{"images": [{"id": 1, "file_name": "\\ud800"}], "categories": [{"id": 1, "name": "a"}]}',
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_json_that_is_no_table(case: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(HOSTILE[case])
    with pytest.raises(TableError, match=r"t\.json"):
        read_table(tmp_path / "t.json")


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000, '"\\ud800"'])
def test_json_lines_that_are_no_table(value: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(f'{{"image": {value}, "positive": ["a"]}}\n')
    with pytest.raises(TableError, match=r"t\.jsonl: line 1 is not JSON"):
        read_table(tmp_path / "t.jsonl")


@pytest.mark.parametrize("code", ["UTF-7", "UTF-32", "nonsense"])
def test_annotations_in_another_encoding(code: str, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(CORPUS / "voc2007", tmp_path, dirs_exist_ok=True)
    file = tmp_path / "Annotations" / "000005.xml"
    file.write_text(f'<?xml version="1.0" encoding="{code}"?>{file.read_text()}')
    with pytest.raises(TableError, match=r"000005\.xml is broken"):
        read_dataset("voc2007", tmp_path)


def archive(file: Path, arrays: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w") as out:
        for name, content in arrays.items():
            out.writestr(f"{name}.npy", content)
    return file


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def header(shape: str, kind: str) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def test_numbers_that_are_no_characters(tmp_path: Path) -> None:
    text = header("(2,)", "<U1") + struct.pack("<2I", 0x110000, 97)
    arrays = {"images": text, "classes": npy(np.array(["x"])), "cells": npy(np.array([[1], [-1]]))}
    with pytest.raises(TableError, match="not Unicode"):
        read_table(archive(tmp_path / "t.npz", arrays))


def test_entries_of_no_bytes_do_not_multiply(tmp_path: Path) -> None:
    many = header("(1000000000000,)", "<U0")
    arrays = {"images": many, "classes": npy(np.array(["x"])), "cells": npy(np.array([[1]]))}
    with pytest.raises(TableError, match="images"):
        read_table(archive(tmp_path / "t.npz", arrays))
    (tmp_path / "words.npy").write_bytes(header("(2, 1000000000000)", "<U0"))
    with pytest.raises(ConfigError, match=r"are not an \.npy file of numbers"):
        load_word_vectors(tmp_path / "words.npy", ("cat", "dog"))


@pytest.mark.parametrize("kind", ["<U0", "|V0", "|S0"])
def test_an_array_of_entries_of_no_bytes_does_not_end_the_process(kind: str, tmp_path: Path) -> None:
    (tmp_path / "words.npy").write_bytes(header("(2, 2)", kind) + b"\0" * 8)
    with pytest.raises(ConfigError, match="words"):
        load_word_vectors(tmp_path / "words.npy", ("cat", "dog"))
    (tmp_path / "rows.npy").write_bytes(header("(2, 2)", kind) + b"\0" * 8)
    (tmp_path / "rows.txt").write_text("a\nb\n")
    with pytest.raises(TableError):
        read_features(tmp_path / "rows.npy")


def test_a_shape_of_truth_values(tmp_path: Path) -> None:
    arrays = {"images": header("(True,)", "<U1") + b"a\0\0\0"}
    with pytest.raises(TableError, match="'images' cannot be read"):
        read_table(archive(tmp_path / "t.npz", arrays))


def test_a_header_that_claims_to_be_gigabytes_long(tmp_path: Path) -> None:
    long = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2_000_000_000) + b"{'descr'"
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match="header is longer than 65,536 bytes"):
            read_table(archive(tmp_path / "t.npz", {"images": long}))
        (tmp_path / "rows.npy").write_bytes(long)
        with pytest.raises(TableError, match="header is longer than 65,536 bytes"):
            read_features(tmp_path / "rows.npy")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
