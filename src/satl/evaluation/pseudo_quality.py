"""Precision and recall of pseudo-labels on the unknown cells (Eq. 17 of the SATL paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import as_array, as_labels
from satl.errors import ArrayError, SatlError
from satl.evaluation.undefined import finite_or_none, mean_of_defined, ratio

UNION = "union"
NEXT_TO_NONE = 0.01
"""Fewer pseudo-labels than this share of the positives to be expected are next to none: no loss feels them."""


def expected_positives(cells: npt.ArrayLike) -> float:
    """Return how many unknown cells are to be expected positive, if a class is as frequent there as among known ones.

    Args:
        cells: (N, C) with +1, -1, 0; a class of which nothing is known counts nothing.

    >>> expected_positives([[1, 0], [-1, 0], [0, 0], [0, 1]])
    4.0
    """
    labels = np.asarray(cells)
    known, positives = (labels != 0).sum(0), (labels > 0).sum(0)
    return float(((len(labels) - known) * positives / np.maximum(known, 1)).sum())


def next_to_none(counts: Mapping[str, Any]) -> bool:
    """Whether an epoch made next to no pseudo-labels, from its counts of all generators in ``metrics.jsonl``.

    >>> next_to_none({"emitted": 3, "expected": 400.0}), next_to_none({"emitted": 30, "expected": 400.0})
    (True, False)
    """
    expected = counts.get("expected")
    return expected is not None and counts["emitted"] < NEXT_TO_NONE * expected


@dataclass(frozen=True)
class PseudoLabelQuality:
    """How good the pseudo-labels of one generator (or of their union) are.

    Attributes:
        tp, fp, fn: (C,) unknown cells with a pseudo-label that are present, with one that are absent,
            and present ones without a pseudo-label. Cells whose truth is unknown count nowhere.
    """

    tp: npt.NDArray[np.int64]
    fp: npt.NDArray[np.int64]
    fn: npt.NDArray[np.int64]

    @classmethod
    def from_counts(cls, tp: Any, fp: Any, fn: Any) -> PseudoLabelQuality:
        """From counts of each class, as training accumulates them: arrays or tensors (C,) on any device.

        >>> quality = PseudoLabelQuality.from_counts(tp=[3, 0], fp=[1, 0], fn=[3, 2])
        >>> quality.precision, quality.recall
        (array([0.75, nan]), array([0.5, 0. ]))
        """
        counts = [_as_counts(value, name) for name, value in (("tp", tp), ("fp", fp), ("fn", fn))]
        if len({count.shape for count in counts}) != 1:
            raise ArrayError(
                f"tp, fp and fn must have one length, but have {[len(count) for count in counts]}."
            )
        return cls(*counts)

    @property
    def precision(self) -> npt.NDArray[np.float64]:
        """(C,) TP / (TP + FP); NaN for a class without pseudo-labels."""
        return ratio(self.tp, self.tp + self.fp, empty=np.nan)

    @property
    def recall(self) -> npt.NDArray[np.float64]:
        """(C,) TP / (TP + FN); NaN for a class without a present unknown cell."""
        return ratio(self.tp, self.tp + self.fn, empty=np.nan)

    @property
    def emitted(self) -> npt.NDArray[np.int64]:
        """(C,) pseudo-labels whose truth is known: TP + FP."""
        return self.tp + self.fp

    @property
    def macro_precision(self) -> float:
        """Mean precision of the classes where it is defined."""
        return mean_of_defined(self.precision)

    @property
    def macro_recall(self) -> float:
        """Mean recall of the classes where it is defined."""
        return mean_of_defined(self.recall)

    @property
    def micro_precision(self) -> float:
        """Precision over the cells of all classes together."""
        return _whole(self.tp, self.fp)

    @property
    def micro_recall(self) -> float:
        """Recall over the cells of all classes together."""
        return _whole(self.tp, self.fn)

    def __add__(self, other: PseudoLabelQuality) -> PseudoLabelQuality:
        """Counts of two disjoint sets of cells (batches, processes) together."""
        return PseudoLabelQuality(self.tp + other.tp, self.fp + other.fp, self.fn + other.fn)

    def summary(self) -> dict[str, float | int | None]:
        """The scalars, JSON-safe (undefined is None).

        >>> PseudoLabelQuality.from_counts([3, 0], [1, 0], [3, 2]).summary()["micro_recall"]
        0.375
        """
        return {
            "emitted": int(self.emitted.sum()),
            "macro_precision": finite_or_none(self.macro_precision),
            "macro_recall": finite_or_none(self.macro_recall),
            "micro_precision": finite_or_none(self.micro_precision),
            "micro_recall": finite_or_none(self.micro_recall),
            "classes_with_precision": int(np.count_nonzero(self.tp + self.fp)),
            "classes_with_recall": int(np.count_nonzero(self.tp + self.fn)),
        }

    def as_dict(self) -> dict[str, Any]:
        """:meth:`summary` plus the per-class lists tp, fp, fn, precision, recall; JSON-safe."""
        return {
            **self.summary(),
            "tp": self.tp.tolist(),
            "fp": self.fp.tolist(),
            "fn": self.fn.tolist(),
            "precision": [finite_or_none(value) for value in self.precision],
            "recall": [finite_or_none(value) for value in self.recall],
        }


def pseudo_label_quality(
    pseudo: npt.ArrayLike, labels: npt.ArrayLike, truth: npt.ArrayLike, *, encoding: str | None = None
) -> PseudoLabelQuality:
    """Compare positive pseudo-labels with the truth, over the unknown cells of the training labels.

    Args:
        pseudo: (N, C) either booleans, or labels in which pseudo-labels are +1; its values at known
            cells are ignored.
        labels: (N, C) the training labels; only cells that are 0 (unknown) count.
        truth: (N, C) in {+1 present, -1 absent, 0 not even known to the judge}.
        encoding: how ``labels`` and ``truth`` are written, if not +1, -1, 0. Either of them with 0 and without -1 is
            refused unless one is named.

    >>> quality = pseudo_label_quality([[True, True, False, False]], [[0, 0, 0, -1]], [[1, -1, 1, -1]])
    >>> quality.tp, quality.fp, quality.fn
    (array([1, 0, 0, 0]), array([0, 1, 0, 0]), array([0, 0, 1, 0]))
    >>> quality.micro_precision, quality.micro_recall
    (0.5, 0.5)
    """
    emitted = as_array(pseudo)
    if emitted.ndim != 2:
        raise ArrayError(f"pseudo-labels must have the shape (images, classes), not {emitted.shape}.")
    positive = emitted if emitted.dtype == np.bool_ else emitted == 1
    unknown = as_labels(labels, emitted.shape, encoding=encoding) == 0
    judge = as_labels(truth, emitted.shape, "truth", encoding)
    present, absent = unknown & (judge == 1), unknown & (judge == -1)
    return PseudoLabelQuality(
        tp=np.count_nonzero(present & positive, axis=0).astype(np.int64),
        fp=np.count_nonzero(absent & positive, axis=0).astype(np.int64),
        fn=np.count_nonzero(present & ~positive, axis=0).astype(np.int64),
    )


def pseudo_label_table(
    generators: Mapping[str, npt.ArrayLike],
    labels: npt.ArrayLike,
    truth: npt.ArrayLike,
    *,
    encoding: str | None = None,
) -> dict[str, PseudoLabelQuality]:
    """Quality of every generator, and of their union: a cell that at least one of them fills.

    Args:
        generators: name -> pseudo-labels (N, C), as in :func:`pseudo_label_quality`.
        labels: (N, C) the training labels.
        truth: (N, C).
        encoding: as in :func:`pseudo_label_quality`.

    Returns:
        name -> quality, in the given order, then ``"union"``.

    >>> table = pseudo_label_table(
    ...     {"intra": [[True, False]], "cross": [[False, True]]}, [[0, 0]], [[1, 1]], encoding="signed")
    >>> [(name, quality.micro_recall) for name, quality in table.items()]
    [('intra', 0.5), ('cross', 0.5), ('union', 1.0)]
    """
    if not generators:
        raise SatlError("There is no generator whose pseudo-labels could be measured.")
    if UNION in generators:
        raise SatlError(
            f"A generator must not be called {UNION!r}: the table uses that name for all together."
        )
    table = {
        name: pseudo_label_quality(pseudo, labels, truth, encoding=encoding)
        for name, pseudo in generators.items()
    }
    either = np.zeros(np.shape(labels), dtype=np.bool_)
    for pseudo in generators.values():
        array = as_array(pseudo)
        either |= array if array.dtype == np.bool_ else array == 1
    table[UNION] = pseudo_label_quality(either, labels, truth, encoding=encoding)
    return table


def _whole(hits: npt.NDArray[np.int64], misses: npt.NDArray[np.int64]) -> float:
    total = int(hits.sum() + misses.sum())
    return int(hits.sum()) / total if total else float("nan")


def _as_counts(value: Any, name: str) -> npt.NDArray[np.int64]:
    """Counts as int64 (C,); tensors of any device are accepted without importing torch here."""
    array = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
    counts = np.nan_to_num(array).astype(np.int64)
    if counts.ndim != 1 or (counts != array).any() or (counts < 0).any():
        raise ArrayError(f"{name} must be a vector of counts, one for each class.")
    return counts
