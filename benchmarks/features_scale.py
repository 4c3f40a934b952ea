"""Time and memory of training on features and of completing their table, at three sizes.

Run: ``python benchmarks/features_scale.py [--rows 100000 300000 1000000] [--dim 512] [--classes 200] [--known 0.05]``.
Features and labels are drawn; `satl train` and `satl complete` are run as a user runs them, each in its own process.
Printed are wall time, processor time and the most memory of each, and how much more time and memory a row takes at
each size than at the first: 1 is linear. The bars are 15 minutes and 8 GB for 1,000,000 rows on two cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from satl.features import FeatureWriter
from satl.labels import LabelTable, write_table

PART_ROWS = 50_000
TRAINING = ("training.epochs=4", "training.stage1_epochs=2", "training.batch_size=4096", "training.lr=0.01")


def write_inputs(folder: Path, rows: int, dim: int, classes: int, known: float) -> None:
    """Write features and half-known labels of classes from rare to common."""
    random = np.random.default_rng(0)
    ids = tuple(f"photos/{row:07d}.jpg" for row in range(rows))
    prevalence = np.geomspace(0.005, 0.3, classes)
    directions = random.standard_normal((classes, dim), dtype=np.float32) * 0.6
    labels = np.empty((rows, classes), dtype=np.int8)
    writer = FeatureWriter(folder / "features", ids, dim, 1, {"drawn": True}, part_rows=PART_ROWS)
    for number in writer.missing():
        part = slice(number * PART_ROWS, number * PART_ROWS + len(writer.ids_of(number)))
        shape = (part.stop - part.start, classes)
        present = random.random(shape, dtype=np.float32) < prevalence
        features = present.astype(np.float32) @ directions
        features += random.standard_normal(features.shape, dtype=np.float32) * 2
        writer.write_part(number, ids[part], features)
        seen = random.random(shape, dtype=np.float32) < known
        labels[part] = np.where(seen, np.where(present, 1, -1), 0)
    writer.finish()
    write_table(
        LabelTable(ids, tuple(f"class {c}" for c in range(classes)), labels, encoding="signed"),
        folder / "labels.npz",
    )
    (folder / "run.yaml").write_text("data: {table: labels.npz, features: features, holdout: true}\n")


class Usage(NamedTuple):
    """What a command took."""

    wall: float
    processor: float
    memory: float

    def __str__(self) -> str:
        return f"{self.wall:6.1f} s (processor {self.processor:6.1f} s) {self.memory:5.2f} GiB"


def timed(command: Sequence[str | Path]) -> Usage:
    """Run a command of satl and return its times in seconds and its most memory in GiB."""
    begun = time.perf_counter()
    arguments = [sys.executable, "-m", "satl", *map(str, command)]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return Usage(time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20)


def measure(rows: int, args: argparse.Namespace) -> tuple[float, float]:
    """Measure one size and return seconds and GiB."""
    if args.folder:
        Path(args.folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        # In another process, so that its memory is not inherited.
        pid = os.fork()
        if pid == 0:
            write_inputs(folder, rows, args.dim, args.classes, args.known)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            raise SystemExit("the inputs could not be written")
        settings = [part for setting in (*TRAINING, *args.set) for part in ("--set", setting)]
        train = timed(["train", folder / "run.yaml", "-o", folder / "run", "--quiet", *settings])
        complete = timed(["complete", folder / "run", "-o", folder / "out"])
    seconds = train.wall + complete.wall
    print(
        f"{rows:>9,} rows  train {train}  complete {complete}  together {seconds / 60:5.1f} min", flush=True
    )
    return seconds, max(train.memory, complete.memory)


def main() -> None:
    """Measure every size and print how time and memory grow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--known", type=float, default=0.05)
    parser.add_argument("--set", nargs="*", default=[], help="further settings of the training")
    parser.add_argument("--folder", help="where to write; by default the folder of temporary files")
    args = parser.parse_args()
    print(
        f"{args.dim} features, {args.classes} classes, {args.known:.0%} known, {' '.join((*TRAINING, *args.set))}"
    )
    found = [measure(rows, args) for rows in args.rows]
    first_seconds, first_memory = found[0]
    for rows, (seconds, memory) in zip(args.rows, found, strict=True):
        share = rows / args.rows[0]
        print(
            f"{rows:>9,} rows  {share:5.1f} x the rows: {seconds / first_seconds:5.2f} x the time "
            f"({seconds / first_seconds / share:.2f} a row), {memory / first_memory:5.2f} x the memory"
        )


if __name__ == "__main__":
    main()
