"""What this machine has for satl: versions, devices, optional packages, stored weights, the current folder."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from satl.files import try_lock

PACKAGES = (
    *(
        "satl",
        "torch",
        "torchvision",
        "timm",
        "accelerate",
        "numpy",
        "scipy",
        "pyarrow",
        "pillow",
        "pydantic",
    ),
    *("safetensors", "matplotlib", "typer", "rich"),
)
"""Packages that satl cannot do without."""
LEAST_FREE = 1 << 30
"""Bytes of free disk below which a run may not end."""


@dataclass(frozen=True)
class Extra:
    """Optional packages that are installed together: the modules they bring, and what they are for."""

    modules: tuple[str, ...]
    purpose: str


EXTRAS: Mapping[str, Extra] = {
    "web": Extra(("fastapi", "uvicorn"), "the page for reviewing suggestions"),
    "onnx": Extra(("onnx", "onnxruntime", "onnxscript"), "a model as one ONNX file"),
    "clip": Extra(("open_clip",), "class names as prompts"),
    "text": Extra(("sentence_transformers",), "class vectors from a model of sentences"),
    "excel": Extra(("openpyxl",), "label tables in .xlsx files"),
    "frames": Extra(("narwhals", "pandas", "polars"), "tables from and to pandas and polars"),
    "tensorboard": Extra(("tensorboard",), "curves of a training"),
    "wandb": Extra(("wandb",), "a training in Weights & Biases"),
    "mlflow": Extra(("mlflow",), "a training in MLflow"),
    "label-studio": Extra(("label_studio_sdk",), "suggestions to a Label Studio server"),
    "fiftyone": Extra(("fiftyone",), "evaluations in FiftyOne"),
    "fast": Extra(("torchcodec",), "faster decoding of JPEGs"),
    "remote": Extra(("fsspec", "s3fs", "gcsfs"), "data behind s3:// and gs://"),
    "ray": Extra(("ray",), "very many pictures on several machines"),
}


def machine_facts(folder: Path) -> dict[str, Any]:
    """Return what there is, as plain data; ``problems`` lists as sentences what would stop a run in ``folder``."""
    problems: list[str] = []
    packages = {name: _version(name) for name in PACKAGES}
    problems += [
        f"The package {name} is missing: install satl again, with its dependencies."
        for name, found in packages.items()
        if found is None and name != "satl"  # a source folder on the path needs no installation
    ]
    devices = _devices(problems)
    extras = {
        name: {
            "present": all(find_spec(module) for module in extra.modules),
            "missing": [module for module in extra.modules if not find_spec(module)],
            "for": extra.purpose,
        }
        for name, extra in EXTRAS.items()
    }
    return {
        "problems": problems,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": _cores(),
        "packages": packages,
        "devices": devices,
        "extras": extras,
        "weights": stored_weights(),
        "folder": _folder_facts(folder, problems),
    }


def stored_weights() -> dict[str, Any]:
    """Return where published weights of backbones are kept on this machine, and the names of those that are there."""
    home = Path(os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser())
    place = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    # Only whole files count: a download that was stopped leaves a folder without a snapshot.
    names = sorted(
        entry.name.removeprefix("models--timm--")
        for entry in place.glob("models--timm--*")
        if any(entry.glob("snapshots/*/*.safetensors")) or any(entry.glob("snapshots/*/*.bin"))
    )
    return {"folder": str(place), "names": names}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _devices(problems: list[str]) -> list[str]:
    try:
        import torch

        found = ["cpu"]
        if torch.cuda.is_available():
            for number in range(torch.cuda.device_count()):
                memory = torch.cuda.get_device_properties(number).total_memory / (1 << 30)
                found.append(f"cuda:{number} ({torch.cuda.get_device_name(number)}, {memory:.0f} GiB)")
        if torch.backends.mps.is_available():
            found.append("mps")
    except Exception as error:
        # A broken installation of torch or of a driver fails in any way; saying so is what this is for.
        problems.append(f"torch cannot be used ({type(error).__name__}: {error}): install it again.")
        return []
    return found


def _folder_facts(folder: Path, problems: list[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {"path": str(folder), "free_bytes": None, "writable": False, "locks": None}
    try:
        facts["free_bytes"] = shutil.disk_usage(folder).free
        if facts["free_bytes"] < LEAST_FREE:
            problems.append(
                f"{folder} has {facts['free_bytes'] / (1 << 20):,.0f} MiB of free disk: make room."
            )
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".satl-doctor-") as file:
            facts["writable"] = True
            facts["locks"] = _locks_work(Path(file.name))
    except OSError as error:
        problems.append(
            f"{folder} cannot be written ({error.strerror or error}): go to another folder, or get the right to write."
        )
    if facts["locks"] is False:
        problems.append(
            f"File locks do not work in {folder}: two trainings in one run folder would not notice each other, so "
            "never start two."
        )
    return facts


def _locks_work(file: Path) -> bool | None:
    """Whether a second lock of a file is refused; None where the system has no such locks."""
    if os.name != "posix":
        return None
    with file.open("rb") as one, file.open("rb") as other:
        return try_lock(one.fileno()) and not try_lock(other.fileno())
