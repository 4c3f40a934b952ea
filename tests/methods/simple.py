"""What the tests of small methods share: a tiny learner, a training that learns, a run that is cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from satl.evaluation import evaluate_scores
from satl.methods import METHODS, Learner, StepInputs, StepResult, configure
from satl.methods.method import resolved_settings
from satl.runs.data import load_data
from satl.training.build import build_learner
from training.tiny import KillAt, Killed, assert_same_run, metrics, resume, tiny_config, train

CLASSES = ("cat", "dog", "bird", "cow")


def make_learner(name: str, *settings: str) -> Learner:
    """A learner of four classes, in eval mode so that its logits can be computed a second time."""
    torch.manual_seed(0)
    labels = np.array([[1, -1, 0, 1], [1, 1, -1, 0]], dtype=np.int8)
    return build_learner(tiny_config(f"method.name={name}", *settings), CLASSES, labels).eval()


def default_settings(name: str) -> dict[str, Any]:
    """The parameters of a method as a configuration would say them."""
    return resolved_settings(METHODS[name], *configure(METHODS[name], {}))


def make_batch(images: int = 16, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Noise, labels with holes, and the index of each image."""
    noise = torch.Generator().manual_seed(seed)
    labels = torch.randint(-1, 2, (images, len(CLASSES)), generator=noise).to(torch.int8)
    return torch.randn(images, 3, 32, 32, generator=noise), labels, torch.arange(images) + 10


def step(learner: Learner, stage: int, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[StepResult, Tensor]:
    """One forward step and the logits behind it."""
    with torch.no_grad():
        logits = learner.network(batch[0]).logits
        return learner(StepInputs(*batch, stage=stage, ramp=1.0, observe=True)), logits


def spread(learner: Learner) -> None:
    """Let the logits of an untrained network differ, so that some cells are confident and some are not."""
    with torch.no_grad():
        learner.network.class_head.classifier.weight.mul_(60.0)


def assert_learns(folder: Path, name: str, *settings: str) -> dict[str, Any]:
    """Train on scenes: the loss falls and the ranking is better than chance; return the last row of metrics."""
    config = tiny_config(
        *(f"method.name={name}", "data.scenes.train=160", "data.scenes.val=80", "data.proportion=0.5"),
        *("training.epochs=5", "training.stage1_epochs=3", "training.lr=0.01", "model.prior_bias=true"),
        *("model.backbone=satl_tiny", "model.backbone_kwargs={widths: [16, 32]}"),
        *("model.feature_dim=32", "model.attention_dim=16", *settings),
    )
    trainer = train(folder, config)
    rows = metrics(folder)
    assert rows[2]["losses"]["total"] < 0.9 * rows[0]["losses"]["total"]
    cells = trainer.data.table.cells[trainer.data.rows("val")]
    noise = np.random.default_rng(0)
    chance = evaluate_scores(noise.random(cells.shape), cells, trainer.data.table.classes).mAP
    assert trainer.best["mAP"] > chance + 0.08
    return rows[-1]


def assert_resumes(folder: Path, name: str, *settings: str) -> None:
    """A run that is killed within an epoch of stage 2 ends like one left alone."""
    config = tiny_config(
        *(f"method.name={name}", "training.checkpoint_steps=1", "training.epochs=3"),
        *("training.stage1_epochs=1", *settings),
    )
    data = load_data(config)
    train(folder / "alone", config, data=data)
    with pytest.raises(Killed):
        train(folder / "cut", config, KillAt(epoch=2, step=2), data)
    resume(folder / "cut")
    assert_same_run(folder / "alone", folder / "cut")
