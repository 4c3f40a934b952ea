"""What a completion starts from: a table, scores, and which known cells may be tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.completion.files.hand_labels import PlanAnswers, read_answers
from satl.completion.statistics.class_cells import BoolMatrix, LabelMatrix
from satl.errors import Argument, RunError, Sentence, TableError
from satl.evaluation.bounds import FloatArray
from satl.labels import LabelTable, TableFile, aligned_cells, open_table, read_other_table
from satl.labels.decisions import Decisions, apply_decisions
from satl.labels.holdout import HeldOut
from satl.labels.io.arrays import ArrayFile
from satl.scores import ScoreTable, read_scores
from satl.scores.score_table import FloatMatrix

_SAME_SCORE = 0.01
"""How far the scores of a cell may lie apart, and still be those of one model."""


@dataclass(frozen=True, eq=False)
class Case:
    """A table to complete.

    Attributes:
        file: the table as it was read; its format and encoding are kept.
        scores: (N, C) in the order of the table, NaN where there is none.
        basis: (N, C) labels that certificates rest on: the table's own, or those before a review or a merge.
        tested: (N, C) known cells of ``basis`` that the model has not seen; None: all of them.
        source: where everything came from, for the report.
        notes: what a user should know, a sentence each.
        images: folder of the images as given, or None.
        planned, zones: cells of ``basis`` that were picked by their score, and how far they can speak.
        confirmed: (N, C) known cells that a person has looked at already and left as they are; None: none.
        keep_scores: whether the scores exist nowhere else.
    """

    file: TableFile
    scores: FloatMatrix
    basis: LabelMatrix
    tested: BoolMatrix | None
    source: dict[str, Any]
    notes: tuple[str, ...] = ()
    images: str | None = None
    planned: LabelMatrix | None = None
    zones: tuple[FloatArray, FloatArray] | None = None
    confirmed: BoolMatrix | None = None
    keep_scores: bool = field(default=False)

    @property
    def table(self) -> LabelTable:
        """The table to complete."""
        return self.file.table

    @property
    def tested_count(self) -> int:
        """Known cells that certificates rest on."""
        return int(np.count_nonzero(self.basis if self.tested is None else self.tested))


def case_from_scores(
    scores: str | Path,
    labels: str | Path | None = None,
    *,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    held_out: str | Path | None = None,
    certify_on: str | Path | None = None,
    plan: str | Path | None = None,
    images: str | Path | None = None,
) -> Case:
    """Read a table and the scores of any model for it.

    Args:
        scores: any file that :func:`satl.scores.read_scores` reads.
        labels: the label table; None where ``scores`` is an ``.npz`` file that holds the labels as well.
        encoding: of the label table, where its values can be read in several ways.
        ignore_columns: columns of a wide table that are no classes.
        held_out: a label table whose known cells are the ones out of sample, or a file of
            :class:`satl.labels.holdout.HeldOut`; None: what the scores say, else all known cells.
        certify_on: the label table before a review or merge; certificates rest on it. None: ``labels``.
        plan: a file of ``satl plan`` with answers; they count as known and as evidence.
        images: folder of the images, for the review.
    """
    if labels is None:
        if ignore_columns:
            raise TableError(
                "only a label table has columns to ignore",
                where=Argument("ignore_columns", ignore_columns[0]),
                remedy=Sentence("name the table with {labels}", labels=Argument("labels")),
            )
        found = read_scores(scores, encoding=encoding)
        if found.labels is None:
            raise TableError(
                "holds scores alone, no labels",
                where=found.path,
                remedy=Sentence("name the label table with {labels}", labels=Argument("labels")),
            )
        opened = found.labels
    else:
        opened = open_table(labels, encoding, ignore_columns=ignore_columns)
        found = read_scores(scores, opened.table)
    opened = _without_truth(opened)
    table = opened.table
    basis = table.cells
    if certify_on is not None:
        basis = aligned_cells(read_other_table(certify_on, encoding, ignore_columns), table, certify_on)
    tested, how = _tested(found, table, basis, held_out, encoding, ignore_columns)
    source = {
        "kind": "scores",
        "scores": str(scores),
        "labels": str(scores if labels is None else labels),
        "format": opened.format,
        "encoding": opened.encoding,
        "out_of_sample": how,
        "folds": found.folds,
        "certify_on": None if certify_on is None else str(certify_on),
        "held_out": None if held_out is None else str(held_out),
    }
    case = Case(
        opened, found.values, basis, tested, source, found.notes, None if images is None else str(images)
    )
    return case if plan is None else with_plan(case, plan)


def with_plan(case: Case, path: str | Path) -> Case:
    """Return the case with the answers of a plan: known cells of the table, and evidence picked by its score."""
    table = case.table
    answers = read_answers(path, table)
    if not len(answers.value):
        raise TableError(f"{path} has no answer yet: write present, absent or ? into its column 'value'.")
    decisions = Decisions(answers.row, answers.column, answers.value)
    answered, _ = apply_decisions(
        table, decisions, origin=path, where=case.file.path, remedy="correct one of them"
    )
    _require_same_model(case, answers, path)
    basis = case.basis.copy()
    planned = np.zeros((table.num_classes, table.num_images), dtype=np.int8).T
    for target, content in ((basis, answers.value), (planned, answers.aim)):
        target[answers.row, answers.column] = content
    tested = None if case.tested is None else case.tested | (planned != 0)
    return replace(
        case,
        file=replace(case.file, table=answered),
        basis=basis,
        tested=tested,
        planned=planned,
        zones=answers.zones,
        source={**case.source, "plan": str(path), "planned": len(answers.value)},
    )


def _require_same_model(case: Case, answers: PlanAnswers, path: str | Path) -> None:
    """Refuse a plan that another model's scores drew, or whose cells this model was trained on.

    On answers that it has learned from, a model looks better than it is.
    """
    here = case.scores[answers.row, answers.column].astype(np.float64)
    # Files hold six digits, and a network scored anew on another machine differs in the third.
    other = ~(np.abs(here - answers.score) <= _SAME_SCORE * np.maximum(1.0, np.abs(answers.score)))
    if other.any():
        row, column, mine, theirs = _first(case.table, answers, other, here)
        raise TableError(
            f"{path} was drawn by other scores: image {row!r}, class {column!r} has {theirs:.4g} in the plan and "
            f"{mine:.4g} here. A plan speaks for the model that drew it: complete with that one, or draw a new plan "
            "and leave this one out (its answers are labels like others: write them into the table)."
        )
    if case.tested is None or case.source["kind"] != "run":
        return
    known = case.basis[answers.row, answers.column] != 0
    seen = known & ~case.tested[answers.row, answers.column]
    if seen.any():
        row, column, *_ = _first(case.table, answers, seen, here)
        raise TableError(
            f"{path}: the run was trained on {int(seen.sum()):,} of its cells, such as image {row!r}, class "
            f"{column!r}: they cannot test it. Leave the plan out."
        )


def _first(
    table: LabelTable, answers: PlanAnswers, among: npt.NDArray[np.bool_], here: FloatArray
) -> tuple[str, str, float, float]:
    """Return image, class, score here and score in the plan of the first cell of those."""
    k = int(np.argmax(among))
    image, label = table.images[int(answers.row[k])], table.classes[int(answers.column[k])]
    return image, label, float(here[k]), float(answers.score[k])


def _without_truth(opened: TableFile) -> TableFile:
    """Hidden truth has no part in a completion."""
    return opened if opened.table.truth is None else replace(opened, table=opened.table.with_truth(None))


def _tested(
    found: ScoreTable,
    table: LabelTable,
    basis: LabelMatrix,
    held_out: str | Path | None,
    encoding: str | None,
    ignore_columns: Sequence[str],
) -> tuple[BoolMatrix | None, str]:
    """Return which known cells are out of sample, and who says so."""
    if held_out is not None:
        mask, how = _read_held_out(Path(held_out), table, encoding, ignore_columns), "held-out file"
    elif found.held_out is not None:
        mask, how = found.held_out, "marked in the scores"
    else:
        return None, "all known cells"
    tested = mask & (basis != 0)
    if not tested.any():
        raise TableError(
            "no known cell is out of sample, so nothing can be tested",
            where=found.path if held_out is None else Argument("held_out", held_out),
            remedy="hold some out",
        )
    return tested, how


def _read_held_out(
    path: Path, table: LabelTable, encoding: str | None, ignore_columns: Sequence[str]
) -> BoolMatrix:
    if path.suffix.lower() == ".npz" and path.is_file():
        with ArrayFile(path) as arrays:
            own = "mask" in arrays and "fraction" in arrays
        if own:
            try:
                return HeldOut.load(path, table.images, table.classes).mask
            except RunError as error:
                raise TableError(str(error)) from None
    return aligned_cells(read_other_table(path, encoding, ignore_columns), table, path) != 0
