"""Train and test one grid run, in this process."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from satl.experiments.experiment_folder import FAILURE, RESULT, write_json
from satl.experiments.grid import Models
from satl.files import remove_folder
from satl.inference.recogniser import Recogniser
from satl.inference.run_evaluation import default_split, evaluate_split
from satl.inference.run_record import measure_run, write_record
from satl.methods import get_method
from satl.runs.config import RunConfig
from satl.runs.data import RunData, load_data
from satl.runs.run_folder import RunFolder
from satl.training.checkpoints import STATE, load_state
from satl.training.display import Display
from satl.training.trainer import Trainer

MODELS = ("best", "last")
"""The models of a run that are tested: of the best validated epoch, and of the last one."""
_KEPT: dict[Models, tuple[str, ...] | None] = {"all": None, "best": ("best",), "none": ()}


class DataCache:
    """Loads the data of one grid run after the other; images that several of them share are read once."""

    def __init__(self) -> None:
        self._key: Any = None
        self._held: RunData | None = None

    def load(self, config: RunConfig, progress: Callable[[int, int], Any] | None = None) -> RunData:
        """Return the data of a grid run, masked and split as its configuration says."""
        key = (
            config.data.model_copy(update={"proportion": None, "mask_seed": None}),
            config.images.store_size,
            config.images.interpolation,
            config.images.cache_gb,
            config.images.broken,
            config.images.broken_share,
        )
        held = self._held if key == self._key else None
        if held is None:
            self._key, self._held = None, None  # two data sets need not fit into memory at once
            self._held = load_data(config, progress)
            self._key = key
            return self._held
        # Only the labels are read again; without a cache no image is decoded.
        images = config.images.model_copy(update={"cache_gb": 0.0})
        recorded = {
            one.image: one.reason for one in held.left_out
        }  # what was found then is not looked for again
        fresh = load_data(config.model_copy(update={"images": images}), recorded=recorded)
        return replace(fresh, source=held.source) if fresh.table.images == held.table.images else fresh


def run_facts(config: RunConfig) -> dict[str, Any]:
    """Return the facts of a grid run that tables show, whether it is finished or not."""
    return {
        "backbone": config.input_name,
        "pretrained": config.on_features or config.model.pretrained or config.model.weights is not None,
        "image_size": config.images.size,
        "word_vectors": config.model.word_vectors is not None,
        "epochs": config.training.epochs,
        "base": get_method(config.method.name).base,
    }


def train_and_test(
    config: RunConfig,
    path: Path,
    data: RunData,
    display: Display | None = None,
    jobs: int = 1,
    keep: Models = "all",
) -> dict[str, Any]:
    """Train a grid run, or resume it where it was interrupted; test both models; write ``result.json``.

    Args:
        config: its configuration.
        path: its run folder.
        data: the data that the configuration describes.
        display: shows the training.
        jobs: number of grid runs that run at the same time, written beside the training time.
        keep: which models are kept when everything is measured.
    """
    split = default_split(data)  # before hours of training: there must be one
    folder = RunFolder(path)
    if _can_resume(folder):
        recorded = folder.read_broken()
        if not config.on_features and recorded.keys() != {one.image for one in data.left_out}:
            data = load_data(config, recorded=recorded)  # images broke or were mended since it was started
        trainer = Trainer.resume(data, folder, display)
    else:
        remove_folder(path)  # it was interrupted before its first checkpoint
        trainer = Trainer.start(config, data, folder, display)
    if not trainer.finished:
        trainer.fit()
    device = str(trainer.device)
    del trainer  # its optimiser and its network would stay in memory while the models are tested
    gc.collect()  # a compiled learner and its code refer to each other
    epochs = folder.read_metrics()
    result = {
        "facts": {**run_facts(config), "validated": len(data.rows("val")) > 0},
        "split": split,
        "models": _test_models(folder, data, split),
        "pseudo_labels": epochs[-1]["pseudo_labels"].get("union"),
        "train_seconds": round(sum(row["train_seconds"] for row in epochs), 3),
        "jobs": jobs,
        "threads": torch.get_num_threads(),
        "device": device,
    }
    write_json(path / RESULT, result)
    (path / FAILURE).unlink(missing_ok=True)
    keep_models(path, keep)  # after the result: a run that has one is done, with models or without
    return result


def _test_models(folder: RunFolder, data: RunData, split: str) -> dict[str, dict[str, Any]]:
    """Test the best and the last model, each loaded once, and write the record that figures are drawn from.

    Returns:
        ``best`` and ``last`` -> the metrics, and ``epoch``, counted from 1.
    """
    last = Recogniser.load(folder.path, "last", fallback=False)
    evaluations = {"last": evaluate_split(last, data, split)}
    epochs = {
        "best": load_state(folder.checkpoint("best") / STATE)["best"]["epoch"] + 1,
        "last": load_state(folder.checkpoint("last") / STATE)["epoch"],
    }
    write_record(measure_run(folder, data, evaluations["last"], last))
    for epoch in last.config.training.keep_epochs:  # before the models go, if they are not kept
        if epoch <= epochs["last"]:
            write_record(measure_run(folder, data, evaluations["last"], epoch=epoch), epoch)
    if epochs["best"] == epochs["last"]:  # the same weights
        evaluations["best"] = evaluations["last"]
    else:
        del last  # so that only one network is in memory
        best = Recogniser.load(folder.path, "best", fallback=False)  # no result stands under another's name
        evaluations["best"] = evaluate_split(best, data, split)
    for model in MODELS:
        evaluations[model].write_csv(folder.path / f"evaluation-{split}-{model}.csv")
    return {model: {"epoch": int(epochs[model]), **evaluations[model].summary()} for model in MODELS}


def keep_models(path: Path, keep: Models) -> None:
    """Remove the models of a finished run that are not to be kept."""
    RunFolder(path).keep_checkpoints(_KEPT[keep])


def _can_resume(folder: RunFolder) -> bool:
    """Whether there is a checkpoint, also one whose renaming was cut off."""
    return folder.config.is_file() and folder.find_checkpoint("last") is not None
