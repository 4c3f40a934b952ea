"""``satl.train``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satl.api.address_arguments import takes_addresses
from satl.api.call_settings import config_content, setting_words
from satl.api.given_data import PathLike, free_folder, given_data
from satl.api.notebook_results import TrainedRun
from satl.errors import Argument, ConfigError, Sentence

if TYPE_CHECKING:
    from satl.labels.frames import FrameKind
    from satl.runs.config import RunConfig
    from satl.runs.run_folder import RunFolder
    from satl.training.tracking import Tracker


@takes_addresses(here=("out", "resume"))
def train(
    data: Any = None,
    *,
    images: PathLike | None = None,
    features: Any = None,
    out: PathLike | None = None,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    config: PathLike | Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    resume: PathLike | None = None,
    trackers: Sequence[Tracker] = (),
    quiet: bool = False,
) -> TrainedRun:
    """Train a recogniser from a half-labelled table.

    Some known cells are held out of training, so that the table can be completed with a promise
    (``set={"data.holdout": False}`` trains on all of them). What is in memory is kept in the folder ``OUT-data``, from
    which the run can be resumed, evaluated and completed at any time.

    Args:
        data: a table: a path, a pandas or polars frame, an Arrow table, a :class:`satl.LabelTable`, a Hugging Face data
            set, or a torch data set of (picture, label vector). 1 is present, 0 absent, a gap or NaN unknown; values
            that can be read in several ways are refused. Or the path of a YAML file, which is ``config``.
        images: folder that the image ids are relative to, or a packed store; for a frame of paths the working folder
            by default. Not needed where the data holds pictures: a column ``image`` of Pillow images, or items.
        features: features instead of images: an array (N, D) in the order of the table, a file of them, or a frame,
            in which a column ``image``, or an index of pandas that is text, says which row is whose.
        out: new folder for the run; by default ``runs/run``, or the next with a number that is free.
        encoding: how the table says present, absent and unknown.
        ignore_columns: columns of the table that are not classes.
        classes: names of the classes, for label vectors.
        config: further settings: a YAML file, or a dictionary of sections.
        set: single settings that override it: ``{"training.epochs": 5}``; see docs/configuration.md.
        resume: continue the run in this folder instead; nothing else is given then but ``trackers``.
        trackers: objects of your own that are told the metrics of every epoch (:class:`satl.Tracker`); TensorBoard,
            Weights & Biases and MLflow are named instead: ``set={"training.trackers": ["wandb"]}``.
        quiet: show no progress.

    Returns:
        The run: its ``path``, a ``frame`` with a row an epoch, and a display for notebooks.
    """
    given = {"data": data, "images": images, "features": features, "out": out, "config": config, "set": set}
    if resume is not None:
        others = [name for name, value in given.items() if value is not None]
        if others:
            raise ConfigError(
                "a run is resumed with its own configuration",
                where=Argument("resume", resume),
                remedy=Sentence("leave out {other}", other=Argument(others[0])),
            )
        return _resume(Path(resume), trackers, quiet)
    if isinstance(data, str | os.PathLike) and Path(data).suffix.lower() in (".yaml", ".yml"):
        if config is not None:
            raise ConfigError("is given twice", where=Argument("config"), remedy="leave out one of the two")
        data, config = None, data
    from satl.completion.workflow.from_table import config_of_table
    from satl.runs.reading import override_config
    from satl.runs.run_folder import RunFolder

    content, origin = config_content(config)
    settings = setting_words(set)
    place = free_folder(Path("runs/run")) if out is None else Path(out)
    RunFolder.check_free(place)
    kept = place.with_name(f"{place.name}-data")
    if data is None:
        _refuse_without_data(images=images, features=features, encoding=encoding, classes=classes)
        return _train(place, override_config(content, settings, origin), None, trackers, quiet)
    section = dict(content.get("data") or {})
    for key in ("table", "dataset", "scenes"):
        if section.get(key) is not None:
            raise ConfigError(
                f"data.{key} is set, and data is given as well",
                where=origin,
                remedy="leave out one of the two",
            )
    was_there = kept.exists()
    try:
        found = given_data(
            data,
            kept,
            images=images,
            features=features,
            encoding=encoding,
            ignore_columns=ignore_columns,
            classes=classes,
            force=True,  # its run is gone: the place of a new one is free
        )
        content["data"] = {"holdout": True, **section, **found.section()}
        run_config = config_of_table(content, settings, origin)
        return _train(place, run_config, found.kind, trackers, quiet)
    except BaseException:
        if not was_there and not RunFolder(place).config.exists():
            shutil.rmtree(kept, ignore_errors=True)
        raise


def _refuse_without_data(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                "belongs to a table, and none is given",
                where=Argument(name),
                remedy=Sentence("give the table as well, or set data.{name} instead", name=name),
            )


def _train(
    place: Path, config: RunConfig, kind: FrameKind | None, trackers: Sequence[Tracker], quiet: bool
) -> TrainedRun:
    from satl.drawing.progress import RichDisplay, loading
    from satl.runs.data import load_data
    from satl.runs.run_folder import RunFolder
    from satl.training.trainer import Trainer

    with loading("Reading images", quiet) as progress:
        data = load_data(config, progress)
    display = None if quiet else RichDisplay(data)
    trainer = Trainer.start(config, data, RunFolder(place), display, trackers)
    return _finish(trainer, place, kind)


def _resume(place: Path, trackers: Sequence[Tracker], quiet: bool) -> TrainedRun:
    from satl.drawing.progress import RichDisplay, loading
    from satl.runs.data import load_data
    from satl.runs.run_folder import RunFolder
    from satl.training.trainer import Trainer

    folder: RunFolder = RunFolder.open(place)
    config = folder.read_config()
    folder.can_resume(config.training.checkpoint_epochs)
    folder.require_inputs(config)
    folder.lock()  # before the images are read, which can take minutes
    try:
        with loading("Reading images", quiet) as progress:
            data = load_data(config, progress, folder.read_broken())
        trainer = Trainer.resume(data, folder, None if quiet else RichDisplay(data), trackers)
    except BaseException:
        folder.unlock()
        raise
    return _finish(trainer, place, None)


def _finish(trainer: Any, place: Path, kind: FrameKind | None) -> TrainedRun:
    if not trainer.finished:
        trainer.fit()
    trainer.accelerator.end_training()
    return TrainedRun(place, kind)
