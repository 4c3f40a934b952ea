"""``satl.predict``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from satl.api.address_arguments import takes_addresses
from satl.api.call_settings import Threshold, thresholds_of
from satl.api.frame_numbers import columns_of, numbers_of
from satl.api.given_data import PathLike
from satl.api.memory_data import names_images, pictures_of
from satl.api.notebook_results import PredictionResult, TrainedRun
from satl.errors import Argument, ArrayError, ConfigError, Sentence
from satl.inference.pictures import is_one_picture, is_picture, picture_files
from satl.labels.frames import frame_kind


@takes_addresses("run", "data", "images", "threshold", "weights", uploads="out")
def predict(
    run: PathLike,
    data: Any,
    *,
    images: PathLike | None = None,
    threshold: Threshold = None,
    checkpoint: str = "best",
    batch_size: int | None = None,
    weights: PathLike | None = None,
    out: PathLike | None = None,
    force: bool = False,
    quiet: bool = False,
) -> PredictionResult:
    """Give class probabilities and decisions for new images, or for features.

    Args:
        run: a run, as :func:`satl.train` gives it back, or the path of its folder.
        data: image files, folders, Pillow images, arrays (H, W, 3) or tensors (3, H, W), one or several of them; a
            packed store; a frame with a column ``image`` of paths or Pillow images; a Hugging Face or a torch data set.
            For a run on features also an array (N, D) of them, a frame, or a file.
        images: folder that the paths of a frame are relative to; by default the working folder.
        threshold: probability from which on a class is present: one number, one for each class by name, or a file
            that ``satl thresholds`` or a completion wrote; 0.5 by default.
        checkpoint: "best" or "last".
        batch_size: images in a batch; 64 by default, 4,096 rows of features.
        weights: for images and a run on features, the weight file that its features were made with, if one was given.
        out: a file to write as well, ``.csv`` or ``.jsonl``; by default none.
        force: overwrite it.
        quiet: show no progress.

    Returns:
        The ``frame`` of probabilities, the ``decisions``, and a display for notebooks.
    """
    from satl.inference.prediction import write_predictions
    from satl.runs.run_folder import RunFolder

    data = _listed(data)
    kept = RunFolder.open(Path(run))
    classes = kept.read_classes()
    decisions = thresholds_of(threshold)(classes)
    inputs = [data] if isinstance(data, str | os.PathLike) else data if isinstance(data, list | tuple) else []
    files = [Path(path) for path in inputs if isinstance(path, str | os.PathLike)]
    write = None
    if out is not None:
        kept_files = (*files, kept.metrics, kept.thresholds)
        write = write_predictions(Path(out), decisions, force=force, inputs=kept_files)
    facts = kept.read_features()
    gives_features = facts is not None and _are_features(data, facts["dim"])
    if weights is not None and (facts is None or gives_features):
        raise ConfigError(
            "is for images and a run on features",
            where=Argument("weights", weights),
            remedy="leave it out: everything else has the weights of the run",
        )
    if gives_features:
        ids, probabilities = _of_features(Path(run), data, checkpoint, batch_size)
    else:
        file = None if weights is None else Path(weights)
        ids, probabilities = _of_images(Path(run), data, images, checkpoint, batch_size, file, quiet)
    if write is not None:
        write(ids, classes, probabilities)
    kind = frame_kind(data) or (run.kind if isinstance(run, TrainedRun) else None)
    return PredictionResult(tuple(ids), classes, probabilities, decisions, kind)


def _listed(data: Any) -> Any:
    """Return what only iterates, a column of a frame and an array of texts as lists; anything else as it is.

    >>> _listed(iter(["a.jpg"])), _listed(np.array(["a.jpg"])), _listed("a.jpg")
    (['a.jpg'], ['a.jpg'], 'a.jpg')
    """
    column = frame_kind(data) is not None and columns_of(data) is None and hasattr(data, "__iter__")
    if column or isinstance(data, Iterator) or (isinstance(data, np.ndarray) and data.dtype.kind in "UO"):
        return data.tolist() if isinstance(data, np.ndarray) else list(data)
    return data


def _are_features(data: Any, dim: int) -> bool:
    """Whether data that is given to a run on features is features, and not pictures to make them of.

    >>> _are_features(np.zeros((2, 8)), 8), _are_features(np.zeros((2, 3, 8)), 8), _are_features(np.zeros((9, 9, 3)), 8)
    (True, True, False)
    >>> _are_features(["a.jpg"], 8), _are_features([[0.5, 1.0]], 8), _are_features("photos", 8)
    (False, True, False)
    """
    if isinstance(data, str | os.PathLike):
        from satl.features.feature_reader import is_feature_file

        return is_feature_file(Path(data))
    if isinstance(data, list | tuple):
        return not data or not (is_one_picture(data[0]) and getattr(data[0], "ndim", 3) == 3)
    if is_picture(data) and hasattr(data, "ndim"):
        return bool(data.ndim < 3 or (data.ndim == 3 and data.shape[-1] == dim))
    if columns_of(data) is None:
        return False
    if not names_images(data):
        return True
    try:
        return numbers_of(data, "data").values.shape[-1] == dim
    except ArrayError:
        return False


def _of_features(
    run: Path, data: Any, checkpoint: str, batch_size: int | None
) -> tuple[Sequence[str], np.ndarray[Any, Any]]:
    from satl.inference.prediction import open_features, predict_features
    from satl.inference.recogniser import Recogniser

    if isinstance(data, str | os.PathLike):
        vectors = open_features(run, [Path(data)])
        return vectors.ids, predict_features(run, vectors, checkpoint, batch_size)[1]
    given = numbers_of(data, "data")
    found = Recogniser.load(run, checkpoint).predict(given.values, batch_size)
    return given.ids or [f"{row:06d}" for row in range(len(found))], found


def _of_images(
    run: Path,
    data: Any,
    folder: PathLike | None,
    checkpoint: str,
    batch_size: int | None,
    weights: Path | None,
    quiet: bool,
) -> tuple[Sequence[str], np.ndarray[Any, Any]]:
    from satl.drawing.progress import loading
    from satl.images import is_store
    from satl.inference.prediction import find_images, image_ids, predict_files, predict_store

    values: Iterable[Any]
    ids: Sequence[str]
    with loading("Reading images", quiet) as progress:
        if isinstance(data, str | os.PathLike) and is_store(Path(data)):
            _refuse_folder(folder)
            ids, _, found = predict_store(run, Path(data), checkpoint, batch_size, progress)
            return ids, found
        several = [data] if is_one_picture(data) else data
        if isinstance(several, list | tuple) and all(isinstance(one, str | os.PathLike) for one in several):
            _refuse_folder(folder)
            paths = [Path(one) for one in several]
            files = find_images(paths)
            return image_ids(paths, files), predict_files(
                run, files, checkpoint, batch_size, progress, weights
            )[1]
        if isinstance(several, list | tuple) or is_stack(several):
            _refuse_folder(folder)
            values = several
            ids = [
                os.fspath(one) if isinstance(one, str | os.PathLike) else f"{number:06d}"
                for number, one in enumerate(several)
            ]
        else:
            ids, found_values = pictures_of(data)
            base = Path.cwd() if folder is None else Path(folder)
            values = (base / one if isinstance(one, str | os.PathLike) else one for one in found_values)
        with picture_files(values) as written:
            return ids, predict_files(run, written, checkpoint, batch_size, progress, weights)[1]


def is_stack(value: Any) -> bool:
    """Whether a value is an array or tensor of several pictures.

    >>> is_stack(np.zeros((2, 8, 8, 3))), is_stack(np.zeros((8, 8, 3)))
    (True, False)
    """
    return getattr(value, "ndim", None) == 4


def _refuse_folder(folder: PathLike | None) -> None:
    if folder is not None:
        raise ConfigError(
            "belongs to a frame of paths",
            where=Argument("images", folder),
            remedy=Sentence("leave out {images}", images=Argument("images")),
        )
