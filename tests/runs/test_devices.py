"""``training.device``: names of devices, and what is refused."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from satl.errors import ConfigError
from satl.runs.devices import device_for_use, is_there, require_device
from satl.runs.training_config import TrainingConfig


@pytest.mark.parametrize("device", ["auto", "cpu", "mps", "cuda", "cuda:0", "cuda:11"])
def test_names_of_devices(device: str) -> None:
    assert TrainingConfig(device=device).device == device


@pytest.mark.parametrize(
    "device", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "CUDA", "cuda:1 ", "cuda:99999"]
)
def test_other_names_are_refused(device: str) -> None:
    with pytest.raises(ValidationError, match="must be auto, cpu, mps, cuda or the number of a card"):
        TrainingConfig(device=device)


def machine(monkeypatch: pytest.MonkeyPatch, cards: int, mps: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cards > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cards=2, mps=False)
    assert [is_there(name) for name in ("cpu", "cuda", "cuda:1", "cuda:2", "mps")] == [True] * 3 + [False] * 2
    require_device("auto")
    require_device("cuda:1")
    with pytest.raises(
        ConfigError, match=r"training\.device: this machine has no cuda:2 \(2 CUDA devices\); use auto"
    ):
        require_device("cuda:2")
    assert device_for_use("cuda:1") == torch.device("cuda:1")
    # A run of another machine is used on what there is.
    assert device_for_use("cuda:2") == torch.device("cuda")
    assert device_for_use("mps") == torch.device("cuda")
    assert device_for_use("cpu") == torch.device("cpu")
    machine(monkeypatch, cards=0, mps=True)
    assert device_for_use("mps") == torch.device("mps")
    assert device_for_use("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match="this machine has no cuda "):
        require_device("cuda")
