"""Configurations, settings, grids, run folders with their checkpoints, and results."""

from __future__ import annotations

import json
import zlib
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fuzz.oracles import Inconsistent
from fuzz.targets.registry import Target, register, register_file
from satl.experiments.grid import read_grid
from satl.experiments.results import read_results
from satl.inference.run_record import read_plain_config, read_record
from satl.inference.side_by_side import runs_side_by_side
from satl.runs.checkpoint_folders import require_whole
from satl.runs.reading import override_config, read_config, save_config
from satl.runs.run_folder import RunFolder
from satl.runs.training_config import TrainingConfig
from satl.training.checkpoints import load_module
from satl.training.optimisers import make_schedule
from satl.training.saving import Saver
from satl.training.tally import EpochTally

_KEYS = (
    *(
        "training.epochs",
        "training.batch_size",
        "training.lr",
        "images.size",
        "images.crop_sizes",
        "model.pool",
    ),
    *("model.feature_dim", "model.backbone", "model.backbone_kwargs", "model.text_prompts", "data.table"),
    *(
        "method.name",
        "method",
        "data.proportion",
        "training.keep_epochs",
        "images.mean",
        "data.options",
        "a.b.c",
    ),
)


def _check_setting(work: Path, data: bytes) -> bool:
    """Read an input as one setting: a key by its first byte, and its value."""
    key = _KEYS[(data[0] if data else 0) % len(_KEYS)]
    text = data[1:].decode("utf-8", "surrogateescape")
    override_config(
        {"data": {"table": "a.csv", "images": "."}},
        [f"{key}={text}" if data[:1] < b"\xf0" else text],
        "settings",
    )
    return True


def _read_config(work: Path) -> None:
    config = read_config(work / "own.yaml")
    if zlib.crc32((work / "own.yaml").read_bytes()) % 8:
        return
    save_config(config, work / "again.yaml")
    if read_config(work / "again.yaml") != config:
        raise Inconsistent("the configuration reads back as another one")


def _read_run(work: Path, method: str) -> None:
    getattr(RunFolder(work), method)()


def _resume_metrics(work: Path) -> None:
    RunFolder(work).keep_metrics_before(1)


@cache
def parts(work: Path) -> tuple[Saver, EpochTally]:
    """Return a saver of two weights, as small as a training can be, in the run folder ``work``."""
    learner: Any = nn.Linear(1, 1)
    optimiser = torch.optim.Adam(learner.parameters(), lr=0.1)
    schedule = make_schedule(optimiser, 2, TrainingConfig(epochs=5))
    saver = Saver(RunFolder(work), learner, None, optimiser, schedule, "data", {"training.seed": "0"})
    return saver, EpochTally(("a",), 2, torch.device("cpu"))


def _resume(work: Path) -> None:
    saver, tally = parts(work)
    before = torch.get_rng_state()
    try:
        epoch, step, best = saver.load_last(tally)
    finally:
        torch.set_rng_state(before)
    if type(epoch) is not int or type(step) is not int or not isinstance(best, dict):
        raise Inconsistent(f"a training would go on at epoch {epoch!r}, step {step!r}")


def _compare(work: Path) -> None:
    found = runs_side_by_side([work / "one", work / "two"])
    json.dumps(found, allow_nan=False).encode()


register(Target("settings/setting.txt", "text", _check_setting, ("list.txt", "mapping.txt")))
register_file("settings/own.yaml", "yaml", _read_config, seeds=("own.json",), share=0.5)
register_file("settings/grid.yaml", "yaml", lambda work: read_grid(work / "grid.yaml"), share=0.25)
register_file(
    "run/config.yaml", "yaml", partial(_read_run, method="read_config"), seeds=("config.json",), share=0.5
)
register_file("run/metrics.jsonl", "jsonl", _resume_metrics)
register_file("run/classes.json", "json", partial(_read_run, method="read_classes"))
register_file("run/data.json", "json", partial(_read_run, method="read_features"))
register_file(
    "run/checkpoints/last/checksums.json", "json", lambda work: require_whole(work / "checkpoints/last")
)
register_file("saved/checkpoints/last/training.pt", "zip", _resume, share=0.25)
register_file(
    "saved/checkpoints/last/learner.safetensors",
    "bytes",
    lambda work: load_module(nn.Linear(1, 1), work / "checkpoints/last/learner.safetensors"),
    share=0.5,
)
register_file("results/results.csv", "text", lambda work: read_results(work / "results.csv"), share=0.5)
register_file("record/config.yaml", "yaml", read_plain_config, seeds=("config.json",), share=0.5)
register_file("record/record.npz", "npz", read_record, share=0.5)
register_file("compared/one/config.yaml", "yaml", _compare, share=0.5)
register_file("compared/one/metrics.jsonl", "jsonl", _compare)
register_file("compared/one/evaluation-test.json", "json", _compare)
