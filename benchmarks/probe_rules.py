"""How right are the pseudo-labels of threshold rules, by class, on scores that did or did not learn the known cells?

``python benchmarks/probe_rules.py LABELS FEATURES`` hides most of the complete labels of the training images, fits
logistic regressions to the rest, lets each rule set its thresholds by the scores of the known cells, and counts what it
accepts of the hidden ones: precision and recall, mean over classes and over all cells, mean over seeds. No network is
trained. Scores are of two kinds:

- ``cross-fitted``: a known cell is scored by a fit that has not seen it, as an unknown one is;
- ``memorised``: seven tenths of the log-odds are of a fit to all known cells, so loose that it knows most of them by
  heart, as a network does; three tenths are the former. So is the teacher of ``satl+`` made.

Hidden labels are looked at to count, never to choose.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from satl.evaluation.pseudo_quality import pseudo_label_quality
from satl.features import read_features
from satl.labels import mask_table, read_table
from satl.scoring.probe import LinearProbe, fit_probe
from satl.thresholds import (
    FixedThreshold,
    MetricThreshold,
    PrecisionThreshold,
    ProportionThreshold,
    SemanticAwareThreshold,
    ShrunkenThreshold,
    ThresholdRule,
)

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
    "cap": ProportionThreshold,
    "mat": MetricThreshold,
}


def scores_of(features: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return probabilities ``(N, C)`` of both kinds."""
    probe, left_out = fit_probe(features, labels)
    with torch.no_grad():
        honest = torch.where(labels != 0, left_out, probe(features))
        loose = LinearProbe(features, labels.shape[1]).fit(features, labels, LOOSE)(features)
    return {"cross-fitted": honest.sigmoid(), "memorised": (0.7 * loose + 0.3 * honest).sigmoid()}


def qualities(rule: ThresholdRule, scores: Tensor, labels: Tensor, truth: Tensor) -> tuple[float, ...]:
    """Return precision and recall, mean over classes and then over all cells, of what a rule accepts at its limit."""
    rule.observe(scores, labels)
    rule.value.copy_(rule.limit())
    filled = rule.pseudo_labels(scores, labels)
    found = pseudo_label_quality(filled.numpy(), labels.numpy(), truth.numpy()).summary()
    return tuple(
        100 * found[key] for key in ("macro_precision", "macro_recall", "micro_precision", "micro_recall")
    )


def main(arguments: list[str] | None = None) -> None:
    """Print a table for each proportion and kind of scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("labels", type=Path, help="complete label table, cells 1 and 0")
    parser.add_argument("features", type=Path, help="features of its images: whatever data.features reads")
    parser.add_argument("--proportions", type=float, nargs="+", default=[0.1, 0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args(arguments)
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
                for name, make in RULES.items():
                    made = qualities(make(labels.shape[1]), scores, labels, truth)
                    found.setdefault(kind, {}).setdefault(name, []).append(made)
        for kind, rows in found.items():
            print(f"{proportion:.0%} known, {kind}: precision / recall, mean over classes; over all cells")
            for name, values in rows.items():
                mean = np.mean(values, axis=0)
                print(
                    f"  {name:24s}{mean[0]:5.1f} / {mean[1]:4.1f}   {mean[2]:5.1f} / {mean[3]:4.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
