"""Evaluate a trained run on its own data, from its folder or with a network that is loaded already."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satl.errors import Argument, RunError, Sentence, nearest
from satl.evaluation import Evaluation, evaluate_scores
from satl.files import atomic_path, check_out_folder
from satl.images import BulkSource, ChosenImages, cached
from satl.inference.decision_thresholds import DecisionThresholds, ThresholdsOfClasses, same_threshold
from satl.inference.recogniser import Recogniser
from satl.labels import LabelTable
from satl.runs.config import RunConfig
from satl.runs.data import SPLITS, RunData, load_data
from satl.runs.run_folder import RunFolder
from satl.training.checkpoints import STATE, load_state
from satl.training.forward import FloatArray

Progress = Callable[[int, int], Any]


def evaluate_run(
    run: Path | str,
    split: str | None = None,
    checkpoint: str = "best",
    progress: Progress | None = None,
    thresholds: ThresholdsOfClasses | None = None,
    out: Path | None = None,
    data: RunData | None = None,
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
            remedy=Sentence("use {split} or train", split=Argument("split", "val")),
        )
    if split != "test":
        require_same_data(RunFolder.open(run), data, split)
    evaluation = evaluate_split(recogniser, data, split, decisions, progress)
    facts = {"split": split, "checkpoint": checkpoint, "thresholds": decisions.source}
    content = {**facts, **evaluation.as_dict()}
    with atomic_path(folder / f"evaluation-{split}.json") as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    evaluation.write_csv(folder / f"evaluation-{split}.csv")
    return evaluation, split


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
        split: "train", "val" or "test"; it has at least one image.
        thresholds: from which probability on a class is present; by default 0.5.
        progress: called with (images read, images in all).
    """
    rows = data.rows(split)
    if thresholds is None:
        thresholds = same_threshold(0.5, len(recogniser.classes))
    probabilities = _probabilities(recogniser, data, rows, progress)
    limits = np.where(thresholds.never, np.float32(np.inf), thresholds.values)
    return evaluate_scores(probabilities, data.table.cells[rows], recogniser.classes, limits)


def default_split(data: RunData) -> str:
    """Return the split that a run is evaluated on: test where there is one, and val otherwise."""
    return "test" if len(data.rows("test")) else "val"


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
    table = data.table.with_cells(data.known_cells)
    return table.select(rows), _probabilities(recogniser, data, rows, progress)


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
            f"the labels or the split are not those the run was started with, so its split '{split}' may hold other "
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
    lazy = config.images.model_copy(update={"cache_gb": 0.0})
    data = load_data(config.model_copy(update={"images": lazy}))
    if data.table.classes != recogniser.classes:
        raise RunError(
            "the table's classes are not those the run was trained on",
            where=run,
            remedy="restore the table or train again",
        )
    return data


def _probabilities(
    recogniser: Recogniser, data: RunData, rows: NDArray[np.int64], progress: Progress | None
) -> FloatArray:
    """Return the class probabilities of some rows; only their images are read, by all cores where they fit."""
    if isinstance(data.source, BulkSource):
        return recogniser.probabilities(data.source, rows)
    limit = int(recogniser.config.images.cache_gb * 2**30)
    chosen = cached(ChosenImages(data.source, rows), limit_bytes=limit, progress=progress)
    return recogniser.probabilities(chosen)
