"""Runs on features with prompts about the classes: what they learn, what they keep, and what they refuse."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.tiny_tower import write_tower
from harness.tower_features import write_pictures
from reference import scoring as reference
from satl.errors import ConfigError
from satl.features import FeatureTable
from satl.inference.recogniser import Recogniser
from satl.models.class_prompts import TextSource
from satl.runs.config import RunConfig
from satl.runs.data import load_data
from satl.runs.reading import apply_overrides, make_config
from satl.scoring import TextGenerator
from training.tiny import KillAt, Killed, assert_same_run, metrics, resume, tiny_config, train


@pytest.fixture
def tower(tmp_path: Path) -> str:
    return write_tower(tmp_path / "tower")


@pytest.fixture
def config(tmp_path: Path, tower: str) -> RunConfig:
    return config_of(tmp_path, tower)


def config_of(folder: Path, tower: str, *settings: str) -> RunConfig:
    table, features = write_pictures(folder, tower, images=200, known=0.4)
    content: dict[str, Any] = {
        "data": {"table": str(table), "features": str(features), "validation_labels": "known"},
        "model": {"text_model": tower},
        "method": {"generators": {"text": True}},
        "training": {"epochs": 3, "stage1_epochs": 1, "batch_size": 45, "lr": 0.05, "device": "cpu"},
    }
    return make_config(apply_overrides(content, settings), "prompts")


def test_a_run_learns_thresholds_for_prompts_and_fills_cells_by_them(
    config: RunConfig, tmp_path: Path
) -> None:
    trainer = train(tmp_path / "run", config)
    last = metrics(tmp_path / "run")[-1]
    assert set(last["thresholds"]) == {"teacher", "text"}
    assert all(0 < value < 1 for value in last["thresholds"]["text"])
    assert last["pseudo_labels"]["text"]["emitted"] > 20
    assert (tmp_path / "run" / "thresholds.csv").read_text().count(",text,") == 4
    source, rows = trainer.data.source, trainer.data.rows("train")
    assert isinstance(source, FeatureTable)
    found = Recogniser.load(tmp_path / "run").scores(trainer.data, rows)["text"]
    import torch

    pictures = torch.from_numpy(source.take(rows)[:, 0])
    assert config.model.text_source is not None
    prompts = torch.from_numpy(config.model.text_source.load().class_vectors(trainer.data.table.classes))
    wanted, _ = reference.text_scores(pictures, pictures, prompts)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-3, atol=1e-3)
    present = np.load(tmp_path / "present.npy")[rows]
    assert found[present].mean() > found[~present].mean() + 0.3


def test_neither_the_tower_nor_its_library_is_needed_again(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "whole", config)
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=1, step=1))
    shutil.rmtree(tmp_path / "tower")
    monkeypatch.setitem(sys.modules, "open_clip", None)
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    generator = Recogniser.load(tmp_path / "whole").learner.generators["text"]
    assert isinstance(generator, TextGenerator)
    assert generator.prompts.shape == (4, 12)


def test_prompts_are_those_of_the_configuration(tmp_path: Path, tower: str) -> None:
    prompts = '["a {}", "the {} in a street"]'
    config = config_of(tmp_path, tower, f"model.text_prompts={prompts}", "training.epochs=1")
    trainer = train(tmp_path / "run", config)
    generator = trainer.learner.generators["text"]
    expected = (
        TextSource(tower, prompts=("a {}", "the {} in a street"))
        .load()
        .class_vectors(trainer.data.table.classes)
    )
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(generator.prompts, expected, rtol=1e-5)


def test_features_of_another_network_are_refused_before_there_is_a_run(tmp_path: Path, tower: str) -> None:
    config = config_of(tmp_path, tower)
    ids = [f"{number:04}.jpg" for number in range(200)]
    np.savez(tmp_path / "features.npz", images=ids, features=np.random.default_rng(0).random((200, 7)))
    with pytest.raises(ConfigError, match=r"its prompts have 12 numbers, and the features of .* have 7"):
        train(tmp_path / "run", config, data=load_data(config))
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_there_name_the_key(tmp_path: Path, tower: str) -> None:
    config = config_of(tmp_path, tower, "model.text_weights=nowhere.pt")
    with pytest.raises(ConfigError, match=r"^model\.text_weights='.*nowhere\.pt': does not exist"):
        train(tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path, tower: str) -> None:
    with pytest.raises(
        ConfigError, match=r"generators\.text compares features with prompts, and this run reads ima"
    ):
        tiny_config("method.generators.text=true")
    with pytest.raises(
        ConfigError, match=r"generators\.text needs model\.text_model, the tower that made the feat"
    ):
        config_of(tmp_path, tower, "model.text_model=null")


def test_a_run_with_prompts_is_another_run(config: RunConfig, tmp_path: Path, tower: str) -> None:
    assert config.fixed()["method.generators.text"] == "true"
    assert "method.generators.text" not in config_of(tmp_path, tower, "method.generators.text=false").fixed()
