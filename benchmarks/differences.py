"""Paired differences in mAP between the methods of an experiment, for each proportion, and of variants to their method.

    python benchmarks/differences.py runs/scenes [--model last|best]

Reads ``results.csv`` of a folder that ``satl experiment`` wrote, or such a file, as those in ``experiments/*/results``.
A pair is two runs of one seed and one proportion: the same images and known labels. Table 3 of the report pools the
proportions, this does not.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

from satl.errors import SatlError
from satl.evaluation.paired_tests import pair_by_key, paired_test
from satl.experiments.results import Estimate, Results, read_results

QUALITY = ("pseudo_precision_micro", "pseudo_recall_micro")


def summary(results: Results, place: tuple[str, float, str, str]) -> str:
    """Mean mAP, and precision and recall of pseudo-labels over all cells."""
    score, *quality = (Estimate.of(results.by_seed(name, *place).values()).mean for name in ("mAP", *QUALITY))
    shown = "" if None in quality else f"  pseudo-labels {quality[0]:.1f} / {quality[1]:.1f}"
    return f"{score:6.2f}{shown}"


def difference(first: dict[int, float], second: dict[int, float]) -> str:
    """The mean difference in mAP over the seeds that both have."""
    pairs = pair_by_key(first, second)
    if len(pairs.keys) < 2:
        return "too few pairs"
    test = paired_test(pairs.first, pairs.second)
    interval = f"[{test.interval_low:+.2f}, {test.interval_high:+.2f}]"
    return f"{test.mean_difference:+.2f} {interval}  p {test.p_value:.4f}  n {test.n}"


def main() -> None:
    """Print a paragraph for each proportion."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--model", choices=["last", "best"], default="last")
    options = parser.parse_args()
    try:
        results = read_results(options.results)
    except SatlError as error:
        parser.error(str(error))
    places = results.places(options.model)
    for proportion in sorted({place[0] for place in places}):
        print(f"\n{100 * proportion:g} % known")
        here = [(method, variant) for known, method, variant in places if known == proportion]
        scores = {
            (method, variant): results.by_seed("mAP", method, proportion, variant, options.model)
            for method, variant in here
        }
        for method, variant in here:
            place = (method, proportion, variant, options.model)
            print(f"  {method} {variant}".ljust(40), summary(results, place))
        for first, second in combinations([method for method, variant in here if not variant], 2):
            print(f"  {second} - {first}".ljust(40), difference(scores[second, ""], scores[first, ""]))
        for method, variant in here:
            if variant and (method, "") in scores:
                print(
                    f"  {method} {variant} - {method}".ljust(40),
                    difference(scores[method, variant], scores[method, ""]),
                )


if __name__ == "__main__":
    main()
