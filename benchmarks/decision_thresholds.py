"""OF1 and CF1 at 0.5 and with a threshold for each class: ``python benchmarks/decision_thresholds.py RUN [RUN ...]``.

The thresholds are those of ``satl thresholds --scores RUN --rule mat``: where F1 on the known cells that the run was
trained and validated on is best. Measured on the run's test images, which have no part in them; differences are paired
by run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from satl.evaluation.paired_tests import paired_test
from satl.inference.decision_thresholds import DecisionThresholds, above
from satl.inference.run_evaluation import evaluate_run, score_training_data
from satl.thresholds import MetricThreshold
from satl.thresholds.application import apply_rule


def measured(run: Path) -> dict[str, tuple[float, float]]:
    """Return each number at 0.5 and with the thresholds, in per cent."""
    table, scores = score_training_data(run)
    rows = apply_rule(
        MetricThreshold(table.num_classes), scores, table.cells, table.classes, encoding="signed"
    )
    thresholds = DecisionThresholds(np.array([above(row.threshold) for row in rows]), "mat")
    chosen, _ = evaluate_run(run, "test", thresholds=lambda _: thresholds)
    plain, _ = evaluate_run(run, "test")  # last: what it writes into the run stays as `satl evaluate` has it
    return {
        name: (100 * getattr(plain.at_threshold, name), 100 * getattr(chosen.at_threshold, name))
        for name in ("OF1", "CF1")
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs with test images")
    found = [measured(run) for run in parser.parse_args().runs]
    print(f"{len(found)} runs, mean, test images, per cent\n      at 0.5  chosen  difference [95 % interval]")
    for name in found[0]:
        plain, chosen = (np.array([one[name][at] for one in found]) for at in (0, 1))
        line = f"{name}   {plain.mean():6.1f}  {chosen.mean():6.1f}  {(chosen - plain).mean():+10.1f}"
        if len(found) > 1:
            test = paired_test(chosen, plain)
            line += f" [{test.interval_low:.1f}, {test.interval_high:.1f}], p {test.p_value:.4f}"
        print(line)


if __name__ == "__main__":
    main()
