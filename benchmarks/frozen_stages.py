"""Convolutions of frozen ResNet stages alone: which are bound by arithmetic, which by memory, and the stem both ways.

    python benchmarks/frozen_stages.py [--batch 32] [--size 448]

Each is replayed as a CUDA graph, in bf16, with bias and ReLU in its kernel (``satl.models.kernels.convolution``).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.models.kernels.convolution import conv_add_relu, conv_relu

SHAPES = ((256, 256, 3, 16), (64, 64, 3, 4), (256, 64, 1, 4), (64, 256, 1, 4))
"""Channels in and out, kernel, and how many times smaller than the image the map is."""


def milliseconds(work: Callable[[], Tensor], repeats: int = 30) -> float:
    """Median time of a replay."""
    for _ in range(5):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def random(*shape: int) -> Tensor:
    """A random map or weight, in the layout and precision of the product."""
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16).contiguous(
        memory_format=torch.channels_last
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=448)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("frozen_stages.py needs a GPU.")
    batch, size = options.batch, options.size
    images, stem = random(batch, 3, size, size), random(64, 3, 7, 7)
    print(
        f"stem, three channels            {milliseconds(lambda: F.conv2d(images, stem, None, 2, 3)):.3f} ms"
    )
    blocks, weight = random(batch, 16, size // 2 + 3, size // 2 + 3), random(64, 16, 4, 4)
    bias = torch.zeros(64, device="cuda", dtype=torch.bfloat16)
    ms = milliseconds(lambda: conv_relu(blocks, weight, bias, 1, 0, 1, 1))
    print(f"stem, blocks of 2 x 2 pixels    {ms:.3f} ms")
    for inner, outer, kernel, smaller in SHAPES:
        side = size // smaller
        maps, kernels = random(batch, inner, side, side), random(outer, inner, kernel, kernel)
        bias = torch.zeros(outer, device="cuda", dtype=torch.bfloat16)
        shortcut, geometry = random(batch, outer, side, side), (1, kernel // 2, 1, 1)
        pixels = batch * side * side
        operations = 2 * pixels * inner * outer * kernel * kernel
        alone = partial(conv_relu, maps, kernels, bias, *geometry)
        added = partial(conv_add_relu, maps, kernels, bias, shortcut, *geometry)
        for name, read, work in (("", inner, alone), (", shortcut", inner + outer, added)):
            ms = milliseconds(work)
            title = f"{kernel} x {kernel}, {inner} to {outer}, {side} x {side}{name}"
            traffic = 2 * pixels * (read + outer)
            print(
                f"{title:<40}{ms:.3f} ms  {operations / ms / 1e9:.0f} TFLOP/s  {traffic / ms / 1e9:.2f} TB/s"
            )


if __name__ == "__main__":
    main()
