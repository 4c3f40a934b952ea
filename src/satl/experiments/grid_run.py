"""Train one run and measure it, in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from satl.evaluation import evaluate_scores
from satl.experiments.experiment_folder import FAILURE, RESULT, write_json
from satl.experiments.grid import Models
from satl.inference.recogniser import Recogniser
from satl.runs.config import RunConfig
from satl.runs.data import RunData, load_data
from satl.runs.run_folder import RunFolder
from satl.training.checkpoints import STATE, load_state
from satl.training.display import Display
from satl.training.trainer import Trainer

MODELS = ("best", "last")
"""The models of a run that are tested: of the best validated epoch, and of the last one."""
_KEPT: dict[Models, tuple[str, ...]] = {"all": MODELS, "best": ("best",), "none": ()}


class DataCache:
    """Loads the data of one run after the other; pictures that several runs share are read once."""

    def __init__(self) -> None:
        self._key: Any = None
        self._held: RunData | None = None

    def load(self, config: RunConfig, progress: Callable[[int, int], Any] | None = None) -> RunData:
        """Return the data of a run, masked and split as its configuration says."""
        key = (
            config.data.model_copy(update={"proportion": None, "mask_seed": None}),
            config.images.store_size,
            config.images.cache_gb,
        )
        held = self._held if key == self._key else None
        if held is None:
            self._key, self._held = None, None  # two data sets need not fit into memory at once
            self._held = load_data(config, progress)
            self._key = key
            return self._held
        # Only the labels are read again; without a cache no picture is decoded.
        images = config.images.model_copy(update={"cache_gb": 0.0})
        fresh = load_data(config.model_copy(update={"images": images}))
        return replace(fresh, source=held.source) if fresh.table.images == held.table.images else fresh


def run_facts(config: RunConfig) -> dict[str, Any]:
    """Return what tables say about every run, finished or not."""
    return {
        "backbone": config.model.backbone,
        "pretrained": config.model.pretrained or config.model.weights is not None,
        "image_size": config.images.size,
        "word_vectors": config.model.word_vectors is not None,
        "epochs": config.training.epochs,
    }


def train_and_test(
    config: RunConfig,
    path: Path,
    data: RunData,
    display: Display | None = None,
    jobs: int = 1,
    keep: Models = "all",
) -> dict[str, Any]:
    """Train a run to its end, or go on where it was cut off; test both models; write ``result.json``.

    Args:
        config: of the run.
        path: its run folder.
        data: as the configuration says.
        display: what is shown meanwhile.
        jobs: runs that run side by side, noted with the time.
        keep: the models that stay once everything is measured.
    """
    folder = RunFolder(path)
    if _can_resume(folder):
        trainer = Trainer.resume(data, folder, display)
    else:
        if path.exists():  # it was cut off before its first checkpoint
            shutil.rmtree(path)
        trainer = Trainer.start(config, data, folder, display)
    if not trainer.finished:
        trainer.fit()
    device = str(trainer.device)
    del trainer  # its optimiser would stay in memory while the models are tested
    rows = folder.read_metrics()
    split = "test" if len(data.rows("test")) else "val"
    models = {model: _test(folder, model, data, split) for model in MODELS}
    _collect(folder, data)
    result = {
        "facts": run_facts(config),
        "split": split,
        "models": models,
        "pseudo_labels": rows[-1]["pseudo_labels"].get("union"),
        "train_seconds": round(sum(row["train_seconds"] for row in rows), 3),
        "jobs": jobs,
        "threads": torch.get_num_threads(),
        "device": device,
    }
    write_json(path / RESULT, result)
    (path / FAILURE).unlink(missing_ok=True)
    keep_models(path, keep)  # after the result: a run that has one is done, with models or without
    return result


def keep_models(path: Path, keep: Models) -> None:
    """Remove the models of a finished run that are not to be kept."""
    if keep != "all":
        RunFolder(path).keep_checkpoints(_KEPT[keep])


def _can_resume(folder: RunFolder) -> bool:
    """Whether there is a checkpoint, also one whose renaming was cut off."""
    return folder.config.is_file() and folder.find_checkpoint("last") is not None


def _test(folder: RunFolder, model: str, data: RunData, split: str) -> dict[str, Any]:
    """Measure a model of a finished run; ``epoch`` counts from 1."""
    recogniser = Recogniser.load(folder.path, model)
    checkpoint = folder.checkpoint(model)
    rows = data.rows(split)
    probabilities = recogniser.probabilities(data.source, rows)
    evaluation = evaluate_scores(probabilities, data.table.cells[rows], recogniser.classes)
    state = load_state(checkpoint / STATE)
    epoch = state["best"]["epoch"] + 1 if model == "best" else state["epoch"]
    evaluation.write_csv(folder.path / f"evaluation-{split}-{model}.csv")
    return {"epoch": int(epoch), **evaluation.summary()}


def _collect(folder: RunFolder, data: RunData) -> None:
    """Keep what the figures need, so that none of them has to run a model."""
    from satl.inference.run_record import collect_run

    collect_run(folder, data)
