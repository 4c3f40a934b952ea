"""A training step of SATL+ on long features: projected in every pass, once a step, or once for the whole training.

    python benchmarks/feature_steps.py [--rows 4096] [--dim 2048] [--classes 80] [--steps 100] [--rounds 3]

Features and labels are drawn. The network, its teacher and the pass of mixed features all need the principal components
of a batch. Printed are milliseconds a step of each way, in turns, as medians of the rounds, and how many times as fast
it is as the first.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from satl.features import FeatureFolder
from satl.labels import LabelTable, mask_table, write_table
from satl.runs.data import load_data
from satl.runs.reading import make_config
from satl.runs.run_folder import RunFolder
from satl.training import feature_maps
from satl.training.trainer import Trainer

WAYS = ("in every pass", "once a step", "once for all")


def draw(folder: Path, rows: int, dim: int, classes: int) -> None:
    """Write features, and labels of which a tenth is known."""
    random = np.random.default_rng(0)
    ids = tuple(f"{row}.jpg" for row in range(rows))
    FeatureFolder.write(
        folder / "features", ids, random.random((rows, 1, dim), dtype=np.float32), {"drawn": True}
    )
    cells = np.where(random.random((rows, classes)) < 0.04, 1, -1).astype(np.int8)
    names = tuple(f"class {number}" for number in range(classes))
    write_table(
        mask_table(LabelTable(ids, names, cells, encoding="signed"), 0.1, seed=0), folder / "labels.npz"
    )


def trainer_of(folder: Path, way: str) -> Trainer:
    """Begin a training whose features are projected in one of the ways."""
    content = {
        "data": {
            "table": str(folder / "labels.npz"),
            "features": str(folder / "features"),
            "validation": 0.05,
        },
        "method": {"name": "satl+", "teacher": {"probe_weight": 0}},
        "training": {"device": "cpu", "epochs": 2, "stage1_epochs": 1},
    }
    config = make_config(content, "drawn features")
    trainer = Trainer.start(config, load_data(config), RunFolder(folder / way.replace(" ", "-")))
    if way == "in every pass":
        trainer.inputs.project = None
    return trainer


def milliseconds(trainer: Trainer, steps: int, way: str) -> float:
    """Return the time of a step of stage 2."""
    usual = feature_maps.MOST_BYTES
    feature_maps.MOST_BYTES = 0 if way == "once a step" else usual
    batches = islice(cycle(trainer.batches.epoch(1)), steps + 3)
    try:
        for number, batch in enumerate(batches):
            if number == 3:
                begun = time.perf_counter()
            trainer.train_step(batch, 1, number % len(trainer.batches))
        return 1e3 * (time.perf_counter() - begun) / steps
    finally:
        feature_maps.MOST_BYTES = usual


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Measure; return the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, usual in (("rows", 4096), ("dim", 2048), ("classes", 80), ("steps", 100), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        draw(place, options.rows, options.dim, options.classes)
        trainers = {way: trainer_of(place, way) for way in WAYS}
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way, trainer in trainers.items():
                found[way].append(milliseconds(trainer, options.steps, way))
    medians = {way: statistics.median(times) for way, times in found.items()}
    for way, median in medians.items():
        print(f"projected {way}: {median:.1f} ms a step, {medians[WAYS[0]] / median:.2f} times as fast")
    return medians


if __name__ == "__main__":
    main()
