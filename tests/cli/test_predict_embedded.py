"""``satl predict`` with pictures, for a run on features that ``satl embed`` made: they take the way of the features."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import satl
from satl.models import Backbone
from satl.scores import read_scores

Satl = Callable[..., tuple[int, str, str]]
TRAIN = 40
SETTINGS = {"epochs": 2, "stage1_epochs": 1, "batch_size": 8, "device": "cpu"}


def draw(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def place(satl: Satl, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training pictures, new ones, weights, features with two views, a finished run; do not change it."""
    folder = tmp_path_factory.mktemp("embedded")
    names = [f"{number:02d}.png" for number in range(TRAIN)]
    for number, name in enumerate(names):
        draw(folder / "photos" / name, number)
    for number in range(5):
        draw(folder / "new" / f"sub/{number}.png", 100 + number)
    rows = [f"{name},{number % 2},{(number // 2) % 2}" for number, name in enumerate(names)]
    (folder / "labels.csv").write_text("\n".join(["image,cat,dog", *rows]) + "\n")
    torch.manual_seed(0)
    Backbone("satl_tiny").save_weights(folder / "tiny.safetensors")
    torch.manual_seed(1)
    Backbone("satl_tiny").save_weights(folder / "other.safetensors")
    made = ("--backbone", "satl_tiny", "--weights", folder / "tiny.safetensors", "--views", 2, "--size", 40)
    for images, out in (("photos", "photos.features"), ("new", "new.features")):
        assert satl("embed", folder / images, "-o", folder / out, *made)[0] == 0
    config = {
        "data": {"table": "labels.csv", "features": "photos.features", "encoding": "complete"},
        "training": SETTINGS,
    }
    (folder / "run.yaml").write_text(json.dumps(config))
    code, _, err = satl("train", folder / "run.yaml", "-o", folder / "run", "--quiet")
    assert code == 0, err
    return folder


def probabilities(file: Path) -> dict[tuple[str, str], float]:
    with file.open() as stream:
        return {(row["image"], row["label"]): float(row["probability"]) for row in csv.DictReader(stream)}


def test_pictures_get_what_their_features_get(satl: Satl, place: Path, tmp_path: Path) -> None:
    weights = ("--weights", place / "tiny.safetensors")
    code, out, err = satl("predict", place / "run", place / "new", "-o", tmp_path / "a.csv", *weights)
    assert (code, err) == (0, "")
    assert out.startswith("Wrote 5 images x 2 classes")
    assert satl("predict", place / "run", place / "new.features", "-o", tmp_path / "b.csv")[0] == 0
    found, expected = probabilities(tmp_path / "a.csv"), probabilities(tmp_path / "b.csv")
    assert set(found) == {(f"sub/{number}.png", name) for number in range(5) for name in ("cat", "dog")}
    assert found == pytest.approx(expected, abs=1e-5)
    assert len(set(found.values())) > 5  # not all pictures are alike


def test_features_made_in_bfloat16_are_made_so_again(satl: Satl, place: Path, tmp_path: Path) -> None:
    weights = ("--weights", place / "tiny.safetensors")
    for images, out in (("photos", "photos.features"), ("new", "new.features")):
        made = ("--backbone", "satl_tiny", *weights, "--size", 40, "--bfloat16")
        assert satl("embed", place / images, "-o", tmp_path / out, *made)[0] == 0
    config = json.loads((place / "run.yaml").read_text())
    config["data"] |= {"table": str(place / "labels.csv"), "features": str(tmp_path / "photos.features")}
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    assert satl("train", tmp_path / "run.yaml", "-o", tmp_path / "run", "--quiet")[0] == 0
    files = {"a.csv": (place / "new", *weights), "b.csv": (tmp_path / "new.features",)}
    for out, given in files.items():
        assert satl("predict", tmp_path / "run", *given, "-o", tmp_path / out)[0] == 0
    found, expected = (probabilities(tmp_path / out) for out in files)
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_folder_of_predictions_lists_broken_pictures_and_goes_on(
    satl: Satl, place: Path, tmp_path: Path
) -> None:
    shutil.copytree(place / "new", tmp_path / "new")
    (tmp_path / "new" / "sub" / "1.png").write_bytes(b"no picture")
    command = (
        *("predict", place / "run", tmp_path / "new", "-o", tmp_path / "out"),
        *("--part-size", 2, "--weights", place / "tiny.safetensors"),
    )
    code, _, err = satl(*command)
    assert code == 2
    assert "1 of 5 images cannot be read" in err
    assert "sub/1.png" in err
    assert len(read_scores(tmp_path / "out").images) == 4
    shutil.copy(place / "new" / "sub" / "1.png", tmp_path / "new" / "sub" / "1.png")
    code, out, err = satl(*command)
    assert code == 0, err
    assert "3 of 5 images are there already" in err
    assert "5 images x 2 classes" in out
    assert satl("predict", place / "run", place / "new", "-o", tmp_path / "one.csv", *command[-2:])[0] == 0
    scores, expected = read_scores(tmp_path / "out"), probabilities(tmp_path / "one.csv")
    for row, image in enumerate(scores.images):
        assert scores.values[row, 0] == pytest.approx(expected[image, "cat"], abs=1e-5)


