"""The environment of a run: versions, device and time."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from satl.methods.plugins import plugin_versions

_PACKAGES = (
    "satl",
    "torch",
    "torchvision",
    "timm",
    "accelerate",
    "numpy",
    "pyarrow",
    "pillow",
    "safetensors",
)


def missing_packages(facts: Mapping[str, Any]) -> list[str]:
    """Return the packages, with their versions, that had methods for a run and are not installed here.

    >>> missing_packages({"packages": {"torch": "2.8.0", "no-such-method": "0.1"}})
    ['no-such-method 0.1']
    """
    here = plugin_versions()
    return [
        f"{name} {found}"
        for name, found in facts["packages"].items()
        if name not in _PACKAGES and name not in here
    ]


def environment_facts(device: torch.device, processes: int) -> dict[str, Any]:
    """Return versions, device and time, as plain data."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed as a package"
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": versions | plugin_versions(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processes": processes,
        "threads": torch.get_num_threads(),
    }
