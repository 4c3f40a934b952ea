"""What a checkpoint costs: as it is written now, and without waiting for the disk, checksums and the one before it.

    python benchmarks/checkpoint_cost.py --parameters 45 --step-seconds 0.4 --steps 200

Prints the seconds of both, their ratio, and the share of an epoch of so many steps that the difference is.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from satl.runs.checkpoint_folders import new_checkpoint
from satl.training.checkpoints import save_module, save_state


@contextmanager
def plain_checkpoint(final: Path, keep_previous: bool) -> Iterator[Path]:
    """Write a checkpoint as it was written before: rename, nothing else."""
    fresh, old = final.with_name("last.new"), final.with_name("last.old")
    fresh.mkdir(parents=True)
    yield fresh
    if final.exists():
        final.replace(old)
    fresh.replace(final)
    shutil.rmtree(old, ignore_errors=True)


def seconds(writer: object, content: dict[str, Tensor], folder: Path, repeats: int) -> list[float]:
    """Return the seconds of each of a few checkpoints: weights, their average, and two moments of each weight."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        with writer(folder / "last", True) as path:  # type: ignore[operator]
            for name in ("learner.safetensors", "average.safetensors"):
                save_module(content, path / name)
            save_state({"first": content, "second": content}, path / "training.pt")
        times.append(time.perf_counter() - begun)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parameters", type=float, default=45.0, help="millions of parameters")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000, help="steps between two checkpoints")
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    options = parser.parse_args()
    size = int(options.parameters * 1e6 / 100)
    content = {f"layer{number}": torch.randn(size) for number in range(100)}
    medians = {}
    for name, writer in (("plain", plain_checkpoint), ("safe", new_checkpoint)):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            times = seconds(writer, content, Path(folder), options.repeats)
        medians[name] = statistics.median(times)
        print(f"{name}: {medians[name]:.3f} s (median of {len(times)}, {min(times):.3f} to {max(times):.3f})")
    more = medians["safe"] - medians["plain"]
    print(f"ratio {medians['safe'] / medians['plain']:.2f}; {16 * options.parameters:.0f} MB a checkpoint")
    epoch = options.steps * options.step_seconds
    print(f"{100 * more / epoch:.3f} % of {options.steps} steps of {options.step_seconds} s")


if __name__ == "__main__":
    main()
