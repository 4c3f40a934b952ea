"""Predict class probabilities and decisions for image files, a packed store or a file of features."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from satl.checks.formulas import warn_of_formulas
from satl.errors import Argument, ConfigError, ImageError, Sentence
from satl.features import FeatureTable, read_features
from satl.features.feature_reader import is_feature_file
from satl.files import atomic_path, check_out
from satl.images import FolderImages, ImageSource, cached, is_store, packed_images
from satl.inference.decision_thresholds import DecisionThresholds
from satl.inference.picture_vectors import embed_pictures, embedder_of
from satl.inference.recogniser import Recogniser
from satl.labels.cells import IMAGE_EXTENSIONS
from satl.runs.run_folder import RunFolder
from satl.training.forward import FloatArray

Writer = Callable[[Sequence[str], Sequence[str], FloatArray], None]
Progress = Callable[[int, int], Any]


def find_images(paths: Sequence[Path]) -> list[Path]:
    """Return the image files among ``paths``, each once; folders are searched with all their subfolders."""
    files: list[Path] = []
    for path in paths:
        if is_store(path):
            raise ImageError(
                "is a packed store", where=path, remedy="give it alone, without other files or folders"
            )
        try:
            is_folder, is_file = path.is_dir(), path.is_file()
        except OSError as error:
            raise _unreadable(error) from None
        if is_folder:
            inside = sorted(_images_in(path))
            if not inside:
                endings = ", ".join(sorted(IMAGE_EXTENSIONS))
                raise ImageError("holds no image", where=path, remedy=f"give a folder with {endings}")
            files.extend(inside)
        elif is_file:
            files.append(path)
        else:
            raise ImageError("does not exist", where=path, remedy="give image files or folders")
    return list(dict.fromkeys(files))


def _images_in(folder: Path) -> Iterator[Path]:
    """Yield the image files of a folder and its subfolders, broken links included, which are then reported."""

    def refuse(error: OSError) -> None:
        raise _unreadable(error)  # its images would silently be missing from the predictions

    for parent, _, names in os.walk(folder, onerror=refuse):
        yield from (Path(parent, name) for name in names if Path(name).suffix.lower() in IMAGE_EXTENSIONS)


def _unreadable(error: OSError) -> ImageError:
    return ImageError(
        f"cannot be read ({error.strerror})",
        where=str(error.filename),
        remedy="make it readable or leave it out",
    )


def image_ids(paths: Sequence[Path], files: Sequence[Path]) -> list[str]:
    """Return the ids of ``files``, found among ``paths``, in the predictions.

    One folder alone is the image folder of a table, whose ids are relative to it, with forward slashes; the
    predictions then fit that table. Otherwise the id is the path as it was given, so that several folders stay apart.

    Raises:
        ImageError: a name is not UTF-8, so that no file of predictions could hold it.

    >>> image_ids([Path()], [Path("cats/a.png")]), image_ids([Path("cats/a.png")], [Path("cats/a.png")])
    (['cats/a.png'], ['cats/a.png'])
    """
    alone = len(paths) == 1 and paths[0].is_dir()
    ids = [file.relative_to(paths[0]).as_posix() if alone else str(file) for file in files]
    for name in ids:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ImageError(
                f"image file {os.fsencode(name)!r} has a name that is not UTF-8",
                remedy="rename it or leave it out",
            ) from None
    return ids


def predict_files(
    run: Path,
    files: Sequence[Path],
    checkpoint: str = "best",
    batch_size: int | None = None,
    progress: Progress | None = None,
    weights: Path | None = None,
) -> tuple[tuple[str, ...], FloatArray]:
    """Return the class names and probabilities ``(N, C)`` of image files.

    Those of a run on features pass through the network that made its features; ``weights`` is the file of it.
    """
    recogniser = Recogniser.load(run, checkpoint)
    names = [str(file.absolute()) for file in files]
    if recogniser.features is not None:
        embedder = embedder_of(run, weights, str(recogniser.device))
        vectors, broken = embed_pictures(embedder, names, names, progress=progress)
        if broken:
            raise ImageError(broken[0][1])
        return recogniser.classes, recogniser.probabilities(vectors, batch_size=batch_size)
    source = FolderImages(
        Path(),
        names,
        recogniser.config.source_size,
        in_table=False,
        interpolation=recogniser.config.images.input.interpolation,
    )
    return recogniser.classes, _probabilities(recogniser, source, batch_size, progress)


def predict_store(
    run: Path,
    store: Path,
    checkpoint: str = "best",
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> tuple[list[str], tuple[str, ...], FloatArray]:
    """Return the image ids, class names and probabilities ``(N, C)`` of a packed store."""
    recogniser = Recogniser.load(run, checkpoint)
    if recogniser.features is not None:
        raise ImageError(
            "is a packed store, whose pictures have a size of their own, and the run was trained on features",
            where=store,
            remedy="give the folder that it was packed from",
        )
    source, size = packed_images(store), recogniser.config.source_size
    if source.size != size:
        raise ImageError(
            f"holds images of {source.size} pixels, and {run} was trained on {size}",
            where=store,
            remedy=Sentence("pack them again with {size}", size=Argument("size", size)),
        )
    probabilities = _probabilities(recogniser, source, batch_size, progress)
    return list(source.ids), recogniser.classes, probabilities


def open_features(run: Path, paths: Sequence[Path], limit_bytes: int | None = None) -> FeatureTable:
    """Open the features that a run on features is to predict from.

    Args:
        run: folder of the run.
        paths: what was given to predict: one file or folder of features.
        limit_bytes: features that take more than this stay in their file; None: ``images.cache_gb`` of the run.

    Raises:
        ConfigError: they are no features, or of another size than those that the run was trained on.
    """
    folder = RunFolder.open(run)
    facts = folder.read_features()
    assert facts is not None
    if len(paths) != 1 or not is_feature_file(paths[0]):
        other = next((path for path in paths if not is_feature_file(path)), paths[-1])
        raise ConfigError(
            "is no file of features" if not is_feature_file(other) else "is not the only file of features",
            where=other,
            remedy="give one file or folder of features that were made as those of its training, and nothing else",
        )
    if limit_bytes is None:
        limit_bytes = int(folder.read_config().images.cache_gb * 2**30)
    table = read_features(paths[0], limit_bytes=limit_bytes)
    if table.dim != facts["dim"]:
        raise ConfigError(
            f"has features of {table.dim:,} numbers, and the run was trained on {facts['dim']:,}",
            where=paths[0],
            remedy="make them with the same network",
        )
    return table


def predict_features(
    run: Path, features: FeatureTable, checkpoint: str = "best", batch_size: int | None = None
) -> tuple[tuple[str, ...], FloatArray]:
    """Return the class names and probabilities ``(N, C)`` of features."""
    recogniser = Recogniser.load(run, checkpoint)
    return recogniser.classes, recogniser.probabilities(features, batch_size=batch_size)


def _probabilities(
    recogniser: Recogniser, source: ImageSource, batch_size: int | None, progress: Progress | None
) -> FloatArray:
    # The same way from file to pixels as in training and evaluation, so that the probabilities are the same.
    limit = int(recogniser.config.images.cache_gb * 2**30)
    in_memory = cached(source, limit_bytes=limit, progress=progress)
    return recogniser.probabilities(in_memory, batch_size=batch_size)


def write_predictions(
    path: Path, thresholds: DecisionThresholds, *, force: bool = False, inputs: Iterable[Path | None] = ()
) -> Writer:
    """Return a function that writes predictions to ``path``, as its extension says.

    CSV has one row a cell (``image,label,probability,present``), JSONL one line an image. A file that exists is
    replaced only with ``force``, and one of ``inputs`` never.

    Raises:
        ConfigError: ``path`` could not or must not be written; at once, before there are predictions.
    """
    check_out(path, ".csv", ".jsonl", overwrite=force, inputs=inputs)

    def write(images: Sequence[str], classes: Sequence[str], probabilities: FloatArray) -> None:
        warn_of_formulas(path, images, classes)
        # One row at a time: as Python's numbers all of them would take eight times the memory.
        rows = (
            (image, row.tolist(), (row >= thresholds.values).tolist())
            for image, row in zip(images, probabilities, strict=True)
        )
        with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            if path.suffix == ".csv":
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(("image", "label", "probability", "present"))
                for image, row, present in rows:
                    for name, value, there in zip(classes, row, present, strict=True):
                        writer.writerow((image, name, f"{value:.6f}", int(there)))
                return
            for image, row, present in rows:
                content = {
                    "image": image,
                    "probabilities": {
                        name: round(value, 6) for name, value in zip(classes, row, strict=True)
                    },
                    "present": [name for name, there in zip(classes, present, strict=True) if there],
                }
                file.write(json.dumps(content, ensure_ascii=False) + "\n")

    return write
