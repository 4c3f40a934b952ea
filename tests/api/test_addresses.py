"""The calls on addresses; ``tests/cli/test_addresses_cli.py`` does the same with the commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import satl
from satl.remote import copies
from satl.remote.addresses import RemoteError
from satl.scenes import write_scenes
from training.tiny import TINY


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a storage with a table and its pictures, which lie in ``pictures`` as well; the cache is empty."""
    monkeypatch.setenv("SATL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    copies.remote_folder.cache_clear()
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    write_scenes(tmp_path / "pictures", 60, size=32)
    for file in (tmp_path / "pictures").iterdir():
        files.pipe(f"/bucket/{file.name}", file.read_bytes())
    yield files
    files.store.clear()
    copies.remote_folder.cache_clear()


def test_a_model_is_trained_and_used_on_what_lies_elsewhere(memory: Any, tmp_path: Path) -> None:
    sections = {name: TINY[name] for name in ("model", "images", "training")}
    small = {
        "training.epochs": 1,
        "training.stage1_epochs": 1,
        "images.store_size": 32,
        "data.holdout": False,
    }
    table, photos = "memory://bucket/labels.csv", "memory://bucket"
    run = satl.train(table, images=photos, out="run", config=sections, set=small, quiet=True)
    kept = (tmp_path / "run" / "config.yaml").read_text()
    assert "table: memory://bucket/labels.csv" in kept
    assert "images: memory://bucket\n" in kept
    pictures = [f"{photos}/scene-0000{number}.png" for number in range(3)]
    result = satl.predict(run, pictures, out="memory://results/p.csv", quiet=True)
    assert result.probabilities.shape == (3, 24)
    assert memory.cat("/results/p.csv").startswith(b"image,label,probability,present\n")
    with pytest.raises(RemoteError, match=r"^memory://results/p\.csv: exists already; .* pass force=True"):
        satl.predict(run, pictures, out="memory://results/p.csv", quiet=True)
    here = satl.evaluate(run, "pictures/labels.csv", images="pictures", quiet=True)
    there = satl.evaluate(run, table, images=photos, quiet=True)
    assert there.summary == here.summary
    assert not (tmp_path / "memory:").exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda: satl.train("labels.csv", images="photos", out="s3://bucket/run"),
        lambda: satl.train(resume="s3://bucket/run"),
        lambda: satl.complete("labels.csv", images="photos", out="s3://bucket/run"),
        lambda: satl.evaluate("s3://bucket/run"),
    ],
)
def test_folders_that_are_worked_in_stay_here(memory: Any, tmp_path: Path, call: Any) -> None:
    before = set(tmp_path.iterdir())
    with pytest.raises(RemoteError, match=r"^s3://bucket/run: this folder is written to bit by bit"):
        call()
    assert set(tmp_path.iterdir()) == before
