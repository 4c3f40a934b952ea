"""One epoch of a method on real pictures, alone on the machine, and the share of it that is not the backbone.

    python benchmarks/epoch.py experiments/coco2014/at224_base.yaml --method sst+satl
    python benchmarks/epoch.py run.yaml --set training.batch_size=4 --set images.size=32

The run is trained for three epochs, one of stage 1 and two of stage 2. The last one counts, as a step of a new stage is
compiled first: every picture once, from the store to the weights, with pseudo-labels. Then the backbone alone does as
many steps with as large batches, forward, backward of its last stage and Adam (the row ``floor`` of
``benchmarks/step.py``); the difference is all that is not the backbone: reading, augmentation, the network behind it,
losses and thresholds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from satl.runs.data import load_data
from satl.runs.reading import read_config
from satl.runs.run_folder import RunFolder
from satl.training.trainer import Trainer
from step_rows import ROWS, Shape, measure


def train_three_epochs(config_file: Path, settings: list[str]) -> tuple[float, int, Trainer]:
    """Return the seconds of the third epoch, its steps, and the trainer."""
    own = [
        "training.epochs=3",
        "training.stage1_epochs=1",
        "data.use_test=false",
        "training.checkpoint_epochs=3",
    ]
    config = read_config(config_file, [*settings, *own])
    with tempfile.TemporaryDirectory(prefix="satl-epoch-") as folder:
        trainer = Trainer.start(config, load_data(config), RunFolder(Path(folder) / "run"))
        trainer.fit()
        seconds = float(trainer.folder.read_metrics()[-1]["train_seconds"])
    return seconds, len(trainer.batches), trainer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("--method", default="sst+satl")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    settings = [f"method.name={options.method}", *options.settings]
    seconds, steps, trainer = train_three_epochs(options.config, settings)
    config, device = trainer.config, trainer.device.type
    images, size = steps * config.training.batch_size, config.images.input.size
    name = torch.cuda.get_device_name() if device == "cuda" else "this processor"
    print(
        f"{options.method}, {config.model.backbone} at {size} px, batch {config.training.batch_size}, {name}"
    )
    print(f"one epoch of stage 2, {images:,} pictures: {seconds:.1f} s, {images / seconds:,.0f} pictures/s")
    shape = Shape(device=device, batch=config.training.batch_size, size=size, backbone=config.model.backbone)
    row = ROWS["floor-graph" if device == "cuda" else "floor"]
    ms = measure(row.build(shape), device, 2, 20 if device == "cuda" else 3, row.graph)["ms"]
    alone = steps * ms / 1e3
    print(f"its backbone alone: {alone:.1f} s; not the backbone: {100 * (1 - alone / seconds):.0f} %")


if __name__ == "__main__":
    main()
