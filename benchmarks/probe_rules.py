"""How right are the pseudo-labels of threshold rules, by class, on scores that did or did not learn the known cells?

``python benchmarks/probe_rules.py LABELS FEATURES`` hides most of the complete labels of the training images, fits
logistic regressions to the rest, lets each rule set its thresholds by the scores of the known cells, and counts what it
accepts of the hidden ones: precision and recall, mean over classes and over all cells, mean over seeds. No network is
trained. Scores are of two kinds:

- ``cross-fitted``: a known cell is scored by a fit that has not seen it, as an unknown one is;
- ``memorised``: seven tenths of the log-odds are of a fit to all known cells, so loose that it knows most of them by
  heart, as a network does; three tenths are the former. So is the teacher of ``satl+`` made.

``python benchmarks/probe_rules.py --run RUN`` asks the same of the scores of a finished run, whose model was kept: of
each of its generators, with the thresholds that the run ended with as a further row, and of the network's own
probability.

Hidden labels are looked at to count, never to choose, but in the last two rows, ``best for 80 %`` and ``best for
85 %``. These have the highest mean recall that one threshold a class can have with such a mean precision, thresholds
chosen by the hidden labels themselves. No rule can be above them; a wish that lies above them asks for other scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from satl.errors import SatlError
from satl.evaluation.pseudo_quality import pseudo_label_quality
from satl.features import read_features
from satl.inference.run_record import measure_run
from satl.labels import mask_table, read_table
from satl.runs.run_folder import RunFolder
from satl.scoring.probe import LinearProbe, fit_probe
from satl.thresholds import (
    CalibratedThreshold,
    FixedThreshold,
    MetricThreshold,
    PrecisionThreshold,
    ProportionThreshold,
    SemanticAwareThreshold,
    ShrunkenThreshold,
    ThresholdRule,
)
from satl.thresholds.functional import pseudo_labels

LOOSE = 3e-6
"""Penalty of the fit that knows its cells by heart, a tenth of the smallest that :func:`fit_probe` chooses from."""

RULES: dict[str, Callable[[int], ThresholdRule]] = {
    "semantic": SemanticAwareThreshold,
    "semantic of satl+": lambda num: SemanticAwareThreshold(num, negatives_per_positive=0.01, floor=0.5),
    "fixed 0.5": lambda num: FixedThreshold(num, 0.5),
    "fixed 0.7": lambda num: FixedThreshold(num, 0.7),
    "precision 0.9": lambda num: PrecisionThreshold(num, 0.9),
    "shrunk 0.9": lambda num: ShrunkenThreshold(num, 0.9),
    "shrunk 0.95": lambda num: ShrunkenThreshold(num, 0.95),
    "shrunk 0.95, floor 0.5": lambda num: ShrunkenThreshold(num, 0.95, floor=0.5),
    "calibrated 0.88": lambda num: CalibratedThreshold(num, 0.88),
    "calibrated 0.9": CalibratedThreshold,
    "cap": ProportionThreshold,
    "mat": MetricThreshold,
}
WANTED = (0.80, 0.85)


def scores_of(features: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return probabilities ``(N, C)`` of both kinds."""
    probe, left_out = fit_probe(features, labels)
    with torch.no_grad():
        honest = torch.where(labels != 0, left_out, probe(features))
        loose = LinearProbe(features, labels.shape[1]).fit(features, labels, LOOSE)(features)
    return {"cross-fitted": honest.sigmoid(), "memorised": (0.7 * loose + 0.3 * honest).sigmoid()}


def learned(rule: ThresholdRule, scores: Tensor, labels: Tensor) -> Tensor:
    """Return the thresholds ``(C,)`` at which a rule ends that sees these scores."""
    rule.observe(scores, labels)
    return rule.limit()


def qualities(thresholds: Tensor, scores: Tensor, labels: Tensor, truth: Tensor) -> tuple[float, ...]:
    """Return precision and recall, mean over classes and then over all cells, of what lies above thresholds."""
    filled = pseudo_labels(scores, labels, thresholds)
    found = pseudo_label_quality(filled.numpy(), labels.numpy(), truth.numpy(), encoding="signed").summary()
    keys = ("macro_precision", "macro_recall", "micro_precision", "micro_recall")
    # Where nothing is accepted there is no precision.
    return tuple(float("nan") if found[key] is None else 100 * found[key] for key in keys)


