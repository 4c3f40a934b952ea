"""The device that ``training.device`` names."""

from __future__ import annotations

import torch

from satl.errors import ConfigError


def is_there(device: str) -> bool:
    """Whether this machine has a device of this name, such as ``cuda:1``.

    >>> is_there("cpu")
    True
    """
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return True
    if kind == "mps":
        return torch.backends.mps.is_available()
    return torch.cuda.is_available() and int(number or 0) < torch.cuda.device_count()


def require_device(setting: str) -> None:
    """Refuse a device that this machine does not have; ``auto`` is always one that it has."""
    if setting != "auto" and not is_there(setting):
        cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise ConfigError(
            f"this machine has no {setting} ({cards} CUDA device{'s' * (cards != 1)})",
            where="training.device",
            remedy="use auto, which takes a GPU if there is one",
        )


def device_for_use(setting: str) -> torch.device:
    """Return the device to use a trained model on: the one it was trained on if it is there, else what there is.

    >>> device_for_use("cpu")
    device(type='cpu')
    """
    if setting != "auto" and is_there(setting):
        return torch.device(setting)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
