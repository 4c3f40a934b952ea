"""How much faster is a network on processors if memory that its batches free stays with the process?

    python benchmarks/kept_memory.py [--backbone resnet50] [--batch-size 32] [--pictures 96] [--rounds 3] [--threads 2]
        [--train]

Runs the bare network on pixels that are in memory, as the C library does it and in ``memory_is_kept``, in processes of
their own and in turns; with ``--train`` forward and backward, with the last stage to be trained. Prints pictures a
second, seconds in the system, and the most memory of each; then the ratio of the medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import time

import timm
import torch

from satl.models.kept_memory import memory_is_kept

WAYS = {"usual": contextlib.nullcontext, "kept": memory_is_kept}


def measure(way: str, options: argparse.Namespace) -> dict[str, float]:
    """Return pictures a second, seconds in the system and MiB of one way, after a batch that does not count."""
    torch.set_num_threads(options.threads)
    model = timm.create_model(options.backbone, num_classes=0).eval().to(memory_format=torch.channels_last)
    size = model.default_cfg["input_size"][-1]
    pixels = torch.randn(options.batch_size, 3, size, size).to(memory_format=torch.channels_last)
    if options.train:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("layer4"))
    with torch.inference_mode(not options.train), WAYS[way]():
        run(model, pixels)
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        batches = -(-options.pictures // options.batch_size)
        for _ in range(batches):
            run(model, pixels)
        seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "speed": batches * options.batch_size / seconds,
        "system": after.ru_stime - before.ru_stime,
        "memory": after.ru_maxrss / 1024,
    }


def run(model: torch.nn.Module, pixels: torch.Tensor) -> None:
    """Run a network forward and, where gradients are kept, backward."""
    output = model(pixels).mean()
    if output.requires_grad:
        model.zero_grad()
        output.backward()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--pictures", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--train", action="store_true", help="of a ResNet: train its last stage")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options.way, options)))
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            command = [sys.executable, *sys.argv, "--way", way]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found[way].append(json.loads(out))
    medians = {
        way: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for way, rows in found.items()
    }
    for way, row in medians.items():
        print(
            f"{way:6s}{row['speed']:8.1f} pictures/s, {row['system']:6.2f} s in the system, {row['memory']:6.0f} MiB"
        )
    print(f"kept / usual: {medians['kept']['speed'] / medians['usual']['speed']:.2f}")


if __name__ == "__main__":
    main()
