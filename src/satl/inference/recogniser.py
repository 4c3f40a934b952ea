"""A trained run, loaded to be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from satl.errors import RunError, nearest
from satl.evaluation import Evaluation, evaluate_scores
from satl.files import atomic_path, check_out_folder
from satl.images import Batches, BulkSource, ChosenImages, ImageSource, cached
from satl.inference.decision_thresholds import DecisionThresholds, same_threshold
from satl.labels import LabelTable
from satl.methods import Learner
from satl.runs.config import RunConfig
from satl.runs.data import SPLITS, RunData, load_data
from satl.runs.run_folder import RunFolder
from satl.training.build import build_learner, build_transform, place
from satl.training.checkpoints import AVERAGE, LEARNER, STATE, load_module, load_state
from satl.training.forward import FloatArray, cell_scores, class_probabilities


class Recogniser:
    """The network of a run with its class names, ready to look at images."""

    def __init__(
        self, config: RunConfig, classes: tuple[str, ...], learner: Learner, device: str | None = None
    ) -> None:
        self.config = config
        self.classes = classes
        found = "cuda" if torch.cuda.is_available() and config.training.device == "auto" else "cpu"
        self.device = torch.device(found if device is None else device)
        self.bf16 = config.training.precision == "bf16"
        self.learner = place(learner, self.device, self.bf16).eval()
        self.transform = build_transform(config.images, self.device, self.bf16)

    @classmethod
    def load(
        cls, run: Path | str, checkpoint: str = "best", averaged: bool = True, device: str | None = None
    ) -> Recogniser:
        """Load a checkpoint of a run folder.

        Where the run averages its weights, that average is what is validated and used; ``averaged=False`` asks for
        the weights being trained, which the last checkpoint holds as well. Without a ``device`` it is the one that the
        run's configuration asks for.
        """
        folder = RunFolder.open(run)
        if checkpoint not in ("best", "last"):
            raise RunError(f"{run}: there is no checkpoint '{checkpoint}'; use best or last.")
        config, classes = folder.read_config(), folder.read_classes()
        place = folder.checkpoint(checkpoint)  # before anything is built: it may not be there
        learner = build_learner(config, classes)
        load_module(learner, place / LEARNER)
        if averaged and (place / AVERAGE).is_file():
            load_module(learner.network, place / AVERAGE)
        return cls(config, classes, learner, device)

    def probabilities(self, source: ImageSource, rows: Any = None, batch_size: int = 64) -> FloatArray:
        """Return the class probabilities of images, ``(N, C)``.

        Where several processes run together, each gets those of the images that it gives, and may ask alone.

        Args:
            source: where images come from.
            rows: positions in the source, not a mask; None for all of them. There may be none.
            batch_size: images that the network looks at together.
        """
        batches = self._batches(source, rows, batch_size)
        if len(batches.indices) == 0:
            return self._nothing()
        return class_probabilities(self.learner.network, batches, self.transform, self.device, self.bf16)

    def scores(self, data: RunData, rows: Any, batch_size: int = 64) -> dict[str, FloatArray]:
        """Return ``probability`` and every generator's scores for the cells of ``rows``, each ``(N, C)``.

        Raises:
            RunError: the table has rows that the run did not have, or lacks some.
        """
        probe, rows_now = self.learner.probe, len(data.table.cells)
        if probe is not None and len(probe.logits) not in (0, rows_now):
            raise RunError(
                f"{self.config.data.table or 'data'}: has {rows_now} rows, but had {len(probe.logits)} when the run "
                "was trained on it; restore the table or train again."
            )
        batches = self._batches(data.source, rows, batch_size)
        if len(batches.indices) == 0:
            return {name: self._nothing() for name in ("probability", *self.learner.generators)}
        cells = torch.from_numpy(data.table.cells.copy()).to(self.device)
        return cell_scores(self.learner, cells, batches, self.transform, self.device, self.bf16)

    def _nothing(self) -> FloatArray:
        """What there is to say about no image."""
        return np.empty((0, len(self.classes)), dtype=np.float32)

    def _batches(self, source: ImageSource, rows: Any, batch_size: int) -> Batches:
        return Batches(
            source,
            rows,
            batch_size=batch_size,
            workers=self.config.images.workers,
            pin_memory=self.device.type == "cuda",
        )


def evaluate_run(
    run: Path | str,
    split: str | None = None,
    checkpoint: str = "best",
    progress: Callable[[int, int], Any] | None = None,
    choose: Callable[[tuple[str, ...]], DecisionThresholds] | None = None,
    out: Path | None = None,
) -> tuple[Evaluation, str]:
    """Evaluate a run on the known cells of a split and write ``evaluation-SPLIT.json`` and ``.csv`` into it.

    ``choose`` says from which probabilities on the classes are present, by default 0.5. ``out`` is another folder to
    write into.

    Without a ``split`` it is ``test`` where the run has one and ``val`` otherwise; the name comes back. A run that
    left the test images out (``data.use_test``) is tested where ``test`` is asked for.

    Raises:
        ConfigError: nothing can be written into the folder.
        RunError: there is nothing to evaluate, or ``train`` or ``val`` is no longer what the run had.
    """
    if split is not None and split not in SPLITS:
        raise RunError(
            f"--split {split}: there is no such split{nearest(split, SPLITS)}; use train, val or test."
        )
    recogniser = Recogniser.load(run, checkpoint)
    folder = Path(run) if out is None else out
    check_out_folder(folder)
    thresholds = (
        same_threshold(0.5, len(recogniser.classes)) if choose is None else choose(recogniser.classes)
    )
    config = recogniser.config
    if split == "test":
        config = config.model_copy(update={"data": config.data.model_copy(update={"use_test": True})})
    data = _data_of(run, recogniser, config)
    if split is None:
        split = "test" if len(data.rows("test")) else "val"
    rows = data.rows(split)
    if len(rows) == 0:
        raise RunError(f"{run}: the table has no row of split '{split}'; use --split val or train.")
    if split != "test":
        require_same_data(RunFolder.open(run), data, split)
    probabilities = _probabilities_of(recogniser, data, rows, progress)
    limits = np.where(thresholds.never, np.float32(np.inf), thresholds.values)
    evaluation = evaluate_scores(probabilities, data.table.cells[rows], recogniser.classes, limits)
    with atomic_path(folder / f"evaluation-{split}.json") as temporary:
        facts = {"split": split, "checkpoint": checkpoint, "thresholds": thresholds.source}
        content = {**facts, **evaluation.as_dict()}
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    evaluation.write_csv(folder / f"evaluation-{split}.csv")
    return evaluation, split


def seen_scores(
    run: Path | str, progress: Callable[[int, int], Any] | None = None
) -> tuple[LabelTable, FloatArray]:
    """Return the images that a run was trained and validated on, and what its best model says of them, ``(N, C)``.

    The labels are those that the run had, with those that it held out; test images are not looked at.

    Raises:
        RunError: the labels or the split are no longer what the run had.
    """
    recogniser = Recogniser.load(run)
    data = _data_of(run, recogniser, recogniser.config)
    require_same_data(RunFolder.open(run), data, "train")
    rows = np.sort(np.concatenate([data.rows("train"), data.rows("val")]))
    # Cells that were held out of training are known as well, and the best to choose thresholds by.
    table = data.table.with_cells(data.known_cells)
    return table.select(rows), _probabilities_of(recogniser, data, rows, progress)


def _data_of(run: Path | str, recogniser: Recogniser, config: RunConfig) -> RunData:
    """Return what a run had; no image is read, because only those of one split may be wanted."""
    RunFolder.open(run).require_inputs(config)
    lazy = config.images.model_copy(update={"cache_gb": 0.0})
    data = load_data(config.model_copy(update={"images": lazy}))
    if data.table.classes != recogniser.classes:
        raise RunError(
            f"{run}: the table's classes are not those the run was trained on; restore the table or train again."
        )
    return data


def _probabilities_of(
    recogniser: Recogniser,
    data: RunData,
    rows: NDArray[np.int64],
    progress: Callable[[int, int], Any] | None,
) -> FloatArray:
    """Return the class probabilities of some rows; their images alone are read, by all cores where they fit."""
    if isinstance(data.source, BulkSource):
        return recogniser.probabilities(data.source, rows)
    limit = int(recogniser.config.images.cache_gb * 2**30)
    chosen = cached(ChosenImages(data.source, rows), limit_bytes=limit, progress=progress)
    return recogniser.probabilities(chosen)


def require_same_data(folder: RunFolder, data: RunData, split: str) -> None:
    """Refuse labels or a split that are not the run's: images to validate on may have been trained on.

    Of an older run only the last checkpoint says what it had. Where that is gone, nothing can be compared.
    """
    had = folder.read_fingerprint()
    last = folder.find_checkpoint("last")
    if had is None and last is not None and (last / STATE).is_file():
        had = load_state(last / STATE).get("data")
    if had is not None and had != data.fingerprint():
        raise RunError(
            f"{folder.path}: the labels or the split are not those the run was started with, so its split '{split}' "
            "may hold other images now; restore the table, or use --split test for rows that the table calls test."
        )
