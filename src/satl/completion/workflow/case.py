"""A case to complete: a table, the scores of a model, and the known cells that may be tested."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from satl.checks.array_checks import BoolMatrix, FloatMatrix, LabelMatrix
from satl.completion.outputs.hand_labels import PlanAnswers, read_answers
from satl.errors import TableError
from satl.evaluation.confidence_bounds import FloatArray
from satl.labels import LabelTable, TableFile
from satl.labels.decisions import Decisions, apply_decisions

_SAME_SCORE = 0.01
"""Scores of a cell that differ by less, absolutely or relatively, are those of one model."""


@dataclass(frozen=True, eq=False)
class Case:
    """A table to complete, with all that the completion rests on.

    Attributes:
        file: the table as it was read; its format and encoding are kept.
        scores: (N, C) in the order of the table, NaN where there is none.
        basis: (N, C) labels that certificates rest on: the table's own, or those before a review or a merge.
        tested: (N, C) known cells of ``basis`` that the model has not seen; None: all of them.
        source: where everything came from, for the report.
        notes: what a user should know, a sentence each.
        images: folder of the images as given, or None.
        planned: (N, C) cells of ``basis`` that a label plan picked by their score, +1 for present, -1 for absent; None:
            none.
        zones: the loosest thresholds that these cells can test, present and absent, (C,) each.
        confirmed: (N, C) known cells that a person has looked at already and left as they are; None: none.
        keep_scores: write the scores into the folder, because they exist nowhere else.
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
    keep_scores: bool = False

    @property
    def table(self) -> LabelTable:
        """The table to complete."""
        return self.file.table

    @property
    def tested_count(self) -> int:
        """Known cells that certificates rest on."""
        return int(np.count_nonzero(self.basis if self.tested is None else self.tested))


def with_plan(case: Case, path: str | Path) -> Case:
    """Return the case with the answers of a label plan: as known cells of the table, tested apart from the others."""
    table = case.table
    answers = read_answers(path, table)
    if not len(answers.value):
        raise TableError(
            "there is no answer yet", where=path, remedy="write present, absent or ? into its column 'value'"
        )
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
    # Files hold six digits, and a network that scores again on another machine differs in the third.
    other = ~(np.abs(here - answers.score) <= _SAME_SCORE * np.maximum(1.0, np.abs(answers.score)))
    if other.any():
        first = int(np.argmax(other))
        raise TableError(
            f"the plan was drawn by other scores: {_cell(case, answers, first)} has {answers.score[first]:.4g} in the "
            f"plan and {here[first]:.4g} here, and a plan can only test the model that drew it",
            where=path,
            remedy="complete with the scores that drew it, or write its answers into the table and draw a new plan",
        )
    if case.tested is None or case.source["kind"] != "run":
        return
    known = case.basis[answers.row, answers.column] != 0
    seen = known & ~case.tested[answers.row, answers.column]
    if seen.any():
        raise TableError(
            f"the run was trained on {int(seen.sum()):,} of its cells, such as "
            f"{_cell(case, answers, int(np.argmax(seen)))}, so they cannot test it",
            where=path,
            remedy="leave the plan out",
        )


def _cell(case: Case, answers: PlanAnswers, index: int) -> str:
    row, column = int(answers.row[index]), int(answers.column[index])
    return f"image {case.table.images[row]!r}, class {case.table.classes[column]!r}"


def with_confirmed(case: Case, confirmed: BoolMatrix) -> Case:
    """Return the case with known cells (N, C) that a person confirmed, which are not suspected of an error again."""
    count = int(confirmed.sum())
    note = (
        f"{count:,} label{'s' * (count != 1)} that a person decided in an earlier review "
        f"{'is' if count == 1 else 'are'} not suspected again."
    )
    return replace(case, confirmed=confirmed, notes=(*case.notes, note))
