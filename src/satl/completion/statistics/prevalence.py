"""A certificate when positives are rarer (or more frequent) among the unknown cells than among the known ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import BoolMatrix, FloatMatrix, LabelMatrix
from satl.completion.statistics.mixture import prevalence_interval
from satl.completion.statistics.score_bins import bin_scores
from satl.evaluation.confidence_bounds import BoolArray, FloatArray
from satl.evaluation.undefined import ratio


def target_at_prevalence(
    precision: npt.ArrayLike, same: npt.ArrayLike, other: npt.ArrayLike, prevalence: npt.ArrayLike
) -> FloatArray:
    """Precision to show on the tested cells so that it is ``precision`` at another prevalence.

    The odds of a right cell above a threshold are odds(prevalence) times the ratio of the two tail
    probabilities. If only the prevalence differs, that ratio is the same for tested and unknown cells, so the
    odds of the precision differ by the ratio of the odds of the prevalences:
    odds(target) = odds(precision) * (same / other) / odds(prevalence). Reference: Saerens et al. 2002.

    Args:
        precision: wanted among the unknown cells.
        same, other: tested cells of the value that is accepted, and of the other.
        prevalence: share of that value among the unknown cells.

    Returns:
        The target; 1 where the prevalence may be 0, since then nothing can be right, and 0 where it is 1.

    >>> target_at_prevalence(0.9, [50, 50], [50, 50], [0.5, 0.1]).round(4)
    array([0.9   , 0.9878])
    """
    wanted, s, o, share = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (precision, same, other, prevalence))
    )
    right = wanted * s * (1 - share)
    wrong = (1 - wanted) * o * share
    return ratio(right, right + wrong, empty=1.0)


def prevalence_bounds(
    scores: FloatMatrix, labels: LabelMatrix, held_out: BoolMatrix | None, confidence: float
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """One-sided bounds of the share of positives among the unknown cells of each class.

    Args:
        scores, labels, held_out: (N, C) as checked by ``as_cells``.
        confidence: of each of the two bounds.

    Returns:
        (C,) lower bounds, (C,) upper bounds, and whether there are enough cells for them; 0 and 1 where not.
    """
    binned = bin_scores(scores, labels, held_out)
    enough = binned.enough
    low, high = np.zeros(len(enough)), np.ones(len(enough))
    if enough.any():
        low[enough], high[enough] = prevalence_interval(
            binned.positive[enough], binned.negative[enough], binned.unknown[enough], 2 * confidence - 1
        )
    return low, high, enough
