"""SATL+: a teacher's probability as a generator; what it is as a target is in test_mixing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from satl.scoring import GeneratorInputs, TeacherGenerator
from training.tiny import metrics, tiny_config, train


def test_the_teacher_scores_every_cell_and_is_required() -> None:
    labels, images = torch.tensor([[1, 0]]), torch.tensor([0])
    features = torch.zeros(1, 2, 1)
    teacher = torch.tensor([[0.25, 0.75]])
    scores = TeacherGenerator()(GeneratorInputs(features, None, labels, images, None, teacher))
    assert torch.equal(scores.values, teacher)
    assert bool(scores.informative.all())
    with pytest.raises(ValueError, match="needs the probabilities of a teacher"):
        TeacherGenerator()(GeneratorInputs(features, None, labels, images))


def test_it_learns(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config("method.name=satl+", "training.epochs=8"))
    rows = metrics(tmp_path / "run")
    assert rows[-1]["losses"]["classification"] < 0.8 * rows[0]["losses"]["classification"]
    assert rows[-1]["val"]["mAP"] > 0.25  # a random order scores about 0.18
    assert set(rows[-1]["thresholds"]) == {"cross", "teacher"}
    assert rows[-1]["losses"]["mixed"] > 0
