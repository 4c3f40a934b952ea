"""A survey shows each class a fair choice of its known positives, and leaves no trace in the run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from satl.runs.data import load_data
from satl.runs.run_folder import RunFolder
from satl.scoring import Survey
from satl.training.checkpoints import random_states
from satl.training.survey import plan_survey
from satl.training.trainer import Trainer
from training.tiny import assert_same, tiny_config


def random_cells(seed: int, images: int = 60, classes: int = 5) -> np.ndarray[Any, np.dtype[np.int8]]:
    cells = np.random.RandomState(seed).randint(-1, 2, (images, classes)).astype(np.int8)
    cells[:, 2] = np.minimum(cells[:, 2], 0)  # a class without known positives
    cells[3:, 4] = 0
    return cells


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_plan_has_known_positives_only_and_no_slot_twice(size: int) -> None:
    cells, rows = random_cells(0), np.arange(60) * 3 + 5
    plan = plan_survey(cells, rows, size, seed=0, epoch=2)
    for c in range(5):
        positives = rows[cells[:, c] > 0]
        chosen = plan.rows[plan.classes == c]
        assert set(chosen) <= set(positives)
        assert len(set(chosen)) == len(chosen) == min(size, len(positives))
        assert sorted(plan.slots[plan.classes == c]) == list(range(len(chosen)))
    assert (np.diff(plan.rows) >= 0).all()
    assert not (plan.classes == 2).any()


def test_the_choice_is_fair_and_depends_on_seed_and_epoch_alone() -> None:
    cells, rows = np.ones((40, 1), dtype=np.int8), np.arange(40)
    counts = np.zeros(40, dtype=int)
    for epoch in range(400):
        counts[plan_survey(cells, rows, 10, 0, epoch).rows] += 1
    assert counts.min() > 60  # 100 expected
    assert counts.max() < 140
    state = (random.getstate(), np.random.get_state()[1].tolist())
    first, again, other = (plan_survey(random_cells(1), np.arange(60), 4, seed, 3) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert first.rows.tolist() != other.rows.tolist()
    assert state == (random.getstate(), np.random.get_state()[1].tolist())


def make_trainer(folder: Path, *settings: str) -> Trainer:
    config = tiny_config("method.name=hst", *settings)
    return Trainer(config, load_data(config), RunFolder(folder))


def surveyed(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, epoch: int = 2) -> list[Survey]:
    seen: list[Survey] = []
    monkeypatch.setattr(trainer.learner, "study", lambda survey, done, seed: seen.append(survey))
    trainer._survey(epoch)
    return seen


@pytest.mark.parametrize("size", [3, 512])
@pytest.mark.parametrize("batch_size", [5, 16])
def test_features_are_those_of_the_network_on_unaugmented_training_images(
    size: int, batch_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(
        tmp_path, f"method.generators.prototype.samples={size}", f"training.batch_size={batch_size}"
    )
    trainer.learner.train()
    (survey,) = surveyed(trainer, monkeypatch)
    data, network = trainer.data, trainer.learner.network.eval()
    train = set(data.rows("train").tolist())
    with torch.no_grad():
        pixels = data.source.gather(torch.arange(len(data.source)))  # type: ignore[attr-defined]
        every = network.class_features(trainer.transform(pixels))
    for c in range(data.table.num_classes):
        known = [row for row in np.flatnonzero(data.table.cells[:, c] > 0).tolist() if row in train]
        images = survey.images[c][survey.images[c] >= 0].tolist()
        assert len(images) == min(size, len(known))
        assert set(images) <= set(known)
        assert (survey.images[c, len(images) :] == -1).all()
        torch.testing.assert_close(survey.features[c, : len(images)], every[images, c], rtol=1e-4, atol=1e-5)
        assert not survey.features[c, len(images) :].any()


def test_a_survey_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(tmp_path, "model.train_stages=[layer4]", "training.ema=0.9")
    trainer.learner.train()
    modes = [module.training for module in trainer.learner.modules()]
    before = {name: value.clone() for name, value in trainer.learner.state_dict().items()}
    states, order = random_states(), [rows.tolist() for rows in trainer.batches.rows(2)]
    assert len(surveyed(trainer, monkeypatch)) == 1
    assert modes == [module.training for module in trainer.learner.modules()]
    assert True in modes
    assert False in modes  # frozen stages
    assert_same(random_states(), states)
    assert_same(dict(trainer.learner.state_dict()), before)
    assert order == [rows.tolist() for rows in trainer.batches.rows(2)]


def test_only_the_class_features_are_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(tmp_path)

    def refuse(*arguments: object) -> None:
        raise AssertionError("the graph, the heads and the augmentation have nothing to do with a survey.")

    for part in (
        trainer.learner.network,
        trainer.learner.network.propagation,
        trainer.learner.network.class_head,
        trainer.learner.network.pair_head,
        trainer.augment,
    ):
        monkeypatch.setattr(part, "forward", refuse)
    assert len(surveyed(trainer, monkeypatch)) == 1


def test_surveys_come_with_the_epochs_of_stage_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(tmp_path, "method.generators.prototype.every=2", "training.epochs=8")
    assert [len(surveyed(trainer, monkeypatch, epoch)) for epoch in range(2, 8)] == [1, 0, 1, 0, 1, 0]
    config = tiny_config("method.name=sst")
    bank = Trainer(config, load_data(config), RunFolder(tmp_path))
    assert surveyed(bank, monkeypatch) == []


def test_without_known_positives_a_survey_is_empty(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.data.table.cells.setflags(write=True)
    before = trainer.data.table.cells.copy()
    try:
        trainer.data.table.cells[:] = np.minimum(before, 0)
        trainer._survey(2)
    finally:
        trainer.data.table.cells[:] = before
    assert not trainer.learner.generators["prototype"].members.any()
