"""Paired differences in mAP between the methods of an experiment, for each proportion, and of variants to their method.

    python benchmarks/differences.py runs/scenes [--model last|best]

Reads ``results.csv`` of a folder that ``satl experiment`` wrote. A pair is two runs of one seed and one proportion: the
same images and known labels. Table 3 of the report pools the proportions, this does not.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from itertools import combinations
from pathlib import Path

from satl.evaluation import paired_test

Runs = dict[int, dict[str, float]]
"""By seed."""
QUALITY = ("pseudo_precision_micro", "pseudo_recall_micro")


def read(folder: Path, model: str) -> dict[tuple[float, str, str], Runs]:
    """Finished runs by proportion, method and variant."""
    found: dict[tuple[float, str, str], Runs] = defaultdict(dict)
    with (folder / "results.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["status"] == "done" and row["model"] == model:
                numbers = {name: float(row[name]) for name in ("mAP", *QUALITY) if row[name]}
                found[float(row["proportion"]), row["method"], row["variant"]][int(row["seed"])] = numbers
    return dict(found)


def summary(runs: Runs) -> str:
    """Mean mAP, and precision and recall of pseudo-labels over all cells."""
    means = []
    for name in ("mAP", *QUALITY):
        values = [numbers[name] for numbers in runs.values() if name in numbers]
        means.append(sum(values) / len(values) if values else None)
    quality = "" if None in means[1:] else f"  pseudo-labels {means[1]:.1f} / {means[2]:.1f}"
    return f"{means[0]:6.2f}{quality}"


def difference(first: Runs, second: Runs) -> str:
    """The mean difference in mAP over the seeds that both have."""
    seeds = sorted(first.keys() & second.keys())
    if len(seeds) < 2:
        return "too few pairs"
    test = paired_test([first[seed]["mAP"] for seed in seeds], [second[seed]["mAP"] for seed in seeds])
    interval = f"[{test.interval_low:+.2f}, {test.interval_high:+.2f}]"
    return f"{test.mean_difference:+.2f} {interval}  p {test.p_value:.4f}  n {len(seeds)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", choices=["last", "best"], default="last")
    options = parser.parse_args()
    if not (options.folder / "results.csv").is_file():
        parser.error(f"{options.folder}: holds no results.csv; give the --out folder of `satl experiment`.")
    found = read(options.folder, options.model)
    for proportion in sorted({key[0] for key in found}):
        print(f"\n{100 * proportion:g} % known")
        here = {key[1:]: runs for key, runs in found.items() if key[0] == proportion}
        for (method, variant), runs in here.items():
            print(f"  {method} {variant}".ljust(40), summary(runs))
        for first, second in combinations([method for method, variant in here if not variant], 2):
            print(f"  {second} - {first}".ljust(40), difference(here[second, ""], here[first, ""]))
        for (method, variant), runs in here.items():
            if variant and (method, "") in here:
                print(f"  {method} {variant} - {method}".ljust(40), difference(runs, here[method, ""]))


if __name__ == "__main__":
    main()
