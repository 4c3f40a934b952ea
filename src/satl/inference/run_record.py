"""The scores of a finished run for figures: measured once, kept in its folder, read without the model.

The scores of at most 4,000 training images are kept, drawn by a rule that depends on their number only, so that
runs of one study keep the same images. How good the pseudo-labels are is counted over all training images first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import yaml

from satl.errors import RunError, Sentence, TableError, Task
from satl.evaluation.pseudo_quality import UNION, PseudoLabelQuality, pseudo_label_table
from satl.files import atomic_path
from satl.labels.io.arrays import ArrayFile
from satl.parsing import parse_json, parse_yaml

if TYPE_CHECKING:
    from satl.evaluation import Evaluation
    from satl.inference.recogniser import Recogniser
    from satl.runs.data import RunData
    from satl.runs.run_folder import RunFolder

RECORD = "record.npz"
"""Of the last model; :func:`record_file` of an epoch."""
MOST_IMAGES = 4000
# An experiment has hundreds of runs: the loader in C, where PyYAML has it, reads them in a tenth of the time.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


FloatArray = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]
CellArray = npt.NDArray[np.int8]


def record_file(epoch: int | None = None) -> str:
    """Return the name of a record: of the last model, or of that after an epoch, counted from 1.

    >>> record_file(), record_file(10)
    ('record.npz', 'record-epoch-10.npz')
    """
    return RECORD if epoch is None else f"record-epoch-{epoch}.npz"


@dataclass(frozen=True)
class MethodRecord:
    """What a trained method scores. N training images, C classes.

    Attributes:
        name: the method, as in the configuration.
        epochs: the rows of ``metrics.jsonl``, one an epoch.
        summary: scalars of the evaluation on the test images, as ``Evaluation.summary()`` gives them.
        average_precision: (C,) on the test images; NaN where not measurable.
        scores: generator -> (N, C) scores of the training cells by the last model; NaN where meaningless.
        thresholds: generator -> (C,) thresholds of the last model.
        best_epoch: epoch, from 0, of the model that was tested.
        seconds: how long the training took.
    """

    name: str
    epochs: Sequence[dict[str, Any]]
    summary: dict[str, Any]
    average_precision: FloatArray
    scores: dict[str, FloatArray]
    thresholds: dict[str, FloatArray]
    best_epoch: int
    seconds: float

    @property
    def generators(self) -> tuple[str, ...]:
        """Names of the generators of pseudo-labels; empty for a method without any."""
        return tuple(self.thresholds)

    @property
    def stage1_epochs(self) -> int:
        """How many epochs used no pseudo-labels."""
        return sum(row["stage"] == 1 for row in self.epochs)

    def pseudo_labels(self, cells: CellArray) -> dict[str, BoolArray]:
        """Return the cells (N, C) that the last model of each generator fills: unknown, above the threshold.

        >>> record = MethodRecord("m", (), {}, np.array([]), {"intra": np.array([[0.9, 0.9, np.nan, 0.2]])},
        ...                       {"intra": np.array([0.5, 0.5, 0.5, 0.5])}, 0, 0.0)
        >>> record.pseudo_labels(np.array([[0, 1, 0, 0]], dtype=np.int8))["intra"]
        array([[ True, False, False, False]])
        """
        unknown = cells == 0
        # A comparison with NaN is false, so a score without meaning fills nothing.
        return {
            name: unknown & (self.scores[name] > limits[None, :]) for name, limits in self.thresholds.items()
        }

    def filled(self, cells: CellArray) -> BoolArray:
        """Return the cells (N, C) that at least one generator fills."""
        filled = np.zeros(cells.shape, dtype=np.bool_)
        for pseudo in self.pseudo_labels(cells).values():
            filled |= pseudo
        return filled

    def quality(self, cells: CellArray, truth: CellArray | None) -> PseudoLabelQuality | None:
        """Return the quality of the filled cells, or None where there is no truth or no generator."""
        if truth is None or not self.thresholds:
            return None
        return pseudo_label_table(self.pseudo_labels(cells), cells, truth, encoding="signed")[UNION]

    def last_union(self) -> dict[str, Any]:
        """Return what the last epoch's pseudo-labels counted, all generators together; may be empty."""
        row = self.epochs[-1] if self.epochs else {}
        union: dict[str, Any] = row.get("pseudo_labels", {}).get(UNION, {})
        return union