def best_thresholds(scores: Tensor, labels: Tensor, truth: Tensor, precision: float) -> Tensor:
    """Return the thresholds ``(C,)`` with the highest mean recall of those with a mean precision.

    Both are means over classes on the unknown cells; a class that accepts nothing has no precision and a recall of 0.
    With a price on precision each class can be optimised by itself; the lowest price that pays for the wanted mean is
    found by bisection. So the answer lies on the convex hull of what is possible: within one class of the best.
    """
    curves = [
        _curve(*(part[:, index] for part in (scores, labels, truth))) for index in range(scores.shape[1])
    ]

    def chosen(price: float) -> tuple[Tensor, float]:
        thresholds, surplus = torch.ones(len(curves)), 0.0
        for index, (cuts, right, recall) in enumerate(curves):
            worth = recall + price * (right - precision)
            if len(worth) and worth.max() > 0:
                best = int(worth.argmax())
                thresholds[index] = cuts[best]
                surplus += float(right[best]) - precision
        return thresholds, surplus

    low, high = 0.0, 1e3
    if chosen(low)[1] >= 0:
        return chosen(low)[0]
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if chosen(middle)[1] >= 0 else (middle, high)
    return chosen(high)[0]


def _curve(scores: Tensor, labels: Tensor, truth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return thresholds of a class, and precision and recall of the unknown cells strictly above each."""
    unknown = labels == 0
    ordered, order = scores[unknown].sort(descending=True)
    right = (truth[unknown][order] > 0).double().cumsum(0)
    # Cells of equal scores are accepted together, below the last of them.
    last = torch.ones(len(ordered), dtype=torch.bool)
    last[:-1] = ordered[:-1] > ordered[1:]
    following = torch.cat([ordered[1:], ordered.new_full((1,), -1.0)])
    accepted = torch.arange(1, len(ordered) + 1, dtype=torch.float64)
    return following[last], (right / accepted)[last], (right / right[-1:].clamp(min=1))[last]


def thresholds_of(scores: Tensor, labels: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Return the thresholds ``(C,)`` of every rule, and the best there are."""
    found = {name: learned(make(labels.shape[1]), scores, labels) for name, make in RULES.items()}
    for wanted in WANTED:
        found[f"best for {wanted:.0%}"] = best_thresholds(scores, labels, truth, wanted)
    return found


def show(title: str, rows: dict[str, tuple[float, ...]]) -> None:
    """Print a table, a row for each rule."""
    print(f"{title}: precision / recall, mean over classes; over all cells")
    for name, (precision, recall, *over_cells) in rows.items():
        print(
            f"  {name:24s}{precision:5.1f} / {recall:4.1f}   {over_cells[0]:5.1f} / {over_cells[1]:4.1f}",
            flush=True,
        )


def show_run(run: Path) -> None:
    """Print a table for each kind of scores of a finished run."""
    record = measure_run(RunFolder.open(run))
    if record.truth is None:
        raise SystemExit(f"{run}: its data has no hidden labels to count")
    labels, truth = torch.from_numpy(record.cells), torch.from_numpy(record.truth)
    for name, values in {**record.method.scores, "probability": record.probability}.items():
        # What means nothing is below every threshold.
        scores = torch.from_numpy(values.astype(np.float32)).nan_to_num(nan=-1.0)
        chosen = thresholds_of(scores, labels, truth)
        if name in record.method.thresholds:
            chosen = {"of the run": torch.from_numpy(record.method.thresholds[name]).float(), **chosen}
        show(name, {rule: qualities(cut, scores, labels, truth) for rule, cut in chosen.items()})


def main(arguments: list[str] | None = None) -> None:
    """Print a table for each proportion and kind of scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("labels", type=Path, nargs="?", help="complete label table, cells 1 and 0")
    parser.add_argument(
        "features", type=Path, nargs="?", help="features of its images: whatever data.features reads"
    )
    parser.add_argument("--run", type=Path, help="a finished run instead, with its last model")
    parser.add_argument("--proportions", type=float, nargs="+", default=[0.1, 0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args(arguments)
    if (options.run is None) == (options.features is None):
        parser.error("name LABELS and FEATURES, or --run RUN")
    if options.run is not None:
        try:
            show_run(options.run)
        except SatlError as error:
            raise SystemExit(f"error: {error}") from None
        return
    table = read_table(options.labels, encoding="complete")
    if table.split is not None:
        table = table.select(np.asarray(table.split) == "train")
    views = read_features(options.features, table.images).take(np.arange(table.num_images))
    features = torch.from_numpy(views[:, 0].astype(np.float32))
    truth = torch.from_numpy(np.array(table.cells))
    for proportion in options.proportions:
        found: dict[str, dict[str, list[tuple[float, ...]]]] = {}
        for seed in options.seeds:
            labels = torch.from_numpy(np.array(mask_table(table, proportion, seed=seed).cells))
            for kind, scores in scores_of(features, labels).items():
                for name, thresholds in thresholds_of(scores, labels, truth).items():
                    made = qualities(thresholds, scores, labels, truth)
                    found.setdefault(kind, {}).setdefault(name, []).append(made)
        for kind, measured in found.items():
            means = {name: tuple(np.mean(values, axis=0)) for name, values in measured.items()}
            show(f"{proportion:.0%} known, {kind}", means)


if __name__ == "__main__":
    main()
