"""SATL+: a teacher's probability as a generator; what it is as a target is in test_mixing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from satl.methods import StepInputs
from satl.scoring import GeneratorInputs, TeacherGenerator
from satl.training.build import build_learner
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


@pytest.mark.parametrize("agreement", [0.0, 0.3])
def test_other_generators_need_the_agreement_of_the_teacher(agreement: float) -> None:
    torch.manual_seed(0)
    config = tiny_config("method.name=satl+", f"method.teacher.agreement={agreement}")
    labels = torch.tensor([[1, 0, 0, -1], [0, 1, 0, 0], [1, 0, -1, 0], [0, 0, 1, 1]])
    learner = build_learner(config, ("a", "b", "c", "d"), labels.numpy().astype("int8"))
    pixels, teacher = torch.rand(4, 3, 32, 32), torch.linspace(0, 1, 16).view(4, 4)
    inputs = StepInputs(pixels, labels, torch.arange(4), stage=2, observe=False, teacher=teacher)
    learner.remember(learner(inputs).generator_inputs)  # a bank to compare with
    learner.rules["cross"].value.fill_(-0.5)
    learner.rules["teacher"].value.fill_(0.1)
    pseudo = learner(inputs).pseudo
    emitted = (pseudo["cross"] > 0) & (labels == 0)
    assert emitted.any()
    assert (emitted & (teacher < 0.3)).any() == (agreement == 0)
    assert ((pseudo["teacher"] > 0) == ((labels > 0) | (labels == 0) & (teacher > 0.1))).all(), "asks no one"
