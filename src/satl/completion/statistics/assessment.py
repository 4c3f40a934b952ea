"""All that the statistics say about the classes of a table: thresholds, shift, label errors, what to review."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import BoolMatrix, FloatMatrix, LabelMatrix
from satl.completion.statistics.certificates import Certification
from satl.completion.statistics.certify import Family, Transfer, certify
from satl.completion.statistics.class_cells import class_cells
from satl.completion.statistics.label_errors import LabelErrors, find_label_errors
from satl.completion.statistics.shift import ShiftCheck, Verdict, check_shift
from satl.evaluation.confidence_bounds import BoolArray, FloatArray

# More suspected errors than a person would ever look through; the most suspicious come first.
MOST_LABEL_ERRORS = 10_000
# Where nothing known is absent, F1 says nothing: the threshold loses this share of the known positives.
_LOST_POSITIVES = 0.1


class Withheld(IntEnum):
    """Why a certified threshold is not acted upon."""

    NO = 0
    SHIFT = 1
    PREVALENCE = 2
    REVIEW_ONLY = 3


@dataclass(frozen=True)
class CompletionSettings:
    """What a completion promises, and how.

    Attributes:
        precision, confidence: of every statement.
        family: "class": each statement on its own; "table": all at once.
        transfer: what tested cells share with unknown ones, see :func:`satl.completion.certify`.
        review_only: accept nothing; propose only.
    """

    precision: float = 0.95
    confidence: float = 0.95
    family: Family = "class"
    transfer: Transfer = "same"
    review_only: bool = False


@dataclass(frozen=True, eq=False)
class Assessment:
    """What :func:`assess` finds out about the classes of a table; arrays (C,).

    Attributes:
        certification: certified thresholds and the counts they rest on.
        shift: whether unknown cells look like tested ones.
        errors: known cells that the model contradicts, the most suspicious first.
        best_f1: threshold with the best F1, from which "present" is the model's best guess; NaN where there is none.
        present_withheld, absent_withheld: a :class:`Withheld` each.
    """

    certification: Certification
    shift: ShiftCheck
    errors: LabelErrors
    best_f1: FloatArray
    present_withheld: npt.NDArray[np.int8]
    absent_withheld: npt.NDArray[np.int8]

    @property
    def present_from(self) -> FloatArray:
        """Scores from which a cell is accepted as present; NaN for none."""
        return np.where(self.present_withheld == Withheld.NO, self.certification.present.threshold, np.nan)

    @property
    def absent_to(self) -> FloatArray:
        """Scores up to which a cell is accepted as absent; NaN for none."""
        return np.where(self.absent_withheld == Withheld.NO, self.certification.absent.threshold, np.nan)

    @property
    def review_from(self) -> FloatArray:
        """Scores from which a cell that was not accepted is proposed as present; NaN for none."""
        return np.fmin(self.best_f1, self.certification.present.threshold)


def assess(
    scores: FloatMatrix,
    labels: LabelMatrix,
    tested: BoolMatrix | None,
    settings: CompletionSettings,
    planned: LabelMatrix | None = None,
    zones: tuple[FloatArray, FloatArray] | None = None,
) -> Assessment:
    """Certify, check for a shift, look for label errors and find the threshold with the best F1, for every class.

    A certified threshold is withheld, so that nothing is accepted by it, where its own assumption visibly
    fails: the unknown cells do not look like the tested ones; or (``transfer="same"``) positives are so much
    rarer among them that the re-weighted precision misses what was promised.

    Args:
        scores: (N, C); NaN: no score.
        labels: (N, C) in {+1, -1, 0}.
        tested: (N, C) known cells out of sample; None: all known cells.
        settings: what is promised.
        planned, zones: cells that were picked by their score, see :func:`satl.completion.certify`.
    """
    random = tested
    if planned is not None:
        # Cells picked by their score are evidence for a threshold and for nothing else.
        random = (labels != 0 if tested is None else tested) & (planned == 0)
    with ThreadPoolExecutor(max_workers=1) as beside:
        errors = beside.submit(find_label_errors, scores, labels, random, encoding="signed")
        certification = certify(
            scores,
            labels,
            tested,
            precision=settings.precision,
            confidence=settings.confidence,
            family=settings.family,
            transfer=settings.transfer,
            planned=planned,
            zones=zones,
            encoding="signed",
        )
        shift = check_shift(scores, labels, random, certification, encoding="signed")
        # Where the mixture does not fit, its prevalence means nothing.
        best_f1 = best_f1_thresholds(scores, labels, random, np.where(shift.alarm, np.nan, shift.prevalence))
    differs = (shift.verdict == Verdict.PREVALENCE_DIFFERS) & (settings.transfer == "same")

    def withheld(certified: BoolArray, precision: FloatArray) -> npt.NDArray[np.int8]:
        reasons = (
            (np.full(len(certified), settings.review_only), Withheld.REVIEW_ONLY),
            (shift.alarm, Withheld.SHIFT),
            (differs & (precision < settings.precision), Withheld.PREVALENCE),
        )
        found = np.select([which for which, _ in reasons], [why for _, why in reasons], Withheld.NO)
        return np.where(certified, found, Withheld.NO).astype(np.int8)

    return Assessment(
        certification,
        shift,
        errors.result(),
        best_f1,
        withheld(certification.present.certified, shift.present_precision),
        withheld(certification.absent.certified, shift.absent_precision),
    )


def best_f1_thresholds(
    scores: FloatMatrix, labels: LabelMatrix, tested: BoolMatrix | None, prevalence: FloatArray
) -> FloatArray:
    """Return for every class the threshold with the best F1 on the tested cells, (C,); NaN without a positive.

    Tested cells are weighted to the estimated prevalence among the unknown cells where there is an estimate. A class
    without a tested positive uses all its known cells. Nothing is promised here: the threshold decides what a person
    is asked, not what is accepted.
    """
    thresholds = np.array(
        [
            best_f1_threshold(cells.positive, cells.negative, float(share))
            for cells, share in zip(class_cells(scores, labels, tested), prevalence, strict=True)
        ],
        dtype=np.float64,
    )
    if tested is not None and np.isnan(thresholds).any():
        known = class_cells(scores, labels, None)
        seen = np.array([best_f1_threshold(cells.positive, cells.negative, np.nan) for cells in known])
        thresholds = np.where(np.isnan(thresholds), seen, thresholds)
    return thresholds


def best_f1_threshold(
    positive: npt.NDArray[np.floating], negative: npt.NDArray[np.floating], prevalence: float
) -> float:
    """Return the threshold with the best F1 for one class.

    Args:
        positive, negative: scores of known cells of each sign.
        prevalence: share of positives where the threshold will be used; NaN: that of these cells.

    >>> best_f1_threshold(np.array([0.9, 0.8, 0.3]), np.array([0.5, 0.2, 0.1]), np.nan)
    0.3
    >>> best_f1_threshold(np.array([0.9, 0.8, 0.3]), np.array([0.5, 0.2, 0.1]), 0.05)
    0.8
    >>> best_f1_threshold(np.linspace(0, 1, 11), np.array([]), np.nan)
    0.1
    """
    if not len(positive):
        return float("nan")
    if not len(negative):
        return float(np.quantile(positive, _LOST_POSITIVES, method="lower"))
    share = len(positive) / (len(positive) + len(negative)) if np.isnan(prevalence) else max(prevalence, 1e-9)
    candidates = np.sort(positive)
    found = np.arange(len(positive), 0, -1) / len(positive)
    leaked = 1 - np.searchsorted(np.sort(negative), candidates, side="left") / len(negative)
    # Equal scores are found together: the first of them counts, and the strictest of equally good thresholds.
    f1 = 2 * share * found / (share * found + (1 - share) * leaked + share)
    first = np.concatenate(([True], candidates[1:] != candidates[:-1]))
    f1 = np.where(first, f1, -1.0)
    return float(candidates[len(f1) - 1 - int(f1[::-1].argmax())])
