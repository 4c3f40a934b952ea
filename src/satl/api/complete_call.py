"""``satl.complete``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from satl.api.address_arguments import takes_addresses
from satl.api.call_settings import setting_words
from satl.api.frame_numbers import numbers_of
from satl.api.given_data import GivenData, PathLike, free_folder, given_data, is_table_path
from satl.api.notebook_results import CompletionResult, TrainedRun
from satl.errors import Argument, ConfigError, Sentence, first_of, nearest

if TYPE_CHECKING:
    from satl.completion.workflow.case import Case
    from satl.completion.workflow.from_table import TableModel
    from satl.inference.embedder import Embedding
    from satl.labels.frames import FrameKind

Transfer = Literal["same", "prevalence"]


@takes_addresses(
    "data", "features", "scores", "held_out", "plan", "weights", pictures="images", here=("out",)
)
def complete(
    data: Any,
    *,
    images: PathLike | None = None,
    features: Any = None,
    scores: Any = None,
    out: PathLike | None = None,
    precision: float = 0.95,
    confidence: float = 0.95,
    family_wise: bool = False,
    transfer: Transfer = "same",
    review_only: bool = False,
    held_out: PathLike | None = None,
    plan: PathLike | None = None,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    backbone: str | None = None,
    weights: PathLike | None = None,
    stride_in_1x1: bool = False,
    bfloat16: bool = False,
    set: Mapping[str, Any] | None = None,
    checkpoint: str = "best",
    list_all: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> CompletionResult:
    """Fill the unknown cells of a table as far as a precision can be promised, and propose the rest for review.

    Args:
        data: a run, as :func:`satl.train` gives it back or as the path of its folder: its table is completed. Or a
            table, as :func:`satl.train` takes it: its images are embedded and a model is trained on the features, which
            takes minutes; features and run are kept in ``OUT-model``.
        images: for a table, the folder of its images; for a run, only noted for the review.
        features: for a table, an array (N, D) in its order, a frame, or a file.
        scores: for a table, the scores of a model of your own, which are then used and nothing is trained: an array
            (N, C) in the order of the table, a frame with a column for each class, or a file. A column ``image``, or
            an index of pandas that is text, says which row is whose.
        out: folder to write; by default ``RUN-completed`` or ``runs/completed``, or the next with a number that is
            free.
        precision: share of the accepted cells that must be right.
        confidence: of each promise.
        family_wise: promise all classes at once, not each on its own.
        transfer: "same": known cells are a random choice; "prevalence": positives may be rarer among the unknown.
        review_only: accept nothing; only propose cells for review.
        held_out: with scores, a table whose known cells their model has not seen.
        plan: a label plan with answers.
        encoding, ignore_columns, classes: how the table is read; a run knows that of its own.
        backbone, weights: for a table, the network that embeds its images, and a file with its weights.
        stride_in_1x1: with weights, they are those of a ResNet of version 1, or of Caffe or MSRA.
        bfloat16: embed in bfloat16, about twice as fast on processors with instructions for it, and on GPUs.
        set: for a table, settings of the training: ``{"training.epochs": 5}``.
        checkpoint: "best" or "last".
        list_all: list every cell in ``changes.csv``, also those that stay unknown.
        force: replace a completion in ``out``; decisions of a review are kept.
        quiet: show no progress.

    Returns:
        The completed table as ``frame`` and ``table``, the ``report``, the ``changes``, and a display for notebooks.
    """
    from satl.completion.outputs.completed_folder import CompletedFolder
    from satl.completion.statistics.assessment import CompletionSettings
    from satl.completion.workflow.complete import complete as write_completion
    from satl.evaluation.confidence_bounds import as_share

    as_share(precision, "precision")
    as_share(confidence, "confidence")
    if transfer not in get_args(Transfer):
        raise ConfigError(
            f"there is no such assumption{nearest(str(transfer), get_args(Transfer))}",
            where=Argument("transfer", transfer),
            remedy="use same or prevalence",
        )
    is_run = isinstance(data, TrainedRun) or (
        isinstance(data, str | os.PathLike) and not is_table_path(Path(data))
    )
    embeds = {
        **{"backbone": backbone, "weights": weights},
        **{"stride_in_1x1": stride_in_1x1 or None, "bfloat16": bfloat16 or None},
    }
    only_for = {"features": features, "scores": scores, "encoding": encoding, "classes": classes}
    only_for |= {**embeds, "set": set, "ignore_columns": ignore_columns or None}
    if is_run:
        _refuse(only_for, "belongs to a table, and a run is given")
    if scores is None:
        _refuse({"held_out": held_out}, "belongs to scores, and none are given")
    else:
        _refuse({"features": features, **embeds, "set": set}, "trains a model, and scores are given")
    if features is not None:
        _refuse(embeds, "makes features, and they are given")
    usual = Path(f"{os.fspath(data)}-completed") if is_run else Path("runs/completed")
    place = free_folder(usual) if out is None else Path(out)
    CompletedFolder.check_free(place, force)
    case: Case
    kind: FrameKind | None = None
    if is_run:
        kind = data.kind if isinstance(data, TrainedRun) else None
        case = _case_of_run(data, images, checkpoint, plan, review_only, quiet)
    else:
        from satl.completion.workflow.from_table import TableModel
        from satl.runs.run_folder import RunFolder

        model = TableModel.beside(place)
        trained = RunFolder(model.run).config.is_file()
        found = given_data(
            data,
            model.path / "data",
            images=images,
            features=features,
            encoding=encoding,
            ignore_columns=ignore_columns,
            classes=classes,
            force=force or not trained,  # data of a call that failed belongs to no run
            needs_images=scores is None,
        )
        kind = found.kind
        if scores is not None:
            case = _case_of_scores(scores, data, found, model, held_out, plan)
        else:
            from satl.completion.workflow.from_table import BACKBONE
            from satl.inference.embedder import Embedding

            case = _case_of_table(
                found,
                model,
                Embedding(
                    backbone or BACKBONE,
                    None if weights is None else Path(weights),
                    stride_in_1x1=stride_in_1x1,
                    bfloat16=bfloat16,
                ),
                quiet,
                settings=setting_words(set),
                plan=plan,
                checkpoint=checkpoint,
                review_only=review_only,
                force=force,
            )
    settings = CompletionSettings(
        precision, confidence, "table" if family_wise else "class", transfer, review_only
    )
    return CompletionResult(write_completion(case, place, settings, list_all=list_all, force=force), kind)


def _refuse(given: Mapping[str, Any], why: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                why, where=Argument(name), remedy=Sentence("leave out {name}", name=Argument(name))
            )


def _case_of_run(
    run: PathLike,
    images: PathLike | None,
    checkpoint: str,
    plan: PathLike | None,
    review_only: bool,
    quiet: bool,
) -> Case:
    from satl.completion.workflow.from_run import case_from_run
    from satl.drawing.progress import loading

    with loading("Reading images", quiet) as progress:
        return case_from_run(
            Path(run),
            checkpoint=checkpoint,
            plan=None if plan is None else Path(plan),
            images=None if images is None else Path(images),
            review_only=review_only,
            progress=progress,
        )


def _case_of_table(
    found: GivenData,
    model: TableModel,
    embedding: Embedding,
    quiet: bool,
    **further: Any,
) -> Case:
    from satl.completion.workflow.from_table import case_from_table
    from satl.drawing.progress import RichDisplay, loading

    with loading("Embedding", quiet) as progress:
        return case_from_table(
            found.table,
            model,
            images=found.images,
            features=found.features,
            encoding=found.encoding,
            ignore_columns=found.ignore_columns,
            embedding=embedding,
            progress=progress,
            display=lambda data: None if quiet else RichDisplay(data),
            **further,
        )


def _case_of_scores(
    scores: Any,
    data: Any,
    found: GivenData,
    model: TableModel,
    held_out: PathLike | None,
    plan: PathLike | None,
) -> Case:
    from satl.checks.array_checks import as_real_matrix
    from satl.completion.workflow.from_scores import case_from_scores

    file = Path(scores) if isinstance(scores, str | os.PathLike) else model.path / "scores.npz"
    if not isinstance(scores, str | os.PathLike):
        table, given = found.read(), numbers_of(scores, "scores", data)
        values, ids, names = as_real_matrix(given.values), given.ids, given.names
        if names is not None and not set(names) & set(table.classes):
            raise ConfigError(
                f"the frame has the columns {first_of([*map(repr, names)], 8)}, none of which is a class of the table",
                where=Argument("scores"),
                remedy="name each column by its class, or give an array in the order of the table",
            )
        rows = table.num_images if ids is None else len(ids)
        columns = table.num_classes if names is None else len(names)
        if values.shape != (rows, columns):
            raise ConfigError(
                f"they have the shape {values.shape}, and the table {table.cells.shape}",
                where=Argument("scores"),
                remedy="give one score for each cell, in the order of the table",
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            file,
            scores=values,
            images=np.array(table.images if ids is None else ids),
            classes=np.array(table.classes if names is None else names),
        )
    return case_from_scores(
        file,
        found.table,
        encoding=found.encoding,
        ignore_columns=found.ignore_columns,
        held_out=None if held_out is None else Path(held_out),
        plan=None if plan is None else Path(plan),
        images=found.images,
    )
