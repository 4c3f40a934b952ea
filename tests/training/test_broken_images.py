"""Runs on image folders with pictures that cannot be read: left out once and for all, listed, told, the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.conftest import call
from satl.errors import ImageError
from satl.images import FolderImages, pack_images
from satl.images.broken_list import read_broken
from satl.inference.run_evaluation import evaluate_run
from satl.runs.config import RunConfig
from satl.runs.data import load_data
from satl.runs.reading import save_config
from satl.runs.run_folder import RunFolder
from satl.training.trainer import Trainer
from training.tiny import KillAt, Killed, assert_same_run, tiny_config, train

NUM = 60
BAD = (5, 30, 45)  # of the splits train, val and test


def split_of(row: int) -> str:
    return "train" if row < 24 else "val" if row < 42 else "test"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A table and its folder of sixty images, three of which are cut off."""
    folder = tmp_path / "images"
    folder.mkdir()
    draw = np.random.default_rng(0)
    lines = ["image,split,cat,dog"]
    for row in range(NUM):
        pixels = draw.integers(0, 256, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
        lines.append(f"{row}.png,{split_of(row)},{row % 2},{row // 2 % 2}")
    for row in BAD:
        cut_off(folder / f"{row}.png")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:200])


def config_of(data: Path, *settings: str) -> RunConfig:
    return tiny_config(
        "data.scenes=null",
        "data.proportion=null",
        f"data.table={data / 'labels.csv'}",
        f"data.images={data / 'images'}",
        "data.encoding=complete",
        "images.store_size=32",
        "images.broken=skip",
        "images.broken_share=0.1",
        "method.name=ignore",
        "training.batch_size=8",
        "training.epochs=3",
        *settings,
    )


def names(*rows: int) -> list[str]:
    return [f"{row}.png" for row in rows]


@pytest.mark.parametrize("cache", [2, 0])
def test_they_are_left_out_of_the_table_and_its_statistics(data: Path, cache: int) -> None:
    loaded = load_data(config_of(data, f"images.cache_gb={cache}"))
    assert [(one.image, one.split) for one in loaded.left_out] == [
        ("5.png", "train"),
        ("30.png", "val"),
        ("45.png", "test"),
    ]
    assert len(loaded.source) == loaded.table.num_images == NUM - 3
    assert not set(loaded.table.images) & set(names(*BAD))
    plain = load_data(
        config_of(data, "data.images=null", f"data.images={whole(data)}", "images.broken=error")
    )
    rows = plain.table.index.images.find(loaded.table.images)
    for place, row in enumerate(rows.tolist()):
        np.testing.assert_array_equal(loaded.images.image(place), plain.images.image(row))
    np.testing.assert_array_equal(loaded.table.cells, plain.table.cells[rows])


def whole(data: Path) -> Path:
    """The same folder with pictures in place of the broken ones."""
    folder = data / "whole"
    folder.mkdir()
    for row in range(NUM):
        content = (data / "images" / f"{row}.png").read_bytes()
        (folder / f"{row}.png").write_bytes(content)
    for row in BAD:
        Image.new("RGB", (24, 24)).save(folder / f"{row}.png")
    return folder


def test_an_error_is_what_it_was(data: Path) -> None:
    with pytest.raises(ImageError, match=r"5\.png"):
        load_data(config_of(data, "images.broken=error"))
    with pytest.raises(
        ImageError, match=r"3 of 60 images cannot be read, more than images.broken_share \(0.04\)"
    ):
        load_data(config_of(data, "images.broken_share=0.04"))


def test_the_run_lists_and_tells_them_and_resumes_to_the_same_bits(data: Path, tmp_path: Path) -> None:
    config = config_of(data, "training.checkpoint_steps=1")
    train(tmp_path / "run", config)
    listed = read_broken(tmp_path / "run" / "broken.csv")
    assert [row["image"] for row in listed] == names(*BAD)
    assert all("damaged" in row["reason"] for row in listed)
    assert (tmp_path / "run" / "train.log").read_text().count("3 of 60 images cannot be read") == 2

    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=1, step=1))
    Image.new("RGB", (24, 24)).save(
        data / "images" / "5.png"
    )  # mended in between: the run still does without it
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "run", tmp_path / "cut")