def test_other_weights_are_refused_before_anything_is_written(
    satl: Satl, place: Path, tmp_path: Path
) -> None:
    for out in ("out", "out.csv"):
        code, _, err = satl(
            *("predict", place / "run", place / "new", "-o", tmp_path / out),
            *("--weights", place / "other.safetensors"),
        )
        assert code == 2
        assert err == (
            f"error: --weights {place / 'other.safetensors'}: are other weights of satl_tiny than those that made the "
            "features of its training; give the file that they were made with: --weights FILE.\n"
        )
        assert not (tmp_path / out).exists()


def test_a_broken_picture_ends_a_single_file_in_a_sentence(satl: Satl, place: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    code, _, err = satl(
        *("predict", place / "run", tmp_path / "bad.png", "-o", tmp_path / "p.csv"),
        *("--weights", place / "tiny.safetensors"),
    )
    assert code == 2
    assert err.count("\n") == 1
    assert "bad.png" in err
    assert not err.endswith("..\n")
    assert not (tmp_path / "p.csv").exists()


def test_weights_belong_to_pictures_and_features_to_one_file(satl: Satl, place: Path, tmp_path: Path) -> None:
    weights = ("--weights", place / "tiny.safetensors")
    code, _, err = satl("predict", place / "run", place / "new.features", "-o", tmp_path / "p.csv", *weights)
    assert code == 2
    assert "is for images and a run on features; leave it out" in err
    code, _, err = satl(
        "predict", place / "run", place / "new.features", place / "new", "-o", tmp_path / "p.csv"
    )
    assert code == 2
    assert "is no file of features" in err
    table = ("pack", place / "labels.csv", "--images", place / "photos", "--encoding", "complete")
    assert satl(*table, "--size", 32, "-o", tmp_path / "photos.store")[0] == 0
    code, _, err = satl(
        "predict", place / "run", tmp_path / "photos.store", "-o", tmp_path / "p.csv", *weights
    )
    assert code == 2
    assert "give the folder that it was packed from" in err
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"made_by": {"backbone": "mine"}},
            "features that came without a word on the network that made them",
        ),
        ({"backbone": "hf-hub:somebody/model"}, "is not the name of a timm architecture"),
        ({"kwargs": {"checkpoint_path": "/etc/passwd"}}, "which does not describe the network"),
        ({"backbone": "open_clip:./folder"}, "is not the name of an architecture"),
        ({"size": "large"}, "does not say how its features were made"),
        ({"pool": "max"}, "does not say how its features were made"),
        ({"mean": [0.1, 0.1, 0.1]}, "with another mean than this version of timm has"),
    ],
)
def test_a_run_of_a_stranger_reaches_no_further(
    satl: Satl, place: Path, tmp_path: Path, change: dict[str, object], told: str
) -> None:
    shutil.copytree(place / "run", tmp_path / "run")
    file = tmp_path / "run" / "data.json"
    content = json.loads(file.read_text())
    facts = content["features"]
    facts["made_by"] = change["made_by"] if "made_by" in change else {**facts["made_by"], **change}
    file.write_text(json.dumps(content))
    code, _, err = satl(
        *("predict", tmp_path / "run", place / "new", "-o", tmp_path / "p.csv"),
        *("--weights", place / "tiny.safetensors"),
    )
    assert code == 2
    assert told in err
    assert err.count("\n") == 1
    assert not (tmp_path / "p.csv").exists()


def test_from_python_pictures_in_memory_and_features_are_told_apart(place: Path) -> None:
    files = [place / "new" / "sub" / f"{number}.png" for number in range(3)]
    options = {"weights": place / "tiny.safetensors", "quiet": True}
    expected = satl.predict(place / "run", place / "new.features", quiet=True).probabilities[:3]
    pictures = [Image.open(file) for file in files]
    for given in (files, pictures, [np.asarray(one) for one in pictures]):
        found = satl.predict(place / "run", given, **options)
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    vectors = np.load(place / "new.features" / "features-00000.npy")[:3]
    for given in (vectors, vectors.astype(np.float32)):
        found = satl.predict(place / "run", given, quiet=True)
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    with pytest.raises(satl.errors.ConfigError, match="is for images and a run on features"):
        satl.predict(place / "run", vectors, **options)
