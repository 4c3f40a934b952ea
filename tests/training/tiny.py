"""Runs small enough to train in a second, and ways to cut them off and to compare them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from satl.runs.config import RunConfig
from satl.runs.data import RunData, load_data
from satl.runs.reading import apply_overrides, make_config
from satl.runs.run_folder import RunFolder
from satl.runs.settling import settled
from satl.training.display import Display
from satl.training.trainer import Trainer

TINY: dict[str, Any] = {
    "data": {"scenes": {"train": 64, "val": 24, "test": 24, "size": 32}, "proportion": 0.3},
    "images": {"size": 32, "crop_sizes": [32, 28], "workers": 0},
    "model": {
        "backbone": "resnet18",
        "backbone_kwargs": {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16], "output_stride": 16},
        "pretrained": False,
        "train_stages": "all",
        "pool": 1,
        "feature_dim": 16,
        "attention_dim": 8,
        "pair_dim": 8,
        "pair_hidden": 8,
        "embedding_dim": 8,
    },
    "training": {
        "epochs": 4,
        "stage1_epochs": 2,
        "batch_size": 16,
        "lr": 0.003,
        "optimiser": "adamw",
        "schedule": "cosine",
        "device": "cpu",
    },
}


def tiny_config(*settings: str) -> RunConfig:
    """Return the tiny configuration with ``section.key=value`` settings, what its backbone decides written out."""
    return settled(make_config(apply_overrides(TINY, settings), "tiny"))


def train(
    folder: Path, config: RunConfig, display: Display | None = None, data: RunData | None = None
) -> Trainer:
    """Train a new run to its end."""
    trainer = Trainer.start(config, data or load_data(config), RunFolder(folder), display)
    trainer.fit()
    return trainer


def resume(folder: Path, display: Display | None = None) -> Trainer:
    """Continue a run to its end."""
    run = RunFolder.open(folder)
    trainer = Trainer.resume(load_data(run.read_config()), run, display)
    trainer.fit()
    return trainer


class Killed(Exception):
    """Stands for a process that is gone."""


class KillAt(Display):
    """Ends a run after a step, before its checkpoint: that step is lost."""

    def __init__(self, epoch: int, step: int) -> None:
        self.place = (epoch, step)

    def step(self, epoch: int, stage: int, step: int, losses: Callable[[], dict[str, float]]) -> None:
        if (epoch, step) == self.place:
            raise Killed


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of ``metrics.jsonl`` without the times."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.endswith("_seconds")} for row in rows]


def assert_same(one: Any, other: Any, place: str = "") -> None:
    """Compare nested data to the bit."""
    assert type(one) is type(other), place
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, place
        assert torch.equal(one, other), place
    elif isinstance(one, dict):
        assert list(one) == list(other), place
        for key in one:
            assert_same(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, f"{place}[{i}]")
    else:
        assert one == other, place


def assert_same_run(one: Path, other: Path) -> None:
    """Compare everything two runs learned and wrote, to the bit, times left out."""
    assert metrics(one) == metrics(other)
    assert (one / "thresholds.csv").read_text() == (other / "thresholds.csv").read_text()
    for checkpoint in ("last", "best"):
        folders = [run / "checkpoints" / checkpoint for run in (one, other)]
        assert sorted(p.name for p in folders[0].iterdir()) == sorted(p.name for p in folders[1].iterdir())
        for file in sorted(folders[0].glob("*.safetensors")):
            assert_same(load_file(file), load_file(folders[1] / file.name), file.name)
        states = [torch.load(path / "training.pt", weights_only=True) for path in folders]
        assert_same(*states, checkpoint)
