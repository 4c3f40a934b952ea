"""Every kind of file gives the same features; what is wrong with one is said in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from satl.errors import TableError
from satl.features import FeatureFolder, FeatureTable, read_features

IDS = ["a.jpg", "b.png", "cc/d.jpg", "0012"]
Array = npt.NDArray[np.floating]


def values(views: int = 1, dim: int = 5, rows: int = len(IDS)) -> npt.NDArray[np.float32]:
    drawn = np.random.default_rng(0).normal(size=(rows, views, dim)).astype(np.float16).astype(np.float32)
    return drawn if views > 1 else drawn[:, 0]


def write_npz(folder: Path, ids: list[str], features: Array) -> Path:
    np.savez(folder / "f.npz", images=np.array(ids), features=features)
    return folder / "f.npz"


def write_compressed(folder: Path, ids: list[str], features: Array) -> Path:
    np.savez_compressed(folder / "c.npz", ids=np.array(ids), embeddings=np.asfortranarray(features))
    return folder / "c.npz"


def write_npy(folder: Path, ids: list[str], features: Array) -> Path:
    np.save(folder / "f.npy", features)
    (folder / "f.txt").write_text("\n".join(ids) + "\n")
    return folder / "f.npy"


def write_npy_with_csv(folder: Path, ids: list[str], features: Array) -> Path:
    np.save(folder / "g.npy", features.astype(np.float64))
    (folder / "ids.csv").write_text("split,image\n" + "".join(f"train,{name}\n" for name in ids))
    return folder / "g.npy"


def arrow_lists(features: Array, fixed: bool) -> pa.Array:
    flat = pa.array(features.reshape(-1).astype(np.float32))
    for length in reversed(features.shape[1:]):
        if fixed:
            flat = pa.FixedSizeListArray.from_arrays(flat, length)
        else:
            flat = pa.ListArray.from_arrays(
                pa.array(np.arange(0, len(flat) + 1, length, dtype=np.int32)), flat
            )
    return flat


def write_parquet(folder: Path, ids: list[str], features: Array) -> Path:
    table = pa.table({"image": ids, "split": ["train"] * len(ids), "features": arrow_lists(features, True)})
    pq.write_table(table, folder / "f.parquet", row_group_size=3)
    return folder / "f.parquet"


def write_variable_parquet(folder: Path, ids: list[str], features: Array) -> Path:
    table = pa.table({"embedding": arrow_lists(features, False), "filename": ids})
    pq.write_table(table, folder / "v.parquet")
    return folder / "v.parquet"


def write_arrow(folder: Path, ids: list[str], features: Array) -> Path:
    table = pa.table({"image": ids, "x": arrow_lists(features, True)})
    with pa.OSFile(str(folder / "f.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return folder / "f.arrow"


def write_hugging_face(folder: Path, ids: list[str], features: Array) -> Path:
    """As `datasets.Dataset.save_to_disk` does: streams, and a state that lists them."""
    target = folder / "hf"
    target.mkdir()
    files = []
    for number, rows in enumerate(np.array_split(np.arange(len(ids)), 2)):
        name = f"data-0000{number}-of-00002.arrow"
        table = pa.table(
            {"file_name": [ids[row] for row in rows], "embedding": arrow_lists(features[rows], False)}
        )
        with pa.OSFile(str(target / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        files.append({"filename": name})
    (target / "state.json").write_text(json.dumps({"_data_files": files, "_indices_files": None}))
    return target


def write_folder(folder: Path, ids: list[str], features: Array) -> Path:
    return FeatureFolder.write(folder / "features", ids, features, {"backbone": "x"}, part_rows=3).path


WRITERS = [
    write_npz,
    write_compressed,
    write_npy,
    write_npy_with_csv,
    write_parquet,
    write_variable_parquet,
    write_arrow,
    write_hugging_face,
    write_folder,
]
Write = Callable[[Path, list[str], Array], Path]


def all_rows(table: FeatureTable) -> npt.NDArray[np.float16]:
    return table.take(np.arange(len(table)))


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("views", [1, 3])
def test_every_file_gives_the_same_features(write: Write, views: int, tmp_path: Path) -> None:
    features = values(views)
    path = write(tmp_path, IDS, features)
    expected = features.reshape(len(IDS), views, -1).astype(np.float16)

    whole = read_features(path)
    assert whole.ids == tuple(IDS)
    assert (whole.views, whole.dim, len(whole)) == (views, 5, 4)
    np.testing.assert_array_equal(all_rows(whole), expected)

    some = read_features(path, ["0012", "b", "a.jpg"])  # in another order, one without its extension
    np.testing.assert_array_equal(all_rows(some), expected[[3, 1, 0]])
    np.testing.assert_array_equal(some.take(np.array([2, 2, 0])), expected[[0, 0, 3]])
    # The same numbers have the same digest, whatever the file, and others have another.
    assert whole.digest == read_features(write_npz(tmp_path, IDS, features)).digest
    assert some.digest != whole.digest


@pytest.mark.parametrize("write", [write_npy, write_folder])
def test_features_above_the_limit_stay_in_their_files(write: Write, tmp_path: Path) -> None:
    features = values(2, rows=50)
    ids = [f"{number}.jpg" for number in range(50)]
    path = write(tmp_path, ids, features)
    order = np.random.default_rng(1).permutation(50)[:40]
    wanted = [ids[row] for row in order]
    mapped, held = read_features(path, wanted, limit_bytes=100), read_features(path, wanted)
    assert held.in_memory
    assert not mapped.in_memory
    assert mapped.digest == held.digest
    rows = np.array([39, 0, 7, 7])
    np.testing.assert_array_equal(mapped.take(rows), features.astype(np.float16)[order[rows]])
    np.testing.assert_array_equal(mapped.take(rows), held.take(rows))


def test_gathered_rows_are_those_taken(tmp_path: Path) -> None:
    import torch

    path = write_npy(tmp_path, IDS, values(2))
    rows = torch.tensor([3, 0])
    for limit in (None, 1):
        table = read_features(path, limit_bytes=limit)
        expected = torch.from_numpy(table.take(rows.numpy()))
        out = torch.empty(2, 2, 5, dtype=torch.float16)
        assert torch.equal(table.gather(rows), expected)
        assert torch.equal(table.gather(rows, out), expected)
        assert torch.equal(out, expected)


def error_of(path: Path, ids: list[str] | None = None) -> str:
    with pytest.raises(TableError) as caught:
        read_features(path, ids)
    sentence = str(caught.value)
    assert str(path.parent) in sentence
    assert sentence.endswith(".")
    return sentence


@pytest.mark.parametrize("write", WRITERS)
def test_missing_duplicated_and_broken_rows_are_named(write: Write, tmp_path: Path) -> None:
    good = values()
    path = write(tmp_path, IDS, good)
    assert "2 of 3 images have no features, the first is 'x.jpg'" in error_of(path, ["x.jpg", "a", "y"])
    assert "'a.jpg' and 'a' may both be image 'a.jpg'" in error_of(path, ["a.jpg", "a"])

    if write is not write_folder:  # which refuses to write them
        for number, (bad, told) in enumerate(((np.nan, "is nan"), (np.inf, "is inf"), (1e6, "is 1e+06"))):
            features = good.copy()
            features[2, 3] = bad
            (tmp_path / str(number)).mkdir()
            path = write(tmp_path / str(number), IDS, features)
            sentence = error_of(path)
            assert "row 3 (image 'cc/d.jpg')" in sentence
            assert f"number 4 {told}" in sentence
            assert (
                len(read_features(path, ["a.jpg", "0012"])) == 2
            )  # rows that nobody asked for may hold anything
        (tmp_path / "twice").mkdir()
        path = write(tmp_path / "twice", ["a.jpg", "b", "a.jpg", "c"], good)
        assert "rows 1 and 3 are both about image 'a.jpg'" in error_of(path)


def test_numbers_of_rows_and_ids_must_agree(tmp_path: Path) -> None:
    path = write_npy(tmp_path, IDS, values())
    for lines in (3, 5):
        (tmp_path / "f.txt").write_text("\n".join(f"{n}" for n in range(lines)))
        assert f"there are {lines} ids" in error_of(path)
    (tmp_path / "f.txt").unlink()
    assert "does not say which image each row is of; write their ids, one a line, to f.txt" in error_of(path)
    np.savez(tmp_path / "n.npz", features=values())
    assert "there is no array 'images'" in error_of(tmp_path / "n.npz")
    np.savez(tmp_path / "n.npz", images=np.array(["a"]), features=values())
    assert "'features' has the shape (4, 5) for 1 ids" in error_of(tmp_path / "n.npz")


def test_kinds_and_lengths_are_checked(tmp_path: Path) -> None:
    for wrong in (np.zeros((4, 5), dtype=np.int64), np.zeros((4, 5), dtype=np.complex64)):
        assert "not floating-point numbers" in error_of(write_npz(tmp_path, IDS, wrong))
    assert "have the shape (4,)" in error_of(write_npy(tmp_path, IDS, np.zeros(4)))
    assert "shape (4, 0)" in error_of(write_npy(tmp_path, IDS, np.zeros((4, 0))))
    np.save(tmp_path / "o.npy", np.array([object()] * 4), allow_pickle=True)
    (tmp_path / "o.txt").write_text("\n".join(IDS))
    assert "is not a readable .npy file" in error_of(tmp_path / "o.npy")

    ragged = pa.table({"image": IDS, "features": [[1.0, 2.0], [1.0], [1.0, 2.0], [1.0, 2.0]]})
    pq.write_table(ragged, tmp_path / "r.parquet")
    assert "row 2 has 1 numbers, row 1 has 2" in error_of(tmp_path / "r.parquet")
    gap = pa.table({"image": IDS, "features": [[1.0], None, [1.0], [1.0]]})
    pq.write_table(gap, tmp_path / "g.parquet")
    assert "row 2 has no features" in error_of(tmp_path / "g.parquet")
    hole = pa.table({"image": IDS, "features": [[1.0], [None], [1.0], [1.0]]})
    pq.write_table(hole, tmp_path / "h.parquet")
    assert "row 2 (image 'b.png')" in error_of(tmp_path / "h.parquet")
    whole = pa.table({"image": IDS, "features": [[1], [2], [1], [1]]})
    pq.write_table(whole, tmp_path / "w.parquet")
    assert "lists of int64" in error_of(tmp_path / "w.parquet")


def test_columns_must_be_found(tmp_path: Path) -> None:
    two = pa.table({"image": IDS, "one": arrow_lists(values(), True), "two": arrow_lists(values(), True)})
    pq.write_table(two, tmp_path / "t.parquet")
    assert "several columns of lists" in error_of(tmp_path / "t.parquet")
    pq.write_table(pa.table({"image": IDS, "a": [0.5] * 4}), tmp_path / "n.parquet")
    assert "no column of lists" in error_of(tmp_path / "n.parquet")
    pq.write_table(pa.table({"features": arrow_lists(values(), True)}), tmp_path / "i.parquet")
    assert "no column of texts names the image" in error_of(tmp_path / "i.parquet")


def test_absurd_and_truncated_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", values())
    (tmp_path / "f.txt").write_text("\n".join(IDS))
    content = (tmp_path / "f.npy").read_bytes()
    (tmp_path / "f.npy").write_bytes(content.replace(b"(4, 5)", b"(4, 5000000000000)", 1))
    error_of(tmp_path / "f.npy")
    (tmp_path / "f.npy").write_bytes(content[:-8])
    assert "is not a readable .npy file" in error_of(tmp_path / "f.npy")
    (tmp_path / "f.npy").write_bytes(b"")
    error_of(tmp_path / "f.npy")
    for name in ("p.parquet", "p.arrow", "p.npz"):
        (tmp_path / name).write_bytes(b"PAR1 but not really")
        error_of(tmp_path / name)
    write_parquet(tmp_path, IDS, values())
    content = (tmp_path / "f.parquet").read_bytes()
    (tmp_path / "f.parquet").write_bytes(content[: len(content) // 2])
    error_of(tmp_path / "f.parquet")


def test_other_paths_are_refused(tmp_path: Path) -> None:
    write_npz(tmp_path, IDS, values())
    assert "does not exist (did you mean 'f.npz'?)" in error_of(tmp_path / "ff.npz")
    (tmp_path / "f.csv").write_text("image,a\n")
    assert "features are read from" in error_of(tmp_path / "f.csv")
    (tmp_path / "empty").mkdir()
    assert "not from a folder of other files" in error_of(tmp_path / "empty")
    (tmp_path / "split" / "train").mkdir(parents=True)
    (tmp_path / "split" / "train" / "state.json").write_text("{}")
    (tmp_path / "split" / "dataset_dict.json").write_text("{}")
    assert "several splits (train)" in error_of(tmp_path / "split")
    indexed = write_hugging_face(tmp_path, IDS, values())
    state = json.loads((indexed / "state.json").read_text())
    (indexed / "state.json").write_text(json.dumps({**state, "_indices_files": [{"filename": "i.arrow"}]}))
    assert "flatten_indices" in error_of(indexed)


READER = """
from contextlib import contextmanager

import numpy as np

from satl.features.feature_reader import FeatureFile, FeatureReader, register_feature_reader
from satl.scores.score_reader import has_extension


@contextmanager
def open_words(path):
    lines = [line.split() for line in path.read_text().splitlines()]
    yield FeatureFile([line[0] for line in lines], [np.array([line[1:] for line in lines], dtype=np.float32)])


register_feature_reader(FeatureReader(".words", has_extension(".words"), open_words))
"""
PROGRAM = """
import importlib.util
import sys

# The folder of the new file counts as satl/features/readers does.
spec = importlib.util.find_spec("satl.features.readers")
spec.submodule_search_locations.append(sys.argv[1])
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from satl.features import read_features
print(read_features(sys.argv[2]).ids)
"""


def test_a_file_in_the_folder_of_readers_is_enough(tmp_path: Path) -> None:
    (tmp_path / "readers").mkdir()
    (tmp_path / "readers" / "words.py").write_text(READER)
    (tmp_path / "f.words").write_text("a 1 2\nb 3 4\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "readers"), str(tmp_path / "f.words")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "('a', 'b')"
