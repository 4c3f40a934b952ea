"""Evaluate a trained run on its own data, from its folder or with a network that is loaded already."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satl.errors import Argument, RunError, SatlWarning, Sentence, first_of, nearest
from satl.evaluation import Evaluation, evaluate_scores
from satl.files import atomic_path, check_out_folder
from satl.images import ChosenImages, FolderImages, ImageSource, RowSource, cached
from satl.images.broken_pictures import BrokenPicture, readable_images, require_few
from satl.inference.decision_thresholds import DecisionThresholds, ThresholdsOfClasses, same_threshold
from satl.inference.recogniser import Recogniser
from satl.labels import LabelTable
from satl.labels.table import Cells
from satl.runs.config import RunConfig
from satl.runs.data import SPLITS, RunData, load_data
from satl.runs.picture_record import PictureRecord, changed_words, copies_words
from satl.runs.run_folder import RunFolder
from satl.training.checkpoints import STATE, load_state
from satl.training.forward import FloatArray

Progress = Callable[[int, int], Any]


@dataclass(frozen=True)
class MeasuredImages:
    """What an evaluation is computed from, image by image.

    Attributes:
        images: their ids.
        files: where they are, None where the run reads no files.
        classes: names of the classes.
        cells: +1, -1 or 0, (N, C).
        probabilities: (N, C).
        limits: from which probability on a class counts as present, (C,); infinite where it never does.
        facts: the content of ``evaluation-SPLIT.json``.
    """

    images: tuple[str, ...]
    files: tuple[str, ...] | None
    classes: tuple[str, ...]
    cells: Cells
    probabilities: FloatArray
    limits: FloatArray
    facts: dict[str, Any] = field(default_factory=dict)


def evaluate_run(
    run: Path | str,
    split: str | None = None,
    checkpoint: str = "best",
    progress: Progress | None = None,
    thresholds: ThresholdsOfClasses | None = None,
    out: Path | None = None,
    data: RunData | None = None,
    see: Callable[[MeasuredImages], Any] | None = None,
) -> tuple[Evaluation, str]:
    """Evaluate a run on the known cells of a split and write ``evaluation-SPLIT.json`` and ``.csv``.

    Args:
        run: folder of a run.
        split: "train", "val" or "test"; None for test where the run has one, and val otherwise. The test images of a
            run that left them out (``data.use_test``) are used where "test" is asked for.
        checkpoint: "best" or "last".
        progress: called with (images read, images in all).
        thresholds: gives the thresholds of the run's classes; by default 0.5 for each.
        out: folder to write into; None for that of the run.
        data: the data of the run, where it is loaded already.
        see: is given the images that were measured, when everything else is done.

    Returns:
        The evaluation, and the split.

    Raises:
        ConfigError: nothing can be written into the folder.
        RunError: there is nothing to evaluate, or the train or val split is no longer what the run had.
    """
    if split is not None and split not in SPLITS:
        raise RunError(
            f"there is no such split{nearest(split, SPLITS)}",
            where=Argument("split", split),
            remedy="use train, val or test",
        )
    recogniser = Recogniser.load(run, checkpoint)
    folder = Path(run) if out is None else out
    check_out_folder(folder)
    classes = recogniser.classes
    decisions = same_threshold(0.5, len(classes)) if thresholds is None else thresholds(classes)
    config = recogniser.config
    if split == "test":
        config = config.model_copy(update={"data": config.data.model_copy(update={"use_test": True})})
    data = _load_run_data(run, recogniser, config) if data is None else data
    if split is None:
        split = default_split(data)
    if len(data.rows(split)) == 0:
        raise RunError(
            f"the table has no row of split '{split}'",
            where=run,
            remedy=Sentence("use {split} or train", split=Argument("split", "val"))
            if len(data.rows("val"))
            else Sentence("use {split}", split=Argument("split", "train")),
        )
    opened = RunFolder.open(run)
    if split != "test":
        require_same_data(opened, data, split)
    doubts = _doubts(opened, data, split)
    evaluation, measured = _measure(recogniser, data, split, decisions, progress)
    facts: dict[str, Any] = {"split": split, "checkpoint": checkpoint, "thresholds": decisions.source}
    if doubts:
        facts["doubts"] = doubts
    content = {**facts, **evaluation.as_dict()}
    with atomic_path(folder / f"evaluation-{split}.json") as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    evaluation.write_csv(folder / f"evaluation-{split}.csv")
    if see is not None:
        see(replace(measured, facts=content))
    return evaluation, split


def _doubts(folder: RunFolder, data: RunData, split: str) -> list[str]:
    """Say what has changed since the run was started that a measurement on a split suffers from, a sentence each.

    Raises:
        RunError: images that the table calls test now are those that the run was trained on.
    """
    record = PictureRecord.load(folder.pictures)
    if record is None:
        return []
    rows = data.rows(split)
    names = [data.table.images[row] for row in rows.tolist()]
    if split == "test":
        trained = record.trained_on(names)
        if trained:
            raise RunError(
                f"{len(trained):,} of the {len(names):,} images that the table calls test were trained or validated "
                f"on: {first_of(trained)}",
                where=folder.path,
                remedy="restore the split of the table, or train again with this one",
            )
    doubts = []
    changed = record.changed(data, rows)
    if changed:
        doubts.append(f"{changed_words(changed, len(names))}.")
    copies = copies_words(record, split)
    if copies is not None:
        doubts.append(f"{copies}.")
    had = folder.read_fingerprint()
    if (
        split == "test"
        and len(record.images) == data.table.num_images
        and had not in (None, data.fingerprint())
    ):
        doubts.append(
            "The table was edited since the run was started: the test labels are those that it has now."
        )
    for text in doubts:
        warnings.warn(SatlWarning(text), stacklevel=3)
    return doubts


def evaluate_split(
    recogniser: Recogniser,
    data: RunData,
    split: str,
    thresholds: DecisionThresholds | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a loaded network on the known cells of a split; nothing is written.

    Args:
        recogniser: the network.
        data: of the run; the classes of its table are those of the network.
        split: "train", "val" or "test"; it has at least one image. With ``images.broken`` "skip", images that cannot be
            read are not evaluated; ``left_out`` of the evaluation counts them and those that the run left out.
        thresholds: from which probability on a class is present; by default 0.5.
        progress: called with (images read, images in all).
    """
    if thresholds is None:
        thresholds = same_threshold(0.5, len(recogniser.classes))
    return _measure(recogniser, data, split, thresholds, progress)[0]


