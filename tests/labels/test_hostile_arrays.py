"""An ``.npz`` file from elsewhere ends in a sentence, whatever it claims, and takes no memory before it is believed."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from satl.errors import TableError
from satl.labels import read_table
from satl.labels.io.arrays import ArrayFile


def header(shape: object, kind: str = "|i1", text: str | None = None) -> bytes:
    content = text or f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    padded = content.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded


def archive(file: Path, cells: bytes, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(file, "w", compression) as out:
        for name, array in (("images", np.array(["a", "b"])), ("classes", np.array(["x", "y"]))):
            stream = io.BytesIO()
            np.save(stream, array)
            out.writestr(f"{name}.npy", stream.getvalue())
        out.writestr("cells.npy", cells)
    return file


HOSTILE = {
    "16 GB": header((130_000, 130_000)),
    "more than numbers can say": header((10**12, 10**12)),
    "one cell of gigabytes": header((2, 2), "<U1000000000"),
    "negative": header((-2, 2)) + b"\0" * 8,
    "no numbers": header("('a', 2)"),
    "a comma short": header(None, text="{'descr': '|i1', 'fortran_order': False, 'shape': (2, 2"),
    "a zero in the next line": header(None, text="{'descr' '|i1', 'shape': (2.0,), }\n \0"),
    "deep": header(None, text="{'descr': " + "(" * 90),
    "unknown kind": header((2, 2), "|Q9"),
    "no header": b"nothing",
    "empty": b"",
    "cut": header((2, 2)) + b"\1",
    "another version": b"\x93NUMPY\x09\x00" + b"\0" * 100,
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_a_header_is_not_believed(case: str, tmp_path: Path) -> None:
    file = archive(tmp_path / "table.npz", HOSTILE[case])
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match="cells"):
            read_table(file)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_bomb_is_refused_by_the_memory_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = archive(tmp_path / "table.npz", header((3000, 3000)) + bytes(9_000_000))
    assert file.stat().st_size < 20_000
    with ArrayFile(file) as arrays:
        assert arrays.read("cells").shape == (3000, 3000)
    monkeypatch.setattr("satl.labels.io.arrays.machine_memory", lambda: 8_000_000)
    with pytest.raises(
        TableError, match=r"'cells' cannot be read \(it would take 0.009 GB, and this machine has 0.008\)"
    ):
        read_table(file)


@pytest.mark.parametrize("number", range(30))
def test_damaged_bytes_end_in_a_sentence(number: int, tmp_path: Path) -> None:
    random = np.random.default_rng(number)
    methods = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
    file = archive(tmp_path / "t.npz", header((2, 2)) + bytes([1, 0, 255, 1]), methods[number % 4])
    content = np.frombuffer(file.read_bytes(), np.uint8).copy()
    outcomes = []
    for _ in range(40):
        damaged = content.copy()
        damaged[random.integers(len(content), size=3)] = random.integers(256, size=3)
        file.write_bytes(damaged.tobytes())
        try:
            outcomes.append(read_table(file).num_images)
        except TableError:
            outcomes.append(0)
    assert 0 in outcomes


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    file = archive(tmp_path / "t.npz", header((2, 2)) + bytes(4))
    content = bytearray(file.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.find(mark)
        while place >= 0:
            content[place + at] |= 1
            place = content.find(mark, place + 4)
    file.write_bytes(bytes(content))
    with pytest.raises(TableError, match="encrypted"):
        read_table(file)


@pytest.mark.parametrize("case", list(HOSTILE))
@pytest.mark.parametrize("ending", ["npz", "npy"])
def test_word_vectors_are_not_believed_either(case: str, ending: str, tmp_path: Path) -> None:
    from satl.errors import ConfigError
    from satl.models.embeddings import load_word_vectors

    file = tmp_path / f"vectors.{ending}"
    if ending == "npy":
        file.write_bytes(HOSTILE[case])
    else:
        with zipfile.ZipFile(file, "w") as out:
            out.writestr("names.npy", HOSTILE[case])
            out.writestr("vectors.npy", HOSTILE[case])
    with pytest.raises(ConfigError, match=r"word vectors .*vectors\."):
        load_word_vectors(file, ("cat", "dog"))


@pytest.mark.parametrize("shape", [(10**6, 10**6), (-1, 4), (1, 2, 3), ()])
def test_held_out_cells_are_not_believed_either(shape: tuple[int, ...], tmp_path: Path) -> None:
    from satl.errors import RunError
    from satl.labels.holdout import HeldOut

    file = tmp_path / "held_out.npz"
    empty = np.zeros(0, dtype=np.uint8)
    content = {"format": np.array(1), "seed": np.array(0), "fraction": np.array(0.5), "names": empty}
    np.savez(file, shape=np.array(shape, dtype=np.int64), mask=empty, **content)
    with pytest.raises(RunError, match="is not a file of held-out cells"):
        HeldOut.load(file, ("a",), ("b",))


def test_an_entry_of_an_empty_array_takes_no_memory(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="entries of 400,000,000 bytes"):
        read_table(archive(tmp_path / "t.npz", header((0, 2), "<U100000000")))
