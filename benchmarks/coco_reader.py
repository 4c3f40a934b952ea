"""Time and memory of reading labels from an annotation file of the size of COCO's training set.

Run: ``python benchmarks/coco_reader.py [--images 82783] [--annotations 600000]``. It writes an
annotation file with outlines, boxes and addresses as the published one has them, then reads it in fresh
processes: with an empty cache, from the cache, and with Python's json module alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

GAPS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
CATEGORY_IDS = [number for number in range(1, 91) if number not in GAPS]


def write_annotations(path: Path, images: int, annotations: int) -> None:
    random = np.random.default_rng(0)
    image_ids = random.permutation(600_000)[:images]
    outlines = []
    for corners in random.geometric(1 / 26, 4000) + 3:
        points = ", ".join(f"{value:.2f}" for value in random.uniform(0, 640, 2 * corners))
        outlines.append(f"[[{points}]]")
    of_image = image_ids[random.integers(0, images, annotations)].tolist()
    # Few classes are frequent and many are rare, as in the published set.
    chance = 1 / np.arange(1, len(CATEGORY_IDS) + 1)
    category = random.choice(CATEGORY_IDS, annotations, p=chance / chance.sum()).tolist()
    which = random.integers(0, len(outlines), annotations).tolist()
    with path.open("w", encoding="utf-8") as stream:
        stream.write('{"info": {"description": "synthetic", "year": 2014}, "images": [')
        for at, number in enumerate(image_ids.tolist()):
            name = f"COCO_train2014_{number:012d}.jpg"
            stream.write(
                f'{", " if at else ""}{{"license": 5, "file_name": "{name}", '
                f'"coco_url": "http://images.cocodataset.org/train2014/{name}", "height": 480, "width": 640, '
                f'"date_captured": "2013-11-14 16:28:13", '
                f'"flickr_url": "http://farm4.staticflickr.com/3153/29707{number}_164f0c0b83_z.jpg", "id": {number}}}'
            )
        stream.write('], "licenses": [], "annotations": [')
        for at in range(annotations):
            outline = outlines[which[at]]
            if at % 100 == 99:
                outline = '{"counts": [272, 2, 4, 4, 4, 4, 2, 9, 1, 2, 16, 43, 143, 24], "size": [240, 320]}'
            stream.write(
                f'{", " if at else ""}{{"segmentation": {outline}, "area": 54652.9556, '
                f'"iscrowd": {int(at % 100 == 99)}, "image_id": {of_image[at]}, '
                f'"bbox": [116.95, 305.86, 285.3, 266.03], "category_id": {category[at]}, "id": {at + 1}}}'
            )
        stream.write('], "categories": [')
        stream.write(
            ", ".join(
                f'{{"supercategory": "thing", "id": {number}, "name": "category {number}"}}'
                for number in CATEGORY_IDS
            )
        )
        stream.write("]}")


READ = """
from satl.labels import read_dataset
print(read_dataset('coco2014', {root!r}, splits='train'))
"""
PLAIN = """
import json
with open({file!r}) as stream:
    content = json.load(stream)
"""


class Measured(NamedTuple):
    """Seconds by the clock and of the processor, peak memory in GB, and what was printed."""

    seconds: float
    processor: float
    peak: float
    printed: str

    def __str__(self) -> str:
        return f"{self.seconds:8.2f} s {self.processor:8.2f} s of processor {self.peak:6.2f} GB peak"


def measured(code: str, cache: Path) -> Measured:
    """Run ``code`` in a fresh process; the start of Python and the import of numpy are not counted."""
    program = (
        "import resource, time\nimport numpy\nbegun, used = time.perf_counter(), time.process_time()\n"
        + code
        + "\nprint(time.perf_counter() - begun, time.process_time() - used,"
        " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    environment = {**os.environ, "SATL_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    *printed, last = done.stdout.strip().splitlines()
    seconds, processor, peak = (float(value) for value in last.split())
    # Linux counts in KiB, macOS in bytes.
    peak *= (1 if sys.platform == "darwin" else 1024) / 1e9
    return Measured(seconds, processor, peak, "\n".join(printed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=82_783)
    parser.add_argument("--annotations", type=int, default=600_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "coco", Path(folder) / "cache"
        file = root / "annotations" / "instances_train2014.json"
        file.parent.mkdir(parents=True)
        begun = time.perf_counter()
        write_annotations(file, args.images, args.annotations)
        print(
            f"{args.images:,} images, {args.annotations:,} annotations: {file.stat().st_size / 1e6:,.0f} MB, "
            f"written in {time.perf_counter() - begun:.1f} s"
        )
        read = READ.format(root=str(root))
        cold = measured(read, cache)
        again = min(measured(read, cache) for _ in range(3))
        if again.printed != cold.printed:
            raise SystemExit("the cache gives another table than the file")
        plain = measured(PLAIN.format(file=str(file)), cache)
        kept = sum(path.stat().st_size for path in cache.rglob("*.cache"))
        print(cold.printed)
        print(f"{'satl, empty cache':<20}{cold}")
        print(f"{'satl, from cache':<20}{again}   (cache file {kept / 1e6:.1f} MB)")
        print(f"{'json.load alone':<20}{plain}")


if __name__ == "__main__":
    main()
