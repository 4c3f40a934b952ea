"""A rule applied to a whole table of scores at once, outside of training."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from satl.checks.array_checks import as_labels
from satl.thresholds.rule import ThresholdRule


@dataclass(frozen=True)
class ClassThreshold:
    """The threshold of one class and what it does; a ratio is NaN where nothing was predicted or is present.

    precision, recall: on the known cells, where a score above the threshold predicts "present".
    truth_precision, truth_recall: of the accepted unknown cells, where the hidden truth is known.
    """

    name: str
    threshold: float
    known_positives: int
    known_negatives: int
    unknown: int
    accepted: int
    precision: float
    recall: float
    truth_precision: float
    truth_recall: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, "class" for the name; JSON-safe (undefined is None)."""
        return {
            "class" if key == "name" else key: None
            if isinstance(value, float) and math.isnan(value)
            else value
            for key, value in asdict(self).items()
        }


@torch.no_grad()
def apply_rule(
    rule: ThresholdRule,
    scores: npt.NDArray[np.float32],
    labels: npt.ArrayLike,
    classes: tuple[str, ...],
    truth: npt.ArrayLike | None = None,
    updates: int | None = None,
    *,
    encoding: str | None = None,
) -> list[ClassThreshold]:
    """Show a rule all scores, let it set its thresholds, and count what they accept.

    Args:
        rule: a fresh rule; its state is changed.
        scores: (N, C) in [0, 1]; NaN for a cell that must be neither counted nor accepted.
        labels: (N, C) with +1, -1, 0.
        classes: C names.
        truth: (N, C) hidden truth of unknown cells, 0 where it is not known either.
        updates: how often the rule is updated, at least once, each time after seeing all scores. None: go where updates
            would end (the ideal thresholds of a rule that moves step by step).
        encoding: how ``labels`` and ``truth`` are written, if not +1, -1, 0. Either of them with 0 and without -1 is
            refused unless one is named. The rule itself gets ``signed`` labels, so it must not have another encoding.

    Raises:
        NotImplementedError: updates of this rule end nowhere, so that their number must be given.

    >>> from satl.thresholds import MetricThreshold
    >>> scores = np.array([[0.9], [0.2], [0.8], [0.4]], dtype=np.float32)
    >>> labels = np.array([[1], [-1], [0], [0]], dtype=np.int8)
    >>> [row] = apply_rule(MetricThreshold(1, bins=10), scores, labels, ("cat",))
    >>> round(row.threshold, 3), row.accepted, row.precision, row.recall
    (0.9, 0, 1.0, 1.0)
    """
    rule.take_signed()
    known = as_labels(labels, scores.shape, encoding=encoding)
    judged = None if truth is None else as_labels(truth, scores.shape, "truth", encoding)
    values, cells = torch.from_numpy(np.array(scores)), torch.from_numpy(np.array(known))
    images = torch.arange(len(values))
    for _ in range(updates or 0):
        rule.observe(values, cells)
        rule.update()
        filled = rule.pseudo_labels(
            values, cells, images
        )  # every time: some rules remember what they accepted
    if updates is None:
        rule.observe(values, cells)
        rule.value.copy_(rule.limit())
        filled = rule.pseudo_labels(values, cells, images)
    accepted = ((cells == 0) & (filled > 0)).numpy()
    above = (values > rule.value).numpy()
    present, absent = known > 0, known < 0
    hidden = np.zeros_like(known) if judged is None else np.where(known == 0, judged, 0)
    right, wrong = _count(accepted & (hidden > 0)), _count(accepted & (hidden < 0))
    ratios = (
        _ratio(_count(above & present), _count(above & (present | absent))),
        _ratio(_count(above & present), _count(present)),
        _ratio(right, right + wrong),
        _ratio(right, _count(hidden > 0)),
    )
    return [
        ClassThreshold(
            name,
            float(str(np.float32(rule.value[c]))),  # the shortest number that is the same threshold
            int(present[:, c].sum()),
            int(absent[:, c].sum()),
            int((known[:, c] == 0).sum()),
            int(accepted[:, c].sum()),
            *(float(ratio[c]) for ratio in ratios),
        )
        for c, name in enumerate(classes)
    ]


def _count(cells: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.count_nonzero(cells, axis=0).astype(np.int64)


def _ratio(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)
