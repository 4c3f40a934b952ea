"""From a table and its images to a case to complete: features once, then a training on them that takes seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satl.errors import Argument, ConfigError, RunError, Sentence, TableError
from satl.labels.table import split_role

if TYPE_CHECKING:
    from satl.completion.workflow.case import Case
    from satl.inference.embedder import Embedding
    from satl.labels import LabelTable
    from satl.runs.config import RunConfig
    from satl.runs.data import RunData
    from satl.runs.run_folder import RunFolder
    from satl.training.display import Display

BACKBONE = "resnet50"
"""Network that makes the features where none is named."""

LEAST_STEPS = 1000
"""Steps that a training on features takes at least. What the defaults are good for was found with some 1,200; with 140,
which a thousand images would get, the order of the scores is the same, but they hardly leave the frequencies of the
classes."""

_STEPS_AN_EPOCH = 20
"""Batches that a small table is cut into."""

_PART_ROWS = 256
"""Images whose features are computed again, at most, after a kill."""

Progress = Callable[[int, int], Any]


@dataclass(frozen=True)
class TableModel:
    """The folder that keeps what a table was completed with, so that nothing is computed twice.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def beside(cls, out: Path) -> TableModel:
        """Return the one that belongs to a completed folder.

        >>> TableModel.beside(Path("results/completed")).path.as_posix()
        'results/completed-model'
        """
        return cls(out.with_name(f"{out.name}-model"))

    @property
    def features(self) -> Path:
        """Features of the images of the table."""
        return self.path / "features"

    @property
    def run(self) -> Path:
        """Folder of the run that was trained on them."""
        return self.path / "run"


def case_from_table(
    table: str | Path,
    model: TableModel,
    *,
    images: str | Path | None = None,
    features: str | Path | None = None,
    embedding: Embedding | None = None,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    settings: Sequence[str] = (),
    review_only: bool = False,
    plan: str | Path | None = None,
    checkpoint: str = "best",
    force: bool = False,
    progress: Progress | None = None,
    display: Callable[[RunData], Display | None] = lambda data: None,
) -> Case:
    """Train on features of the images of a table, and score every image of it with the model.

    What ``model`` holds already is used: features are made once, a training that was cut off is resumed, and one that
    is finished is not repeated. Some known cells are held out of training, so that certificates can rest on them.

    Args:
        table: the label table to complete.
        model: where features and run are kept.
        images: folder of the images, which are embedded unless there are features.
        features: features that were made elsewhere, in any file that ``data.features`` takes.
        embedding: what makes features of the images; by default :data:`BACKBONE` as timm publishes it.
        encoding: of the table.
        ignore_columns: columns of the table that are not classes.
        settings: further settings of the run, ``section.key=value``.
        review_only: train on all known cells, hold none out: nothing can be certified then.
        plan: a label plan with answers.
        checkpoint: "best" or "last".
        force: train anew where ``model`` holds a run with other settings or labels.
        progress: called with (images done, images in all) while images are embedded.
        display: shows the training.

    Raises:
        ConfigError: neither images nor features are given, or a setting is wrong.
        TableError: too little of the table is known to hold cells out; nothing is embedded then.
        RunError: ``model`` holds a run of other settings or labels.
    """
    from satl.completion.workflow.from_run import case_from_run

    if images is None and features is None:
        raise ConfigError(
            "needs the images of the table, or features of them",
            where=str(table),
            remedy=Sentence("pass {images}, the folder that holds them", images=Argument("images", "FOLDER")),
        )
    data: dict[str, Any] = {
        "table": str(table),
        "features": str(model.features if features is None else features),
        "ignore_columns": list(ignore_columns),
        "holdout": not review_only,
    }
    if encoding is not None:
        data["encoding"] = encoding
    if images is not None:
        data["images"] = str(images)
    config = config_of_table({"data": data}, settings, str(table))
    _check_run(model, config, force)
    if not review_only:
        _check_labels(config, str(table))
    if features is None:
        assert images is not None
        _embed(config, Path(images), model, embedding, force, progress)
    _train(model, config, force, display)
    return case_from_run(model.run, checkpoint=checkpoint, plan=plan, images=images, review_only=review_only)


def config_of_table(content: Mapping[str, Any], settings: Sequence[str], origin: str) -> RunConfig:
    """Return the configuration of a run on a table, with smaller batches where the table is small.

    On features, it is also trained for more epochs then, so that there are :data:`LEAST_STEPS`, and validated after the
    last alone: the few images that validate it are a poor judge of epochs. What the user has set stays as it is.

    Args:
        content: sections as plain data, ``data`` with a table among them.
        settings: further settings, ``section.key=value``.
        origin: what messages call them.
    """
    from satl.runs.reading import override_config

    config = override_config(content, settings, origin)
    training = content.get("training") or {}
    given = {*training, *(setting.split("=")[0].removeprefix("training.") for setting in settings)}
    chosen = {key: value for key, value in _for_few_images(config, given).items() if key not in given}
    if not chosen:
        return config
    return override_config({**content, "training": {**training, **chosen}}, settings, origin)


