"""Predictions for very many images: a folder of Parquet files, each one part, made here or on many machines.

A part holds some images: ``image``, the probability of every class under its name, and ``present``, the list of
classes whose threshold is reached. ``_predictions.json`` says what the folder holds, so that the same call resumes
and another one is refused. Images that cannot be read are left out and listed in ``_broken.csv``.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satl import __version__
from satl.checks.formulas import warn_of_formulas
from satl.errors import Argument, ConfigError, ImageError, RunError, Sentence
from satl.features import FeatureTable
from satl.files import atomic_path, check_out_folder
from satl.images import ArrayImages, decode_image
from satl.images.source import available_cores
from satl.inference.decision_thresholds import DecisionThresholds
from satl.inference.embedder import Embedder
from satl.inference.picture_vectors import embed_pictures, embedder_of
from satl.inference.prediction import open_features
from satl.inference.recogniser import Recogniser
from satl.runs.run_folder import RunFolder
from satl.runs.run_lock import RunLock
from satl.scores.prediction_folder import (
    BROKEN,
    IMAGE,
    MANIFEST,
    PRESENT,
    broken_images,
    part_file,
    read_manifest,
)
from satl.training.checkpoints import AVERAGE, LEARNER
from satl.training.forward import FloatArray

_DIFFERENCES = {
    "format": "of another version of satl",
    "model": "of another run or checkpoint",
    "classes": "of another run or checkpoint",
    "images": "of other images",
    "ids": "of other images",
    "part_size": "with another number of images in a file",
    "thresholds": "with other thresholds",
}
"""How predictions can differ from those that are asked for, by the key of the manifest."""


@dataclass(frozen=True)
class PredictionPart:
    """Images that are predicted together and written to one file.

    Attributes:
        number: of the file, from 0.
        ids: image ids.
        files: paths of the images, absolute; none where the job has features.
    """

    number: int
    ids: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class PredictionJob:
    """What a worker must know to predict parts; it is sent to other machines.

    Attributes:
        run, folder: absolute paths, the same on all machines.
        checkpoint: "best" or "last".
        thresholds: float32 (C,), from which probability on a class is present.
        batch_size: images in a batch; None: what fits images or features.
        features: absolute path of the features to predict from; None: from image files.
        weights: for image files and a run on features, the weight file of the network that made those.
        version: of satl, which must be the same everywhere.
    """

    run: str
    folder: str
    checkpoint: str
    thresholds: NDArray[np.float32]
    batch_size: int | None
    features: str | None = None
    weights: Path | None = None
    version: str = __version__


PredictParts = Callable[[PredictionJob, Sequence[PredictionPart]], Iterable[int]]
"""Predicts parts, in this process or elsewhere; yields the number of images of each part that is done."""


class PartPredictor:
    """Predicts parts with one network, which is loaded for the first of them.

    Args:
        job: what to do.
        threads: that decode images; 0 takes one for every core.
        embedder: of a run on features, where it is built already.
    """

    def __init__(self, job: PredictionJob, threads: int = 0, embedder: Embedder | None = None) -> None:
        self.job = job
        self.threads = threads or available_cores()
        self._embedder = embedder
        self._recogniser: Recogniser | None = None
        self._features: FeatureTable | None = None

    def predict(self, part: PredictionPart) -> int:
        """Predict the images of a part and write its file; return how many there are.

        Raises:
            RunError: this machine has another version of satl, or not the run.
        """
        job = self.job
        if job.version != __version__:
            raise RunError(
                f"a machine of the cluster has satl {__version__}, and the one that started it satl {job.version}",
                remedy="install the same version on all of them",
            )
        if self._recogniser is None:
            self._recogniser = Recogniser.load(job.run, job.checkpoint)
        recogniser = self._recogniser
        if job.features is not None:
            return self._predict_features(part, recogniser, job.features)
        if recogniser.features is not None:
            return self._predict_embedded(part, recogniser)
        size, interpolation = recogniser.config.source_size, recogniser.config.images.input.interpolation
        pixels = np.empty((len(part.files), size, size, 3), dtype=np.uint8)

        def read(index: int) -> str | None:
            try:
                pixels[index] = decode_image(part.files[index], size, interpolation=interpolation)
            except ImageError as error:
                return str(error)
            return None

        with ThreadPoolExecutor(self.threads) as pool:
            reasons = list(pool.map(read, range(len(part.files))))
        good = [index for index, reason in enumerate(reasons) if reason is None]
        source = ArrayImages.from_channels_first(pixels.transpose(0, 3, 1, 2))
        probabilities = recogniser.probabilities(source, good, batch_size=job.batch_size)
        broken = [(part.ids[index], reason) for index, reason in enumerate(reasons) if reason is not None]
        ids = [part.ids[index] for index in good]
        _write_part(job, part.number, ids, recogniser.classes, probabilities, broken)
        return len(part.ids)

    def _predict_embedded(self, part: PredictionPart, recogniser: Recogniser) -> int:
        """Predict pictures by their vectors."""
        if self._embedder is None:
            self._embedder = embedder_of(self.job.run, self.job.weights)
        vectors, broken = embed_pictures(self._embedder, part.ids, part.files, self.threads)
        probabilities = recogniser.probabilities(vectors, batch_size=self.job.batch_size)
        _write_part(self.job, part.number, vectors.ids, recogniser.classes, probabilities, broken)
        return len(part.ids)

    def _predict_features(self, part: PredictionPart, recogniser: Recogniser, path: str) -> int:
        if self._features is None:
            self._features = open_features(Path(self.job.run), [Path(path)])
        rows = self._features.index.find(part.ids)
        probabilities = recogniser.probabilities(self._features, rows, self.job.batch_size)
        _write_part(self.job, part.number, part.ids, recogniser.classes, probabilities, ())
        return len(part.ids)


def predict_locally(
    job: PredictionJob, parts: Sequence[PredictionPart], embedder: Embedder | None = None
) -> Iterator[int]:
    """Predict one part after the other in this process."""
    predictor = PartPredictor(job, embedder=embedder)
    for part in parts:
        yield predictor.predict(part)


class PredictionFolder:
    """A folder of predictions: what is in it and what is missing. It is locked until :meth:`close`.

    Args:
        path: the folder.
        run: folder of the run that predicts.
        checkpoint: "best" or "last".
        ids: image ids.
        files: paths of the images; none where there are features.
        thresholds: from which probability on a class is present.
        part_size: images in a file.
        force: remove predictions that are there.
        features: the features to predict from instead of images.

    Raises:
        ConfigError: the folder holds something else, or cannot be written.
        RunError: another process is writing there.
    """

    def __init__(
        self,
        path: Path,
        run: Path,
        checkpoint: str,
        ids: Sequence[str],
        files: Sequence[Path],
        thresholds: DecisionThresholds,
        *,
        part_size: int,
        force: bool = False,
        features: FeatureTable | None = None,
    ) -> None:
        self.path, self.run, self.checkpoint, self.thresholds = path, run, checkpoint, thresholds
        self.ids = tuple(ids)
        self.features = features
        folder = RunFolder.open(run)
        classes = folder.read_classes()
        taken = [name for name in classes if name in (IMAGE, PRESENT)]
        if taken:
            raise ConfigError(
                f"the class {taken[0]!r} has the name of a column of the Parquet files",
                where=Argument("out", path),
                remedy="end the name in .jsonl",
            )
        check_out_folder(path)
        self.content: dict[str, Any] = {
            "format": 1,
            "model": _digest_of_model(folder, checkpoint),
            "classes": list(classes),
            "images": len(ids),
            "ids": hashlib.sha256("\0".join(ids).encode()).hexdigest(),
            "part_size": part_size,
            "thresholds": [None if value > 1 else float(value) for value in thresholds.values],
            "thresholds_from": thresholds.source,
            "checkpoint": checkpoint,
            "satl": __version__,
        }
        if features is not None:
            self.content["ids"] += features.digest  # the same pictures may have other features
        paths = [str(file.absolute()) for file in files]
        self.parts = tuple(
            PredictionPart(
                number, self.ids[first : first + part_size], tuple(paths[first : first + part_size])
            )
            for number, first in enumerate(range(0, len(ids), part_size))
        )
        if not (path / MANIFEST).is_file():
            self._refuse_other_files()  # before there is a lock in somebody's folder
        path.mkdir(parents=True, exist_ok=True)
        self._lock = RunLock(path, "written")
        try:
            self._begin(force)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let other processes write into the folder."""
        self._lock.release()

    def _begin(self, force: bool) -> None:
        """Make the folder, or check that what is in it can be resumed."""
        manifest, out = self.path / MANIFEST, Argument("out", self.path)
        if manifest.is_file() and not force:
            found = read_manifest(manifest)
            for key, difference in _DIFFERENCES.items():
                if found.get(key) != self.content[key]:
                    raise ConfigError(
                        f"holds predictions {difference}",
                        where=out,
                        remedy=Sentence(
                            "give another folder, or pass {force} to replace them",
                            force=Argument("force", True),
                        ),
                    )
            return
        if manifest.is_file():
            # Says nothing about the files, and that they are ours to whoever comes after a kill.
            self._write_manifest({"format": self.content["format"]})
            for file in (*self.path.glob("part-*.parquet"), self.path / BROKEN):
                file.unlink(missing_ok=True)
        self._refuse_other_files()
        self._write_manifest(self.content)

    def _refuse_other_files(self) -> None:
        # Hidden ones are of the file system, or of a process that was killed while it wrote.
        own = (".", MANIFEST)
        if self.path.is_dir() and any(not file.name.startswith(own) for file in self.path.iterdir()):
            where = Argument("out", self.path)
            raise ConfigError("has other files in it", where=where, remedy="give a new folder")

    def _write_manifest(self, content: dict[str, Any]) -> None:
        with atomic_path(self.path / MANIFEST) as temporary:
            temporary.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")

    def job(self, batch_size: int | None, weights: Path | None = None) -> PredictionJob:
        """Return what a worker must know to predict its parts."""
        run, folder = str(self.run.absolute()), str(self.path.absolute())
        features = None if self.features is None else str(self.features.path.absolute())
        weights = None if weights is None else weights.absolute()
        return PredictionJob(
            run, folder, self.checkpoint, self.thresholds.values, batch_size, features, weights
        )

    def missing(self) -> list[PredictionPart]:
        """Return the parts that are not done, or had images that could not be read."""
        return [part for part in self.parts if broken_images(self._file(part)) != []]

    def broken(self) -> list[tuple[str, str]]:
        """Return the images that could not be read and why, and write them to ``_broken.csv``."""
        found = [image for part in self.parts for image in broken_images(self._file(part)) or ()]
        listing = self.path / BROKEN
        if not found:
            listing.unlink(missing_ok=True)
            return found
        warn_of_formulas(listing, (image for image, _ in found))
        with atomic_path(listing) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("image", "reason"))
            writer.writerows(found)
        return found

    def _file(self, part: PredictionPart) -> Path:
        return part_file(self.path, part.number)


def _digest_of_model(folder: RunFolder, checkpoint: str) -> str:
    """Return a digest of the weights of a checkpoint."""
    weights = folder.checkpoint(checkpoint)
    digest = hashlib.sha256()
    for name in (LEARNER, AVERAGE):
        if (weights / name).is_file():
            with (weights / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _write_part(
    job: PredictionJob,
    number: int,
    ids: Sequence[str],
    classes: Sequence[str],
    probabilities: FloatArray,
    broken: Sequence[tuple[str, str]],
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = np.array(classes, dtype=object)
    columns = {
        IMAGE: pa.array(ids, pa.string()),
        **{name: pa.array(probabilities[:, column]) for column, name in enumerate(classes)},
        PRESENT: pa.array(
            [names[row].tolist() for row in probabilities >= job.thresholds], pa.list_(pa.string())
        ),
    }
    table = pa.table(columns).replace_schema_metadata({"broken": json.dumps(broken)})
    with atomic_path(part_file(Path(job.folder), number)) as temporary:
        pq.write_table(table, temporary)
