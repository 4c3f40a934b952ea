"""Time reading and writing a wide table of the size of COCO against Python's own csv module.

Run: ``python benchmarks/label_io.py [--images 80000] [--classes 80]``. Only the ratios of one run count.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from satl.labels import LabelTable, mask_table, read_table, split_table, write_table


def best_of(function: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def example_table(images: int, classes: int) -> LabelTable:
    random = np.random.RandomState(0)
    complete = np.where(random.random_sample((images, classes)) < 0.036, 1, -1)
    names = tuple(f"train2014/COCO_train2014_{i:012d}.jpg" for i in range(images))
    return LabelTable(names, tuple(f"class {c}" for c in range(classes)), complete, encoding="signed")


def csv_module_read(path: Path) -> np.ndarray:
    meaning = {"1": 1, "0": -1, "": 0}
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        next(rows)
        return np.array([[meaning[value] for value in row[1:]] for row in rows], dtype=np.int8)


def csv_module_write(table: LabelTable, path: Path) -> None:
    text = {1: "1", -1: "0", 0: ""}
    with path.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["image", *table.classes])
        for image, cells in zip(table.images, table.cells.tolist(), strict=True):
            rows.writerow([image, *(text[cell] for cell in cells)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=80_000)
    parser.add_argument("--classes", type=int, default=80)
    args = parser.parse_args()
    complete = example_table(args.images, args.classes)
    table = mask_table(complete, 0.1).with_truth(None)
    print(f"{table.num_images:,} images x {table.num_classes} classes, 10 % known; best of 3, in seconds")
    with tempfile.TemporaryDirectory() as folder:
        peer_path = Path(folder) / "peer.csv"
        peer_write = best_of(lambda: csv_module_write(table, peer_path))
        peer_read = best_of(lambda: csv_module_read(peer_path))
        print(f"{'csv module':<12} read {peer_read:6.2f}          write {peer_write:6.2f}")
        for extension in ("csv", "parquet", "npz", "jsonl"):
            path = Path(folder) / f"table.{extension}"
            written = best_of(lambda path=path: write_table(table, path))
            read = best_of(lambda path=path: read_table(path))
            if read_table(path) != table:
                raise SystemExit(f"{extension} does not read back what was written")
            print(
                f"satl {extension:<7} read {read:6.2f} ({peer_read / read:4.1f}x)  "
                f"write {written:6.2f} ({peer_write / written:4.1f}x)"
            )
        if not np.array_equal(csv_module_read(peer_path), read_table(peer_path).cells):
            raise SystemExit("satl and the csv module disagree")
    masked = best_of(lambda: mask_table(complete, 0.1), 1)
    print(f"mask {masked:.2f} s, stratified split {best_of(lambda: split_table(complete, 0.1), 1):.2f} s")


if __name__ == "__main__":
    main()