def _for_few_images(config: RunConfig, given: Set[str]) -> dict[str, int]:
    """Return the settings of the training for a table with so few images that the usual ones do not suit it."""
    images, training = _trained_images(config), config.training
    if not config.on_features:
        return {"batch_size": max(2, images // 4)} if images < 2 * training.batch_size else {}
    batch = training.batch_size
    if "batch_size" not in given:
        batch = min(batch, max(2, images // _STEPS_AN_EPOCH))
    steps = max(1, images // batch)
    chosen = {"batch_size": batch} if batch < training.batch_size else {}
    if steps * training.epochs < LEAST_STEPS and not {"epochs", "stage1_epochs"} & given:
        epochs = math.ceil(LEAST_STEPS / steps)
        share = training.stage1_epochs / training.epochs
        chosen |= {"epochs": epochs, "stage1_epochs": round(share * epochs), "evaluate_every": epochs}
    return chosen


def _trained_images(config: RunConfig) -> int:
    """Return how many images a run is trained on."""
    table = _read_table(config)
    if table.split is None:
        train, validated = table.num_images, False
    else:
        roles = [split_role(name) for name in table.split]
        train, validated = roles.count("train"), "val" in roles
    return train if validated else train - math.ceil(train * config.data.validation)


def _read_table(config: RunConfig) -> LabelTable:
    from satl.labels import read_table
    from satl.runs.data import local_data

    section = local_data(config.data)
    assert section.table is not None
    return read_table(section.table, encoding=section.encoding, ignore_columns=section.ignore_columns)


def _embed(
    config: RunConfig,
    images: Path,
    model: TableModel,
    embedding: Embedding | None,
    force: bool,
    progress: Progress | None,
) -> None:
    """Make the features of the images of the table, or find them made."""
    from satl.inference.embedder import Embedding
    from satl.inference.embedding import embed, find_files

    chosen, ids = embedding or Embedding(BACKBONE), _read_table(config).images
    files = find_files(images, ids)

    def make(replace: bool) -> None:
        embed(chosen, ids, files, model.features, part_rows=_PART_ROWS, force=replace, progress=progress)

    try:
        make(replace=False)
    except ConfigError as error:
        if not force:
            # The folder of the features, which is not what is called "out" here.
            if isinstance(error.where, Argument) and error.where.name == "out":
                raise _of_another(model, error.what, where=model.features) from None
            raise
        # Features of another network or of other images: they cost too much time to be replaced unasked.
        make(replace=True)


def _check_run(model: TableModel, config: RunConfig, force: bool) -> None:
    """Refuse a run of other settings before any image is read."""
    from satl.runs.config import changed_settings
    from satl.runs.run_folder import RunFolder

    if force or not RunFolder(model.run).config.is_file():
        return
    changes = changed_settings(RunFolder.open(model.run).read_config(), config)
    if changes:
        raise _of_another(model, f"was trained with another {changes[0]}")


def _check_labels(config: RunConfig, origin: str) -> None:
    """Refuse a table of which nothing could be certified before any image is read."""
    from satl.labels.holdout import fewest_known_cells
    from satl.runs.data import can_hold_out

    proposals = Argument("review_only", True)
    if not config.data.holdout:
        raise ConfigError(
            "is false, so the model would see every known cell and none would be left to test it on",
            where="data.holdout",
            remedy=Sentence(
                "leave it out, or pass {proposals} to get proposals for a person and no promise",
                proposals=proposals,
            ),
        )
    if not can_hold_out(config):
        same, other = fewest_known_cells()
        raise TableError(
            f"no class has enough known cells of training images to promise a precision of 0.95, at least {same} that "
            f"are present and {other} absent, or the other way round",
            where=origin,
            remedy=Sentence(
                "pass {proposals} to get proposals for a person and no promise, label more, or ask for less with "
                "{precision} and {fraction}",
                proposals=proposals,
                precision=Argument("precision", 0.8),
                fraction=Argument("data.holdout_fraction", 0.3),
            ),
        )


def _of_another(model: TableModel, what: str | Sentence, where: Path | None = None) -> RunError:
    return RunError(
        what,
        where=where or model.run,
        remedy=Sentence(
            "pass {force} to train again, or {model} to keep this run and train in another folder",
            force=Argument("force", True),
            model=Argument("model", "FOLDER"),
        ),
    )


def _train(
    model: TableModel, config: RunConfig, force: bool, display: Callable[[RunData], Display | None]
) -> None:
    """Train in the folder of the model, resume what was cut off there, or find that nothing is left to do."""
    from satl.files import remove_folder, remove_leftovers
    from satl.runs.config import changed_settings
    from satl.runs.data import load_data
    from satl.runs.run_folder import RunFolder
    from satl.training.trainer import Trainer

    data = load_data(config)
    folder = RunFolder(model.run)
    remove_leftovers(model.path)
    if folder.config.is_file():
        same = folder.read_fingerprint() == data.fingerprint()
        if not same and not force:
            raise _of_another(model, "was trained on other labels or features than there are now")
        if not same or changed_settings(folder.read_config(), config) or not _can_resume(folder):
            folder.lock()  # refused while another process trains in it
            remove_folder(folder.path)
            folder.unlock()
    if folder.config.is_file():
        trainer = Trainer.resume(data, folder, display(data))
    else:
        trainer = Trainer.start(config, data, folder, display(data))
    if not trainer.finished:
        trainer.fit()


def _can_resume(folder: RunFolder) -> bool:
    """Whether there is a checkpoint; a run that was stopped before the first one is begun again."""
    try:
        folder.checkpoint("last")
    except RunError:
        return False
    return True
