"""A training from packed images: images per second, and the share of the time that waits for data.

    python benchmarks/end_to_end.py --device cuda --workers 16 --json end_to_end.json
    python benchmarks/end_to_end.py --device cpu --tiny --batch 4 --classes 5 --steps 4 --workers 1

Photo-like JPEGs of 640 x 480 pixels (or those of ``--images``) are packed as ``satl pack`` does it, once as JPEGs and
once as raw bytes. satl's trainer then does steps of stage 2 from each store, and from a batch that is on the device
already: the rate of the step itself, augmentation included. The rate from a store is that of steps one after the
other, as a training runs them; the wait is measured in as many further steps with the device idle in between. As
many batches as the workers hold ready do not count. A last line is for images that are kept on the device.

The bar: 1,900 images a second or the rate of the step itself, whichever is lower, and less than 5 % of waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from step_rows import BF16, COMPILED, GRAPHS, Shape, product_config

if TYPE_CHECKING:
    from satl.images import Batch
    from satl.training.trainer import Trainer

PHOTOS = 128
"""Different pictures; further files are links to them, which costs a decoder the same."""
SIDES = (640, 480)
KINDS = ("jpeg", "raw")


@dataclass(frozen=True)
class Rates:
    """What was measured from one store."""

    store: str
    images_per_second: float
    waiting: float
    """Share of the time, 0 to 1."""
    step_images_per_second: float
    steps: int


def photo(number: int, folder: Path) -> Path:
    """Write a picture with detail at all scales and a few hard edges, which compresses like a photograph."""
    random = np.random.default_rng(number)
    width, height = SIDES
    pixels = np.full((height, width, 3), 128.0, dtype=np.float32)
    for cells in (4, 10, 24, 60, 160):
        noise = random.normal(size=(cells * 3 // 4, cells, 3)).astype(np.float32)
        layers = [Image.fromarray(noise[..., c]).resize(SIDES, Image.Resampling.BICUBIC) for c in range(3)]
        pixels += 90.0 / cells**0.5 * np.stack([np.asarray(layer) for layer in layers], axis=-1)
    pixels += random.normal(scale=3.0, size=pixels.shape)
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for _ in range(6):
        x, y = random.integers(0, width), random.integers(0, height)
        box = (int(x), int(y), int(x + random.integers(20, 200)), int(y + random.integers(20, 200)))
        pen.ellipse(box, fill=tuple(int(value) for value in random.integers(0, 256, 3)))
    path = folder / f"{number:06d}.jpg"
    image.save(path, quality=90)
    return path


def make_images(folder: Path, wanted: int, workers: int) -> list[str]:
    """Write ``wanted`` files and return their names."""
    folder.mkdir()
    first = min(wanted, PHOTOS)
    with ProcessPoolExecutor(max(workers, 1)) as pool:
        paths = list(pool.map(partial(photo, folder=folder), range(first), chunksize=8))
    for number in range(first, wanted):
        (folder / f"{number:06d}.jpg").hardlink_to(paths[number % first])
    return [f"{number:06d}.jpg" for number in range(wanted)]


def found_images(folder: Path, wanted: int) -> list[str]:
    """Names of at most ``wanted`` images in a folder of the user; fewer are read again, epoch after epoch."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jpg"))
    if not names:
        raise SystemExit(f"{folder}: holds no .jpg; give another --images.")
    return names[:wanted]


def write_labels(names: list[str], classes: int, path: Path) -> None:
    """A table with 20 % of its labels; a few rows are to validate on, which a run insists on."""
    from satl.labels import LabelTable, write_table

    random = np.random.default_rng(0)
    shape = (len(names), classes)
    truth = np.where(random.random(shape) < 0.04, 1, -1)
    cells = np.where(random.random(shape) < 0.2, truth, 0).astype(np.int8)
    cells[-2:] = truth[-2:]
    split = np.array(["train"] * (len(names) - 2) + ["val"] * 2)
    columns = tuple(f"class {number}" for number in range(classes))
    write_table(LabelTable(tuple(names), columns, cells, split, encoding="signed"), path)


def pack(names: list[str], images: Path, size: int, kind: str, store: Path) -> float:
    """Pack as ``satl pack`` does; return the seconds it took."""
    from satl.images import FolderImages, pack_images

    begun = time.perf_counter()
    pack_images(FolderImages(images, names, size), names, store, kind=kind)
    return time.perf_counter() - begun


