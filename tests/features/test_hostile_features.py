"""Features that are damaged or made up end in a sentence."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fuzz.targets.registry import CORPUS
from satl.errors import TableError
from satl.features import read_features
from satl.features.feature_folder import FeatureWriter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CORPUS / "featfolder", tmp_path / "features"))


@pytest.mark.parametrize("value", [float("inf"), None, "a", -1, [], 10**30])
@pytest.mark.parametrize("key", ["dim", "views", "rows", "parts", "made_by"])
def test_a_record_that_claims_anything(value: Any, key: str, folder: Path) -> None:
    record = json.loads((folder / "features.json").read_text())
    (folder / "features.json").write_text(json.dumps({**record, key: value}))
    if (key, value) == ("made_by", []):
        assert len(read_features(folder).ids) == 3
        return
    with pytest.raises(TableError):
        read_features(folder)


def test_ids_that_are_no_text(folder: Path) -> None:
    record = json.loads((folder / "features.json").read_text())
    (folder / "ids.txt").write_bytes(b"\xff\na\nb\n")
    record["ids_sha256"] = hashlib.sha256(b"\xff\na\nb\n").hexdigest()
    (folder / "features.json").write_text(json.dumps(record))
    with pytest.raises(TableError, match=r"ids\.txt: is not UTF-8 text"):
        read_features(folder)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        '{"ids": ["a"]}',
        '{"ids": ["a"], "broken": [["b"]], "sha256": ""}',
        "[" * 100_000,
        '{"ids": 3}',
    ],
)
def test_a_part_whose_list_is_damaged(content: str, tmp_path: Path) -> None:
    work = Path(shutil.copytree(CORPUS / "unfinished", tmp_path / "features"))
    (work / "features-00000.json").write_text(content)
    writer = FeatureWriter(work, ("a", "b", "c"), 2, 1, {}, part_rows=2)
    for call in (writer.broken, writer.forget_broken, writer.finish):
        with pytest.raises(TableError, match=r"features-00000\.json"):
            call()


@pytest.mark.parametrize("name", ["lists.arrow", "lists.parquet"])
def test_cut_and_changed_files(name: str, tmp_path: Path) -> None:
    content = (CORPUS / "features" / name).read_bytes()
    file = tmp_path / name
    refused = 0
    for at in range(0, len(content), max(1, len(content) // 80)):
        for damaged in (content[:at], content[:at] + b"\xff" * 4 + content[at + 4 :]):
            file.write_bytes(damaged)
            try:
                read_features(file)
            except TableError:
                refused += 1
    assert refused


def test_a_data_set_without_files(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"_data_files": []}')
    with pytest.raises(TableError, match="names no Arrow file"):
        read_features(tmp_path)
