"""Training in float16: the loss is scaled, a step that overflows is skipped and told as nothing, resuming is exact."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from harness.host_synchronisation import forbid_host_synchronisation
from satl.errors import ConfigError, RunError
from satl.methods import StepResult
from satl.runs.data import load_data
from satl.runs.run_folder import RunFolder
from satl.training.tally import EpochTally
from satl.training.trainer import Trainer
from training.tiny import KillAt, Killed, assert_same_run, metrics, resume, tiny_config, train

HALF = "training.precision=fp16"


def make_trainer(folder: Path, *settings: str) -> Trainer:
    config = tiny_config(HALF, *settings)
    return Trainer(config, load_data(config), RunFolder(folder))


def one_step(trainer: Trainer, epoch: int = 0) -> None:
    trainer.train_step(next(iter(trainer.batches.epoch(epoch))), epoch, 0)


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in trainer.learner.named_parameters()}


def test_it_learns_what_float32_learns(tmp_path: Path) -> None:
    settings = ("training.epochs=2", "training.stage1_epochs=1", "training.clip_norm=1.0")
    half, full = (
        metrics(train(tmp_path / name, tiny_config(*settings, f"training.precision={name}")).folder.path)
        for name in ("fp16", "fp32")
    )
    for one, other in zip(half, full, strict=True):
        assert one["losses"] != other["losses"]
        assert one["losses"]["total"] == pytest.approx(other["losses"]["total"], rel=0.02)


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_a_step_computes_in_float16_and_moves_float32_weights(tmp_path: Path, optimiser: str) -> None:
    trainer = make_trainer(tmp_path, f"training.optimiser={optimiser}", "training.accumulate=2")
    kinds: set[torch.dtype] = set()
    layer = next(module for module in trainer.learner.modules() if isinstance(module, torch.nn.Conv2d))
    layer.register_forward_hook(lambda module, given, found: kinds.add(found.dtype))
    trainer.learner.train()
    before = weights(trainer)
    one_step(trainer)
    assert kinds == {torch.float16}
    after = weights(trainer)
    assert {value.dtype for value in after.values()} == {torch.float32}
    assert any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_step_never_waits_for_the_device(tmp_path: Path, epoch: int) -> None:
    trainer = make_trainer(tmp_path, "training.optimiser=sgd", "training.clip_norm=1.0", "training.ema=0.99")
    trainer.learner.train()
    batches = list(trainer.batches.epoch(epoch))
    with forbid_host_synchronisation():
        for step, batch in enumerate(batches[:2]):
            trainer.train_step(batch, epoch, step)


@pytest.mark.parametrize("clip", ["null", "1.0"])
def test_a_step_that_overflows_moves_nothing_and_halves_the_scale(tmp_path: Path, clip: str) -> None:
    trainer = make_trainer(tmp_path, f"training.clip_norm={clip}")
    scaler = trainer.step.scaler
    assert scaler is not None
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**100})
    trainer.learner.train()
    before = weights(trainer)
    one_step(trainer)
    after = weights(trainer)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert scaler.get_scale() == 2.0**99
    assert math.isfinite(trainer.tally.mean_losses()["total"])


def test_a_run_with_skipped_steps_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scaler = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device: scaler(device, init_scale=2.0**90))
    trainer = train(tmp_path / "run", tiny_config(HALF, "training.epochs=10"))
    assert len(metrics(tmp_path / "run")) == 10
    assert 1.0 < trainer.step.scaler.get_scale() < 2.0**80
    state = torch.load(tmp_path / "run" / "checkpoints" / "last" / "training.pt", weights_only=True)
    assert state["scaler"]["scale"] == trainer.step.scaler.get_scale()


def test_a_loss_that_overflows_now_and_then_is_left_out_of_the_means() -> None:
    def result(value: float) -> StepResult:
        return StepResult(torch.tensor(value), {"known": torch.tensor(value)}, {}, None)

    tally = EpochTally((), 3, torch.device("cpu"))
    labels = torch.zeros(2, 3, dtype=torch.int8)
    for value in (math.nan, 1.0, math.inf, 3.0):
        tally.add(result(value), labels, None, may_overflow=True)
    assert tally.mean_losses() == tally.own_mean_losses() == {"total": 2.0, "known": 2.0}
    assert tally.first_losses()["total"] == 0.0
    again = EpochTally((), 3, torch.device("cpu"))
    again.load_state_dict(tally.state_dict())
    assert again.mean_losses()["total"] == 2.0
    tally.reset()
    tally.add(result(math.nan), labels, None, may_overflow=True)
    assert math.isnan(tally.mean_losses()["total"])
    assert math.isnan(tally.own_mean_losses()["total"])


def test_a_run_whose_weights_are_no_numbers_has_diverged(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the weights are no longer finite numbers in epoch 1"):
        train(tmp_path / "run", tiny_config(HALF, "training.lr=1e30", "training.optimiser=sgd"))


def test_a_resumed_run_ends_to_the_bit_as_one_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaler = torch.amp.GradScaler
    # The scale moves all the time: down at the start, and up again every three steps.
    how = {"init_scale": 2.0**40, "growth_interval": 3}
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device: scaler(device, **how))
    config = tiny_config(HALF, "training.checkpoint_steps=1", "training.clip_norm=1.0")
    data = load_data(config)
    train(tmp_path / "alone", config, data=data)
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=2, step=2), data)
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")


def test_what_it_does_not_go_with_is_refused(tmp_path: Path) -> None:
    for key in ("shard", "cuda_graphs"):
        with pytest.raises(ConfigError, match="fp16 goes neither with shard nor with cuda_graphs"):
            tiny_config(HALF, f"training.{key}=true")
