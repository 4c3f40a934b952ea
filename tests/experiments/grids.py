"""Grids small enough to run in seconds, and results made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from satl.experiments.grid import Grid, make_grid
from satl.experiments.results import COLUMNS, Results

BASE: dict[str, Any] = {
    "data": {"scenes": {"train": 32, "val": 16, "test": 16, "size": 32}},
    "images": {"size": 32, "crop_sizes": [32, 28], "workers": 0},
    "model": {
        "backbone": "satl_tiny",
        "backbone_kwargs": {"widths": [8, 8, 8]},
        "pretrained": False,
        "train_stages": "all",
        "pool": 1,
        "feature_dim": 8,
        "attention_dim": 8,
        "pair_dim": 4,
        "pair_hidden": 4,
        "embedding_dim": 4,
        "steps": 1,
    },
    "training": {
        "epochs": 3,
        "stage1_epochs": 1,
        "batch_size": 8,
        "lr": 0.003,
        "optimiser": "adamw",
        "device": "cpu",
        "checkpoint_steps": 1,
    },
}


def content(**changes: Any) -> dict[str, Any]:
    """Return the smallest grid as plain data, changed."""
    plain = {"base": BASE, "methods": ["ignore", "sst"], "proportions": [0.3], "seeds": [0, 1]}
    return {**plain, **changes}


def grid_of(**changes: Any) -> Grid:
    """Return it as a grid."""
    return make_grid(content(**changes), "grid.yaml")


def write_grid(path: Path, **changes: Any) -> Path:
    """Write it to a file."""
    path.write_text(yaml.safe_dump(content(**changes), sort_keys=False))
    return path


def row(method: str, proportion: float, seed: int, mAP: float | None, **others: Any) -> dict[str, Any]:
    """Return one tidy row of a finished run's best model."""
    place = {"method": method, "proportion": proportion, "seed": seed, "mAP": mAP}
    fixed = {"status": "done", "model": "best", "variant": "", "error": "", "dataset": "scenes"}
    machine = {"device": "cpu", "threads": 1, "jobs": 1}
    return {**dict.fromkeys(COLUMNS), **fixed, **machine, **place, **others}


FACTS = {"backbone": "satl_tiny", "pretrained": False, "image_size": 32, "epochs": 3}


def results_of(*rows: dict[str, Any]) -> Results:
    """Return results of tidy rows; what a row lacks of the last model is that of the best."""
    both = [{**one, "model": model} for one in rows for model in ("best", "last")]
    return Results(both, (), FACTS)
