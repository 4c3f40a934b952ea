"""Streaming per-class thresholds against exact sorting: time, memory and error.

One epoch of scores the size of MS-COCO's training set (82,000 x 80, batches of 32) goes through
``SemanticAwareThreshold.observe`` and one ``update``. The peer keeps all scores and finds, per class, the
exact order statistics of known negatives and known positives with ``torch.sort``, and with ``torch.quantile``
for its time only, since it counts ranks differently (``level * (n - 1)``).

The budget: the error is at most one bin, and the memory at most a tenth of that of the stored scores.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from satl.thresholds import SemanticAwareThreshold

NEGATIVE, POSITIVE = 0.999, 0.1


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def make_data(images: int, classes: int, proportion: float) -> tuple[Tensor, Tensor]:
    """Long-tailed classes whose positives score higher than their negatives."""
    noise = torch.Generator().manual_seed(0)
    share = torch.logspace(math.log10(0.3), math.log10(0.002), classes)
    truth = torch.where(torch.rand(images, classes, generator=noise) < share, 1, -1).to(torch.int8)
    scores = (torch.randn(images, classes, generator=noise) + 2.5 * (truth > 0) - 2.0).sigmoid()
    known = torch.rand(images, classes, generator=noise) < proportion
    return scores, torch.where(known, truth, 0).to(torch.int8)


def by_sort(values: Tensor, level: float) -> float:
    if not len(values):
        return -math.inf
    return float(values.sort().values[max(1, math.ceil(level * len(values) - 1e-9)) - 1])


def by_quantile(values: Tensor, level: float) -> float:
    return float(torch.quantile(values, level, interpolation="higher")) if len(values) else -math.inf


def exact(scores: Tensor, labels: Tensor, quantile: Callable[[Tensor, float], float]) -> Tensor:
    ideal = []
    for column in range(scores.shape[1]):
        values, signs = scores[:, column], labels[:, column]
        ideal.append(max(quantile(values[signs < 0], NEGATIVE), quantile(values[signs > 0], POSITIVE)))
    return torch.tensor(ideal)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=82_000)
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--proportion", type=float, default=0.5)
    parser.add_argument("--bins", type=int, default=2048)
    options = parser.parse_args()
    scores, labels = make_data(options.images, options.classes, options.proportion)
    rule = SemanticAwareThreshold(options.classes, NEGATIVE, POSITIVE, rate=1.0, bins=options.bins)
    parts = list(zip(scores.split(options.batch), labels.split(options.batch), strict=True))

    def observe(batches: list[tuple[Tensor, Tensor]]) -> None:
        for part, marks in batches:
            rule.observe(part, marks)

    observe(parts[:10])
    rule.counts.zero_()
    streaming = seconds(lambda: observe(parts))
    update = seconds(rule.update)
    at_once = SemanticAwareThreshold(options.classes, NEGATIVE, POSITIVE, rate=1.0, bins=options.bins)
    whole = seconds(lambda: (at_once.observe(scores, labels), at_once.update()))
    sorting = seconds(lambda: exact(scores, labels, by_sort))
    quantile = seconds(lambda: exact(scores, labels, by_quantile))
    wanted = exact(scores, labels, by_sort)
    in_bins = (rule.value - wanted).abs().max().item() * options.bins
    buffers = rule.counts.nbytes + rule.value.nbytes
    stored = scores.nbytes + labels.nbytes
    steps = len(parts)

    print(f"{options.images} x {options.classes} scores, {options.proportion:.0%} known, {options.bins} bins")
    print(
        f"streaming, {steps} batches of {options.batch}: {streaming:.3f} s ({1e6 * streaming / steps:.0f} us each)"
    )
    print(f"update, once: {update:.4f} s; one batch of everything and update: {whole:.3f} s")
    for name, peer in (("torch.sort", sorting), ("torch.quantile", quantile)):
        streamed, at_a_time = (streaming + update) / peer, whole / peer
        print(
            f"{name} per class: {peer:.3f} s, ratio {streamed:.2f} (streaming), {at_a_time:.2f} (one batch)"
        )
    sizes = f"histograms {buffers / 2**20:.1f} MiB, stored scores and labels {stored / 2**20:.1f} MiB"
    print(f"memory: {sizes}, ratio {buffers / stored:.3f}")
    same = torch.equal(rule.value, at_once.value)
    print(f"largest error: {in_bins:.2f} bins; streaming equals one batch: {same}")
    kept = in_bins <= 1.001 and buffers <= stored / 10
    print(f"budget: error <= 1 bin and memory <= 0.1: {'kept' if kept else 'missed'}")
    raise SystemExit(not kept)


if __name__ == "__main__":
    main()
