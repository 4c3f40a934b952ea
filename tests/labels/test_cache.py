from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from satl.labels.io.cache import Arrays, cache_folder, cached_arrays


class Counted:
    """A way of reading that counts how often it is used."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.calls = 0

    def __call__(self) -> Arrays:
        self.calls += 1
        return {
            "bytes": np.frombuffer(self.source.read_bytes(), dtype=np.uint8),
            "names": np.array(["é", "b"]),
        }

    def read(self, kind: str = "test 1") -> bytes:
        arrays = cached_arrays(self.source, kind, self)
        assert set(arrays) == {"bytes", "names"}
        assert arrays["names"].tolist() == ["é", "b"]
        return arrays["bytes"].tobytes()


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    source = tmp_path / "source.json"
    source.write_bytes(bytes(range(256)) * 2000)
    return Counted(source)


def test_the_second_time_comes_from_the_cache(counted: Counted, cache: Path) -> None:
    content = counted.source.read_bytes()
    assert counted.read() == counted.read() == counted.read() == content
    assert counted.calls == 1
    assert [path.suffix for path in cache.iterdir()] == [".cache"]
    counted.read("test 2")
    assert counted.calls == 2


def test_a_changed_source_is_read_again(counted: Counted) -> None:
    counted.read()
    counted.source.write_bytes(counted.source.read_bytes() + b"more")
    assert counted.read().endswith(b"more")
    content = bytearray(counted.source.read_bytes())
    # A single byte that no sample looks at, with the size unchanged: the time of change gives it away.
    content[20_000] ^= 255
    state = counted.source.stat()
    counted.source.write_bytes(content)
    os.utime(counted.source, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))
    assert counted.read() == content
    assert counted.calls == 3
    # A change within a sample is seen even where size and time are the same.
    content[0] ^= 255
    state = counted.source.stat()
    counted.source.write_bytes(content)
    os.utime(counted.source, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert counted.read() == content
    assert counted.calls == 4


def test_the_same_content_with_another_time_is_recognised(counted: Counted, cache: Path) -> None:
    counted.read()
    os.utime(counted.source, ns=(5, 5))
    counted.read()
    assert counted.calls == 1
    header = json.loads(next(cache.iterdir()).read_bytes().partition(b"\n")[0])
    assert header["changed_ns"] == 5


def test_a_damaged_cache_is_ignored_and_rebuilt(counted: Counted, cache: Path) -> None:
    content = counted.read()
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-5000] ^= 1
    header, _, payload = whole.partition(b"\n")
    other = {**json.loads(header), "format": "satl annotation cache 0"}
    damages = [b"", b"\n", whole[: len(whole) // 2], whole + b"x", bytes(flipped), b"[]\n" + payload, b"{}\n"]
    for number, damage in enumerate([*damages, json.dumps(other).encode() + b"\n" + payload], start=2):
        file.write_bytes(damage)
        assert counted.read() == content
        assert counted.calls == number
        assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SATL_CACHE", str(tmp_path / "file"))
    content = counted.source.read_bytes()
    assert counted.read() == counted.read() == content
    assert counted.calls == 2


def test_a_source_that_changes_while_it_is_read_is_not_kept(counted: Counted, cache: Path) -> None:
    def growing() -> Arrays:
        arrays = counted()
        counted.source.write_bytes(b"new")
        return arrays

    cached_arrays(counted.source, "test 1", growing)
    assert not cache.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the folder of caches is another on each system")
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, counted: Counted) -> None:
    monkeypatch.setenv("SATL_CACHE", "off")
    assert cache_folder() is None
    counted.read()
    counted.read()
    assert counted.calls == 2
    monkeypatch.delenv("SATL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "satl" / "labels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "satl" / "labels"
    monkeypatch.setattr("platformdirs.user_cache_path", no_home)
    assert cache_folder() is None


def no_home(*_: object, **__: object) -> Path:
    raise RuntimeError("could not determine the home directory")
