"""Packed stores that are damaged or made up end in a sentence."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz.targets.registry import CORPUS
from satl.errors import ImageError
from satl.images.pack import pack_images
from satl.images.source import ArrayImages
from satl.images.store import open_store, packed_images


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CORPUS / "store", tmp_path / "store"))


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", None, [], {}, 10**30, True, float("inf")])
@pytest.mark.parametrize("key", ["size", "count", "kind", "quality", "index_sha256", "format"])
def test_a_header_that_claims_anything(value: Any, key: str, store: Path) -> None:
    header = json.loads((store / "store.json").read_text())
    if header[key] == value:
        return
    (store / "store.json").write_text(json.dumps({**header, key: value}))
    with pytest.raises(ImageError, match="packed store"):
        open_store(store)


def whole() -> dict[str, np.ndarray]:
    with np.load(CORPUS / "store" / "index.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


HOSTILE: dict[str, dict[str, Any]] = {
    "no ids": {"ids": None},
    "no lengths": {"lengths": None},
    "ids that are no text": {"ids": np.full(3, 255, dtype=np.uint8)},
    "ids of another kind": {"ids": np.array(["a", "b", "c"])},
    "too few ends": {"id_ends": np.array([1, 2])},
    "ends that go back": {"id_ends": np.array([2, 1, 3])},
    "ends behind the text": {"id_ends": np.array([1, 2, 10**12])},
    "ends below the text": {"id_ends": np.array([-1, 2, 3])},
    "lengths below nothing": {"lengths": np.array([-192, 384, 384])},
    "lengths beyond numbers": {"lengths": np.array([2**62, 2**62, 2**62])},
    "lengths that are no numbers": {"lengths": np.array(["a", "b", "c"])},
    "one length": {"lengths": np.array(192)},
    "checksums of another kind": {"crc32": np.array([1.5, 2, 3])},
    "too few checksums": {"crc32": np.array([1], dtype=np.uint32)},
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_an_index_that_its_header_vouches_for(case: str, store: Path) -> None:
    arrays = {name: value for name, value in {**whole(), **HOSTILE[case]}.items() if value is not None}
    np.savez(store / "index.npz", **arrays)
    header = json.loads((store / "store.json").read_text())
    header["index_sha256"] = hashlib.sha256((store / "index.npz").read_bytes()).hexdigest()
    (store / "store.json").write_text(json.dumps(header))
    with pytest.raises(ImageError, match=r"packed store .*index\.npz"):
        packed_images(store)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "3",
        "{}",
        '{"id": "a"}',
        '{"id": "a", "bytes": -192, "crc32": 0}',
        '{"id": "a", "bytes": "192", "crc32": 0}',
        '{"id": "a", "bytes": 1e3, "crc32": 0}',
        '{"id": "a", "bytes": 192, "crc32": null}',
        '{"id": "a", "bytes": 192, "crc32": 99999999999}',
        '{"id": 1, "bytes": 192, "crc32": 0}',
    ],
)
def test_a_journal_that_is_damaged(line: str, tmp_path: Path) -> None:
    first = json.dumps({"format": "satl packed images", "kind": "raw", "size": 8, "quality": None})
    (tmp_path / "journal.jsonl").write_text(f"{first}\n{line}\n")
    (tmp_path / "pixels.bin").write_bytes(bytes(192))
    source = ArrayImages.from_channels_first(np.zeros((2, 3, 8, 8), dtype=np.uint8))
    with pytest.raises(ImageError, match=r"line 2 of journal\.jsonl is damaged"):
        pack_images(source, ("a", "b"), tmp_path, kind="raw", workers=1)


@pytest.mark.parametrize("line", ["9" * 5000, "[" * 100_000, "{"])
def test_a_journal_that_was_cut_off_is_gone_on_with(line: str, tmp_path: Path) -> None:
    first = json.dumps({"format": "satl packed images", "kind": "raw", "size": 8, "quality": None})
    (tmp_path / "journal.jsonl").write_text(f"{first}\n{line}\n")
    source = ArrayImages.from_channels_first(np.zeros((2, 3, 8, 8), dtype=np.uint8))
    assert pack_images(source, ("a", "b"), tmp_path, kind="raw", workers=1).total == 2
