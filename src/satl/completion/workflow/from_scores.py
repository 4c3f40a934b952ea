"""A label table and the scores of any model for it, as a case to complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from satl.checks.array_checks import BoolMatrix, LabelMatrix
from satl.completion.workflow.case import Case, with_plan
from satl.errors import Argument, Sentence, TableError
from satl.labels import LabelTable, aligned_cells, open_table, read_other_table
from satl.labels.holdout import HeldOut
from satl.scores import ScoreTable, read_scores


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
        ignore_columns: columns of a wide table that are not classes.
        held_out: a label table whose known cells are the ones out of sample, or a file of
            :class:`satl.labels.holdout.HeldOut`; None: what the scores say, else all known cells.
        certify_on: the label table before a review or merge; certificates rest on it. None: ``labels``.
        plan: a label plan with answers; they count as known and are tested.
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
    if opened.table.truth is not None:  # hidden truth has no part in a completion
        opened = replace(opened, table=opened.table.with_truth(None))
    table = opened.table
    basis = table.cells
    if certify_on is not None:
        basis = aligned_cells(read_other_table(certify_on, encoding, ignore_columns), table, certify_on)
    tested, how = _find_tested(found, table, basis, held_out, encoding, ignore_columns)
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
        file=opened,
        scores=found.values,
        basis=basis,
        tested=tested,
        source=source,
        notes=found.notes,
        images=None if images is None else str(images),
    )
    return case if plan is None else with_plan(case, plan)


def _find_tested(
    found: ScoreTable,
    table: LabelTable,
    basis: LabelMatrix,
    held_out: str | Path | None,
    encoding: str | None,
    ignore_columns: Sequence[str],
) -> tuple[BoolMatrix | None, str]:
    """Return the known cells out of sample (N, C), None for all of them, and which source says so."""
    mask, how = found.held_out, "marked in the scores"
    if held_out is not None:
        how = "held-out file"
        if HeldOut.is_file(held_out):
            mask = HeldOut.load(held_out, table.images, table.classes).mask
        else:
            other = read_other_table(held_out, encoding, ignore_columns)
            mask = aligned_cells(other, table, held_out) != 0
    if mask is None:
        return None, "all known cells"
    tested = mask & (basis != 0)
    if not tested.any():
        raise TableError(
            "no known cell is out of sample, so nothing can be tested",
            where=found.path if held_out is None else Argument("held_out", held_out),
            remedy="hold some out",
        )
    return tested, how
