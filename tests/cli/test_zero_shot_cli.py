"""``satl zeroshot``: from features to a file of scores, and from there to a completed table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.tiny_tower import write_tower
from harness.tower_features import CLASSES, write_pictures
from satl.evaluation import evaluate_scores
from satl.features import FeatureFolder, read_features
from satl.scores import read_scores


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tower(tmp_path_factory.mktemp("tower") / "tower")


def test_from_features_to_a_completed_table_without_training(
    tower: str, tmp_path: Path, satl: Callable[..., tuple[int, str, str]]
) -> None:
    table, features = write_pictures(tmp_path, tower, images=400)
    out = tmp_path / "scores.npz"
    given = ("--features", str(features), "--text-model", tower, "--out", str(out))
    code, printed, problem = satl("zeroshot", str(table), *given)
    assert (code, problem) == (0, "")
    assert "400 images, 4 classes" in printed
    scores = read_scores(out)
    assert scores.classes == CLASSES
    assert scores.held_out is not None
    assert scores.held_out.all()
    present = np.load(tmp_path / "present.npy")
    assert evaluate_scores(scores.values, np.where(present, 1, -1), CLASSES).mAP > 0.9
    code, printed, problem = satl(
        "thresholds", "--scores", str(out), "--labels", str(table), "--rule", "semantic"
    )
    assert code == 0, problem
    code, printed, problem = satl(
        "complete",
        "--scores",
        str(out),
        "--labels",
        str(table),
        "--precision",
        "0.9",
        "--out",
        str(tmp_path / "done"),
    )
    assert code == 0, problem
    assert (tmp_path / "done" / "changes.csv").read_text().count("accept") > 50
    assert satl("zeroshot", str(table), *given)[0] == 2  # the file is there
    assert satl("zeroshot", str(table), *given, "--force", "--prompt", "a {}", "--prompt", "the {}")[0] == 0


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            ("--text-model", "resnet50"),
            "--text-model resnet50: is no tower of images and texts; name one, such as",
        ),
        (("--prompt", "a photo"), "the prompt 'a photo' has no {} for the name of the class"),
        (("--text-weights", "none.pt"), "--text-weights none.pt: does not exist; correct the path."),
        (("--out", "scores.csv"), "scores.csv"),
        (("--features", "none.npz"), "none.npz"),
    ],
)
def test_mistakes_are_said_in_a_sentence(
    changed: tuple[str, str],
    sentence: str,
    tower: str,
    tmp_path: Path,
    satl: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, features = write_pictures(tmp_path, tower, images=8)
    monkeypatch.chdir(tmp_path)
    given = {"--features": str(features), "--text-model": tower, "--out": "scores.npz"} | dict([changed])
    code, printed, problem = satl("zeroshot", str(table), *(word for pair in given.items() for word in pair))
    assert code == 2
    assert printed == ""
    assert sentence in problem
    assert len(problem.strip().splitlines()) == 1
    assert not (tmp_path / "scores.npz").exists()


def test_the_tower_is_the_one_that_the_features_name(
    tower: str, tmp_path: Path, satl: Callable[..., tuple[int, str, str]]
) -> None:
    table, features = write_pictures(tmp_path, tower, images=20)
    out = str(tmp_path / "scores.npz")
    code, _, problem = satl("zeroshot", str(table), "--features", str(features), "--out", out)
    assert code == 2
    assert (
        "features.npz: does not say which tower of images and texts made the features; name it with"
        in problem
    )
    read = read_features(features)
    folder = FeatureFolder.write(
        tmp_path / "features", read.ids, read.take(np.arange(20)), {"backbone": tower}
    )
    assert satl("zeroshot", str(table), "--features", str(folder.path), "--out", out)[0] == 0
    assert (
        satl(
            "zeroshot", str(table), "--features", str(features), "--text-model", tower, "--out", f"{out}.npz"
        )[0]
        == 0
    )
    np.testing.assert_array_equal(read_scores(Path(out)).values, read_scores(Path(f"{out}.npz")).values)
