from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.host_synchronisation import HostSynchronisation, forbid_host_synchronisation
from satl.methods import METHODS
from satl.runs.data import load_data
from satl.runs.run_folder import RunFolder
from satl.training.trainer import Trainer
from training.tiny import tiny_config

# SGD, because Adam counts its steps on the host where there is no accelerator, and reads that counter there.
EVERYTHING = (
    "training.optimiser=sgd",
    "training.ema=0.99",
    "training.clip_norm=1.0",
    "training.warmup_epochs=1",
    "images.jitter=0.2",
)


def make_trainer(folder: Path, *settings: str) -> Trainer:
    config = tiny_config(*settings)
    return Trainer(config, load_data(config), RunFolder(folder))


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("epoch", [0, 1, 2])  # stage 1, stage 1 with observation, stage 2
def test_a_step_never_waits_for_the_device(method: str, epoch: int, tmp_path: Path) -> None:
    semantic = METHODS[method].rule == "semantic"
    settings = (
        *EVERYTHING,
        f"method.name={method}",
        *(("method.thresholds.update_every=1",) if semantic else ()),
    )
    trainer = make_trainer(tmp_path, *settings)
    trainer.learner.train()
    before = {name: value.clone() for name, value in trainer.learner.state_dict().items()}
    batches = list(trainer.batches.epoch(epoch))
    with forbid_host_synchronisation():
        for step, batch in enumerate(batches[:2]):
            trainer.train_step(batch, epoch, step)
    after = trainer.learner.state_dict()
    weights = [name for name, _ in trainer.learner.named_parameters()]
    assert any(not torch.equal(before[name], after[name]) for name in weights)
    if epoch > 0 and semantic:
        first = f"rules.{METHODS[method].generators[0]}"
        moved = after[f"{first}.value"] < 1 if epoch == 2 else after[f"{first}.counts"].sum() > 0
        assert moved.any()
    assert trainer.tally.own_mean_losses()["total"] > 0


def test_a_waiting_step_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(tmp_path)
    update = trainer.tally.add

    def add(result: object, labels: torch.Tensor, truth: object) -> None:
        if (labels > 0).any():
            update(result, labels, truth)  # type: ignore[arg-type]

    monkeypatch.setattr(trainer.tally, "add", add)
    with pytest.raises(HostSynchronisation), forbid_host_synchronisation():
        trainer.train_step(next(trainer.batches.epoch(0)), 0, 0)


def test_frozen_stages_stay_as_they_are(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, "model.train_stages=[layer4]", "training.epochs=2", "training.ema=0.9")
    RunFolder.create(tmp_path / "run")
    trainer.folder = RunFolder(tmp_path / "run")
    before = {name: value.clone() for name, value in trainer.learner.state_dict().items()}
    trainer.fit()
    after = trainer.learner.state_dict()
    backbone = [name for name in before if ".backbone." in f".{name}"]
    frozen = [name for name in backbone if "layer4" not in name]
    trained = [name for name in backbone if "layer4" in name]
    assert len(frozen) > 10
    assert any(name.endswith("running_mean") for name in frozen)
    assert all(torch.equal(before[name], after[name]) for name in frozen)
    assert not any(torch.equal(before[name], after[name]) for name in trained)


def test_the_first_epoch_ramps_two_terms_up(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, "method.name=sst")
    trainer.train_step(next(trainer.batches.epoch(0)), 0, 0)
    losses = trainer.tally.own_mean_losses()
    assert losses["cooccurrence"] == losses["contrast"] == 0
    assert losses["classification"] > 0


def test_augmentation_depends_on_the_place_in_the_run_alone(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []
    trainer = make_trainer(tmp_path)
    inner = trainer.augment.forward

    def augment(*args: object, **kwargs: object) -> torch.Tensor:
        seen.append(inner(*args, **kwargs))  # type: ignore[arg-type]
        return seen[-1]

    trainer.augment.forward = augment  # type: ignore[method-assign]
    batch = next(trainer.batches.epoch(0))
    for epoch, step in ((0, 0), (0, 1), (1, 0), (0, 0)):
        torch.rand(3)  # whoever else draws numbers does not matter
        trainer.train_step(batch, epoch, step)
    assert torch.equal(seen[0], seen[3])
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
