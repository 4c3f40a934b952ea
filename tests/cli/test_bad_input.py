"""Every mistake ends in one sentence that names the place and a remedy, exit code 2, and nothing half written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.tiny import TINY

Satl = Callable[..., tuple[int, str, str]]


class Bench:
    """A working project of a user in which one thing at a time is broken."""

    def __init__(self, satl: Satl, folder: Path, pictures: Path) -> None:
        self.satl = satl
        self.folder = folder
        self.images = folder / "images"
        shutil.copytree(pictures, self.images)
        self.table = self.images / "labels.csv"
        self.content: dict[str, Any] = {
            **TINY,
            "data": {"table": str(self.table), "images": str(self.images)},
            "images": {**TINY["images"], "store_size": 32},
            "training": {**TINY["training"], "epochs": 1, "stage1_epochs": 1},
        }

    def rows(self) -> list[str]:
        return self.table.read_text().splitlines()

    def write_rows(self, rows: list[str]) -> None:
        self.table.write_text("\n".join(rows) + "\n")

    def refused(self, *arguments: object, parts: tuple[str, ...]) -> None:
        before = self.state()
        code, out, err = self.satl(*arguments)
        assert code == 2, (out, err)
        assert out == ""
        assert err.startswith("error: "), err
        assert err.count("\n") == 1, err
        assert err.endswith("\n")
        assert "Traceback" not in err
        for part in parts:
            assert part in err
        assert self.state() == before

    def state(self) -> dict[Path, int]:
        """Return when each file was changed, but for the lock of a run, which says who holds it."""
        files = (path for path in self.folder.rglob("*") if path.name != ".lock")
        return {path: path.stat().st_mtime_ns for path in files}

    def train(self, *settings: str, parts: tuple[str, ...], out: Path | None = None) -> None:
        config = self.folder / "run.yaml"
        config.write_text(yaml.safe_dump(self.content))
        options = [part for setting in settings for part in ("--set", setting)]
        self.refused("train", config, *options, "--out", out or self.folder / "run", parts=parts)


@pytest.fixture
def bench(satl: Satl, tmp_path: Path, pictures: Path) -> Bench:
    return Bench(satl, tmp_path, pictures)


def test_the_bench_itself_works(bench: Bench, satl: Satl) -> None:
    config = bench.folder / "run.yaml"
    config.write_text(yaml.safe_dump(bench.content))
    code, _, err = satl("train", config, "--out", bench.folder / "run", "--quiet")
    assert (code, err) == (0, "")


def test_a_missing_image(bench: Bench) -> None:
    (bench.images / "scene-00006.png").unlink()
    bench.train(parts=("scene-00006.png", "row 7", "missing", "satl inspect"))


def test_a_truncated_jpeg(bench: Bench) -> None:
    from PIL import Image

    image = bench.images / "scene-00003.png"
    Image.open(image).resize((200, 200)).save(image, format="JPEG")
    image.write_bytes(image.read_bytes()[:900])
    bench.train(parts=("scene-00003.png", "row 4", "truncated", "replace it or take its row out"))


def test_a_file_that_is_no_image(bench: Bench) -> None:
    (bench.images / "scene-00003.png").write_text("hello")
    bench.train(parts=("scene-00003.png", "row 4", "not an image", "replace it"))


def test_an_image_folder_that_is_not_there(bench: Bench) -> None:
    bench.train("data.images=/none/at/all", parts=("/none/at/all", "does not exist", "pass the folder"))


def test_an_unknown_class_in_the_truth(bench: Bench) -> None:
    truth = bench.folder / "truth.csv"
    rows = bench.rows()
    truth.write_text("\n".join([rows[0].replace("bicycle", "bycicle"), *rows[1:]]) + "\n")
    assert truth.read_text() != bench.table.read_text()
    bench.train(
        f"data.truth={truth}", parts=("truth.csv", "no class 'bicycle'", "did you mean 'bycicle'", "add that")
    )


def test_an_ambiguous_encoding(bench: Bench) -> None:
    rows = [row.replace("present", "1").replace("absent", "0").replace("yes", "1") for row in bench.rows()]
    header = rows[0].split(",")
    bench.write_rows(
        [rows[0], *(f"{row.split(',')[0]},{'1,' + '0,' * (len(header) - 3)}0" for row in rows[1:])]
    )
    bench.train(
        parts=("labels.csv", "pass --set data.encoding=complete (", "or --set data.encoding=signed (")
    )
    bench.refused("inspect", bench.table, parts=("labels.csv", "--encoding"))


def test_a_column_that_is_no_class(bench: Bench, satl: Satl) -> None:
    rows = bench.rows()
    bench.write_rows([f"{rows[0]},age", *(f"{row},{40 + i}" for i, row in enumerate(rows[1:]))])
    bench.train(parts=("labels.csv", "'age' is not a class", "--set data.ignore_columns=age"))
    settings = ("--set", "data.ignore_columns=age", "--out", bench.folder / "run", "--quiet")
    assert satl("train", bench.folder / "run.yaml", *settings).code == 0  # type: ignore[attr-defined]


def test_a_duplicate_image(bench: Bench) -> None:
    rows = bench.rows()
    bench.write_rows([*rows, rows[3]])
    bench.train(parts=("labels.csv", "61", "scene-00002.png"))


@pytest.mark.parametrize("rows", [0, 1])
def test_an_empty_table(bench: Bench, rows: int) -> None:
    content = bench.rows()[:rows]
    bench.table.write_text("\n".join(content) + ("\n" if content else ""))
    bench.train(parts=("labels.csv",))


def test_a_table_that_is_not_there_or_of_another_kind(bench: Bench) -> None:
    bench.train(
        f"data.table={bench.images / 'lables.csv'}", parts=("lables.csv", "did you mean 'labels.csv'")
    )
    other = bench.folder / "labels.xlsx"
    other.write_text("x")
    bench.train(f"data.table={other}", parts=("labels.xlsx", ".csv"))


def test_a_wrong_key_or_value_in_the_file(bench: Bench) -> None:
    bench.content["training"] = {**bench.content["training"], "epochz": 3}
    bench.train(parts=("run.yaml", "'training.epochz'", "did you mean 'epochs'"))


def test_a_broken_file(bench: Bench) -> None:
    config = bench.folder / "run.yaml"
    config.write_text("data: [1,\n  x: {")
    bench.refused("train", config, "--out", bench.folder / "run", parts=("run.yaml", "valid YAML at line"))
    bench.refused("train", bench.folder / "no.yaml", "--out", bench.folder / "run", parts=("no.yaml", "YAML"))


@pytest.mark.parametrize("proportion", ["0", "1.5", "-0.1"])
def test_a_proportion_that_is_none(bench: Bench, proportion: str) -> None:
    bench.train(f"data.proportion={proportion}", parts=("run.yaml", "data.proportion", proportion))
    bench.refused(
        "mask",
        bench.table,
        "--proportion",
        proportion,
        parts=(proportion, "above 0 and at most 1", "--proportion"),
    )


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("method.name=sst+stal", ("run.yaml", "method.name", "did you mean 'sst+satl'")),
        ("model.backbone=resnet1O1", ("resnet1O1", "did you mean 'resnet101'")),
        ("model.backbone_kwargs.layerz=3", ("resnet18", "layerz")),
        ("model.word_vectors=/none/glove.txt", ("/none/glove.txt",)),
        ("model.weights=/none/w.pth", ("/none/w.pth",)),
        ("model.train_stages=[layer9]", ("'layer9'", "layer4")),
        ("training.batch_size=1000", ("training.batch_size", "1000", "use at most 54")),
        ("images.crop_sizes=[999]", ("images.crop_sizes", "999", "32")),
        ("training.epochs", ("--set training.epochs", "section.key=value")),
        ("data.encoding=zeros", ("--set data.encoding=zeros: is not an encoding",)),
    ],
)
def test_a_setting_that_cannot_work(bench: Bench, setting: str, parts: tuple[str, ...]) -> None:
    bench.train(setting, parts=parts)


def test_a_place_that_cannot_be_written_to(bench: Bench, tiny_run: Path) -> None:
    bench.train(out=bench.table, parts=("labels.csv", "is a file", "--out"))
    bench.train(out=bench.table / "run", parts=("labels.csv", "cannot be made", "--out"))
    shutil.copytree(tiny_run, bench.folder / "taken")
    bench.train(out=bench.folder / "taken", parts=("taken", "already holds a run", "satl train --resume"))


def break_run(run: Path, how: str) -> None:
    checkpoint = run / "checkpoints"
    if how == "missing":
        shutil.rmtree(run)
    elif how == "no config":
        (run / "config.yaml").unlink()
    elif how == "no checkpoint":
        shutil.rmtree(checkpoint)
    elif how == "broken yaml":
        (run / "config.yaml").write_text("data: [")
    elif how == "bytes as yaml":
        (run / "config.yaml").write_bytes(b"\xff\xfe\xfa")
    elif how == "wrong key":
        (run / "config.yaml").write_text("data: {scenes: {}}\ntrainin: {}\n")
    elif how == "broken weights":
        for file in checkpoint.glob("*/learner.safetensors"):  # a whole one would be used instead
            file.write_bytes(file.read_bytes()[:1000])
    elif how == "no weights":
        for file in checkpoint.glob("*/learner.safetensors"):
            file.unlink()
    elif how == "other network":
        config = run / "config.yaml"
        config.write_text(config.read_text().replace("feature_dim: 16", "feature_dim: 24"))
    elif how == "broken state":
        for file in checkpoint.glob("last*/training.pt"):
            file.write_bytes(file.read_bytes()[:500])
    elif how == "no classes":
        (run / "classes.json").unlink()


FOR_ALL = [
    ("missing", ("run", "is not a folder", "satl train --out")),
    ("no config", ("run", "config.yaml", "satl train --out")),
    ("no checkpoint", ("run", "checkpoint '", "start again")),
    ("broken yaml", ("config.yaml", "cannot be read", "restore")),
    ("bytes as yaml", ("config.yaml", "cannot be read", "restore")),
    ("wrong key", ("config.yaml", "'trainin'", "did you mean 'training'")),
    ("broken weights", ("learner.safetensors", "damaged", "restore")),
    ("no weights", ("learner.safetensors", "cannot be read", "restore")),
    ("other network", ("learner.safetensors", "does not fit", "restore")),
]


@pytest.mark.parametrize(("how", "parts"), FOR_ALL, ids=[how for how, _ in FOR_ALL])
def test_a_run_folder_that_cannot_be_read(
    satl: Satl, tmp_path: Path, pictures: Path, tiny_run: Path, how: str, parts: tuple[str, ...]
) -> None:
    bench = Bench(satl, tmp_path, pictures)
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    break_run(run, how)
    bench.refused("evaluate", run, parts=parts)
    bench.refused("predict", run, bench.images, "-o", tmp_path / "out.csv", parts=parts)
    if how == "other network":  # the settings are looked at first, and told more plainly
        parts = ("config.yaml", "model.feature_dim is 24, but the run was started with 16", "put that back")
    bench.refused("train", "--resume", run, "--quiet", parts=parts)


def test_a_run_folder_without_state_or_classes(bench: Bench, tiny_run: Path) -> None:
    run = bench.folder / "run"
    shutil.copytree(tiny_run, run)
    break_run(run, "broken state")
    bench.refused("train", "--resume", run, "--quiet", parts=("training.pt", "is damaged", "restore"))
    break_run(run, "no classes")
    bench.refused("evaluate", run, parts=("classes.json", "cannot be read", "restore"))


def test_wrong_ends_of_predict(bench: Bench, tiny_run: Path) -> None:
    image = bench.images / "scene-00000.png"
    out = bench.folder / "out.csv"
    bench.refused("predict", tiny_run, image, "-o", "out.xlsx", parts=("--out out.xlsx", ".csv or .jsonl"))
    bench.refused("predict", tiny_run, image, "-o", "/no/where/o.csv", parts=("/no/where", "make it first"))
    (bench.folder / "folder.csv").mkdir()
    bench.refused(
        "predict", tiny_run, image, "-o", bench.folder / "folder.csv", parts=("folder.csv", "is a folder")
    )
    bench.refused("predict", tiny_run, bench.images / "no.png", "-o", out, parts=("no.png", "does not exist"))
    empty = bench.folder / "empty"
    empty.mkdir()
    bench.refused("predict", tiny_run, empty, "-o", out, parts=("empty", "holds no image", ".jpg"))
    broken = bench.folder / "broken.png"
    broken.write_bytes(image.read_bytes()[:200])
    bench.refused(
        "predict", tiny_run, image, broken, "-o", out, parts=("broken.png' is truncated", "leave it out")
    )
    bench.refused("predict", tiny_run, bench.table, "-o", out, parts=("labels.csv", "not an image"))
    bench.refused(
        "predict", tiny_run, image, "-o", out, "--checkpoint", "first", parts=("'first'", "best or last")
    )
