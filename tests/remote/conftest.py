"""A storage in memory, and a cache of its own for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from satl.remote import copies


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty cache of copies."""
    monkeypatch.setenv("SATL_CACHE", str(tmp_path / "cache"))
    copies.remote_folder.cache_clear()
    yield tmp_path / "cache"
    copies.remote_folder.cache_clear()


@pytest.fixture
def memory(cache: Path) -> Iterator[Any]:
    """Return an empty storage whose addresses begin with ``memory://``."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]
