"""Fill a table: every unknown cell is accepted as present or absent, proposed for review, or left unknown."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from satl.checks.array_checks import LabelMatrix
from satl.checks.formulas import warn_of_formulas
from satl.completion.outputs.changes import HEADER, ChangeFormat, Group
from satl.completion.outputs.completed_folder import CompletedFolder
from satl.completion.outputs.report_files import write_report
from satl.completion.statistics.assessment import CompletionSettings, assess
from satl.completion.statistics.class_changes import ClassChanges, ClassCounts, Rows, TableChanges
from satl.completion.workflow.case import Case
from satl.completion.workflow.report_content import build_report
from satl.errors import Argument, RunError, Sentence, TableError, called
from satl.evaluation.undefined import finite_or_none
from satl.labels import ABSENT, PRESENT, LabelTable
from satl.labels.bands import ACCEPTED, LEFT, REVIEW
from satl.labels.io import write_alike
from satl.labels.io.arrays import write_arrays, write_label_arrays
from satl.remote.addresses import as_path

_CELLS_AT_ONCE = 500_000


@dataclass(frozen=True)
class Completion:
    """What a completion did, counted in cells.

    Attributes:
        folder: what was written.
        present, absent: accepted.
        review: proposed to a person, label errors not counted.
        errors: known cells that the model contradicts.
        left: unknown cells that stay as they are, those without a score included.
        report: the content of ``report.json``.
    """

    folder: CompletedFolder
    present: int
    absent: int
    review: int
    errors: int
    left: int
    report: dict[str, Any]


def complete(
    case: Case,
    out: str | Path,
    settings: CompletionSettings | None = None,
    *,
    list_all: bool = False,
    force: bool = False,
) -> Completion:
    """Complete a table and write the folder ``out``; see :mod:`satl.completion.outputs.completed_folder` for its files.

    Known cells never change. An unknown cell is *accepted* beyond a certified threshold; it is proposed for *review*,
    as present, if it is not accepted and scores at least the threshold with the best F1 (:func:`satl.completion.
    statistics.assessment.best_f1_thresholds`) or a certified threshold that is withheld; it is *left* unknown
    otherwise. Known cells that the model contradicts out of sample are proposed for review as well.

    Args:
        case: the table and the scores.
        out: folder to write; nothing of it appears before all of it does.
        settings: what is promised.
        list_all: list every cell in ``changes.csv``. Without it the cells that are left are not listed, nor those
            accepted as absent if there are more than ten million of them; the completed table has them all.
        force: replace an earlier completion in ``out``; decisions of a review are kept.

    Raises:
        TableError: nothing is known, or nothing is known to be absent and ``settings.review_only`` is not set.
        RunError: ``out`` cannot be written, or nothing is out of sample and ``settings.review_only`` is not set.
    """
    settings = settings or CompletionSettings()
    CompletedFolder.check_free(out, force)
    _require_evidence(case, settings)
    # From here on one class after the other is looked at, so each lies in one piece of memory.
    scores, basis = np.asfortranarray(case.scores), np.asfortranarray(case.basis)
    assessment = assess(scores, basis, case.tested, settings, case.planned, case.zones)
    labels = basis if case.basis is case.table.cells else np.asfortranarray(case.table.cells)
    changes = TableChanges(scores, labels, assessment, list_all, case.confirmed)
    with CompletedFolder.write(out, force) as folder:
        warn_of_formulas(folder.changes, case.table.images, case.table.classes)
        completed = labels.copy(order="F")
        with ThreadPoolExecutor(max_workers=1) as beside:
            inputs = beside.submit(_write_inputs, case, folder)
            class_counts = _write_changes(folder.changes, case.table, changes, settings.precision, completed)
            inputs.result()
        if case.file.format == "npz":
            # Without a second table, which for a large one takes seconds; satl states the encoding in its own files.
            encoding = "csl" if case.file.encoding == "csl" else "signed"
            write_label_arrays(folder.path / "completed.npz", case.table, completed, encoding)
        else:
            write_alike(
                case.file, case.table.with_cells(completed, "signed"), folder.new_completed(case.file)
            )
        report = build_report(case, settings, assessment, class_counts, changes)
        write_report(folder, report, as_path(called(str(out))))
    counts = report["counts"]
    return Completion(
        folder=CompletedFolder(out),
        present=counts["present"],
        absent=counts["absent"],
        review=counts["review"],
        errors=counts["label_errors"],
        left=counts["left"],
        report=report,
    )


def _require_evidence(case: Case, settings: CompletionSettings) -> None:
    """Refuse a case in which no class can get a certificate, unless only proposals are asked for."""
    tested = case.basis if case.tested is None else np.where(case.tested, case.basis, np.int8(0))
    labels = case.source["labels"]
    if not case.basis.any():
        raise TableError(
            "no cell is known, so nothing can be tested", where=labels, remedy="label some cells first"
        )
    if settings.review_only:
        return
    if not tested.any():
        raise RunError(
            "no known cell is out of sample, so nothing can be certified",
            where=labels,
            remedy=Sentence(
                "train with {holdout}, or pass {review_only} to get proposals for a person and no promise",
                holdout=Argument("settings", "data.holdout=true"),
                review_only=Argument("review_only", True),
            ),
        )
    if not (tested == ABSENT).any():
        raise TableError(
            "no tested cell is known to be absent (positive-only labels), so nothing could contradict the model and no "
            "precision can be certified",
            where=labels,
            remedy=Sentence(
                "mark some cells as absent, or pass {review_only} to get proposals for a person and no promise",
                review_only=Argument("review_only", True),
            ),
        )


def _write_changes(
    path: Path, table: LabelTable, changes: TableChanges, precision: float, completed: LabelMatrix
) -> list[ClassCounts]:
    """Write ``changes.csv`` and fill ``completed`` (N, C) in place; return what happened to every class."""
    formatted = ChangeFormat(table.images)

    def prepare(columns: range) -> tuple[list[ClassCounts], list[bytes]]:
        counts: list[ClassCounts] = []
        text: list[bytes] = []
        for column in columns:
            found = changes.of_class(column)
            completed[found.present, column] = PRESENT
            completed[found.absent, column] = ABSENT
            counts.append(ClassCounts.of(found))
            for group in _groups(changes, column, table.classes[column], found, precision):
                text.extend(formatted.blocks(group))
        return counts, text

    # Two parts are prepared while one is written: quick, and little is held in memory.
    size = max(1, _CELLS_AT_ONCE // table.num_images)
    parts = [
        range(first, min(first + size, table.num_classes)) for first in range(0, table.num_classes, size)
    ]
    kept: list[ClassCounts] = []
    with path.open("wb") as stream, ThreadPoolExecutor(max_workers=2) as pool:
        stream.write(HEADER)
        ahead = deque(pool.submit(prepare, part) for part in parts[:2])
        for place in range(len(parts)):
            counts, text = ahead.popleft().result()
            ahead.extend(pool.submit(prepare, part) for part in parts[place + 2 : place + 3])
            stream.writelines(text)
            kept.extend(counts)
    return kept


def _groups(
    changes: TableChanges, column: int, name: str, found: ClassChanges, precision: float
) -> Iterator[Group]:
    """Yield the rows of ``changes.csv`` of one class: accepted, then for review, then left."""
    scores, labels = changes.scores[:, column], changes.labels[:, column]
    certification = changes.assessment.certification
    upper, lower = (
        finite_or_none(side.threshold[column]) for side in (certification.present, certification.absent)
    )

    def group(rows: Rows, value: int, threshold: float | None, band: str, source: str) -> Group:
        bound = precision if band == ACCEPTED else None
        return Group(name, value, rows, scores[rows], threshold, band, source, bound)

    yield group(found.present, 1, upper, ACCEPTED, "certificate")
    if changes.list_absent:
        yield group(found.absent, -1, lower, ACCEPTED, "certificate")
    for known in (-1, 1):  # known cells: their value is asked about, never changed
        rows = found.errors[labels[found.errors] == known]
        yield group(rows, -known, None, REVIEW, "label-error")
    yield group(found.review, 1, upper, REVIEW, "model")
    if changes.list_left:
        yield group(found.left, -1, lower, LEFT, "model")


def _write_inputs(case: Case, folder: CompletedFolder) -> None:
    """Write the table before, the tested cells and the scores, as far as they are not kept elsewhere."""
    table = case.table
    write_label_arrays(folder.labels, table, table.cells)
    random = case.basis != 0 if case.tested is None else case.tested
    if case.planned is not None:
        random = random & (case.planned == 0)
    if case.tested is not None or case.planned is not None or case.basis is not table.cells:
        write_label_arrays(folder.evidence, table, np.where(random, case.basis, np.int8(0)))
    if case.keep_scores:
        arrays = {
            "scores": np.ascontiguousarray(case.scores),
            "images": np.array(table.images, dtype=np.str_),
            "names": np.array(table.classes, dtype=np.str_),
        }
        if case.tested is not None:
            arrays["held_out"] = np.ascontiguousarray(case.tested)
        write_arrays(folder.scores, arrays)
