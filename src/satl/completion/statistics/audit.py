"""Estimate how good a completed table is from a random sample labelled by hand, without any assumption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import as_array, signed_array
from satl.completion.statistics.class_cells import class_names
from satl.errors import Argument, ArrayError, SatlError, nearest
from satl.evaluation.confidence_bounds import (
    FloatArray,
    IntArray,
    as_share,
    finite_population_lower,
    finite_population_upper,
)
from satl.evaluation.undefined import finite_or_none, ratio
from satl.labels.bands import Band

_BANDS = len(Band) - 1


@dataclass(frozen=True)
class AuditSample:
    """Cells to label by hand.

    Attributes:
        row, column: (K,) where they are, class by class in the order of the rows, so that the order does not give
            the band away.
        band: (K,) int8, see :class:`Band`.
        population: (C, 4) cells of each class in each band; column 0 is Band.PRESENT.
        by: "class" or "table".
    """

    row: IntArray
    column: IntArray
    band: npt.NDArray[np.int8]
    population: IntArray
    by: str

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class EstimatedShare:
    """An estimated share with an exact interval; arrays (G,), one entry per class, or one for the table."""

    estimate: FloatArray
    low: FloatArray
    high: FloatArray

    def as_dict(self, index: int) -> dict[str, float | None]:
        """One entry, JSON-safe."""
        return {name: finite_or_none(getattr(self, name)[index]) for name in ("estimate", "low", "high")}


@dataclass(frozen=True)
class AuditResult:
    """What the answers say; one entry per class, or one for the table.

    Attributes:
        present_precision: share of the cells accepted as present that are present.
        absent_precision: share of the cells accepted as absent that are absent.
        present_recall: share of the unknown cells that are present and were accepted as such.
        absent_recall: share of the unknown cells that are absent and were accepted as such.
        prevalence: share of the unknown cells that are present.
        answered, unsure: (G, 4) answers of each band, and cells whose answer was "cannot tell".
    """

    present_precision: EstimatedShare
    absent_precision: EstimatedShare
    present_recall: EstimatedShare
    absent_recall: EstimatedShare
    prevalence: EstimatedShare
    answered: IntArray
    unsure: IntArray

    def as_dict(self, names: Any = None) -> list[dict[str, Any]]:
        """One record per entry; JSON-safe (undefined is None)."""
        groups = class_names(names, len(self.answered))
        fields = ("present_precision", "absent_precision", "present_recall", "absent_recall", "prevalence")
        return [
            {
                "name": name,
                **{field: getattr(self, field).as_dict(row) for field in fields},
                "answered": self.answered[row].tolist(),
                "unsure": self.unsure[row].tolist(),
            }
            for row, name in enumerate(groups)
        ]


def draw_audit(
    bands: npt.ArrayLike, size: int = 50, by: Literal["class", "table"] = "class", seed: int = 0
) -> AuditSample:
    """Draw cells to label by hand: a simple random sample of every band of every class, or of the table.

    Args:
        bands: (N, C) a :class:`Band` each; known cells are 0 and never drawn.
        size: cells of each band (of each class, or of all classes together); all of them where there are fewer.
        by: "class" for a statement about each class, "table" for one about the whole table with far fewer labels.
        seed: of the draw.

    >>> bands = np.array([[0, 1], [1, 4], [1, 4], [4, 4]])
    >>> sample = draw_audit(bands, size=1)
    >>> sample.band, sample.population[:, 0], len(draw_audit(bands, size=1, by="table"))
    (array([1, 4, 1, 4], dtype=int8), array([2, 1]), 2)
    """
    codes = np.asarray(bands)
    if codes.ndim != 2 or codes.dtype.kind not in "iu":
        raise ArrayError(
            f"bands must be integers of the shape (images, classes), not {codes.dtype} {codes.shape}."
        )
    if codes.size and (codes.min() < 0 or codes.max() > _BANDS):
        raise ArrayError(f"A band must be a number from 0 to {_BANDS}: see satl.completion.Band.")
    if size < 1:
        raise SatlError(f"An audit needs at least 1 cell of each band, not {size}.")
    if by not in ("class", "table"):
        raise SatlError(
            f"is neither class nor table{nearest(str(by), ('class', 'table'))}",
            where=Argument("by", by),
            remedy="say one of them",
        )
    population = np.stack([np.count_nonzero(codes == band, axis=0) for band in range(1, _BANDS + 1)], axis=1)
    random = np.random.default_rng(seed)
    if by == "class":
        wanted = np.minimum(population, size)
    else:
        wanted = np.stack(
            [
                random.multivariate_hypergeometric(counts, min(size, int(counts.sum())), method="marginals")
                for counts in population.T
            ],
            axis=1,
        )
    rows, columns = [], []
    for column, band in np.argwhere(wanted > 0):
        pool = np.flatnonzero(codes[:, column] == band + 1)
        rows.append(random.choice(pool, wanted[column, band], replace=False, shuffle=False))
        columns.append(np.full(wanted[column, band], column))
    row = np.concatenate([*rows, np.empty(0, dtype=np.int64)]).astype(np.int64)
    column_of = np.concatenate([*columns, np.empty(0, dtype=np.int64)]).astype(np.int64)
    order = np.lexsort((row, column_of))
    row, column_of = row[order], column_of[order]
    return AuditSample(row, column_of, codes[row, column_of].astype(np.int8), population.astype(np.int64), by)


def estimate_audit(
    sample: AuditSample, answers: npt.ArrayLike, confidence: float = 0.95, *, encoding: str | None = None
) -> AuditResult:
    """Estimate precision, recall and prevalence from the answers.

    Assumption: none about model, scores or labels; only that the sample was drawn by :func:`draw_audit` and
    the answers are right. Guarantee: every interval contains the true share of this table with probability at
    least ``confidence``: hypergeometric for a band; for recall and prevalence, which join bands, the intervals of
    the bands share the error probability. "Cannot tell" counts against the lower bound and for the upper one, so
    it cannot flatter. Cells without an answer yet must be left out of both sample and answers at random, or be
    given as "cannot tell".

    Args:
        sample: the cells.
        answers: (K,) +1 present, -1 absent, 0 cannot tell.
        confidence: in (0, 1), two-sided.
        encoding: how ``answers`` are written, if not +1, -1, 0 (``"complete"`` for 1 and 0). Answers with 0 and without
            -1 are refused unless one is named.

    >>> sample = draw_audit(np.repeat([[1], [4]], [100, 900], axis=0), size=50)
    >>> answers = np.where(sample.band == 1, 1, -1)
    >>> answers[:2] = -1                                        # two of fifty are wrong
    >>> result = estimate_audit(sample, answers)
    >>> [round(float(x[0]), 3) for x in vars(result.present_precision).values()]
    [0.96, 0.89, 0.98]
    >>> [round(float(x[0]), 3) for x in vars(result.present_recall).values()]
    [1.0, 0.547, 1.0]
    """
    as_share(confidence, "confidence")
    given = as_array(answers)
    if given.shape != sample.row.shape:
        raise ArrayError(
            f"There must be one answer of 1, -1 or 0 (cannot tell) for each of the {len(sample)} cells."
        )
    said = signed_array(given[:, np.newaxis], "answers", encoding)[:, 0]
    table = sample.by == "table"
    population = sample.population.sum(axis=0, keepdims=True) if table else sample.population
    group = np.zeros(len(sample), dtype=np.int64) if table else sample.column
    cell = group * _BANDS + sample.band.astype(np.int64) - 1

    def counted(which: npt.NDArray[np.bool_]) -> IntArray:
        return np.bincount(cell[which], minlength=population.size).reshape(population.shape)

    present, absent, unsure = counted(said == 1), counted(said == -1), counted(said == 0)
    drawn = present + absent + unsure
    answered = present + absent

    def share_of(right: IntArray, error: npt.ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        each = 1 - np.asarray(error, dtype=np.float64) / 2
        low = finite_population_lower(right, drawn, population, each)
        high = finite_population_upper(right + unsure, drawn, population, each)
        return ratio(right, answered, empty=np.nan), low, high

    error = 1 - confidence
    single = share_of(present, error), share_of(absent, error)
    # A band without cells needs no share of the error probability.
    joint_error = error / np.maximum((population > 0).sum(axis=1, keepdims=True), 1)
    joint = share_of(present, joint_error), share_of(absent, joint_error)

    def band_share(index: int, value: int) -> EstimatedShare:
        some = population[:, index] > 0
        return EstimatedShare(*(np.where(some, part[:, index], np.nan) for part in single[value]))

    return AuditResult(
        present_precision=band_share(0, 0),
        absent_precision=band_share(1, 1),
        present_recall=_recall(population, *joint[0], 0),
        absent_recall=_recall(population, *joint[1], 1),
        prevalence=_total(population, *joint[0]),
        answered=answered,
        unsure=unsure,
    )


def _weighted(population: IntArray, share: FloatArray) -> FloatArray:
    """Cells of each band with the value; a band without cells has none, whatever its share."""
    return np.where(population > 0, population * share, 0.0)


def _recall(
    population: IntArray, estimate: FloatArray, low: FloatArray, high: FloatArray, band: int
) -> EstimatedShare:
    """Share of all cells with the value that lie in ``band``; it rises with its own share, falls with the others."""

    def recall(own: FloatArray, rest: FloatArray, empty: float) -> FloatArray:
        mine = _weighted(population, own)[:, band]
        return ratio(mine, mine + np.delete(_weighted(population, rest), band, axis=1).sum(axis=1), empty)

    return EstimatedShare(recall(estimate, estimate, np.nan), recall(low, high, 0.0), recall(high, low, 1.0))


def _total(population: IntArray, estimate: FloatArray, low: FloatArray, high: FloatArray) -> EstimatedShare:
    parts = (_weighted(population, share).sum(axis=1) for share in (estimate, low, high))
    return EstimatedShare(*(ratio(part, population.sum(axis=1), empty=np.nan) for part in parts))
