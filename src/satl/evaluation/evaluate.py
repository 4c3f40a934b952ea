"""Everything the papers report of a classifier, from probabilities and labels, in one call."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import as_labels, as_scores
from satl.checks.formulas import warn_of_formulas
from satl.errors import ArrayError
from satl.evaluation.average_precision import average_precision_pair
from satl.evaluation.precision_recall import CountMetrics, count_metrics
from satl.evaluation.undefined import finite_or_none, mean_of_defined
from satl.files import atomic_path


@dataclass(frozen=True)
class ClassResult:
    """One row of the per-class table; NaN means not measurable.

    Attributes:
        name: the class.
        known_positives, known_negatives: how many known cells of each sign.
        average_precision, average_precision_plain: interpolated and plain.
        threshold: the score from which on the class is predicted.
        precision, recall, f1: at that threshold.
    """

    name: str
    known_positives: int
    known_negatives: int
    average_precision: float
    average_precision_plain: float
    threshold: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Evaluation:
    """The result of :func:`evaluate_scores`. All numbers in [0, 1]; NaN means not measurable.

    Attributes:
        mAP: mean interpolated average precision over the measurable classes (the papers' number).
        mAP_plain: mean plain average precision.
        at_threshold: OP, OR, OF1, CP, CR, CF1 at the thresholds.
        top3: the same, at most three predictions an image.
        num_images: rows evaluated, known or not.
        measurable_classes: classes with at least one known positive.
        per_class: one :class:`ClassResult` a class, in the given order.
        left_out: images that should have been evaluated and could not be read; they are in none of these numbers.
    """

    mAP: float  # noqa: N815 - the name of the number in every paper
    mAP_plain: float  # noqa: N815
    at_threshold: CountMetrics
    top3: CountMetrics
    num_images: int
    measurable_classes: int
    per_class: tuple[ClassResult, ...]
    left_out: int = 0

    @property
    def num_classes(self) -> int:
        """Number of classes, measurable or not."""
        return len(self.per_class)

    @property
    def rarest(self) -> tuple[ClassResult, ...]:
        """The rarest third of the measurable classes by their known positives, at least one of them.

        Where a class inside the third has as many positives as one outside it, the order of the classes decides.

        >>> labels = [[1, 1, -1], [1, -1, 1], [1, 1, -1]]
        >>> [row.name for row in evaluate_scores([[0.5] * 3] * 3, labels, ["cat", "dog", "emu"]).rarest]
        ['emu']
        """
        measurable = sorted((row for row in self.per_class if row.known_positives), key=_positives)
        return tuple(measurable[: max(1, len(measurable) // 3)])

    @property
    def mAP_rare(self) -> float:  # noqa: N802 - as mAP
        """Mean interpolated average precision of the :attr:`rarest` classes."""
        return mean_of_defined(np.array([row.average_precision for row in self.rarest], dtype=np.float64))

    @property
    def not_measurable(self) -> tuple[str, ...]:
        """Names of the classes without a known positive."""
        return tuple(row.name for row in self.per_class if row.known_positives == 0)

    def summary(self) -> dict[str, float | int | None]:
        """The scalars, flat and JSON-safe (not measurable is None); top-3 names end in ``_top3``."""
        return {
            "mAP": finite_or_none(self.mAP),
            "mAP_plain": finite_or_none(self.mAP_plain),
            "mAP_rare": finite_or_none(self.mAP_rare),
            **{name: finite_or_none(value) for name, value in self.at_threshold.summary().items()},
            **{f"{name}_top3": finite_or_none(value) for name, value in self.top3.summary().items()},
            "num_images": self.num_images,
            "num_classes": self.num_classes,
            "measurable_classes": self.measurable_classes,
            **({"left_out": self.left_out} if self.left_out else {}),
        }

    def as_dict(self) -> dict[str, Any]:
        """:meth:`summary` plus ``per_class``, a list of rows; JSON-safe (not measurable is None)."""
        rows = [
            {
                key: finite_or_none(value) if isinstance(value, float) else value
                for key, value in asdict(row).items()
            }
            for row in self.per_class
        ]
        return {**self.summary(), "per_class": rows}

    def write_csv(self, path: str | Path) -> None:
        """Write the per-class table as CSV (UTF-8; not measurable is an empty field), atomically."""
        warn_of_formulas(Path(path), (row.name for row in self.per_class))
        with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(ClassResult.__dataclass_fields__), lineterminator="\n")
            writer.writeheader()
            for row in self.as_dict()["per_class"]:
                writer.writerow({key: "" if value is None else value for key, value in row.items()})


def _positives(row: ClassResult) -> int:
    return row.known_positives


def evaluate_scores(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    classes: Sequence[str],
    thresholds: npt.ArrayLike | None = None,
    *,
    encoding: str | None = None,
) -> Evaluation:
    """Measure a classifier on the known cells of a table.

    Args:
        probabilities: (N, C) in [0, 1]. With explicit ``thresholds`` any score will do.
        labels: (N, C) in {+1 present, -1 absent, 0 unknown}.
        classes: the C names.
        thresholds: one number or (C,); by default 0.5.
        encoding: how ``labels`` are written, if not +1, -1, 0 (``"complete"`` for 1 and 0). Labels with 0 and without
            -1 are refused unless one is named.

    >>> probabilities = [[0.9, 0.2], [0.4, 0.1], [0.6, 0.3]]
    >>> result = evaluate_scores(probabilities, [[1, -1], [1, 0], [-1, -1]], ["cat", "dog"])
    >>> round(result.mAP, 4), result.measurable_classes, result.not_measurable
    (0.8333, 1, ('dog',))
    >>> result.as_dict()["per_class"][1]["average_precision"] is None
    True
    """
    matrix = as_scores(probabilities, "probabilities")
    checked = as_labels(labels, matrix.shape, encoding=encoding)
    num_images, num_classes = matrix.shape
    if len(classes) != num_classes:
        raise ArrayError(f"There are {len(classes)} class names for {num_classes} columns of probabilities.")
    if thresholds is None:
        if matrix.size and (matrix.min() < 0 or matrix.max() > 1):
            raise ArrayError(
                f"probabilities lie between {matrix.min():.4g} and {matrix.max():.4g} instead of 0 and 1: "
                "apply the sigmoid to logits first, or pass thresholds meant for these scores."
            )
        thresholds = 0.5
    interpolated, plain = average_precision_pair(matrix, checked, encoding="signed")
    at_threshold = count_metrics(matrix, checked, thresholds=thresholds, encoding="signed")
    top3 = count_metrics(matrix, checked, thresholds=thresholds, top=3, encoding="signed")
    negatives = np.count_nonzero(checked == -1, axis=0)
    limits = np.broadcast_to(np.asarray(thresholds, dtype=np.float64), (num_classes,))
    per_class = tuple(
        ClassResult(
            name=str(name),
            known_positives=int(at_threshold.positives[index]),
            known_negatives=int(negatives[index]),
            average_precision=float(interpolated[index]),
            average_precision_plain=float(plain[index]),
            threshold=float(limits[index]),
            precision=float(at_threshold.precision[index]),
            recall=float(at_threshold.recall[index]),
            f1=float(at_threshold.f1[index]),
        )
        for index, name in enumerate(classes)
    )
    return Evaluation(
        mAP=mean_of_defined(interpolated),
        mAP_plain=mean_of_defined(plain),
        at_threshold=at_threshold,
        top3=top3,
        num_images=num_images,
        measurable_classes=int(np.count_nonzero(at_threshold.positives)),
        per_class=per_class,
    )