def resume(folder: Path) -> Trainer:
    run = RunFolder.open(folder)
    trainer = Trainer.resume(load_data(run.read_config(), recorded=run.read_broken()), run)
    trainer.fit()
    return trainer


@pytest.mark.parametrize("workers", [0, 2])
def test_one_that_breaks_later_keeps_its_place(data: Path, tmp_path: Path, workers: int) -> None:
    config = config_of(
        data,
        "images.cache_gb=0",
        f"images.workers={workers}",
        "training.checkpoint_steps=1",
        "images.broken_share=0.12",
    )
    ways = []
    for name in ("run", "cut"):
        loaded = load_data(config)
        later = data / "images" / "7.png"
        content = later.read_bytes()
        cut_off(later)
        if name == "run":
            train(tmp_path / name, config, data=loaded)
        else:
            with pytest.raises(Killed):
                train(tmp_path / name, config, KillAt(epoch=1, step=1), loaded)
            ways.append(resume(tmp_path / name).batches.rows(0))
        later.write_bytes(content)
    assert_same_run(tmp_path / "run", tmp_path / "cut")
    listed = {row["image"]: row["epoch"] for row in read_broken(tmp_path / "run" / "broken.csv")}
    assert listed == {"5.png": "", "30.png": "", "45.png": "", "7.png": "1"}
    log = (tmp_path / "run" / "train.log").read_text()
    assert log.count("epoch 1: 1 image can no longer be read") == 1
    assert "4 of 60 images cannot be read" in log


def test_more_that_break_later_than_the_share_stop_the_run(data: Path, tmp_path: Path) -> None:
    config = config_of(data, "images.cache_gb=0", "images.broken_share=0.06")
    loaded = load_data(config)
    cut_off(data / "images" / "7.png")
    with pytest.raises(ImageError, match="4 of 60 images cannot be read"):
        train(tmp_path / "run", config, data=loaded)


def test_an_evaluation_says_how_many_it_left_out(data: Path, tmp_path: Path) -> None:
    save_config(config_of(data), tmp_path / "run.yaml")
    done = call("train", tmp_path / "run.yaml", "--out", tmp_path / "run", "--quiet")
    assert "3 of 60 images cannot be read and are left out" in done.err
    evaluation, split = evaluate_run(tmp_path / "run")
    assert (split, evaluation.num_images, evaluation.left_out) == ("test", 17, 1)
    cut_off(data / "images" / "50.png")  # since then
    done = call("evaluate", tmp_path / "run")
    assert "Left out, cannot be read: 2 of the 18 images of the split" in done.out
    assert json.loads((tmp_path / "run" / "evaluation-test.json").read_text())["left_out"] == 2
    cut_off(data / "images" / "51.png")
    with pytest.raises(
        ImageError, match=r"2 of 17 images cannot be read, more than images.broken_share \(0.1\)"
    ):
        evaluate_run(tmp_path / "run")


def test_a_store_without_them_is_trained_on(data: Path, tmp_path: Path) -> None:
    ids = names(*range(NUM))
    source = FolderImages(data / "images", ids, 32)
    pack_images(source, ids, tmp_path / "store", kind="raw", broken_share=0.1)
    stored = config_of(data, f"data.images={tmp_path / 'store'}")
    train(tmp_path / "packed", stored)
    train(tmp_path / "files", config_of(data))
    assert [row["image"] for row in read_broken(tmp_path / "packed" / "broken.csv")] == names(*BAD)
    assert_same_run(tmp_path / "packed", tmp_path / "files")


def test_packing_on_the_command_line(data: Path, tmp_path: Path) -> None:
    given = ("pack", data / "labels.csv", "--images", data / "images", "--size", 32, "-o", tmp_path / "store")
    done = call(*given, "--encoding", "complete", "--broken", "skip", "--broken-share", "0.1")
    assert "Packed 57 images" in done.out
    assert "3 of 60 images cannot be read and are left out" in done.err


def test_a_completion_leaves_their_cells_unknown(data: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", config_of(data))
    done = call("complete", tmp_path / "run", "-o", tmp_path / "out", "--review-only")
    assert "3 of 60 images have no score, such as '5.png': their cells stay unknown" in done.out + done.err
