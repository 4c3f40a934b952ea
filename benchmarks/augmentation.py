"""Training augmentation: uint8 images in memory to a normalised batch, both sides in one run.

On a CPU the peer is torchvision's transforms on Pillow images, one after the other, on one core:

    python benchmarks/augmentation.py

On a GPU the products of float32 are compared with those of float16, which are used; times are those of CUDA
events, for calls one by one and for a captured graph:

    python benchmarks/augmentation.py --device cuda
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from unittest.mock import patch

import torch
from PIL import Image
from torchvision.transforms import v2

from satl.images import IMAGENET_MEAN, IMAGENET_STD, TrainAugment
from satl.images.augment import default_crop_sizes

SIZES = ((72, 64), (256, 224), (512, 448))


def torchvision_on_pillow(
    images: list[Image.Image], output: int, crop_sizes: tuple[int, ...]
) -> torch.Tensor:
    crops = [v2.RandomCrop(size) for size in crop_sizes]
    rest = v2.Compose(
        [
            v2.Resize((output, output), interpolation=v2.InterpolationMode.BICUBIC),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )
    return torch.stack([rest(random.choice(crops)(image)) for image in images])


def seconds(works: list[Callable[[], object]], repeats: int) -> list[float]:
    """Seconds of the best call of each; they take turns, so that a busy machine slows all alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, mine in zip(works, times, strict=True):
            begin = time.perf_counter()
            work()
            mine.append(time.perf_counter() - begin)
    return [min(mine) for mine in times]


def on_cpu(batch: int, repeats: int) -> None:
    torch.set_num_threads(1)
    print(f"augmentation, one thread, batch {batch}, torch {torch.__version__}; milliseconds per image")
    print(
        f"{'sizes':>10} {'torchvision on Pillow':>22} {'satl':>8} {'ratio':>7} {'channels last':>14} {'ratio':>7}"
    )
    for size, output in SIZES:
        pixels = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8)
        packed = pixels.contiguous(memory_format=torch.channels_last)
        pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pixels]
        generator = torch.Generator().manual_seed(0)
        plain, last = TrainAugment(size, output), TrainAugment(size, output, channels_last=True)
        works: list[Callable[[], object]] = [
            lambda p=pictures, o=output, s=size: torchvision_on_pillow(p, o, default_crop_sizes(s)),
            lambda a=plain, p=pixels, g=generator: a(p, g),
            lambda a=last, p=packed, g=generator: a(p, g),
        ]
        peer, ours, ours_last = (1000 / batch * value for value in seconds(works, repeats))
        print(
            f"{f'{size}->{output}':>10} {peer:>22.3f} {ours:>8.3f} {peer / ours:>6.2f}x {ours_last:>14.3f}"
            f" {peer / ours_last:>6.2f}x"
        )


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Median time of one call between two CUDA events."""
    times = []
    for _ in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[3:])


def captured(work: Callable[[], object]) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def on_cuda(batch: int, repeats: int) -> None:
    print(
        f"augmentation, {torch.cuda.get_device_name()}, batch {batch}, bf16 channels-last result; milliseconds"
    )
    header = ("sizes", "products", "one by one", "graph", "with draws", "levels off: mean", "max")
    print(
        f"{header[0]:>10} {header[1]:>9} {header[2]:>11} {header[3]:>8} {header[4]:>11} {header[5]:>17} {header[6]:>7}"
    )
    for size, output in SIZES:
        images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8, device="cuda")
        generator = torch.Generator("cuda").manual_seed(0)
        augment = TrainAugment(size, output, dtype=torch.bfloat16, channels_last=True).to("cuda")
        crops, _ = augment.draw(batch, generator)
        with patch("satl.images.augment.product_dtype", lambda _: torch.float64):
            exact = augment.crop(images, crops)
        rows = {}
        for dtype in (torch.float32, torch.float16):
            with patch("satl.images.augment.product_dtype", lambda _, dtype=dtype: dtype):
                work = lambda a=augment, i=images, c=crops: a.perform(i, c)  # noqa: E731
                off = (augment.crop(images, crops) - exact).abs()
                rows[dtype] = (
                    milliseconds(work, repeats),
                    milliseconds(captured(work), repeats),
                    milliseconds(lambda a=augment, i=images, g=generator: a(i, g), repeats),
                    off.mean().item(),
                    off.max().item(),
                )
        for dtype, (eager, graph, whole, mean, most) in rows.items():
            name = str(dtype).removeprefix("torch.")
            print(
                f"{f'{size}->{output}':>10} {name:>9} {eager:>11.3f} {graph:>8.3f} {whole:>11.3f} {mean:>17.3f}"
                f" {most:>7.3f}"
            )
        ratio = rows[torch.float32][1] / rows[torch.float16][1]
        print(f"{'':>10} float32 takes {ratio:.2f}x the time of float16 in a graph")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, default=None, help="images; 16 on a CPU, 32 on a GPU")
    parser.add_argument("--repeats", type=int, default=None, help="calls; 7 on a CPU, 50 on a GPU")
    options = parser.parse_args()
    if options.device == "cpu":
        on_cpu(options.batch or 16, options.repeats or 7)
    else:
        on_cuda(options.batch or 32, options.repeats or 50)


if __name__ == "__main__":
    main()
