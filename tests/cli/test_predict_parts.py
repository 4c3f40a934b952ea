"""``satl predict`` into a folder: many images, part by part, here or on a Ray cluster."""

from __future__ import annotations

import builtins
import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from programs import ROOT
from satl.errors import RunError
from satl.inference import prediction_parts
from satl.inference.prediction import predict_files
from satl.inference.prediction_parts import PartPredictor, PredictionJob, PredictionPart
from satl.labels import LabelTable
from satl.runs.run_folder import RunFolder
from satl.scenes import make_scenes
from satl.scores import read_scores

Satl = Callable[..., tuple[int, str, str]]
NAMES = tuple(f"{'deep/' if n % 2 else ''}{n}.png" for n in range(7))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    pixels, _ = make_scenes(len(NAMES), size=32, start=88)
    for name, image in zip(NAMES, pixels, strict=True):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "pictures" / name)
    return tmp_path / "pictures"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "predictions"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that will hold the names of the files that are decoded."""
    names: list[str] = []
    decode = prediction_parts.decode_image

    def noted(file: str, size: int, **options: Any) -> Any:
        names.append(Path(file).name)
        return decode(file, size, **options)

    monkeypatch.setattr(prediction_parts, "decode_image", noted)
    return names


def rows_of(out: Path) -> dict[str, dict[str, Any]]:
    rows = [row for file in sorted(out.glob("part-*.parquet")) for row in pq.read_table(file).to_pylist()]
    assert len({row["image"] for row in rows}) == len(rows)
    return {row.pop("image"): row for row in rows}


def jsonl_of(
    satl: Satl, run: Path, pictures: Path, file: Path, *options: object
) -> dict[str, dict[str, Any]]:
    code, _, err = satl("predict", run, pictures, "-o", file, *options)
    assert (code, err) == (0, "")
    lines = map(json.loads, file.read_text().splitlines())
    return {line["image"]: {**line["probabilities"], "present": line["present"]} for line in lines}


def assert_same(found: dict[str, dict[str, Any]], expected: dict[str, dict[str, Any]]) -> None:
    assert list(found) == list(expected)
    for image, row in found.items():
        assert row.pop("present") == expected[image].pop("present")
        assert row == pytest.approx(expected[image], abs=2e-6)


def sentence(result: tuple[int, str, str], code: int = 2) -> str:
    """Return the one line of an error."""
    assert (result[0], result[1]) == (code, ""), result
    *told, line = result[2].splitlines()
    assert all("are there already" in one for one in told)
    return line


def test_a_folder_holds_what_one_file_would(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, tmp_path: Path
) -> None:
    code, printed, err = satl("predict", tiny_run, pictures, "-o", out, "--part-size", 3, "--threshold", 0.4)
    assert (code, err) == (0, "")
    assert printed == f"{out} has 7 images x 24 classes, 3 Parquet files\n"
    assert sorted(file.name for file in out.iterdir() if file.name != ".lock") == [
        "_predictions.json",
        *(f"part-00000{n}.parquet" for n in range(3)),
    ]
    # As one table, as others read such a folder.
    assert pq.read_table(out).column("image").to_pylist() == list(rows_of(out))
    found = rows_of(out)
    assert sum(len(row["present"]) for row in found.values()) > 0
    assert_same(found, jsonl_of(satl, tiny_run, pictures, tmp_path / "one.jsonl", "--threshold", 0.4))


def test_the_same_command_goes_on(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, decoded: list[str]
) -> None:
    command = ("predict", tiny_run, pictures, "-o", out, "--part-size", 3)
    satl(*command)
    whole = rows_of(out)
    decoded.clear()
    (out / "part-000001.parquet").unlink()
    (out / "part-000002.parquet").write_bytes(b"half a file")
    code, printed, err = satl(*command)
    assert (code, err) == (0, "3 of 7 images are there already\n")
    assert printed.startswith(f"{out} has 7 images")
    assert len(decoded) == 4
    assert rows_of(out) == whole
    decoded.clear()
    assert satl(*command)[0] == 0
    assert decoded == []


def test_broken_images_are_left_out_and_told(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, decoded: list[str]
) -> None:
    command = ("predict", tiny_run, pictures, "-o", out, "--part-size", 3)
    whole = (pictures / "2.png").read_bytes()
    (pictures / "2.png").write_bytes(whole[:100])
    line = sentence(satl(*command))
    assert (
        f"1 of 7 images cannot be read ({out / '_broken.csv'} says why), such as 2.png, and the others are in"
        in line
    )
    assert set(rows_of(out)) == {*NAMES} - {"2.png"}
    assert pq.read_table(out).num_rows == 6
    with (out / "_broken.csv").open() as file:
        (broken,) = csv.DictReader(file)
    assert broken["image"] == "2.png"
    assert "truncated" in broken["reason"]
    assert "2.png" in sentence(satl(*command))  # still broken
    (pictures / "2.png").write_bytes(whole)
    decoded.clear()
    assert satl(*command)[0] == 0
    assert len(decoded) == 3  # of its part
    assert set(rows_of(out)) == {*NAMES}
    assert not (out / "_broken.csv").exists()


def test_a_part_of_broken_images_alone_is_empty(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path
) -> None:
    for name in NAMES[::2]:  # the last ones, since deep/ comes between
        (pictures / name).write_bytes(b"")
    assert "4 of 7 images" in sentence(satl("predict", tiny_run, pictures, "-o", out, "--part-size", 1))
    assert len(read_scores(out).images) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--threshold", 0.3), "with other thresholds"),
        (("--part-size", 4), "with another number of images in a file"),
        ((), "of other images"),
    ],
)
def test_other_predictions_are_not_mixed(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, change: tuple[object, ...], words: str
) -> None:
    satl("predict", tiny_run, pictures, "-o", out, "--part-size", 3)
    before = {file: file.read_bytes() for file in out.iterdir()}
    if not change:
        (pictures / "0.png").rename(pictures / "9.png")
    command = ("predict", tiny_run, pictures, "-o", out, "--part-size", 3, *change)
    line = sentence(satl(*command))
    assert f"--out {out}: holds predictions {words}; give another folder, or pass --force" in line
    assert {file: file.read_bytes() for file in out.iterdir()} == before
    code, printed, err = satl(*command, "--force")
    assert (code, err) == (0, "")
    assert printed.startswith(f"{out} has 7 images")
    assert len(rows_of(out)) == 7


def test_a_run_that_went_on_predicts_anew(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(tiny_run, tmp_path / "run")
    satl("predict", run, pictures, "-o", out)
    for file in (run / "checkpoints" / "best").glob("*.safetensors"):
        weights = load_file(file)
        save_file(
            {
                name: values * 1.5 if values.is_floating_point() else values
                for name, values in weights.items()
            },
            file,
        )
    assert "holds predictions of another run or checkpoint" in sentence(
        satl("predict", run, pictures, "-o", out)
    )


def test_a_folder_with_other_things_is_left_alone(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, tmp_path: Path
) -> None:
    out.mkdir()
    (out / ".part-000000.0a1b2c3d.partial.parquet").write_text("of a process that was killed")
    assert satl("predict", tiny_run, pictures, "-o", out)[0] == 0
    assert satl("predict", tiny_run, pictures, "-o", out, "--force")[0] == 0
    assert len(rows_of(out)) == pq.read_table(out).num_rows == 7
    shutil.rmtree(out)
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    line = sentence(satl("predict", tiny_run, pictures, "-o", out, "--force"))
    assert f"--out {out}: has other files in it; give a new folder" in line
    assert [file.name for file in out.iterdir()] == ["thesis.txt"]
    (tmp_path / "file").write_text("")
    assert "is a file, not a folder" in sentence(satl("predict", tiny_run, pictures, "-o", tmp_path / "file"))


def test_columns_that_are_no_classes_keep_their_names(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "read_classes", lambda _: ("cat", "present"))
    line = sentence(satl("predict", tiny_run, pictures, "-o", out))
    assert "the class 'present' has the name of a column" in line
    assert not out.exists()


def test_a_store_is_one_file(satl: Satl, tiny_run: Path, pictures: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,cat\n" + "".join(f"{name},present\n" for name in NAMES))
    assert (
        satl("pack", tmp_path / "t.csv", "--images", pictures, "-o", tmp_path / "store", "--size", 32)[0] == 0
    )
    line = sentence(satl("predict", tiny_run, tmp_path / "store", "-o", out))
    assert "of a packed store one file is written; end the name in .csv or .jsonl" in line


def test_stopping_loses_nothing(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def stopped() -> Iterator[Callable[[], bool]]:
        yield lambda: True

    command = ("predict", tiny_run, pictures, "-o", out, "--part-size", 3)
    with monkeypatch.context() as patched:
        patched.setattr("satl.training.signals.stop_signals", stopped)
        line = sentence(satl(*command), 130)
    assert f"stopped: 3 of 7 images are in {out}; run the same command again to resume." in line
    with pytest.raises(RunError, match=r"2 of 3 files of predictions are still missing; run the same"):
        read_scores(out)
    assert satl(*command)[0] == 0
    assert len(rows_of(out)) == 7


def test_scores_are_read_from_the_folder(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, tmp_path: Path
) -> None:
    satl("predict", tiny_run, pictures, "-o", out, "--part-size", 3)
    one = tmp_path / "one.csv"
    satl("predict", tiny_run, pictures, "-o", one)
    found, expected = read_scores(out), read_scores(one)
    assert (found.images, found.classes) == (expected.images, expected.classes)
    np.testing.assert_allclose(found.values, expected.values, atol=2e-6)
    assert found.classes is not None
    cells = np.zeros((2, 2), dtype=np.int8)
    table = LabelTable(("6.png", "deep/1.png"), found.classes[:2], cells, encoding="signed")
    read, wanted = read_scores(out, table), read_scores(one, table)
    np.testing.assert_allclose(read.values, wanted.values, atol=2e-6)
    assert read.notes == wanted.notes
    code, printed, err = satl("thresholds", "--scores", out, "--rule", "fixed", "--json")
    assert (code, err) == (0, "")
    assert len(json.loads(printed)["classes"]) == 24
    (out / "_predictions.json").write_text("{")
    assert "_predictions.json: cannot be read; make the predictions again" in sentence(
        satl("thresholds", "--scores", out, "--rule", "fixed")
    )


def test_the_example_of_the_page_predicts(
    tiny_run: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (example,) = (one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Recogniser" in one)
    shutil.copytree(tiny_run, tmp_path / "runs" / "first")
    (tmp_path / "photos").mkdir()
    for name, picture in (("a.jpg", "0.png"), ("b.jpg", "2.png")):
        shutil.copy(pictures / picture, tmp_path / "photos" / name)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(example, found)
    expected = predict_files(tiny_run, [pictures / "0.png", pictures / "2.png"])[1]
    np.testing.assert_array_equal(found["probabilities"], expected)


def test_ray_needs_a_folder_and_the_package(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = sentence(satl("predict", tiny_run, pictures, "-o", tmp_path / "p.csv", "--ray", "auto"))
    assert "--ray auto: shares the files of a folder; give --out a name without extension." in line
    load = builtins.__import__

    def without_ray(name: str, *others: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return load(name, *others)

    monkeypatch.setattr(builtins, "__import__", without_ray)
    line = sentence(satl("predict", tiny_run, pictures, "-o", out, "--ray", "auto"))
    assert line.endswith("--ray auto: needs the package ray; run `pip install 'satl[ray]'`.")
    assert not out.exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nonsense", "auto"])
def test_where_no_cluster_is_it_is_told_at_once(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    line = sentence(satl("predict", tiny_run, pictures, "-o", out, "--ray", address))
    assert f"--ray {address}: no Ray cluster there (" in line
    assert "start one with `ray start --head`, or give 'local'" in line


def test_machines_must_have_the_same_version(tiny_run: Path, tmp_path: Path) -> None:
    limits = np.full(24, 0.5, dtype=np.float32)
    task = PredictionJob(str(tiny_run), str(tmp_path), "best", limits, 8, version="0.0.1")
    with pytest.raises(
        RunError, match=r"has satl \S+, and the one that started it satl 0\.0\.1; install the same version"
    ):
        PartPredictor(task).predict(PredictionPart(0, ("a",), ("a",)))


@pytest.mark.slow
def test_a_ray_cluster_predicts_the_same(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(tiny_run, tmp_path / "run")
    code, printed, err = satl("predict", run, pictures, "-o", out, "--part-size", 2, "--ray", "local")
    assert (code, err) == (0, "")
    assert printed == f"{out} has 7 images x 24 classes, 4 Parquet files\n"
    assert_same(rows_of(out), jsonl_of(satl, run, pictures, tmp_path / "one.jsonl"))
    # A mistake that only a worker meets is a sentence here.
    (out / "part-000000.parquet").unlink()
    (run / "config.yaml").write_text("method: {name: nothing}")
    line = sentence(satl("predict", run, pictures, "-o", out, "--part-size", 2, "--ray", "local"))
    assert f"{run / 'config.yaml'}: the key 'data' is missing" in line


@pytest.mark.slow
def test_a_ray_of_this_machine_listens_to_this_machine_alone() -> None:
    if find_spec("ray") is None:  # not imported here: satl must be first, to keep it to this machine
        pytest.skip("ray is not installed")
    program = """