def _measure(
    recogniser: Recogniser,
    data: RunData,
    split: str,
    thresholds: DecisionThresholds,
    progress: Progress | None,
) -> tuple[Evaluation, MeasuredImages]:
    rows, probabilities = _probabilities(recogniser, data, data.rows(split), progress)
    left_out = sum(one.split == split for one in data.left_out) + len(data.rows(split)) - len(rows)
    limits = np.where(thresholds.never, np.float32(np.inf), thresholds.values)
    cells = data.table.cells[rows]
    evaluation = evaluate_scores(probabilities, cells, recogniser.classes, limits, encoding="signed")
    files = data.files.files if isinstance(data.files, FolderImages) else None
    measured = MeasuredImages(
        tuple(data.table.images[row] for row in rows.tolist()),
        None if files is None else tuple(files[row] for row in rows.tolist()),
        recogniser.classes,
        cells,
        probabilities,
        limits,
    )
    return replace(evaluation, left_out=left_out), measured


def default_split(data: RunData) -> str:
    """Return the split that a run is evaluated on: test where there is one, and val otherwise.

    Raises:
        RunError: there is neither.
    """
    found = next((split for split in ("test", "val") if len(data.rows(split))), None)
    if found is None:
        raise RunError(
            "there are neither test nor validation images to evaluate a model on",
            remedy=Sentence(
                "give the table rows of the split test, set data.validation above 0, or use {split}",
                split=Argument("split", "train"),
            ),
        )
    return found


def score_training_data(run: Path | str, progress: Progress | None = None) -> tuple[LabelTable, FloatArray]:
    """Score the images that a run was trained and validated on with its best model.

    Args:
        run: folder of a run.
        progress: called with (images read, images in all).

    Returns:
        The labels that the run had, those that it held out included, and the class probabilities, (N, C).

    Raises:
        RunError: the labels or the split are no longer what the run had.
    """
    recogniser = Recogniser.load(run)
    data = _load_run_data(run, recogniser, recogniser.config)
    require_same_data(RunFolder.open(run), data, "train")
    rows = np.sort(np.concatenate([data.rows("train"), data.rows("val")]))
    # Cells that were held out of training are known as well, and the best to choose thresholds by.
    table = data.table.with_cells(data.known_cells, "signed")
    rows, probabilities = _probabilities(recogniser, data, rows, progress)
    return table.select(rows), probabilities


def require_same_data(folder: RunFolder, data: RunData, split: str) -> None:
    """Refuse labels or a split that are not the run's: images to validate on may have been trained on.

    Of an older run only the last checkpoint says what it had. Where that is gone, nothing can be compared.

    Raises:
        RunError: the labels or the split differ.
    """
    had = folder.read_fingerprint()
    last = folder.find_checkpoint("last")
    if had is None and last is not None and (last / STATE).is_file():
        had = load_state(last / STATE).get("data")
    if had is not None and had != data.fingerprint():
        raise RunError(
            f"{folder.data_words} are not those the run was started with, so its split '{split}' may hold other "
            "images now",
            where=folder.path,
            remedy=Sentence(
                "restore the table, or use {split} for rows that the table calls test",
                split=Argument("split", "test"),
            ),
        )


def _load_run_data(run: Path | str, recogniser: Recogniser, config: RunConfig) -> RunData:
    """Load the data of a run without reading images: only those of one split may be needed."""
    RunFolder.open(run).require_inputs(config)
    if not config.on_features:
        lazy = config.images.model_copy(update={"cache_gb": 0.0})
        config = config.model_copy(update={"images": lazy})
    data = load_data(config, recorded=RunFolder.open(run).read_broken())
    if data.table.classes != recogniser.classes:
        raise RunError(
            "the table's classes are not those the run was trained on",
            where=run,
            remedy="restore the table or train again",
        )
    return data


def _probabilities(
    recogniser: Recogniser, data: RunData, rows: NDArray[np.int64], progress: Progress | None
) -> tuple[NDArray[np.int64], FloatArray]:
    """Return rows and their class probabilities; only their images are read, by all cores where they fit.

    Rows whose image cannot be read are left out where the run leaves such images out.
    """
    if isinstance(data.source, RowSource):
        return rows, recogniser.probabilities(data.source, rows)
    section = recogniser.config.images
    limit = int(section.cache_gb * 2**30)
    chosen: ImageSource = ChosenImages(data.images, rows)
    if section.broken == "error":
        return rows, recogniser.probabilities(cached(chosen, limit_bytes=limit, progress=progress))
    chosen, unreadable = readable_images(chosen, limit_bytes=limit, progress=progress)
    names = data.table.images
    broken = [BrokenPicture(names[rows[place]], reason) for place, reason in unreadable.items()]
    require_few(broken, len(rows), section.broken_share)
    return np.delete(rows, list(unreadable)), recogniser.probabilities(chosen)
