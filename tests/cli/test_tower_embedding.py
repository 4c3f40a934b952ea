"""From pictures through the image side of a tower to scores by its text side, and to a run with prompts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from harness.tiny_tower import write_tower
from satl.features import read_features

Satl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tower, 24 pictures that need no resizing, and a table."""
    monkeypatch.chdir(tmp_path)
    write_tower(tmp_path / "tower")
    random = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    lines = ["image,dog,tree"]
    for number in range(24):
        pixels = random.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{number}.png")
        lines.append(f"{number}.png,{number % 2},{int(number % 3 == 0)}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def embed(satl: Satl, *more: str) -> tuple[int, str, str]:
    given = ("--images", "pictures", "--backbone", "open_clip:./tower", "-o", "features")
    return satl("embed", "labels.csv", *given, "--encoding", "complete", *more)


def test_features_are_those_of_the_tower_and_can_be_compared_with_its_prompts(
    place: Path, satl: Satl
) -> None:
    code, _, problem = embed(satl)
    assert code == 0, problem
    features = read_features(place / "features")
    assert (len(features), features.dim, features.made_by["backbone"]) == (24, 12, "open_clip:./tower")
    pixels = np.stack([np.asarray(Image.open(place / "pictures" / name)) for name in features.ids])
    images = (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
    with torch.no_grad():
        expected = open_clip.create_model(f"local-dir:{place / 'tower'}").eval().encode_image(images)
    np.testing.assert_allclose(features.take(np.arange(24))[:, 0], expected.numpy(), rtol=5e-3, atol=5e-3)
    code, _, problem = satl(
        "zeroshot", "labels.csv", "--features", "features", "--encoding", "complete", "-o", "z.npz"
    )
    assert code == 0, problem
    (place / "run.yaml").write_text(
        "data: {table: labels.csv, features: features, encoding: complete, proportion: 0.5}\n"
        "model: {text_model: 'open_clip:./tower'}\n"
        "method: {generators: {text: true}}\n"
        "training: {epochs: 2, stage1_epochs: 1, batch_size: 8, device: cpu}\n"
    )
    code, _, problem = satl("train", "run.yaml", "--out", "run")
    assert code == 0, problem


def test_other_weights_of_the_tower_are_refused(place: Path, satl: Satl) -> None:
    assert embed(satl)[0] == 0
    write_tower(place / "tower", seed=1)
    code, _, problem = satl(
        "zeroshot", "labels.csv", "--features", "features", "--encoding", "complete", "-o", "z.npz"
    )
    assert code == 2
    assert "the features of features were made with other weights of the tower" in problem


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--size", "48"), "--size 48: open_clip:./tower takes images of 32 pixels only; leave it out."),
        (("--pool", "token"), "--pool token: open_clip:./tower has no class token"),
        (("--weights", "none.pt"), "--weights none.pt: does not exist; correct the path."),
    ],
)
@pytest.mark.usefixtures("place")
def test_mistakes_are_said_in_a_sentence(more: tuple[str, str], sentence: str, satl: Satl) -> None:
    code, _, problem = embed(satl, *more)
    assert code == 2
    assert sentence in problem
    assert not Path("features").exists()