@dataclass(frozen=True)
class RunRecord:
    """One finished run. N training images, C classes.

    Attributes:
        path: folder of the run.
        config: its configuration, as in ``config.yaml``.
        classes: C names.
        method: what the last model scores, and its epochs.
        images: N ids.
        rows: (N,) rows of the images in the table.
        cells: (N, C) training labels, +1 present, -1 absent, 0 unknown.
        truth: (N, C) hidden truth of the same cells, or None.
        probability: (N, C) class probabilities by the last model.
        quality: generator, and ``union`` for all together -> quality of the pseudo-labels on all unknown
            training cells, not only those of the N images; empty without truth or without generators.
        known_positives: (C,) cells known to be present among all training images.
        positives: (C,) cells that are present among all training images, or None without truth.
        counts: all images by split.
    """

    path: Path
    config: Mapping[str, Any]
    classes: tuple[str, ...]
    method: MethodRecord
    images: tuple[str, ...]
    rows: npt.NDArray[np.int64]
    cells: CellArray
    truth: CellArray | None
    probability: FloatArray
    quality: Mapping[str, PseudoLabelQuality]
    known_positives: npt.NDArray[np.int64]
    positives: npt.NDArray[np.int64] | None
    counts: Mapping[str, int]

    @property
    def proportion(self) -> float:
        """Share of the cells that are known."""
        return float((self.cells != 0).mean())

    def agrees_with(self, other: RunRecord) -> bool:
        """Whether both runs were trained on the same labels, so that their images can be compared."""
        return (
            self.classes == other.classes
            and np.array_equal(self.rows, other.rows)
            and np.array_equal(self.cells, other.cells)
        )


