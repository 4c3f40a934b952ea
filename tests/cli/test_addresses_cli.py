"""Commands on addresses, with a storage in memory; ``tests/remote/test_s3.py`` does the same with a server of S3."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import yaml

from satl.remote import copies
from training.tiny import TINY

Satl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def memory(tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a storage with a table and its pictures, and an empty cache."""
    monkeypatch.setenv("SATL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(copies, "show", copies.no_bar)
    copies.remote_folder.cache_clear()
    copies._trusted.clear()
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    files.pipe("/bucket/labels.csv", (pictures / "labels.csv").read_bytes())
    for file in pictures.glob("*.png"):
        files.pipe(f"/bucket/photos/{file.name}", file.read_bytes())
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    copies.remote_folder.cache_clear()


@pytest.fixture
def remote_yaml(tmp_path: Path) -> Path:
    """Return a configuration whose table and pictures are in the storage."""
    data = {"table": "memory://bucket/labels.csv", "images": "memory://bucket/photos"}
    content = {**TINY, "data": data, "images": {**TINY["images"], "store_size": 32}}
    content["training"] = {**TINY["training"], "epochs": 1, "stage1_epochs": 1}
    path = tmp_path / "remote.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_inspect_reads_a_table_and_its_pictures(satl: Satl, memory: Any) -> None:
    code, out, err = satl("inspect", "memory://bucket/labels.csv", "--images", "memory://bucket/photos/")
    assert (code, err) == (0, "")
    assert "memory://bucket/labels.csv" in out
    assert "60 looked for: 0 missing" in out
    memory.rm("/bucket/photos/scene-00007.png")
    code, out, _ = satl(
        "inspect", "memory://bucket/labels.csv", "--images", "memory://bucket/photos", "--all"
    )
    assert "1 missing" in out
    assert "missing in memory://bucket/photos" in out


def test_messages_name_the_address(satl: Satl, memory: Any, tmp_path: Path) -> None:
    memory.pipe("/bucket/odd.csv", b"image,cat\na.jpg,1\na.jpg,0\n")
    code, _, err = satl("inspect", "memory://bucket/odd.csv", "--encoding", "complete")
    assert code == 2
    assert "memory://bucket/odd.csv" in err
    assert str(tmp_path) not in err
    code, _, err = satl("inspect", "memory://bucket/none.csv")
    assert (code, err) == (
        2,
        "error: memory://bucket/none.csv: does not exist; check the address: bucket, folders and name.\n",
    )


def test_a_run_is_trained_and_evaluated_on_what_lies_elsewhere(
    satl: Satl, memory: Any, remote_yaml: Path, tmp_path: Path, pictures: Path
) -> None:
    run = tmp_path / "run"
    code, _, err = satl("train", remote_yaml, "--out", run, "--quiet")
    assert (code, err) == (0, "")
    kept = yaml.safe_load((run / "config.yaml").read_text())["data"]
    assert (kept["table"], kept["images"]) == ("memory://bucket/labels.csv", "memory://bucket/photos")
    code, _, err = satl("evaluate", run)
    assert (code, err) == (0, "")
    local = tmp_path / "local.yaml"
    content = yaml.safe_load(remote_yaml.read_text())
    content["data"] = {"table": str(pictures / "labels.csv"), "images": str(pictures)}
    local.write_text(yaml.safe_dump(content))
    assert satl("train", local, "--out", tmp_path / "same", "--quiet")[0] == 0
    weights = [tmp_path / name / "checkpoints" / "last" / "learner.safetensors" for name in ("run", "same")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_run_from_elsewhere_fetches_nothing(
    satl: Satl,
    memory: Any,
    remote_yaml: Path,
    tmp_path: Path,
    pictures: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "run"
    assert satl("train", remote_yaml, "--out", run, "--quiet")[0] == 0
    # As on a machine that knows nothing of the run.
    shutil.rmtree(tmp_path / "cache")
    copies._trusted.clear()
    asked: list[str] = []
    original = copies.Storage.__init__

    def noted(self: Any, address: str) -> None:
        asked.append(address)
        original(self, address)

    monkeypatch.setattr(copies.Storage, "__init__", noted)
    code, _, err = satl("predict", run, pictures / "scene-00000.png", "-o", tmp_path / "p.csv")
    assert (code, err, asked) == (0, "", [])
    refused = (
        "error: memory://bucket/labels.csv: is named by a run folder and was never read on this machine, so it is not "
        "opened; if you trust it, name it in the environment variable SATL_REMOTE.\n"
    )
    for command in (
        ("evaluate", run),
        ("train", "--resume", run),
        ("complete", run, "--review-only", "-o", tmp_path / "c"),
    ):
        code, _, err = satl(*command)
        assert (code, asked) == (2, []), command
        assert "is named by a run folder" in err, command
    assert satl("evaluate", run) == (2, "", refused)
    _, out, err = satl("figures", run)  # draws what it can
    assert "is named by a run folder" in out + err
    assert asked == []
    monkeypatch.setenv("SATL_REMOTE", "s3://other memory://bucket/")
    assert satl("evaluate", run)[0] == 0
    monkeypatch.delenv("SATL_REMOTE")
    assert satl("evaluate", run)[0] == 0  # its addresses are known here by now


def test_pictures_are_predicted_wherever_they_lie(
    satl: Satl, memory: Any, tiny_run: Path, tmp_path: Path
) -> None:
    code, out, err = satl("predict", tiny_run, "memory://bucket/photos/", "-o", tmp_path / "p.csv")
    assert (code, err) == (0, "")
    assert "Wrote 60 images" in out
    assert (tmp_path / "p.csv").read_text().splitlines()[1].startswith("scene-00000.png,")


def test_a_store_of_an_address_is_trained_on(
    satl: Satl, memory: Any, remote_yaml: Path, tmp_path: Path, pictures: Path
) -> None:
    store = tmp_path / "store"
    assert (
        satl(
            "pack",
            "memory://bucket/labels.csv",
            "--images",
            "memory://bucket/photos",
            "--size",
            32,
            "-o",
            store,
        )[0]
        == 0
    )
    for file in store.iterdir():
        memory.pipe(f"/bucket/store/{file.name}", file.read_bytes())
    setting = "data.images=memory://bucket/store"
    code, _, err = satl("train", remote_yaml, "--out", tmp_path / "run", "--quiet", "--set", setting)
    assert (code, err) == (0, "")


def test_thresholds_of_scores_elsewhere(satl: Satl, memory: Any) -> None:
    memory.pipe("/bucket/scores.csv", b"image,cat\na.jpg,0.9\nb.jpg,0.1\n")
    memory.pipe("/bucket/known.csv", b"image,cat\na.jpg,present\nb.jpg,absent\n")
    code, out, err = satl(
        "thresholds",
        "--scores",
        "memory://bucket/scores.csv",
        "--labels",
        "memory://bucket/known.csv",
        "--rule",
        "fixed",
    )
    assert (code, err) == (0, "")
    assert out.startswith("memory://bucket/scores.csv: 2 images, rule fixed")


def test_outputs_go_to_addresses(satl: Satl, memory: Any, tiny_run: Path, tmp_path: Path) -> None:
    table, photos = "memory://bucket/labels.csv", "memory://bucket/photos"
    code, out, err = satl("predict", tiny_run, photos, "-o", "memory://bucket/results/p.csv")
    assert (code, err) == (0, "")
    assert "to memory://bucket/results/p.csv" in out
    assert satl("predict", tiny_run, photos, "-o", tmp_path / "p.csv")[0] == 0
    assert memory.cat("/bucket/results/p.csv") == (tmp_path / "p.csv").read_bytes()
    again = satl("predict", tiny_run, photos, "-o", "memory://bucket/results/p.csv")
    assert again[0] == 2
    assert (
        "results/p.csv: exists already; give another address, or remove what is there, or pass --force"
        in again[2]
    )
    assert satl("predict", tiny_run, photos, "-o", "memory://bucket/results/p.csv", "--force")[0] == 0
    for command in (
        ("mask", table, "--proportion", 0.5, "-o", "memory://bucket/results/masked.csv"),
        ("convert", table, "memory://bucket/results/labels.parquet"),
        ("pack", table, "--images", photos, "--size", 32, "-o", "memory://bucket/results/store"),
        ("predict", tiny_run, photos, "-o", "memory://bucket/results/parts", "--part-size", 25),
        ("export", table, "--format", "huggingface", "-o", "memory://bucket/results/metadata.jsonl"),
        ("evaluate", tiny_run, "-o", "memory://bucket/results/evaluation"),
        ("onnx", tiny_run, "-o", "memory://bucket/results/model.onnx"),
    ):
        code, out, err = satl(*command)
        assert code == 0, err
        assert str(tmp_path) not in out + err, command
    written = sorted(name.removeprefix("/bucket/results/") for name in memory.find("/bucket/results"))
    assert set(written) >= {
        "masked.csv",
        "masked.truth.csv",
        "labels.parquet",
        "store/store.json",
        "parts/_predictions.json",
        "parts/part-000002.parquet",
        "metadata.classes.json",
        "metadata.jsonl",
        "evaluation/evaluation-test.json",
        "model.onnx",
    }
    assert not [name for name in written if "partial" in name or "lock" in name]
    assert [
        file.name for file in (tmp_path / "cache" / "remote" / "uploads").rglob("*") if file.is_file()
    ] == [".lock"] * len(
        {name.partition("/")[0] for name in written} - {"masked.truth.csv", "metadata.classes.json"}
    )
    code, out, err = satl(
        "inspect", "memory://bucket/results/masked.csv", "--truth", "memory://bucket/results/masked.truth.csv"
    )
    assert (code, err) == (0, "")


def test_a_table_is_completed_and_merged_elsewhere(
    satl: Satl, memory: Any, remote_yaml: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert satl("train", remote_yaml, "--out", run, "--quiet")[0] == 0
    out = "memory://bucket/completed"
    code, text, err = satl("complete", run, "--review-only", "-o", out, "--quiet")
    assert code == 0, err
    assert f"Report  {out}/report.html" in text
    names = [name.removeprefix("/bucket/completed/") for name in memory.find("/bucket/completed")]
    assert {"changes.csv", "checksums.json", "completed.csv", "report.html"} <= set(names)
    assert out.encode() in memory.cat("/bucket/completed/report.html")
    assert str(tmp_path / "cache" / "remote" / "uploads").encode() not in memory.cat(
        "/bucket/completed/report.html"
    )
    exported = "memory://bucket/export/labels.json"
    code, text, err = satl("export", out, "--format", "fiftyone", "-o", exported)
    assert code == 0, err
    assert memory.exists("/bucket/export/labels.json")
    code, _, err = satl(
        "complete", "memory://bucket/labels.csv", "--images", "memory://bucket/photos", "-o", out
    )
    assert (code, err) == (
        2,
        f"error: {out}: the model that is trained cannot be kept beside it; name a local folder for it with --model "
        "FOLDER.\n",
    )


def test_an_output_is_never_one_of_the_inputs(satl: Satl, memory: Any) -> None:
    before = memory.cat("/bucket/labels.csv")
    code, _, err = satl("convert", "memory://bucket/labels.csv", "memory://bucket/labels.csv", "--force")
    assert (code, err) == (
        2,
        "error: memory://bucket/labels.csv: belongs to the inputs and would be overwritten; give another address.\n",
    )
    assert memory.cat("/bucket/labels.csv") == before


def test_a_wrong_output_is_refused_and_nothing_is_written(
    satl: Satl, memory: Any, tiny_run: Path, tmp_path: Path
) -> None:
    before = set(memory.find("/"))
    code, _, err = satl("predict", tiny_run, "memory://bucket/photos", "-o", "memory://bucket/p.txt")
    assert code == 2
    assert "memory://bucket/p.txt" in err
    assert "cannot be written as '.txt'" in err
    assert set(memory.find("/")) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ("train", "a.yaml", "--out", "memory://bucket/run"),
            "written to bit by bit, so it has to be on this machine; name a local folder",
        ),
        (
            ("review", "memory://bucket/done"),
            "written to bit by bit, so it has to be on this machine; copy it to this machine first",
        ),
        (
            ("predict", "run", "memory://bucket/photos", "-o", "p", "--ray", "local"),
            "do not share what is fetched",
        ),
    ],
)
def test_what_has_to_be_here_is_said_at_once(
    satl: Satl,
    memory: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = satl(*command)
    assert (code, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []
