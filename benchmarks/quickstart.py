"""Print what docs/quickstart.md shows: 1,500 photographs of MS-COCO with 18 classes, half of the cells known.

Run: python benchmarks/quickstart.py LABELS PHOTOS WEIGHTS OUT
LABELS is the complete table of the 18 classes, PHOTOS a folder with at least 1,500 of its pictures, WEIGHTS a file with
ImageNet weights of a ResNet-50. The first 1,500 rows whose pictures are there are taken.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from satl.labels import LabelTable, mask_table, read_table, write_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("labels", "photos", "weights", "out"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    table = read_table(given.labels, encoding="complete")
    rows = [row for row, image in enumerate(table.images) if (given.photos / image).exists()][:1500]
    chosen = table.select(rows)
    plain = LabelTable(images=chosen.images, classes=chosen.classes, cells=chosen.cells)
    given.out.mkdir(parents=True, exist_ok=True)
    source = given.out / "labels.csv"
    write_table(mask_table(plain, 0.5, seed=0), source, encoding="blank")
    images = ("--images", str(given.photos))
    for command in (
        ("inspect", str(source), *images),
        (
            "complete",
            str(source),
            *images,
            "-o",
            str(given.out / "completed"),
            "--weights",
            str(given.weights),
        ),
    ):
        subprocess.run([sys.executable, "-m", "satl", *command], check=True)


if __name__ == "__main__":
    main()
