"""Time and memory of ``satl complete`` for a large table of scores.

Run: ``python benchmarks/complete_table.py [--images 1000000] [--classes 100] [--known 0.1] [--kind npz parquet]``.
The command line is run as a user runs it, in its own process; printed are its wall time, its processor time, the
most memory it held, and the sizes of what it wrote. The bar is 30 s and 2 GB for 1,000,000 x 100 cells.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from satl.labels import LabelTable, write_table

BLOCK = 50_000


def draw(images: int, classes: int, known: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of classes from rare to common and from hard to easy."""
    random = np.random.default_rng(0)
    prevalence = np.geomspace(0.005, 0.4, classes)
    separation = np.linspace(1.0, 2.5, classes)[random.permutation(classes)]
    scores = np.empty((images, classes), dtype=np.float32)
    labels = np.empty((images, classes), dtype=np.int8)
    for first in range(0, images, BLOCK):
        rows = slice(first, min(first + BLOCK, images))
        shape = (rows.stop - rows.start, classes)
        present = random.random(shape, dtype=np.float32) < prevalence
        logits = random.standard_normal(shape, dtype=np.float32) + np.where(present, separation, -separation)
        scores[rows] = 1 / (1 + np.exp(-logits))
        truth = np.where(present, 1, -1)
        labels[rows] = np.where(random.random(shape, dtype=np.float32) < known, truth, 0)
    return scores, labels


def write_inputs(folder: Path, kind: str, images: int, classes: int, known: float) -> list[str]:
    """Write the files and return the options that name them."""
    scores, labels = draw(images, classes, known)
    names = [f"class {c}" for c in range(classes)]
    ids = [f"photos/{i:07d}.jpg" for i in range(images)]
    if kind == "npz":
        file = folder / "all.npz"
        np.savez(
            file, scores=scores, labels=labels, names=np.array(names), images=np.array(ids), encoding="signed"
        )
        return ["--scores", str(file)]
    import pyarrow as pa
    import pyarrow.parquet

    columns = {"image": ids, **{name: scores[:, c] for c, name in enumerate(names)}}
    pyarrow.parquet.write_table(pa.table(columns), folder / "scores.parquet")
    write_table(LabelTable(tuple(ids), tuple(names), labels, encoding="signed"), folder / "labels.parquet")
    return ["--scores", str(folder / "scores.parquet"), "--labels", str(folder / "labels.parquet")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--known", type=float, default=0.1)
    parser.add_argument("--kind", nargs="+", choices=("npz", "parquet"), default=["npz", "parquet"])
    args = parser.parse_args()
    print(f"{args.images:,} images x {args.classes} classes, {args.known:.0%} known")
    for kind in args.kind:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            # In another process, so that its memory is not inherited.
            pid = os.fork()
            if pid == 0:
                options = write_inputs(folder, kind, args.images, args.classes, args.known)
                (folder / "options").write_text("\n".join(options))
                os._exit(0)
            os.waitpid(pid, 0)
            options = (folder / "options").read_text().splitlines()
            begun = time.perf_counter()
            command = [sys.executable, "-m", "satl", "complete", *options, "-o", str(folder / "out")]
            with subprocess.Popen(command) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            wall = time.perf_counter() - begun
            if process.returncode:
                raise SystemExit(process.returncode)
            sizes = ", ".join(
                f"{file.name} {file.stat().st_size / 2**20:,.0f} MiB"
                for file in sorted((folder / "out").iterdir())
                if file.stat().st_size > 2**20
            )
            print(
                f"{kind:8} wall {wall:6.1f} s  processor {usage.ru_utime + usage.ru_stime:6.1f} s  "
                f"memory {usage.ru_maxrss / 2**20:.2f} GiB  ({sizes})",
                flush=True,
            )


if __name__ == "__main__":
    main()
