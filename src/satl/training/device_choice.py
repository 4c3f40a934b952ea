"""The processes of a training, the device of this one, and what of the data lies on it."""

from __future__ import annotations

from dataclasses import replace

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, patch_environment

from satl.distributed import world_size
from satl.errors import ConfigError
from satl.features import FeatureTable
from satl.images.resident import cached_on_device, default_limit
from satl.runs.data import RunData
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


def with_images_on_device(data: RunData, limit_gb: float | None, device: torch.device) -> RunData:
    """Return the same data, with its images or features on the GPU where there is one and they fit.

    Args:
        data: of the run.
        limit_gb: most memory of the GPU for them; None: what is left there, within reason.
        device: of this process.
    """
    if device.type != "cuda":
        return data
    most = default_limit(device) if limit_gb is None else int(limit_gb * 2**30)
    if isinstance(data.source, FeatureTable):
        fits = data.source.num_bytes <= most
        return replace(data, source=data.source.on_device(device)) if fits else data
    return replace(data, source=cached_on_device(data.source, device, most))
