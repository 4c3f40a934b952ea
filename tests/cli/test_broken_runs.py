"""Runs whose weights are damaged or are no numbers, on the command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from satl.runs.checkpoint_folders import CHECKSUMS
from training.tiny import tiny_config, train

Satl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def spoil(run: Path, name: str, value: float) -> None:
    """Write a value into the best model, whole otherwise."""
    checkpoint = run / "checkpoints" / "best"
    weights = load_file(checkpoint / "learner.safetensors")
    found = next(tensor for key, tensor in weights.items() if key.endswith(name))
    found.view(-1)[0] = value
    save_file(weights, checkpoint / "learner.safetensors")
    (checkpoint / CHECKSUMS).unlink()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", ["conv1.weight", "bn1.running_var"])
@pytest.mark.parametrize("command", ["predict", "evaluate", "onnx", "complete"])
def test_weights_that_are_no_numbers_are_refused(
    command: str, name: str, value: float, run: Path, satl: Satl, pictures: Path, tmp_path: Path
) -> None:
    spoil(run, name, value)
    out = tmp_path / {"predict": "p.csv", "onnx": "m.onnx"}.get(command, "out")
    arguments = {
        "predict": ("predict", run, pictures, "-o", out),
        "evaluate": ("evaluate", run),
        "onnx": ("onnx", run, "-o", out),
        "complete": ("complete", run, "-o", out, "--review-only"),
    }[command]
    before = sorted(path.name for path in run.iterdir())
    code, _, err = satl(*arguments)
    assert code == 2, err
    assert "values of network.backbone" in err
    assert f"{name} are NaN or infinite" in err
    assert err.count("\n") == 1
    assert not out.exists()
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_training_stops_when_the_statistics_of_its_network_are_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from satl.errors import RunError
    from satl.training.trainer import Trainer

    fit = Trainer.fit

    def spoiled(self: Trainer) -> dict[str, object]:
        # Of a network in evaluation mode, so that nothing of it shows in the loss.
        self.learner.network.get_submodule("backbone").register_buffer("statistic", torch.tensor([torch.inf]))
        return fit(self)

    monkeypatch.setattr(Trainer, "fit", spoiled)
    with pytest.raises(RunError, match="weights are no longer finite numbers in epoch 1"):
        train(tmp_path / "run", tiny_config("training.epochs=1", "training.stage1_epochs=1"))
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


def test_a_damaged_model_is_told_in_one_line_and_the_next_one_is_used(
    run: Path, satl: Satl, pictures: Path, tmp_path: Path
) -> None:
    file = run / "checkpoints" / "best" / "learner.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    image = next(pictures.rglob("*.png"))
    code, _, err = satl("predict", run, image, "-o", tmp_path / "p.csv")
    assert code == 0
    assert err == (
        f"warning: {file}: is damaged: it does not have its checksum; {run}/checkpoints/last is used instead.\n"
    )


def test_a_second_training_of_a_run_is_refused_in_one_line(run: Path, satl: Satl) -> None:
    from satl.runs.run_lock import RunLock

    lock = RunLock(run)
    code, out, err = satl("train", "--resume", run)
    lock.release()
    assert (code, out) == (2, "")
    assert err == f"error: {run}: is being trained by this process; wait for it, or stop it there.\n"
    assert satl("train", "--resume", run)[0] == 0
