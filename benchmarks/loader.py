"""Loading: packed stores against torchvision transforms on Pillow, from JPEG files to training batches.

On the CPU, one core, all sides in one run and in turns. What counts is the time of the processor that a side
uses, so that other programs disturb little (with ``--workers``, the time on the clock):

    python benchmarks/loader.py
    python benchmarks/loader.py --images DIR --size 512 --out 448

On a GPU, end to end without a network: workers decode, batches travel and are augmented on the device. Given
``--step-ms``, every step also keeps the device busy for that long, and the share of time in which it had
nothing to do is printed:

    python benchmarks/loader.py --device cuda --workers 16 --step-ms 14

Without ``--images`` the photographs are 640 x 480 noise at several scales, which costs as much to decode as a
photograph of that size. All files are read from the memory of the system, not from a disk.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from satl.images import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Batches,
    FolderImages,
    ImageSource,
    TrainAugment,
    pack_images,
    packed_images,
)
from satl.images.augment import default_crop_sizes
from satl.images.resident import cached_on_device
from satl.labels.cells import IMAGE_EXTENSIONS


def draw_photographs(folder: Path, num: int) -> None:
    """Write JPEGs of 640 x 480 pixels, whose detail falls with its scale and has less colour than light."""
    for number in range(num):
        noise = np.random.default_rng(number)
        picture = np.full((480, 640, 3), 128.0, dtype=np.float32)
        for scale, strength in ((160, 50), (40, 30), (10, 20), (4, 14), (2, 10), (1, 4)):
            shape = (480 // scale + 1, 640 // scale + 1)
            light, *colours = (noise.normal(0, strength, shape).astype(np.float32) for _ in range(4))
            for k, colour in enumerate(colours):
                plane = Image.fromarray(light + 0.25 * colour)
                picture[..., k] += np.asarray(plane.resize((640, 480), Image.Resampling.BICUBIC))
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / f"{number:04}.jpg", quality=90)


class Peer(Dataset[torch.Tensor]):
    """The published pipeline, one file at a time with torchvision on Pillow."""

    def __init__(self, files: tuple[str, ...], size: int, out: int, normalised: bool) -> None:
        self.files = files
        self.first = v2.Resize((size, size), interpolation=v2.InterpolationMode.BICUBIC)
        self.crops = [v2.RandomCrop(side) for side in default_crop_sizes(size)]
        rest = [
            v2.Resize((out, out), interpolation=v2.InterpolationMode.BICUBIC),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
        ]
        if normalised:
            rest += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
        self.rest = v2.Compose(rest)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> torch.Tensor:
        with Image.open(self.files[i]) as image:
            picture = self.first(image.convert("RGB"))
        return self.rest(random.choice(self.crops)(picture))


def peak_ratio(jpeg: ImageSource, raw: ImageSource) -> float:
    """Mean PSNR in decibels of the JPEGs against the same images in plain bytes."""
    decibels = []
    for i in range(len(raw)):
        error = np.square(jpeg.image(i).astype(np.float64) - raw.image(i)).mean()
        decibels.append(10 * np.log10(255**2 / max(float(error), 1e-12)))
    return statistics.mean(decibels)


def on_the_cpu(files: FolderImages, stores: dict[str, ImageSource], arguments: argparse.Namespace) -> None:
    batch, out, workers = arguments.batch, arguments.out, arguments.workers or 0
    augment = TrainAugment(files.size, out, channels_last=True)
    generator = torch.Generator().manual_seed(0)

    def peer(normalised: bool) -> Callable[[], int]:
        loader = DataLoader(
            Peer(files.files, files.size, out, normalised),
            batch,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        return lambda: sum(len(images) for images in loader)

    def own(source: ImageSource, augmented: bool) -> Callable[[], int]:
        batches = Batches(source, batch_size=batch, shuffle=True, workers=workers, epochs=10**6)
        epochs = iter(range(10**6))

        def run() -> int:
            done = 0
            for images, _ in batches.epoch(next(epochs)):
                done += len(augment(images, generator) if augmented else images)
            return done

        return run

    sides = {
        "torchvision on Pillow, float and normalised": peer(True),
        "torchvision on Pillow, uint8": peer(False),
        "files, decoded and resized by satl": own(files, False),
        "files, augmented by satl": own(files, True),
        "JPEG store, decoded": own(stores["jpeg"], False),
        "JPEG store, augmented": own(stores["jpeg"], True),
        "raw store, gathered": own(stores["raw"], False),
        "raw store, augmented": own(stores["raw"], True),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    clock = time.perf_counter if workers else time.process_time
    for turn in range(arguments.repeats + 1):
        for name, run in sides.items():
            begin = clock()
            done = run()
            if turn:  # the first turn warms up
                rates[name].append(done / (clock() - begin))
    anchor, *_ = (statistics.median(values) for values in rates.values())
    print(f"{'':45} {'images/s':>9} {'ratio':>7}")
    for name, values in rates.items():
        rate = statistics.median(values)
        print(f"{name:45} {rate:>9.0f} {rate / anchor:>6.2f}x")


def on_the_device(stores: dict[str, ImageSource], arguments: argparse.Namespace) -> None:
    device = torch.device("cuda")
    batch, steps = arguments.batch, arguments.steps
    size = stores["raw"].size
    augment = TrainAugment(size, arguments.out, dtype=torch.bfloat16, channels_last=True).to(device)
    generator = torch.Generator(device).manual_seed(0)
    cycles = cycles_of(arguments.step_ms) if arguments.step_ms else 0

    def step(images: torch.Tensor) -> None:
        augment(images.to(device, non_blocking=True), generator)
        if cycles:
            torch.cuda._sleep(cycles)

    def seconds(source: Iterator[torch.Tensor]) -> tuple[float, float]:
        """Seconds of all steps, and those of them in which the host waited for a batch."""
        for _ in range(5):
            step(next(source))
        torch.cuda.synchronize()
        begin, waited = time.perf_counter(), 0.0
        for number in range(steps):
            asked = time.perf_counter()
            images = next(source)
            waited += time.perf_counter() - asked
            step(images)
            if number % 8 == 7:
                torch.cuda.current_stream().synchronize()  # a host that runs far ahead would wait for itself
        torch.cuda.synchronize()
        return time.perf_counter() - begin, waited

    def endless(source: ImageSource) -> Iterator[torch.Tensor]:
        rows = np.tile(np.arange(len(source)), -(-4 * batch // len(source)))
        batches = Batches(
            source,
            rows,
            batch_size=batch,
            shuffle=True,
            drop_last=True,
            workers=arguments.workers or 16,
            pin_memory=True,
            epochs=10**6,
        )
        for epoch in range(10**6):
            for images, _ in batches.epoch(epoch):
                yield images

    still = torch.zeros((batch, size, size, 3), dtype=torch.uint8, device=device).permute(0, 3, 1, 2)
    floor, _ = seconds(repeat(still))
    print(f"{'':30} {'images/s':>9} {'device idle':>12} {'host waits':>11}")
    print(f"{'one batch that is there':30} {steps * batch / floor:>9.0f} {'':>12} {'':>11}")
    sources = {
        "JPEG store": stores["jpeg"],
        "raw store": stores["raw"],
        "raw store on the device": cached_on_device(stores["raw"], device),
    }
    for name, source in sources.items():
        stream = endless(source)
        taken, waited = seconds(stream)
        stream.close()
        idle = max(0.0, 1 - floor / taken)
        print(f"{name:30} {steps * batch / taken:>9.0f} {idle:>11.1%} {waited / taken:>10.1%}")


def cycles_of(milliseconds: float) -> int:
    """Argument of ``torch.cuda._sleep`` that keeps the device busy for so long."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)
    begin.record()
    torch.cuda._sleep(50_000_000)
    end.record()
    torch.cuda.synchronize()
    return int(milliseconds * 50_000_000 / begin.elapsed_time(end))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, help="folder of JPEG files, instead of drawn ones")
    parser.add_argument("--count", type=int, help="how many images (default: 48, on a GPU 512)")
    parser.add_argument("--size", type=int, default=512, help="side of the stored images")
    parser.add_argument("--out", type=int, default=448, help="side of the training images")
    parser.add_argument("--batch", type=int, help="images in a batch (default: 16, on a GPU 32)")
    parser.add_argument("--workers", type=int, help="loader processes (default: none, on a GPU 16)")
    parser.add_argument("--repeats", type=int, default=5, help="turns of every side on the CPU")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--step-ms", type=float, default=0.0, help="simulated work of a step on the device")
    parser.add_argument("--steps", type=int, default=300, help="steps on the device")
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    arguments.batch = arguments.batch or (32 if on_gpu else 16)
    count = arguments.count or (512 if on_gpu else 48)
    if not on_gpu:
        torch.set_num_threads(1)
        if not arguments.workers and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.images
        if folder is None:
            folder = Path(temporary) / "photographs"
            folder.mkdir()
            draw_photographs(folder, count)
        names = sorted(p.name for p in folder.iterdir() if p.suffix.lower() in IMAGE_EXTENSIONS)[:count]
        files = FolderImages(folder, names, arguments.size)
        stores: dict[str, ImageSource] = {}
        sizes = {}
        for kind in ("jpeg", "raw"):
            store = Path(temporary) / kind
            sizes[kind] = pack_images(files, names, store, kind=kind).num_bytes / len(names) / 1000
            stores[kind] = packed_images(store)
        mean = statistics.mean((folder / name).stat().st_size for name in names) / 1000
        where = torch.cuda.get_device_name() if on_gpu else f"cpu, {arguments.workers or 'no'} worker(s)"
        decibels = peak_ratio(stores["jpeg"], stores["raw"])
        print(
            f"loader, {len(names)} images, {arguments.size} -> {arguments.out}, batch {arguments.batch}, {where};"
            f" a file has {mean:.0f} kB, a JPEG of the store {sizes['jpeg']:.0f} kB (PSNR {decibels:.1f} dB)"
        )
        if on_gpu:
            on_the_device(stores, arguments)
        else:
            on_the_cpu(files, stores, arguments)


if __name__ == "__main__":
    main()