def read_plain_config(path: Path) -> dict[str, Any]:
    """Return the configuration of a run as plain data, also of a method that is no longer known.

    Raises:
        RunError: the file is missing or is not what a run writes.
    """
    file = path / "config.yaml"
    try:
        content = parse_yaml(file.read_text(encoding="utf-8"), _LOADER)
        method, training = dict(content["method"]), dict(content["training"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RunError("cannot be read", where=file, remedy="restore it from a copy of the run") from error
    if "bce_reduction" in method:  # written before each part of a method had a section of its own
        from satl.methods.old_keys import with_new_keys

        method = with_new_keys(method)
    from satl.runs.settling import with_settled_keys
    from satl.runs.training_config import with_trackers

    return {**with_settled_keys(content), "method": method, "training": with_trackers(training)}


def is_finished(config: Mapping[str, Any], epochs: int) -> bool:
    """Whether a run has done all epochs it was asked for."""
    return 0 < int(config["training"]["epochs"]) <= epochs


def measure_run(
    folder: RunFolder,
    data: RunData | None = None,
    evaluation: Evaluation | None = None,
    last: Recogniser | None = None,
    epoch: int | None = None,
) -> RunRecord:
    """Score the training images of a finished run with its last model, or with that after an epoch.

    All of them, to count how good its pseudo-labels are; those that a record keeps, where it makes none.

    Args:
        folder: folder of the run.
        data: the data of the run; None loads it.
        evaluation: of the run on its test images; None tests the last model, on the validation images if there are
            no test images.
        last: the model, loaded; None loads it.
        epoch: counted from 1, of an epoch that ``training.keep_epochs`` kept; None for the last model.

    Raises:
        RunError: the run is not finished, or its data has changed.
    """
    from satl.inference.recogniser import Recogniser
    from satl.inference.run_evaluation import default_split, evaluate_split, require_same_data
    from satl.runs.data import load_data
    from satl.runs.run_folder import epoch_checkpoint

    config, epochs = read_plain_config(folder.path), folder.read_metrics()
    if not is_finished(config, len(epochs)):
        raise RunError(
            f"the run is not finished ({len(epochs)} of {config['training']['epochs']} epochs)",
            where=folder.path,
            remedy=Sentence("continue it with {train}", train=Task("train", resume=folder.path)),
        )
    checkpoint = "last" if epoch is None else epoch_checkpoint(epoch)
    last = last or Recogniser.load(folder.path, checkpoint)
    data = data or load_data(last.config, recorded=folder.read_broken())
    if data.table.classes != last.classes:
        raise RunError(
            "the table's classes are not those the run was trained on",
            where=folder.path,
            remedy="restore the table",
        )
    require_same_data(folder, data, "train")
    trained = data.rows("train")
    thresholds = {name: value.cpu().numpy() for name, value in last.learner.thresholds().items()}
    rows = trained if thresholds else trained[drawn_images(len(trained))]
    scores = _threshold_model(folder, last, checkpoint).scores(data, rows) if thresholds else {}
    probability = scores["probability"] if thresholds else last.probabilities(data.source, rows)
    counts = {split: len(data.rows(split)) for split in ("train", "val", "test")}
    if evaluation is None:
        evaluation = evaluate_split(last, data, default_split(data))
    cells = data.table.cells[rows]
    truth = None if data.table.truth is None else data.table.truth[rows]
    method = MethodRecord(
        name=str(config["method"]["name"]),
        epochs=epochs,
        summary=evaluation.summary(),
        average_precision=np.array([row.average_precision for row in evaluation.per_class]),
        scores={name: scores[name] for name in thresholds},
        thresholds=thresholds,
        best_epoch=best_epoch(epochs),
        seconds=sum(row["train_seconds"] for row in epochs),
    )
    quality = {}
    if truth is not None and thresholds:
        quality = pseudo_label_table(method.pseudo_labels(cells), cells, truth, encoding="signed")
    return RunRecord(
        path=folder.path,
        config=config,
        classes=data.table.classes,
        method=method,
        images=tuple(data.table.images[row] for row in rows),
        rows=np.asarray(rows, dtype=np.int64),
        cells=cells,
        truth=truth,
        probability=probability,
        quality=quality,
        known_positives=_present(data.table.cells[trained]),
        positives=None if data.table.truth is None else _present(data.table.truth[trained]),
        counts=counts,
    )


def collect_run(folder: RunFolder, epoch: int | None = None) -> RunRecord:
    """Measure a finished run, write its record into its folder, and return what was written.

    Args:
        folder: folder of the run.
        epoch: counted from 1, of an epoch that ``training.keep_epochs`` kept; None for the last model.
    """
    write_record(measure_run(folder, epoch=epoch), epoch)
    return read_record(folder.path, epoch)


def write_record(record: RunRecord, epoch: int | None = None) -> None:
    """Write a record beside its run: scores in half precision, at most :data:`MOST_IMAGES` images."""
    kept = drawn_images(len(record.rows))
    method = record.method
    arrays: dict[str, Any] = {
        "rows": record.rows[kept],
        "images": np.array([record.images[row] for row in kept], dtype=np.str_),
        "cells": record.cells[kept],
        "probability": record.probability[kept].astype(np.float16),
        "average_precision": method.average_precision,
        "known_positives": record.known_positives,
        "facts": np.array(
            json.dumps({"summary": method.summary, "counts": dict(record.counts), "classes": record.classes})
        ),
    }
    if record.truth is not None and record.positives is not None:
        arrays |= {"truth": record.truth[kept], "positives": record.positives}
    for name, limits in method.thresholds.items():
        arrays[f"scores/{name}"] = method.scores[name][kept].astype(np.float16)
        arrays[f"thresholds/{name}"] = limits
    for name, quality in record.quality.items():
        arrays[f"quality/{name}"] = np.stack([quality.tp, quality.fp, quality.fn])
    with atomic_path(record.path / record_file(epoch)) as temporary:
        np.savez_compressed(temporary, **arrays)


def read_record(folder: Path | str, epoch: int | None = None) -> RunRecord:
    """Read what :func:`collect_run` wrote, with ``metrics.jsonl`` and ``config.yaml`` of the run.

    Raises:
        RunError: there is no record yet, or it cannot be read.
    """
    from satl.runs.run_folder import RunFolder

    path = Path(folder)
    file = path / record_file(epoch)
    if not file.is_file():
        raise RunError(
            "is missing", where=file, remedy=Sentence("make it with {figures}", figures=Task("figures", path))
        )
    config, epochs = read_plain_config(path), RunFolder(path).read_metrics()
    try:
        with ArrayFile(file) as stored:
            arrays = {name: stored.read(name) for name in stored.names}
        facts = parse_json(str(arrays["facts"]))
        method = MethodRecord(
            name=str(config["method"]["name"]),
            epochs=epochs,
            summary=facts["summary"],
            average_precision=arrays["average_precision"],
            scores={name: values.astype(np.float32) for name, values in _within(arrays, "scores").items()},
            thresholds=_within(arrays, "thresholds"),
            best_epoch=best_epoch(epochs),
            seconds=sum(row["train_seconds"] for row in epochs),
        )
        return RunRecord(
            path=path,
            config=config,
            classes=tuple(facts["classes"]),
            method=method,
            images=tuple(map(str, arrays["images"])),
            rows=arrays["rows"],
            cells=arrays["cells"],
            truth=arrays.get("truth"),
            probability=arrays["probability"].astype(np.float32),
            quality={
                name: PseudoLabelQuality(*values) for name, values in _within(arrays, "quality").items()
            },
            known_positives=arrays["known_positives"],
            positives=arrays.get("positives"),
            counts=facts["counts"],
        )
    except (TableError, OSError, ValueError, KeyError, TypeError) as error:
        remedy = Sentence("remove it, and make it again with {figures}", figures=Task("figures", path))
        raise RunError("cannot be read", where=file, remedy=remedy) from error


def drawn_images(total: int, most: int = MOST_IMAGES) -> npt.NDArray[np.int64]:
    """Return which of so many images are kept, in order; the same for the same number.

    >>> drawn_images(3).tolist(), len(drawn_images(10, most=4)), drawn_images(10, most=4).max().item() < 10
    ([0, 1, 2], 4, True)
    """
    if total <= most:
        return np.arange(total, dtype=np.int64)
    return np.sort(np.random.default_rng(0).choice(total, most, replace=False)).astype(np.int64)


def _present(cells: CellArray) -> npt.NDArray[np.int64]:
    return np.count_nonzero(cells > 0, axis=0).astype(np.int64)


def _within(arrays: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {
        name.removeprefix(f"{section}/"): value
        for name, value in arrays.items()
        if name.startswith(f"{section}/")
    }


def _threshold_model(folder: RunFolder, last: Recogniser, checkpoint: str) -> Recogniser:
    """Return the model whose scores the thresholds were learned on: a teacher, or else the weights in training."""
    from satl.training.checkpoints import AVERAGE

    averaged = (folder.checkpoint(checkpoint) / AVERAGE).is_file()
    if last.learner.method.needs("teacher") or not averaged:
        return last  # its weights are those, so they need not be loaded again
    return type(last).load(folder.path, checkpoint, averaged=False)


def best_epoch(epochs: list[dict[str, Any]]) -> int:
    """Return the epoch, from 0, whose model was kept: the first with the best validation mAP."""
    scores = [(row.get("val") or {}).get("mAP") for row in epochs]
    known = [score for score in scores if score is not None]
    if not known:
        return next((row["epoch"] for row in epochs if "val" in row), len(epochs) - 1)
    return int(epochs[scores.index(max(known))]["epoch"])