import psutil
from satl.inference import ray_cluster
def listening(*_):
    mine = psutil.Process()
    for process in (mine, *mine.children(recursive=True)):
        for socket in process.net_connections(kind="inet"):
            if socket.status == psutil.CONN_LISTEN:
                print(socket.laddr.ip)
    yield 0
ray_cluster._work_on_workers = listening
list(ray_cluster.predict_on_ray("local")(None, ()))
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    addresses = finished.stdout.split()
    assert len(addresses) > 2
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    assert "can be reached" not in finished.stderr


def test_a_kill_while_predictions_are_replaced_leaves_a_folder_that_can_be_replaced(
    satl: Satl, tiny_run: Path, pictures: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("predict", tiny_run, pictures, "-o", out, "--part-size", 2)
    assert satl(*command, "--threshold", 0.9)[0] == 0
    unlink = Path.unlink

    def killed(self: Path, missing_ok: bool = False) -> None:
        if self.name == "part-000001.parquet":
            raise KeyboardInterrupt
        unlink(self, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        assert satl(*command, "--force")[0] != 0
    with pytest.raises(RunError):
        read_scores(out)
    assert "pass --force to replace them" in sentence(satl(*command))
    assert satl(*command, "--force")[0] == 0
    assert_same(rows_of(out), jsonl_of(satl, tiny_run, pictures, tmp_path / "one.jsonl"))
    assert sorted(file.name for file in out.iterdir()) == [
        ".lock",
        "_predictions.json",
        *(f"part-{number:06d}.parquet" for number in range(4)),
    ]
