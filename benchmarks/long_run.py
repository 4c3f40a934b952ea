"""Whether a long training grows: memory, open files, threads and the time of a step over many tiny epochs.

    python benchmarks/long_run.py --epochs 200 --workers 2

Prints for each of them its slope over the epochs after the first tenth, in its unit per 100 epochs, with the standard
error of that slope, which counts that neighbouring epochs are alike. Exits with 1 where memory, files or threads grow
by more than their limit and by more than three standard errors.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from satl.runs.data import load_data
from satl.runs.reading import make_config
from satl.runs.run_folder import RunFolder
from satl.training.display import Display
from satl.training.trainer import Trainer

LIMITS = {"memory MB": 5.0, "open files": 0.5, "threads": 0.5}
"""Largest growth in 100 epochs; the time of a step depends on what else the machine does, and is only printed."""


def memory() -> float:
    """Return the memory that this process has in use, in MB; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def open_files() -> int:
    """Return how many files this process has open; 0 where the system does not say."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0


class Watch(Display):
    """Measures after every epoch."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.steps = 0
        self.cpu = time.process_time()

    def start(self, epochs: int, steps: int) -> None:
        """Remember the number of steps in an epoch."""
        self.steps = steps

    def epoch(self, row: dict[str, Any]) -> None:
        """Measure."""
        now = time.process_time()
        self.rows.append(
            {
                "memory MB": memory(),
                "open files": float(open_files()),
                "threads": float(threading.active_count()),
                "step ms": 1000 * row["train_seconds"] / self.steps,
                "epoch CPU ms": 1000 * (now - self.cpu),
            }
        )
        self.cpu = now


def slope(values: list[float]) -> tuple[float, float]:
    """Return the slope of values over their positions, per 100, and its standard error.

    The residuals of neighbours are alike, so the number of independent ones is made smaller by their correlation.
    """
    y = np.asarray(values)
    x = np.arange(len(y)) / 100
    x -= x.mean()
    b = float((x * y).sum() / (x * x).sum())
    rest = y - y.mean() - b * x
    if np.allclose(rest, 0.0, atol=1e-9 * max(1.0, float(np.abs(y).max()))):
        return b, 0.0
    alike = float(np.clip((rest[1:] * rest[:-1]).sum() / (rest * rest).sum(), 0.0, 0.95))
    independent = max(3.0, len(y) * (1 - alike) / (1 + alike))
    variance = (rest * rest).sum() / max(1, len(y) - 2)
    return b, float(np.sqrt(variance / (x * x).sum() * len(y) / independent))


def write_data(folder: Path, images: int) -> None:
    """Write a table of two classes and its images, half to train and half to validate on."""
    draw = np.random.default_rng(0)
    lines = ["image,split,cat,dog"]
    for row in range(images):
        pixels = draw.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.jpg")
        lines.append(f"{row}.jpg,{'train' if row % 2 else 'val'},{row // 2 % 2},{row // 4 % 2}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")


def measure(folder: Path, epochs: int, workers: int, method: str, images: int) -> list[dict[str, float]]:
    """Train many tiny epochs on image files and return what was measured after each."""
    write_data(folder, images)
    small = {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16], "output_stride": 16}
    sizes = ("feature_dim", "attention_dim", "pair_dim", "pair_hidden", "embedding_dim")
    config = make_config(
        {
            "data": {"table": str(folder / "labels.csv"), "images": str(folder), "encoding": "complete"},
            # Nothing is kept in memory, so that workers decode in every epoch.
            "images": {"store_size": 32, "size": 32, "workers": workers, "cache_gb": 0},
            "model": {
                "backbone": "resnet18",
                "backbone_kwargs": small,
                "pretrained": False,
                "train_stages": "all",
            }
            | dict.fromkeys(sizes, 8),
            "method": {"name": method},
            "training": {"epochs": epochs, "stage1_epochs": 1, "batch_size": 8, "device": "cpu"},
        },
        "long_run",
    )
    watch = Watch()
    Trainer.start(config, load_data(config), RunFolder(folder / "run"), watch).fit()
    return watch.rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--method", default="sst+satl")
    parser.add_argument("--json", type=Path, help="write all measurements there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), options.epochs, options.workers, options.method, options.images)
    if options.json is not None:
        options.json.write_text(json.dumps(rows))
    kept = rows[max(1, len(rows) // 10) :]  # the first epochs fill caches
    grown = False
    print(
        f"{options.epochs} epochs, {options.workers} workers: slopes per 100 epochs over the last {len(kept)}"
    )
    for name in rows[0]:
        values = [row[name] for row in kept]
        by, error = slope(values)
        too_much = name in LIMITS and by > max(LIMITS[name], 3 * error)
        grown |= too_much
        print(f"{name:13} {by:+9.3f} +- {error:.3f}, mean {np.mean(values):.2f}{' GROWS' * too_much}")
    return int(grown)


if __name__ == "__main__":
    sys.exit(main())
