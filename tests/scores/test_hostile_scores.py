"""Scores and folders of predictions that are damaged or made up end in a sentence."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from satl.errors import RunError, TableError
from satl.scores import read_scores
from satl.scores.prediction_folder import broken_images, part_files


def write(file: Path, table: pa.Table) -> Path:
    if file.suffix == ".parquet":
        pq.write_table(table, file)
    else:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return file


@pytest.mark.parametrize("ending", ["arrow", "parquet"])
@pytest.mark.parametrize(
    "names",
    [
        pa.array([["a"], ["b"]]),
        pa.array([b"\xff", b"\xfe"]),
        pa.StringArray.from_buffers(2, pa.py_buffer(struct.pack("<3i", 0, 1, 2)), pa.py_buffer(b"\xff\xfe")),
        pa.array(["a", None]).dictionary_encode(),
        pa.array(["a", None]),
    ],
)
@pytest.mark.parametrize("place", ["image", "label"])
def test_names_that_are_none(ending: str, names: pa.Array, place: str, tmp_path: Path) -> None:
    columns = {"image": pa.array(["a", "b"]), "label": pa.array(["x", "y"]), "score": pa.array([0.5, 0.25])}
    columns[place] = names
    with pytest.raises(TableError, match=rf"s\.{ending}"):
        read_scores(write(tmp_path / f"s.{ending}", pa.table(columns)))


def test_arrow_offsets_that_lead_out_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "s.arrow", pa.table({"image": ["abc", "def"], "x": [0.5, 0.25]}))
    content = file.read_bytes()
    offsets = struct.pack("<3i", 0, 3, 6)
    assert content.count(offsets) == 1
    file.write_bytes(content.replace(offsets, struct.pack("<3i", 0, 3, 2**30)))
    with pytest.raises(TableError, match="not a readable Arrow file"):  # and not the end of the process
        read_scores(file)


@pytest.mark.parametrize("ending", ["arrow", "parquet"])
def test_cut_and_changed_files(ending: str, tmp_path: Path) -> None:
    file = write(tmp_path / f"s.{ending}", pa.table({"image": ["abc", "def"] * 50, "x": [0.5, 0.25] * 50}))
    content = file.read_bytes()
    outcomes = []
    for at in range(0, len(content), max(1, len(content) // 60)):
        for damaged in (content[:at], content[:at] + b"\xff" * 4 + content[at + 4 :]):
            file.write_bytes(damaged)
            try:
                read_scores(file)
            except TableError:
                outcomes.append(at)
    assert outcomes


@pytest.mark.parametrize(
    "images", [0, -5, float("inf"), float("nan"), 10**12, 10**30, "3", None, [3], True, 2.5]
)
@pytest.mark.parametrize("key", ["images", "part_size"])
def test_a_manifest_that_claims_anything(images: Any, key: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": ["a"], "cat": [0.5]}), tmp_path / "part-000000.parquet")
    content = {"images": 1, "part_size": 1, **{key: images}}
    (tmp_path / "_predictions.json").write_text(json.dumps(content))
    began = time.process_time()
    if key == "part_size" and images in (10**12, 10**30):
        assert len(part_files(tmp_path)) == 1
        return
    with pytest.raises(RunError, match=r"cannot be read|still missing"):
        read_scores(tmp_path)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, "[]", "null", "\ud800"])
def test_a_manifest_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "_predictions.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(RunError, match=r"_predictions\.json: cannot be read"):
        read_scores(tmp_path)


@pytest.mark.parametrize("said", ["3", "[1]", "[[1]]", '{"a": 1}', "[" * 100_000, "nothing"])
def test_a_list_of_broken_images_that_is_none(said: str, tmp_path: Path) -> None:
    table = pa.table({"image": ["a"]}).replace_schema_metadata({"broken": said})
    pq.write_table(table, tmp_path / "part.parquet")
    assert broken_images(tmp_path / "part.parquet") is None
