"""Metrics of a model and of its pseudo-labels, over the known cells only.

The NumPy metrics do not import torch; the tensor version of the average precision is in
:mod:`satl.evaluation.tensor_average_precision`.
"""

from __future__ import annotations

from satl.evaluation.average_precision import average_precision, average_precision_pair
from satl.evaluation.evaluate import ClassResult, Evaluation, evaluate_scores
from satl.evaluation.paired_tests import PairedTest, paired_test
from satl.evaluation.precision_recall import CountMetrics, count_metrics, counts_of_decisions, decide
from satl.evaluation.pseudo_quality import PseudoLabelQuality, pseudo_label_quality, pseudo_label_table

__all__ = [
    "ClassResult",
    "CountMetrics",
    "Evaluation",
    "PairedTest",
    "PseudoLabelQuality",
    "average_precision",
    "average_precision_pair",
    "count_metrics",
    "counts_of_decisions",
    "decide",
    "evaluate_scores",
    "paired_test",
    "pseudo_label_quality",
    "pseudo_label_table",
]
