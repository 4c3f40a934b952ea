"""The four calls on pictures: folders, Pillow images in a frame, Hugging Face and torch data sets."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image

import satl
from satl.errors import ArrayError, ImageError, TableError
from satl.inference.prediction import predict_files
from satl.labels import LabelTable, mask_table, read_table
from satl.runs.data import load_data
from satl.runs.run_folder import RunFolder
from satl.scenes import write_scenes
from training.tiny import TINY

CONFIG = {
    "images": {"store_size": 32, **TINY["images"]},
    "model": TINY["model"],
    "training": {**TINY["training"], "epochs": 1, "stage1_epochs": 1, "batch_size": 16},
    "data": {"holdout_fraction": 0.2},
}


class Scenes:
    """A folder with pictures, the table of it with gaps, and the pictures in memory."""

    def __init__(self, folder: Path) -> None:
        write_scenes(folder, 60, size=32)
        table = read_table(folder / "labels.csv").with_split(None)
        self.folder, self.table = folder, mask_table(table, 0.5, seed=0).with_truth(None)
        self.frame = self.table.to_frame("pandas")
        self.files = [folder / name for name in self.table.images]
        self.pictures = [Image.open(file).convert("RGB") for file in self.files]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    return Scenes(tmp_path_factory.mktemp("scenes"))


@pytest.fixture(scope="module")
def run(scenes: Scenes, tmp_path_factory: pytest.TempPathFactory) -> satl.api.TrainedRun:
    """A finished run; do not change it."""
    out = tmp_path_factory.mktemp("runs") / "first"
    return satl.train(scenes.frame, images=scenes.folder, out=out, config=CONFIG, quiet=True)


def pixels(path: Path) -> np.ndarray:
    data = load_data(RunFolder(path).read_config())
    return np.stack([data.images.image(row) for row in range(len(data.images))])


def test_paths_and_pictures_in_a_frame_train_on_the_same_pixels(
    scenes: Scenes, run: satl.api.TrainedRun, tmp_path: Path
) -> None:
    expected = pixels(run.path)
    frames: dict[str, Any] = {
        "pandas": scenes.frame.assign(image=scenes.pictures),
        "polars": scenes.table.to_frame("polars").with_columns(
            pl.Series("image", scenes.pictures, dtype=pl.Object)
        ),
        "absolute": scenes.frame.assign(image=[str(file) for file in scenes.files]),
    }
    for name, frame in frames.items():
        found = satl.train(frame, out=tmp_path / name, config=CONFIG, quiet=True)
        assert np.array_equal(pixels(found.path), expected), name
    kept = read_table(tmp_path / "pandas-data" / "labels.csv")
    assert kept.images[:2] == ("000000", "000001")
    assert np.array_equal(kept.cells, scenes.table.cells)

    named = scenes.frame.assign(filename=scenes.table.images, image=scenes.pictures)
    satl.train(named, out=tmp_path / "named", config=CONFIG, quiet=True)
    assert read_table(tmp_path / "named-data" / "labels.csv").images == scenes.table.images
    with pytest.raises(ImageError, match="the data holds the pictures themselves"):
        satl.train(named, images=scenes.folder, out=tmp_path / "other", config=CONFIG, quiet=True)


def as_file(picture: Image.Image) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


def test_a_hugging_face_data_set(scenes: Scenes, run: satl.api.TrainedRun, tmp_path: Path) -> None:
    columns = scenes.table.to_frame("arrow").drop_columns(["image"]).to_pydict()
    stored = [{"bytes": as_file(picture), "path": None} for picture in scenes.pictures]
    whole = datasets.Dataset.from_dict(
        {"image": stored, **columns},
        features=datasets.Features(
            {"image": datasets.Image(), **{name: datasets.Value("int8") for name in columns}}
        ),
    )
    found = satl.train(whole, out=tmp_path / "whole", config=CONFIG, quiet=True)
    assert np.array_equal(pixels(found.path), pixels(run.path))
    first = tmp_path / "whole-data" / "images" / "000000.png"
    assert first.read_bytes() == stored[0]["bytes"]  # as it was, not compressed again

    splits = datasets.DatasetDict({"train": whole.select(range(40)), "test": whole.select(range(40, 60))})
    found = satl.train(splits, out=tmp_path / "splits", config=CONFIG, quiet=True)
    assert read_table(tmp_path / "splits-data" / "labels.csv").splits == {"train": 40, "test": 20}

    named = [np.flatnonzero(row == 1).tolist() for row in scenes.table.cells]
    lists = datasets.Dataset.from_dict(
        {"image": stored, "labels": named},
        features=datasets.Features(
            {
                "image": datasets.Image(),
                "labels": datasets.Sequence(datasets.ClassLabel(names=list(scenes.table.classes))),
            }
        ),
    )
    quick = {"data.holdout": False, "data.holdout_fraction": None}
    satl.train(lists, out=tmp_path / "lists", config=CONFIG, set=quick, quiet=True)
    kept = read_table(tmp_path / "lists-data" / "labels.csv")
    assert kept.classes == scenes.table.classes
    assert np.array_equal(kept.cells, np.where(scenes.table.cells == 1, 1, 0))

    probabilities = satl.predict(run, whole, quiet=True).probabilities
    assert np.array_equal(probabilities, satl.predict(run, scenes.files, quiet=True).probabilities)


def test_a_streamed_data_set_is_refused(scenes: Scenes, tmp_path: Path) -> None:
    stream = datasets.Dataset.from_dict({"image": ["a"], "cat": [1]}).to_iterable_dataset()
    for data in (stream, datasets.IterableDatasetDict({"train": stream})):
        with pytest.raises(TableError, match="load it without streaming"):
            satl.train(data, images=scenes.folder, out=tmp_path / "run", config=CONFIG, quiet=True)
    assert list(tmp_path.iterdir()) == []


class Items(torch.utils.data.Dataset):
    """Tensors as torchvision makes them, and label vectors with NaN for unknown."""

    def __init__(self, scenes: Scenes) -> None:
        self.scenes, self.classes = scenes, list(scenes.table.classes)

    def __len__(self) -> int:
        return len(self.scenes.pictures)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        shown = torch.from_numpy(np.array(self.scenes.pictures[row])).permute(2, 0, 1) / 255
        cells = self.scenes.table.cells[row].astype(np.float32)
        return shown, torch.from_numpy(np.where(cells == 0, np.nan, cells == 1))


def test_a_torch_data_set(scenes: Scenes, run: satl.api.TrainedRun, tmp_path: Path) -> None:
    found = satl.train(Items(scenes), out=tmp_path / "run", config=CONFIG, quiet=True)
    kept = read_table(tmp_path / "run-data" / "labels.csv")
    assert kept.classes == scenes.table.classes
    assert np.array_equal(kept.cells, scenes.table.cells)
    assert np.array_equal(pixels(found.path), pixels(run.path))
    ours = satl.evaluate(run, Items(scenes), quiet=True)
    files = satl.evaluate(run, scenes.frame, images=scenes.folder, quiet=True)
    assert ours.summary == files.summary
    assert np.array_equal(
        satl.predict(run, Items(scenes), quiet=True).probabilities,
        satl.predict(run, scenes.files, quiet=True).probabilities,
    )


def test_predict_takes_pictures_however_they_come(
    scenes: Scenes, run: satl.api.TrainedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, expected = predict_files(run.path, scenes.files[:4])
    first = scenes.pictures[0]
    array = np.array(scenes.pictures[2])
    tensor = torch.from_numpy(np.array(scenes.pictures[3])).permute(2, 0, 1)
    mixed = satl.predict(run, [first, scenes.files[1], array, tensor], quiet=True)
    assert np.array_equal(mixed.probabilities, expected)
    assert mixed.images == ("000000", str(scenes.files[1]), "000002", "000003")
    assert list(mixed.frame.columns) == ["image", *scenes.table.classes]
    for alone in (first, scenes.files[0], str(scenes.files[0])):
        np.testing.assert_allclose(
            satl.predict(run, alone, quiet=True).probabilities, expected[:1], atol=1e-6
        )
    stack = np.stack([np.array(picture) for picture in scenes.pictures[:4]])
    assert np.array_equal(satl.predict(run, stack, quiet=True).probabilities, expected)
    half = (tensor / 255).bfloat16()
    assert np.array_equal(
        satl.predict(run, half, quiet=True).probabilities,
        satl.predict(run, half.float(), quiet=True).probabilities,
    )
    names = [str(file) for file in scenes.files[:4]]
    for several in (pd.Series(names), pl.Series(names), np.array(names), iter(scenes.files[:4])):
        assert np.array_equal(satl.predict(run, several, quiet=True).probabilities, expected)
    frame = scenes.frame.iloc[:4]
    assert np.array_equal(satl.predict(run, frame, images=scenes.folder, quiet=True).probabilities, expected)
    monkeypatch.chdir(scenes.folder)
    assert satl.predict(run, frame, quiet=True).images == scenes.table.images[:4]

    recogniser = satl.Recogniser.load(run)
    assert np.array_equal(recogniser.predict([first, scenes.files[1], array, tensor]), expected)
    np.testing.assert_allclose(recogniser.predict(first), expected[:1], atol=1e-6)
    assert np.array_equal(recogniser.predict(stack), expected)
    assert recogniser.predict([]).shape == (0, len(scenes.table.classes))


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ([np.full((8, 8, 3), -1.0)], ArrayError, "numbers from -1 to -1; give uint8"),
        ([np.zeros((3, 8, 8), dtype=np.uint8)], ArrayError, r"cannot have the shape \(3, 8, 8\)"),
        ([np.zeros((8, 8, 3), dtype=np.int64)], ArrayError, "a picture has int64 numbers"),
        ([3], ImageError, "a int is no picture"),
        (["no such file.jpg"], ImageError, "does not exist"),
        ([Image.new("F", (8, 8))], ImageError, "floating-point pixels"),
    ],
)
def test_what_is_no_picture_ends_in_a_sentence(
    run: satl.api.TrainedRun, given: list[Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        satl.predict(run, given, quiet=True)


def test_pictures_lie_upright_and_keep_their_colours(
    run: satl.api.TrainedRun, scenes: Scenes, tmp_path: Path
) -> None:
    recogniser = satl.Recogniser.load(run)
    turned = scenes.pictures[0].copy()
    turned.getexif()[0x0112] = 6
    turned.save(tmp_path / "turned.png", exif=turned.getexif())
    with Image.open(tmp_path / "turned.png") as opened:
        assert np.array_equal(recogniser.predict([opened]), recogniser.predict([tmp_path / "turned.png"]))
    for mode in ("L", "P", "RGBA", "LA", "CMYK"):
        other = scenes.pictures[0].convert(mode)
        other.save(tmp_path / f"{mode}.tif")
        found, expected = (recogniser.predict([one]) for one in (other, tmp_path / f"{mode}.tif"))
        assert np.array_equal(found, expected), mode


def test_ids_that_lead_elsewhere_are_refused(scenes: Scenes, tmp_path: Path) -> None:
    ids = ["../../outside.png", *scenes.table.images[1:]]
    frame = scenes.frame.assign(filename=ids, image=scenes.pictures)
    with pytest.raises(ImageError, match="leads out of its folder"):
        satl.train(frame, out=tmp_path / "a" / "b" / "run", config=CONFIG, quiet=True)
    assert not list(tmp_path.rglob("outside*"))
    assert not (tmp_path / "a" / "b" / "run-data").exists()
    some = [*scenes.pictures[:-1], None]
    with pytest.raises(TableError, match="row 60 has no picture in column 'image'"):
        satl.train(scenes.frame.assign(image=some), out=tmp_path / "run", config=CONFIG, quiet=True)


def test_a_missing_file_is_named(scenes: Scenes, tmp_path: Path) -> None:
    frame = pd.concat([scenes.frame, scenes.frame.iloc[:1].assign(image="gone.png")])
    with pytest.raises(ImageError, match=r"gone\.png"):
        satl.train(frame, images=scenes.folder, out=tmp_path / "run", config=CONFIG, quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_label_table_with_its_truth(scenes: Scenes, tmp_path: Path) -> None:
    truth = np.where(scenes.table.cells == 0, -1, scenes.table.cells)
    table = LabelTable(scenes.table.images, scenes.table.classes, scenes.table.cells, truth=truth)
    run = satl.train(table, images=scenes.folder, out=tmp_path / "run", config=CONFIG, quiet=True)
    assert RunFolder(run.path).read_config().data.truth is not None
