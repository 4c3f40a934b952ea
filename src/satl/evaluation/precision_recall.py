"""Overall and per-class precision, recall and F1 at a threshold, over the known cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import BoolMatrix, as_labels, as_scores
from satl.errors import ArrayError, SatlError
from satl.evaluation.undefined import mean_of_defined, ratio


@dataclass(frozen=True)
class CountMetrics:
    """Precision, recall and F1 over all cells (O...) and averaged over classes (C...).

    Every number lies in [0, 1]; NaN means not measurable (see :func:`count_metrics`).

    Attributes:
        OP, OR, OF1: precision and recall over all known cells together, and their harmonic mean.
        CP, CR, CF1: means of the per-class precision and recall, and the harmonic mean *of these two
            means* (not the mean of the per-class F1).
        precision, recall, f1: (C,) the per-class values.
        correct, predicted, positives: (C,) counts of known cells: predicted and present, predicted,
            present.
    """

    OP: float
    OR: float
    OF1: float
    CP: float
    CR: float
    CF1: float
    precision: npt.NDArray[np.float64]
    recall: npt.NDArray[np.float64]
    f1: npt.NDArray[np.float64]
    correct: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    positives: npt.NDArray[np.int64]

    @classmethod
    def from_counts(
        cls,
        correct: npt.NDArray[np.int64],
        predicted: npt.NDArray[np.int64],
        positives: npt.NDArray[np.int64],
    ) -> CountMetrics:
        """Compute everything from three (C,) vectors of counts.

        >>> metrics = CountMetrics.from_counts(np.array([1, 0]), np.array([2, 0]), np.array([1, 2]))
        >>> metrics.OP, metrics.CP, metrics.CR
        (0.5, 0.25, 0.5)
        """
        measurable = positives > 0
        precision = np.where(measurable, ratio(correct, predicted, empty=0.0), np.nan)
        recall = ratio(correct, positives, empty=np.nan)
        f1 = np.where(measurable, ratio(2 * correct, predicted + positives, empty=0.0), np.nan)
        all_correct, all_predicted, all_positives = correct.sum(), predicted.sum(), positives.sum()
        if all_positives == 0:
            overall_precision = overall_recall = overall_f1 = float("nan")
        else:
            overall_precision = float(all_correct / all_predicted) if all_predicted else 0.0
            overall_recall = float(all_correct / all_positives)
            overall_f1 = harmonic_mean(overall_precision, overall_recall)
        class_precision, class_recall = mean_of_defined(precision), mean_of_defined(recall)
        return cls(
            OP=overall_precision,
            OR=overall_recall,
            OF1=overall_f1,
            CP=class_precision,
            CR=class_recall,
            CF1=harmonic_mean(class_precision, class_recall),
            precision=precision,
            recall=recall,
            f1=f1,
            correct=correct,
            predicted=predicted,
            positives=positives,
        )

    def summary(self) -> dict[str, float]:
        """The six numbers by name.

        >>> CountMetrics.from_counts(np.array([1]), np.array([2]), np.array([1])).summary()["OP"]
        0.5
        """
        return {name: getattr(self, name) for name in ("OP", "OR", "OF1", "CP", "CR", "CF1")}


def harmonic_mean(precision: float, recall: float) -> float:
    """F1 of a precision and a recall; 0 when both are 0, NaN when either is NaN.

    >>> harmonic_mean(0.5, 1.0), harmonic_mean(0.0, 0.0)
    (0.6666666666666666, 0.0)
    """
    if precision + recall == 0:
        return 0.0
    return 2 * precision * recall / (precision + recall)


def decide(scores: npt.ArrayLike, thresholds: npt.ArrayLike = 0.5, top: int | None = None) -> BoolMatrix:
    """Predict "present" where a score reaches its threshold (``>=``).

    Args:
        scores: (N, C) probabilities, or any score that the thresholds are meant for.
        thresholds: one number, or (C,) one per class.
        top: if given, only the ``top`` highest scores of an image may be predicted; among equal scores
            the class that comes first wins.

    Returns:
        (N, C) bool.

    >>> decide([[0.9, 0.5, 0.4]])
    array([[ True,  True, False]])
    >>> decide([[0.9, 0.5, 0.4]], thresholds=[0.95, 0.5, 0.3])
    array([[False,  True,  True]])
    >>> decide([[0.9, 0.5, 0.4]], top=1)
    array([[ True, False, False]])
    """
    matrix = as_scores(scores)
    num_images, num_classes = matrix.shape
    limit = np.asarray(thresholds, dtype=np.float64)
    if limit.shape not in ((), (num_classes,)):
        raise ArrayError(
            f"thresholds must be one number or one per class ({num_classes}), "
            f"but have the shape {limit.shape}."
        )
    if np.isnan(limit).any():
        raise ArrayError("thresholds hold NaN: give every class a number.")
    # A threshold given as 0.7 must be reached by a single-precision score of 0.7.
    predicted: BoolMatrix = matrix >= limit.astype(matrix.dtype)
    if top is None or top >= num_classes:
        return predicted
    if top < 1:
        raise SatlError(f"top must be at least 1, not {top}.")
    remaining = matrix.copy()
    rows = np.arange(num_images)
    among_top = np.zeros_like(predicted)
    for _ in range(top):
        best = remaining.argmax(axis=1)
        among_top[rows, best] = True
        remaining[rows, best] = -np.inf
    return predicted & among_top


def count_metrics(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    thresholds: npt.ArrayLike = 0.5,
    top: int | None = None,
    encoding: str | None = None,
) -> CountMetrics:
    """OP, OR, OF1, CP, CR, CF1 and the per-class values over the known cells.

    What is predicted never depends on what is known: the decision (also the ``top`` highest) is made
    over all classes of an image, and unknown cells are then left out of the counts. 0/0 counts as 0
    (a class of which nothing is predicted has precision 0). A class without a known positive is not
    measurable: its values are NaN and it takes no part in CP and CR; its wrong predictions still lower
    OP. Without any known positive all six numbers are NaN.

    Args:
        scores: (N, C) probabilities.
        labels: (N, C) in {+1 present, -1 absent, 0 unknown}.
        thresholds: one number or (C,); a score that equals its threshold is predicted.
        top: count at most this many predictions an image (the papers report 3).
        encoding: how ``labels`` are written, if not +1, -1, 0 (``"complete"`` for 1 and 0). Labels with 0 and without
            -1 are refused unless one is named.

    >>> metrics = count_metrics([[0.9, 0.6], [0.2, 0.7], [0.8, 0.1]], [[1, -1], [1, 1], [-1, 0]])
    >>> {name: round(value, 3) for name, value in metrics.summary().items()}
    {'OP': 0.5, 'OR': 0.667, 'OF1': 0.571, 'CP': 0.5, 'CR': 0.75, 'CF1': 0.6}
    """
    matrix = as_scores(scores)
    checked = as_labels(labels, matrix.shape, encoding=encoding)
    return counts_of_decisions(decide(matrix, thresholds, top), checked, encoding="signed")


def counts_of_decisions(
    predicted: npt.ArrayLike, labels: npt.ArrayLike, *, encoding: str | None = None
) -> CountMetrics:
    """Like :func:`count_metrics`, from decisions (N, C) that are already made (true means present).

    >>> counts_of_decisions([[True, False]], [[1, 1]]).OR
    0.5
    """
    decisions = np.asarray(predicted, dtype=np.bool_)
    checked = as_labels(labels, decisions.shape, encoding=encoding)
    present = checked == 1
    return CountMetrics.from_counts(
        correct=_per_class(decisions & present),
        predicted=_per_class(decisions & (checked != 0)),
        positives=_per_class(present),
    )


def _per_class(mask: BoolMatrix) -> npt.NDArray[np.int64]:
    return np.count_nonzero(mask, axis=0).astype(np.int64)
