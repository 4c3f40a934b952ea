"""Checkpoints: weights as safetensors, the rest as plain tensors that are loaded without running code."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from satl.runs.checkpoint_folders import DamagedError
from satl.training.sharding import like, whole

LEARNER = "learner.safetensors"
AVERAGE = "average.safetensors"
STATE = "training.pt"


def module_content(module: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers of a module, whole; every process must call it."""
    content: dict[str, Tensor] = whole(module.state_dict())
    return content


def save_module(content: dict[str, Tensor], path: Path) -> None:
    """Write what :func:`module_content` returned.

    Raises:
        OSError: there is no room for it, or the place is at fault.
    """
    try:
        save_file({name: value.contiguous() for name, value in content.items()}, path)
    except SafetensorError as error:
        raise OSError(None, str(error), str(path)) from error


def load_module(module: nn.Module, path: Path) -> None:
    """Read all parameters and buffers of a module; every name and shape must fit.

    Raises:
        DamagedError: they do not fit, or the file cannot be read.
    """
    try:
        current = module.state_dict()
        content = {
            name: like(value, current[name]) if name in current else value
            for name, value in load_file(path).items()
        }
        module.load_state_dict(content)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise DamagedError.of(path, "does not fit the run's configuration or is damaged") from error


def save_state(state: dict[str, Any], path: Path) -> None:
    """Write optimiser, schedule, position and random states.

    Raises:
        OSError: there is no room for it, or the place is at fault.
    """
    try:
        with path.open("wb") as file:
            torch.save(state, file)
    except RuntimeError as error:
        # On a full disk torch complains that its archive cannot be closed; why it cannot is what happened before.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def load_state(path: Path) -> dict[str, Any]:
    """Read what :func:`save_state` wrote.

    Raises:
        DamagedError: the file cannot be read.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise DamagedError.of(path, "cannot be read") from error
    if not isinstance(state, dict):
        raise DamagedError.of(path, "does not hold the state of a training")
    return state


def random_states() -> dict[str, Any]:
    """Return the state of every global random generator as plain data."""
    version, keys, gauss = random.getstate()
    name, array, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": [version, list(keys), gauss],
        "numpy": [name, torch.from_numpy(np.asarray(array).astype(np.int64)), position, has_gauss, cached],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Set every global random generator to a state of :func:`random_states`."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    version, keys, gauss = states["python"]
    random.setstate((version, tuple(keys), gauss))
    name, array, position, has_gauss, cached = states["numpy"]
    np.random.set_state((name, array.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
