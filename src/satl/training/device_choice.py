"""The processes of a training, and the device of this one."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, patch_environment

from satl.distributed import world_size
from satl.errors import ConfigError
from satl.runs.devices import require_device


def choose_accelerator(device: str) -> Accelerator:
    """Return accelerate's view of the processes, on the device that a configuration names."""
    require_device(device)
    named = device.startswith(("cuda:", "mps"))
    if named and world_size() > 1:
        raise ConfigError(
            f"{device} is one device, but {world_size()} processes train together",
            where="training.device",
            remedy="use auto, which gives each process its own card",
        )
    # Another run of the same process may have chosen another device.
    if AcceleratorState._shared_state and world_size() == 1:
        AcceleratorState._reset_state(reset_partial_state=True)
    # Histograms differ between processes until an update adds them up, so buffers are not broadcast.
    handlers = [DistributedDataParallelKwargs(broadcast_buffers=False)]
    if not named:
        return Accelerator(cpu=device == "cpu", kwargs_handlers=handlers)
    if device != "mps":
        torch.cuda.set_device(device)  # kernels and graphs go to the current card
    with patch_environment(ACCELERATE_TORCH_DEVICE=device):
        return Accelerator(kwargs_handlers=handlers)
