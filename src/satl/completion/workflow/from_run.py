"""The table of a trained run, scored by its model, as a case to complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from satl.checks.array_checks import BoolMatrix
from satl.completion.workflow.case import Case, with_plan
from satl.errors import Argument, RunError, Sentence, TableError
from satl.labels import LabelTable, TableFile, aligned_cells, open_table, read_table
from satl.labels.holdout import HeldOut
from satl.labels.table import Cells
from satl.scores import ScoreTable

if TYPE_CHECKING:
    from satl.runs.config import RunConfig
    from satl.runs.data import RunData
    from satl.runs.run_folder import RunFolder

Progress = Callable[[int, int], Any]


def case_from_run(
    run: str | Path,
    labels: str | Path | None = None,
    *,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    checkpoint: str = "best",
    plan: str | Path | None = None,
    images: str | Path | None = None,
    review_only: bool = False,
    progress: Progress | None = None,
) -> Case:
    """Score every image of a run's table with its model; certificates rest on the cells held out of training.

    They rest on the labels as the run knew them, whatever has been filled in since, so that a table may be completed
    again after a review: labels that were picked by their score are not tested.

    Args:
        run: folder of a run, trained with ``data.holdout``.
        labels: the table to complete; None: that of the run.
        encoding: of ``labels``.
        ignore_columns: columns of ``labels`` that are not classes; if none are named, those of the run.
        checkpoint: "best" or "last".
        plan: a label plan with answers.
        images: folder of the images for the review; None: that of the run.
        review_only: accept a run without hold-out, of which nothing can be certified.
        progress: called with (images read, images in all).
    """
    from satl.inference.recogniser import Recogniser
    from satl.runs.data import load_data
    from satl.runs.run_folder import RunFolder

    folder = RunFolder.open(run)
    if not folder.held_out.is_file() and not review_only:
        raise RunError(
            "the run was trained on all its known cells, so none is left to test it on",
            where=folder.path,
            remedy=Sentence(
                "train with {holdout}, or pass {review_only} to get proposals for a person and no promise",
                holdout=Argument("settings", "data.holdout=true"),
                review_only=Argument("review_only", True),
            ),
        )
    recogniser = Recogniser.load(run, checkpoint)
    config = recogniser.config
    folder.require_inputs(config)
    data = load_data(config, progress)
    if data.table.classes != recogniser.classes:
        raise RunError(
            "the classes of its table are not those the run was trained on",
            where=folder.path,
            remedy="restore the table, or train again",
        )
    trained, tested = _trained_labels(folder, data)
    opened = _open_table(config, trained, labels, encoding, ignore_columns)
    table = opened.table
    own = config.data.images if config.data.images is not None else config.data.root
    folder_of_images = images if images is not None else own
    basis = table.cells if labels is None and tested is None else aligned_cells(trained, table, str(run))
    source = {
        "kind": "run",
        "run": str(run),
        "checkpoint": checkpoint,
        "labels": str(opened.path),
        "format": opened.format,
        "encoding": opened.encoding,
        "out_of_sample": "held out of training",
        "folds": 0,
    }
    scored = data.table
    probabilities = recogniser.probabilities(data.source)
    scores = ScoreTable(Path(run), scored.images, scored.classes, probabilities).in_order_of(table)
    in_order = _in_order_of(table, tested, trained)
    case = Case(
        file=opened,
        scores=scores.values,
        basis=basis,
        tested=in_order & (basis != 0),
        source=source,
        notes=(*scores.notes, *_changes_since(folder, data, table, basis, in_order)),
        images=None if folder_of_images is None else str(folder_of_images),
        keep_scores=True,
    )
    return case if plan is None else with_plan(case, plan)


def _changes_since(
    folder: RunFolder, data: RunData, table: LabelTable, basis: Cells, tested: BoolMatrix
) -> Iterator[str]:
    """Say which pictures and known labels are not those of the run any more, a sentence each."""
    from satl.runs.picture_record import PictureRecord, changed_words

    record = PictureRecord.load(folder.pictures)
    changed = [] if record is None else record.changed(data)
    if changed:
        yield f"{changed_words(changed, data.table.num_images)}. Their labels may be about other pictures."
    other = (basis != 0) & (table.cells != basis)
    if other.any():
        resting = int((other & tested).sum())
        rest = f", {resting:,} of them held out: certificates rest on what these said then" if resting else ""
        yield f"{int(other.sum()):,} cells that were known to the run say something else in the table now{rest}."


def _trained_labels(folder: RunFolder, data: RunData) -> tuple[LabelTable, BoolMatrix | None]:
    """Return the labels as the run knew them, and which of them it did not train on; None: it had no hold-out."""
    if not folder.held_out.is_file():
        return data.table.with_truth(None), None
    trained = read_table(folder.labels)
    return trained, HeldOut.load(folder.held_out, trained.images, trained.classes).mask


def _open_table(
    config: RunConfig,
    trained: LabelTable,
    labels: str | Path | None,
    encoding: str | None,
    ignore_columns: Sequence[str],
) -> TableFile:
    """Return the table to complete."""
    if labels is not None:
        opened = _open_other_table(labels, encoding, ignore_columns, config.data.ignore_columns)
        return replace(opened, table=opened.table.with_truth(None))
    from satl.runs.data import local_data

    section = local_data(config.data)
    if section.table is None:
        name = "scenes.csv" if section.dataset is None else f"{section.dataset}.csv"
        return TableFile(trained, Path(name), "csv", "blank")
    opened = open_table(section.table, section.encoding, ignore_columns=section.ignore_columns)
    table = opened.table.with_truth(None)
    if section.proportion is not None:
        # A study hides labels on purpose: what it hid is unknown here as well.
        seen = set(trained.images)
        masked = aligned_cells(trained, table, section.table)
        cells = np.where(np.array([[image in seen] for image in table.images]), masked, table.cells)
        table = table.with_cells(cells, "signed")
    return replace(opened, table=table)


def _open_other_table(
    labels: str | Path, encoding: str | None, named: Sequence[str], of_run: Sequence[str]
) -> TableFile:
    """Open a table without the columns that are named, else without those of the run, which it may have lost."""
    if named or not of_run:
        return open_table(labels, encoding, ignore_columns=named)
    try:
        return open_table(labels, encoding, ignore_columns=of_run)
    except TableError:
        return open_table(labels, encoding)


def _in_order_of(table: LabelTable, tested: BoolMatrix | None, trained: LabelTable) -> BoolMatrix:
    """Return the tested cells of the table of the run as cells of ``table``; none without a hold-out."""
    if tested is None:
        return np.zeros(table.cells.shape, dtype=np.bool_)
    return aligned_cells(trained.with_cells(tested, "signed"), table, "the run") != 0
