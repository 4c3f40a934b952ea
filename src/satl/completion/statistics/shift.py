"""Do the unknown cells look like the known ones? A check per class, and what a difference does to precision."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.completion.statistics.certificates import Certificate, Certification
from satl.completion.statistics.class_cells import as_cells, class_names
from satl.completion.statistics.mixture import Mixture, fit_mixture, prevalence_interval
from satl.completion.statistics.score_bins import BinnedScores, bin_scores
from satl.completion.statistics.threshold_counts import ThresholdCounts
from satl.errors import SatlError
from satl.evaluation.confidence_bounds import (
    FloatArray,
    IntArray,
    as_share,
    clopper_pearson_interval,
    clopper_pearson_lower,
    clopper_pearson_upper,
)
from satl.evaluation.undefined import finite_or_none, ratio

# A misfit of fewer unknown cells than this share is of no consequence, however certain it is.
_TOLERANCE = 0.02
# Draws at a time, and the exceedances after which a p-value is certainly not small.
_BLOCK, _ENOUGH = 40, 10


class Verdict(IntEnum):
    """The result of the check of one class."""

    FITS = 0
    PREVALENCE_DIFFERS = 1
    DOES_NOT_FIT = 2
    CANNOT_TELL = 3


@dataclass(frozen=True)
class ShiftCheck:
    """Result of :func:`check_shift`; arrays (C,), NaN where the check cannot tell.

    Attributes:
        verdict: a :class:`Verdict` each; DOES_NOT_FIT is the alarm.
        known_prevalence: share of positives among the tested known cells.
        prevalence, prevalence_low, prevalence_high: estimated share of positives among the unknown cells, with
            an interval.
        misfit: likelihood-ratio statistic of the mixture.
        p_value: probability of such a misfit, or a larger one, if the mixture is true.
        unexplained: share of the unknown cells that would have to move to another score for a perfect fit (with
            few cells, chance alone makes some of it).
        present_precision, absent_precision: precision at the thresholds, re-weighted to that prevalence.
        present_precision_low, absent_precision_low: lower bounds of it.
    """

    verdict: IntArray
    known_prevalence: FloatArray
    prevalence: FloatArray
    prevalence_low: FloatArray
    prevalence_high: FloatArray
    misfit: FloatArray
    p_value: FloatArray
    unexplained: FloatArray
    present_precision: FloatArray
    present_precision_low: FloatArray
    absent_precision: FloatArray
    absent_precision_low: FloatArray

    @property
    def alarm(self) -> npt.NDArray[np.bool_]:
        """(C,) classes whose thresholds should not be trusted."""
        return np.asarray(self.verdict == Verdict.DOES_NOT_FIT)

    def explain(self, names: Any = None) -> list[str]:
        """One sentence per class."""
        return [self._sentence(row, name) for row, name in enumerate(class_names(names, len(self.verdict)))]

    def records(self, names: Any = None) -> list[dict[str, Any]]:
        """One record per class, ``verdict`` in words and as ``code``; JSON-safe (undefined is None)."""
        numbers = [name for name in self.__dataclass_fields__ if name != "verdict"]
        return [
            {
                "verdict": sentence,
                **{name: finite_or_none(getattr(self, name)[row]) for name in numbers},
                "code": Verdict(int(self.verdict[row])).name.lower(),
            }
            for row, sentence in enumerate(self.explain(names))
        ]

    def _sentence(self, row: int, name: str) -> str:
        verdict = Verdict(int(self.verdict[row]))
        if verdict is Verdict.DOES_NOT_FIT:
            return f"Unknown cells of '{name}' do not look like the known ones: do not trust its thresholds."
        if verdict is Verdict.CANNOT_TELL:
            return f"There are too few cells to tell whether the unknown cells of '{name}' look like the known ones."
        if verdict is Verdict.FITS:
            return f"Unknown cells of '{name}' look like the known ones."
        known, unknown = self.known_prevalence[row], self.prevalence[row]
        at_thresholds = [
            f"{word} about {100 * value:.3g} % right"
            for word, value in (
                ("present", self.present_precision[row]),
                ("absent", self.absent_precision[row]),
            )
            if not np.isnan(value)
        ]
        result = f" (accepted as {' and as '.join(at_thresholds)} at that share)" if at_thresholds else ""
        return (
            f"'{name}' is present in about {100 * unknown:.3g} % of the unknown cells, against "
            f"{100 * known:.3g} % of the known ones{result}."
        )


def check_shift(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    held_out: npt.ArrayLike | None = None,
    certification: Certification | None = None,
    *,
    draws: int = 199,
    level: float = 0.02,
    confidence: float = 0.95,
    seed: int = 0,
    encoding: str | None = None,
) -> ShiftCheck:
    """Check per class whether unknown cells score like a mixture of known positives and known negatives.

    People annotate positives more often, so a plain comparison of known and unknown scores alarms at once. Here
    the share of positives is free: the unknown scores are fitted as pi f_pos + (1 - pi) f_neg with both
    distributions from the tested cells, in up to 12 bins, all by maximum likelihood. What the mixture cannot
    explain is the misfit. Its p-value comes from a parametric bootstrap that draws known and unknown cells
    anew, so the sampling error of f_pos and f_neg counts.

    Assumption: the tested cells are independent draws from f_pos and f_neg, scored out of sample. Guarantee:
    without a shift, and whatever the prevalences, a class alarms with probability of about ``level`` (0.02);
    measured rates, and those with a shift, are in the documentation. A shift that merely looks like another
    prevalence cannot be seen from scores; ``draw_audit`` needs no assumption.

    References: M. Saerens, P. Latinne and C. Decaestecker, Neural Computation 14, 2002 (prevalence); J. Besag
    and P. Clifford, Biometrika 78, 1991 (stopping the draws early where the p-value cannot be small).

    Args:
        scores: (N, C), any scale; NaN: no score, not counted.
        labels: (N, C) in {+1 present, -1 absent, 0 unknown}.
        held_out: (N, C) known cells that the model was not trained on; None: all known cells.
        certification: thresholds at which to re-weight the precision; None: none.
        draws: bootstrap draws at most; at least 99.
        level: alarm below this p-value.
        confidence: of the intervals of the prevalence and of the bounds of the precision.
        seed: of the draws.
        encoding: what the values of ``labels`` mean, as in :func:`satl.completion.certify`.

    >>> rng = np.random.default_rng(0)
    >>> truth = np.where(rng.random((6000, 1)) < np.repeat([0.5, 0.1], [1000, 5000])[:, None], 1, -1)
    >>> scores = rng.normal(size=truth.shape) + 3 * (truth > 0)
    >>> labels = np.where(np.arange(6000)[:, None] < 1000, truth, 0)      # half of the known cells are present
    >>> check = check_shift(scores, labels)
    >>> Verdict(check.verdict[0]).name, check.prevalence.round(2)
    ('PREVALENCE_DIFFERS', array([0.11]))
    >>> scores[1000:] += 1                                                # the unknown images are brighter
    >>> check_shift(scores, labels).explain(["boat"])
    ["Unknown cells of 'boat' do not look like the known ones: do not trust its thresholds."]
    """
    if draws < 99:
        raise SatlError(f"A p-value needs at least 99 bootstrap draws, not {draws}.")
    as_share(level, "level")
    as_share(confidence, "confidence")
    array, known, tested = as_cells(scores, labels, held_out, encoding)
    binned = bin_scores(array, known, tested)
    enough = binned.enough
    part = BinnedScores(
        binned.positive[enough], binned.negative[enough], binned.unknown[enough], binned.bins[enough]
    )
    fit = fit_mixture(part.positive, part.negative, part.unknown)

    def spread(values: FloatArray) -> FloatArray:
        result = np.full(len(enough), np.nan)
        result[enough] = values
        return result

    low, high = (
        spread(v) for v in prevalence_interval(part.positive, part.negative, part.unknown, confidence)
    )
    p_value, unexplained = spread(_p_values(part, fit, draws, seed)), spread(_unexplained(part, fit))
    positives, negatives = binned.positive.sum(axis=1), binned.negative.sum(axis=1)
    known_low, known_high = clopper_pearson_interval(positives, positives + negatives, confidence)
    prevalence = spread(fit.prevalence)
    conditions = [
        ~enough,
        (p_value < level) & (unexplained >= _TOLERANCE),
        (high < known_low) | (low > known_high),
    ]
    verdicts = [Verdict.CANNOT_TELL, Verdict.DOES_NOT_FIT, Verdict.PREVALENCE_DIFFERS]
    precisions = [np.full(len(enough), np.nan)] * 4
    if certification is not None:
        sides = (
            (certification.present, certification.present_counts, prevalence, low),
            (certification.absent, certification.absent_counts, 1 - prevalence, 1 - high),
        )
        precisions = [value for side in sides for value in _reweighted(*side, confidence)]
    return ShiftCheck(
        np.select(conditions, verdicts, Verdict.FITS).astype(np.int64),
        ratio(positives, positives + negatives, empty=np.nan),
        prevalence,
        low,
        high,
        spread(fit.misfit),
        p_value,
        unexplained,
        *precisions,
    )


def precision_at_prevalence(
    found: npt.ArrayLike, leaked: npt.ArrayLike, prevalence: npt.ArrayLike
) -> FloatArray:
    """Precision when a share ``prevalence`` of the cells has the accepted value.

    Args:
        found: share of the cells with the accepted value that is accepted.
        leaked: share of the cells with the other value that is accepted.
        prevalence: share of the cells with the accepted value.

    >>> precision_at_prevalence(0.8, 0.01, [0.5, 0.05]).round(3)
    array([0.988, 0.808])
    """
    share = np.asarray(prevalence, dtype=np.float64)
    right, wrong = share * np.asarray(found), (1 - share) * np.asarray(leaked)
    return ratio(right, right + wrong, empty=np.nan)


def _reweighted(
    certificate: Certificate,
    counts: ThresholdCounts,
    prevalence: FloatArray,
    lowest: FloatArray,
    confidence: float,
) -> tuple[FloatArray, FloatArray]:
    """Precision at the thresholds of one direction and at the prevalence of its value, and a lower bound.

    The interval of the prevalence uses half of the error probability on each side, so the two tail shares
    have a quarter each.
    """
    each = 1 - (1 - confidence) / 4
    share = np.where(certificate.certified, certificate.found, 0.0)
    found = clopper_pearson_lower(np.round(share * counts.same), counts.same, each)
    share = np.where(certificate.certified, certificate.leaked, 0.0)
    leaked = clopper_pearson_upper(np.round(share * counts.other), counts.other, each)
    estimate = precision_at_prevalence(certificate.found, certificate.leaked, prevalence)
    bound = precision_at_prevalence(found, leaked, lowest)
    return estimate, np.where(np.isnan(estimate), np.nan, bound)


def _unexplained(counts: BinnedScores, fit: Mixture) -> FloatArray:
    """Total variation between the unknown cells and the mixture of the observed known cells."""

    def shares(values: FloatArray) -> FloatArray:
        return np.asarray(values / values.sum(axis=-1, keepdims=True))

    pi = fit.prevalence[:, np.newaxis]
    mixed = pi * shares(counts.positive) + (1 - pi) * shares(counts.negative)
    return np.asarray(np.abs(shares(counts.unknown) - mixed).sum(axis=-1) / 2)


def _p_values(counts: BinnedScores, fit: Mixture, draws: int, seed: int) -> FloatArray:
    """Share of bootstrap draws whose misfit is at least the observed one."""
    random = np.random.default_rng(seed)
    sizes = [part.sum(axis=1).astype(np.int64) for part in (counts.positive, counts.negative, counts.unknown)]
    shares = [part / part.sum(axis=1, keepdims=True) for part in (fit.positive, fit.negative, fit.unknown)]
    exceeded, drawn = np.zeros(len(counts.bins)), np.zeros(len(counts.bins))
    active = np.arange(len(counts.bins))
    while len(active):
        block = min(_BLOCK, draws - int(drawn[active[0]]))
        positive, negative, unknown = (
            random.multinomial(size[active], share[active], size=(block, len(active)))
            for size, share in zip(sizes, shares, strict=True)
        )
        misfit = fit_mixture(positive, negative, unknown, steps=24).misfit
        exceeded[active] += (misfit >= fit.misfit[active] * (1 - 1e-9)).sum(axis=0)
        drawn[active] += block
        active = active[(exceeded[active] < _ENOUGH) & (drawn[active] < draws)]
    return (exceeded + 1) / (drawn + 1)