class Run:
    """A trainer whose steps can be taken one by one from any store."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.stage2 = trainer.config.training.stage1_epochs
        self.epochs = count(self.stage2)
        trainer.learner.train()

    def step(self, batch: Batch, number: int) -> None:
        """Do a step of stage 2; nothing waits for the device."""
        self.trainer.train_step(batch, self.stage2, number % len(self.trainer.batches))

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.trainer.device.type == "cuda":
            import torch

            torch.cuda.synchronize()

    def own_rate(self, steps: int, warmups: int) -> float:
        """Images per second of steps on a batch that is on the device."""
        batch = next(iter(self.trainer.batches.epoch(self.stage2)))
        still = batch._replace(
            images=batch.images.to(self.trainer.device), indices=batch.indices.to(self.trainer.device)
        )
        for number in range(warmups):
            self.step(still, number)
        self.synchronise()
        begun = time.perf_counter()
        for number in range(steps):
            self.step(still, number)
        self.synchronise()
        return steps * len(batch.indices) / (time.perf_counter() - begun)

    def rate(self, steps: int, warmups: int) -> float:
        """Images per second of a training from the store."""
        batches, images = self._forever(), 0
        for number in range(warmups):
            self.step(next(batches), number)
        self.synchronise()
        begun = time.perf_counter()
        for number in range(steps):
            batch = next(batches)
            self.step(batch, number)
            images += len(batch.indices)
        self.synchronise()
        return images / (time.perf_counter() - begun)

    def waiting(self, steps: int, warmups: int) -> float:
        """Share of the time in which an idle device waits for a batch."""
        batches, waited, begun = self._forever(), 0.0, 0.0
        for number in range(warmups + steps):
            if number == warmups:
                begun, waited = time.perf_counter(), 0.0
            asked = time.perf_counter()
            batch = next(batches)
            waited += time.perf_counter() - asked
            self.step(batch, number)
            self.synchronise()
        return waited / (time.perf_counter() - begun)

    def _forever(self) -> Iterator[Batch]:
        for epoch in self.epochs:
            yield from self.trainer.batches.epoch(epoch)


def start(folder: Path, table: Path, store: Path, shape: Shape, workers: int) -> Trainer:
    """A trainer of the product's fast path on a store."""
    from satl.runs.data import load_data
    from satl.runs.run_folder import RunFolder
    from satl.training.trainer import Trainer

    data = {"table": str(table), "images": str(store), "encoding": "blank"}
    fast = (BF16, COMPILED, GRAPHS) if shape.device == "cuda" else ()
    own = (
        "images.cache_gb=0",
        f"images.workers={workers}",
        "training.stage1_epochs=1",
        "training.epochs=1000",
    )
    config = product_config(shape, *fast, *own, data=data)
    return Trainer.start(config, load_data(config), RunFolder(folder / "run"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--backbone", default="resnet101")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--steps", type=int, default=120, help="steps that count")
    parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--images", type=Path, help="a folder of JPEGs instead of generated ones")
    parser.add_argument(
        "--folder", type=Path, help="where to put images and stores; they are removed at the end"
    )
    parser.add_argument("--tiny", action="store_true", help="small layers and images, to try this on a CPU")
    parser.add_argument("--json", type=Path, help="write the numbers there as well")
    options = parser.parse_args()
    shape = Shape(
        device=options.device,
        batch=options.batch,
        classes=options.classes,
        size=64 if options.tiny else options.size,
        backbone=options.backbone,
        tiny=options.tiny,
    )
    warmups = 2 * options.workers + (1 if options.tiny else 10)
    folder = Path(tempfile.mkdtemp(prefix="satl-end-to-end-", dir=options.folder))
    try:
        measured = run(options, shape, folder, warmups)
    finally:
        shutil.rmtree(folder)
    if options.json:
        content = {"end_to_end": [asdict(rates) for rates in measured], "batch": options.batch}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def run(options: argparse.Namespace, shape: Shape, folder: Path, warmups: int) -> list[Rates]:
    """Make images and stores, train from each, print as it goes."""
    wanted = options.batch * (warmups + options.steps) + 2
    images, table = options.images or folder / "images", folder / "labels.csv"
    names = found_images(images, wanted) if options.images else make_images(images, wanted, options.workers)
    write_labels(names, options.classes, table)
    print(
        f"{len(names)} images, batch {options.batch}, {options.workers} workers, {options.steps} steps",
        flush=True,
    )
    bench: Run | None = None
    own = 0.0
    measured: list[Rates] = []

    def measure(bench: Run, name: str) -> None:
        rate, waiting = bench.rate(options.steps, warmups), bench.waiting(options.steps, warmups)
        measured.append(Rates(name, rate, waiting, own, options.steps))
        share = f"{rate / own:.2f} of the step alone"
        print(f"{name:<6} {rate:.0f} images/s, {share}, waits {100 * waiting:.1f} %", flush=True)

    for kind in options.kinds:
        store = folder / kind
        seconds = pack(names, images, shape.stored, kind, store)
        size = sum(file.stat().st_size for file in store.iterdir()) / 1e6
        speed = f"{len(names) / seconds:.0f} images/s"
        print(f"{kind:<6} packed in {seconds:.1f} s ({speed}), {size:.0f} MB", flush=True)
        if bench is None:
            bench = Run(start(folder, table, store, shape, options.workers))
            own = bench.own_rate(options.steps, warmups)
            print(f"step alone, images on the device: {own:.0f} images/s", flush=True)
        else:
            use(bench.trainer, table, store, shape)
        measure(bench, kind)
    assert bench is not None
    if keep_on_device(bench.trainer):
        measure(bench, "device")
    return measured


def use(trainer: Trainer, table: Path, store: Path, shape: Shape) -> None:
    """Let a trainer read from another store of the same images: compiling once is enough."""
    from satl.runs.data import load_data

    config = product_config(
        shape, "images.cache_gb=0", data={"table": str(table), "images": str(store), "encoding": "blank"}
    )
    trainer.batches.close()
    trainer.batches.source = load_data(config).source


def keep_on_device(trainer: Trainer) -> bool:
    """Copy the images of the present store to the device, if they fit; say whether they do."""
    from satl.images.resident import ResidentImages, cached_on_device

    trainer.batches.close()
    trainer.batches.source = cached_on_device(trainer.batches.source, trainer.device)
    return isinstance(trainer.batches.source, ResidentImages)


if __name__ == "__main__":
    main()
