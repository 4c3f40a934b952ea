"""Zero-shot scores of features, and features that they cannot be made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from harness.tiny_tower import write_tower
from harness.tower_features import CLASSES, write_pictures
from reference import scoring as reference
from satl.errors import ConfigError
from satl.features import FeatureFolder, read_features
from satl.models.class_prompts import TextSource
from satl.scoring.zero_shot import each_view, mean_views, zero_shot_scores


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tower(tmp_path_factory.mktemp("tower") / "tower")


def test_scores_are_those_of_the_formula_over_all_pictures(tower: str, tmp_path: Path) -> None:
    _, file = write_pictures(tmp_path, tower, images=40)
    features = read_features(file)
    found = zero_shot_scores(TextSource(tower), CLASSES, features)
    pictures = torch.from_numpy(features.take(np.arange(40))[:, 0])
    prompts = torch.from_numpy(TextSource(tower).load().class_vectors(CLASSES))
    wanted, _ = reference.text_scores(pictures, pictures, prompts)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-3, atol=1e-4)


def test_several_views_are_averaged(tower: str, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((9, 2, 12)).astype(np.float16)
    ids = [f"{number}.jpg" for number in range(9)]
    features = read_features(FeatureFolder.write(tmp_path / "two", ids, vectors, part_rows=4).path)
    rows = np.arange(9)
    np.testing.assert_allclose(
        torch.cat(list(mean_views(features, rows))), vectors.astype(np.float32).mean(1), rtol=1e-6
    )
    assert torch.cat(list(each_view(features, rows))).shape == (18, 12)
    mean = vectors.astype(np.float32).mean(1)
    np.savez(tmp_path / "one.npz", images=ids, features=mean)
    np.testing.assert_allclose(
        zero_shot_scores(TextSource(tower), CLASSES, features),
        zero_shot_scores(TextSource(tower), CLASSES, read_features(tmp_path / "one.npz")),
        atol=5e-3,
    )


def test_features_of_another_network_are_refused(tower: str, tmp_path: Path) -> None:
    ids, vectors = ["a", "b"], np.eye(2, 12)
    other = read_features(FeatureFolder.write(tmp_path / "a", ids, vectors, {"backbone": "resnet18"}).path)
    with pytest.raises(
        ConfigError, match=r"its prompts cannot be compared with features of resnet18 .*; give "
    ):
        zero_shot_scores(TextSource(tower), CLASSES, other)
    longer = read_features(FeatureFolder.write(tmp_path / "b", ids, np.eye(2, 13)).path)
    with pytest.raises(ConfigError, match=r"its prompts have 12 numbers, and the features of .* have 13"):
        zero_shot_scores(TextSource(tower), CLASSES, longer)
    made_by = {"backbone": tower, "weights_sha256": "0" * 64}
    weights = read_features(FeatureFolder.write(tmp_path / "c", ids, vectors, made_by).path)
    with pytest.raises(ConfigError, match="were made with other weights of the tower"):
        zero_shot_scores(TextSource(tower), CLASSES, weights)
    made_by["weights_sha256"] = TextSource(tower).load().digest() or ""
    right = read_features(FeatureFolder.write(tmp_path / "d", ids, vectors, made_by).path)
    assert zero_shot_scores(TextSource(tower), CLASSES, right).shape == (2, 4)
