"""Print what docs/quickstart.md shows, and time it: photographs of MS-COCO with 18 classes, half of the cells known.

Run: python benchmarks/quickstart.py LABELS PHOTOS WEIGHTS OUT [--pictures 1000] [--stride-in-1x1] [--install]
LABELS is the complete table of the 18 classes, PHOTOS a folder with its pictures, WEIGHTS a file with ImageNet weights
of a ResNet-50. The first rows whose pictures are there are taken. --install begins where a new user begins: it builds a
wheel of this checkout, which is not timed, and installs it into a new virtual environment in OUT, with the versions of
constraints.txt, which is.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Spent(NamedTuple):
    """Seconds that a command took, and those of the processor, which a busy machine leaves as they are."""

    wall: float
    processor: float


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("labels", "photos", "weights", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--stride-in-1x1", action="store_true", help="as of satl complete")
    parser.add_argument("--backbone", default="resnet50", help="whose weights those are")
    parser.add_argument("--install", action="store_true", help="in a new environment, from a wheel")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the training")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    source = given.out / "labels.csv"
    write_half_known(given.labels, given.photos, given.pictures, source)
    spent: dict[str, Spent] = {}
    python = installed(given.out, spent) if given.install else Path(sys.executable)
    images = ("--images", given.photos)
    weights = (
        "--backbone",
        given.backbone,
        "--weights",
        given.weights,
        *(("--stride-in-1x1",) if given.stride_in_1x1 else ()),
    )
    settings = [part for setting in given.set for part in ("--set", setting)]
    completed = given.out / "completed"
    for name, further in (
        ("inspect", images),
        ("complete", (*images, "-o", completed, *weights, *settings)),
    ):
        spent[f"satl {name}"] = timed([python, "-m", "satl", name, source, *further])
    for file in ("completed.csv", "report.html"):
        if not (completed / file).is_file():
            raise SystemExit(f"{completed / file} is missing.")
    spent["together"] = Spent(*map(sum, zip(*spent.values(), strict=True)))
    print("load of the machine:", ", ".join(f"{value:.1f}" for value in os.getloadavg()))
    for name, value in spent.items():
        print(f"{name:<14} {value.wall:7.1f} s, of the processor {value.processor:7.1f} s")


def write_half_known(labels: Path, photos: Path, count: int, out: Path) -> None:
    """Write the first rows of a complete table whose pictures are there, every other cell of them blank."""
    from satl.labels import LabelTable, mask_table, read_table, write_table

    table = read_table(labels, encoding="complete")
    rows = [row for row, image in enumerate(table.images) if (photos / image).exists()][:count]
    chosen = table.select(rows)
    plain = LabelTable(images=chosen.images, classes=chosen.classes, cells=chosen.cells)
    write_table(mask_table(plain, 0.5, seed=0), out, encoding="blank")


def installed(out: Path, spent: dict[str, Spent]) -> Path:
    """Install this checkout into a new environment as a user would, and return its interpreter."""
    timed([sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", out / "wheel", ROOT])
    os.environ.pop("PYTHONPATH", None)  # what follows knows nothing of this checkout
    (wheel,) = (out / "wheel").glob("satl-*.whl")
    python = out / "venv" / "bin" / "python"
    spent["environment"] = timed([sys.executable, "-m", "venv", out / "venv"])
    pip = (python, "-m", "pip", "install", "--quiet")
    spent["pip install"] = timed([*pip, "-c", ROOT / "constraints.txt", wheel])
    return python


def timed(command: Sequence[str | Path]) -> Spent:
    """Run a command and return what it took."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [str(word) for word in command]
    print("$", " ".join(words), flush=True)
    subprocess.run(words, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(time.perf_counter() - begun, processor)


if __name__ == "__main__":
    main()
