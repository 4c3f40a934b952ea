"""The trained network of a run, loaded for inference."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from satl.checks.array_checks import as_array
from satl.errors import ArrayError, RunError
from satl.features import FeatureTable
from satl.features.half_arrays import as_half, first_not_finite
from satl.images import Batches, EvalTransform, FolderImages, ImageSource, RowSource, cached
from satl.inference.pictures import is_one_picture, picture_files
from satl.methods import Learner
from satl.models.allowed_arguments import require_local_network
from satl.models.kept_memory import memory_is_kept
from satl.runs.checkpoint_folders import require_whole
from satl.runs.config import RunConfig
from satl.runs.data import RunData
from satl.runs.devices import device_for_use
from satl.runs.run_folder import RunFolder
from satl.training.build import build_learner, feature_shell, half_type, place_on_device, transform_of
from satl.training.checkpoints import AVERAGE, LEARNER, load_module
from satl.training.divergence import require_finite_weights
from satl.training.forward import FloatArray, cell_scores, class_probabilities

_IMAGES_AT_ONCE, _ROWS_AT_ONCE = 64, 4096
"""Images, or rows of features, in a batch."""
_SIDE_OF_BATCHES = 448
"""Pixels; on a GPU, which waits for the processor if batches are small, a batch has as many as 64 of such a side."""


class Recogniser:
    """The trained network of a run with its class names, ready for inference.

    Args:
        config: configuration of the run.
        classes: class names, in the order of the network's outputs.
        learner: the method with its trained network; it is moved to the device and to evaluation mode.
        device: where to compute; None for the one that the configuration asks for.
        features: for a run on features, what it keeps about them, ``dim`` and ``views`` among it.
    """

    def __init__(
        self,
        config: RunConfig,
        classes: tuple[str, ...],
        learner: Learner,
        device: str | None = None,
        features: Mapping[str, Any] | None = None,
    ) -> None:
        self.config, self.features = config, features
        self.classes = classes
        self.device = device_for_use(config.training.device) if device is None else torch.device(device)
        self.half = half_type(config.training.precision)
        self.learner = place_on_device(learner, self.device, self.half).eval()
        self.transform = transform_of(config, self.device, self.half)

    @classmethod
    def load(
        cls,
        run: Path | str,
        checkpoint: str = "best",
        averaged: bool = True,
        device: str | None = None,
        fallback: bool = True,
    ) -> Recogniser:
        """Load a checkpoint of a run folder.

        A training may go on in the folder meanwhile.

        Args:
            run: folder of a run.
            checkpoint: "best" or "last"; "epoch-N" of an epoch that ``training.keep_epochs`` kept.
            averaged: use the moving average of the weights where the run keeps one, as validation does; False uses
                the weights in training, which the best checkpoint lacks.
            device: where to compute; None for the one that the configuration asks for.
            fallback: where the best model is damaged, use the last one, and where that is damaged, the one before
                it, and warn of it.

        Raises:
            RunError: the folder is not a run, has no such checkpoint, or its weights are not finite numbers.
        """
        folder = RunFolder.open(run)
        of_epoch = re.fullmatch(r"epoch-[0-9]+", checkpoint) is not None
        if not of_epoch and checkpoint not in ("best", "last"):
            raise RunError(f"there is no checkpoint '{checkpoint}'", where=run, remedy="use best or last")
        config, classes = folder.read_config(), folder.read_classes()
        folder.checkpoint(checkpoint)  # before anything is built: it may not be there
        require_local_network(config.model, folder.config)
        facts = folder.read_features()
        features = None if facts is None else feature_shell(config, facts["dim"])
        learner = build_learner(config, classes, features=features)

        def read(place: Path) -> Path:
            require_whole(place, (LEARNER, AVERAGE))
            load_module(learner, place / LEARNER)
            if averaged and (place / AVERAGE).is_file():
                load_module(learner.network, place / AVERAGE)
            return place

        other = "last" if checkpoint == "best" else "best"
        used = folder.read_checkpoint(checkpoint, read, other, fallback=fallback and not of_epoch)
        require_finite_weights(learner, used)
        return cls(config, classes, learner, device, facts)

    @property
    def image_transform(self) -> EvalTransform:
        """The transform of the images of a run that is trained on images."""
        assert isinstance(self.transform, EvalTransform)
        return self.transform

    def predict(
        self, images: Sequence[Any] | np.ndarray[Any, Any], batch_size: int | None = None
    ) -> FloatArray:
        """Return the class probabilities of pictures, ``(N, C)``, in the order of :attr:`classes`.

        Args:
            images: paths, Pillow images, arrays ``(H, W, 3)`` or tensors ``(3, H, W)``, mixed at will; one alone is a
                list of one. For a run on features, an array ``(N, D)`` or ``(N, views, D)`` of them.
            batch_size: images in a batch; None: 64, or 4,096 rows of features.

        Raises:
            ImageError: a file is missing or cannot be decoded.
            ArrayError: an array holds no pixels, or features of another size than the run was trained on.
        """
        if self.config.on_features:
            return self.probabilities(self._feature_rows(as_array(images)), batch_size=batch_size)
        with picture_files([images] if is_one_picture(images) else images) as files:
            if not files:
                return self._no_scores()
            source = FolderImages(
                Path(),
                [str(file.absolute()) for file in files],
                self.config.source_size,
                in_table=False,
                interpolation=self.config.images.input.interpolation,
            )
            limit = int(self.config.images.cache_gb * 2**30)
            return self.probabilities(cached(source, limit_bytes=limit), batch_size=batch_size)

    def _feature_rows(self, array: np.ndarray[Any, Any]) -> FeatureTable:
        """Return features in memory as a source, after a look at their shape."""
        assert self.features is not None
        dim = self.features["dim"]
        if array.ndim not in (2, 3) or array.dtype.kind != "f" or array.shape[-1] != dim:
            raise ArrayError(
                f"the run was trained on features of {dim:,} numbers, and {array.dtype} {array.shape} is something "
                "else",
                remedy=f"give floating-point numbers (N, {dim}), made with the same network",
            )
        rows = as_half(array[:, None] if array.ndim == 2 else array)
        wrong = first_not_finite(rows) if len(rows) else None
        if wrong is not None:
            raise ArrayError(
                f"row {wrong + 1} of the features has a NaN or a number too large for half precision",
                remedy="correct it or leave it out",
            )
        return FeatureTable(Path("features"), tuple(map(str, range(len(rows)))), [rows], None, "")

    def probabilities(
        self, source: ImageSource | RowSource, rows: Any = None, batch_size: int | None = None
    ) -> FloatArray:
        """Return the class probabilities of images, ``(N, C)``.

        Processes do not share this work: each one gets the probabilities of the images that it passes.

        Args:
            source: where images, or features, come from.
            rows: positions in the source, not a mask; None for all of them. There may be none.
            batch_size: images in a batch; None: 64, or 4,096 rows of features.
        """
        batches = self._batches(source, rows, batch_size)
        if len(batches.indices) == 0:
            return self._no_scores()
        with memory_is_kept():
            return class_probabilities(self.learner.network, batches, self.transform, self.device, self.half)

    def scores(self, data: RunData, rows: Any, batch_size: int | None = None) -> dict[str, FloatArray]:
        """Return ``probability`` and every generator's scores for the cells of ``rows``, each ``(N, C)``.

        Raises:
            RunError: the table has rows that the run did not have, or lacks some.
        """
        probe, rows_now = self.learner.probe, len(data.table.cells)
        if probe is not None and len(probe.logits) not in (0, rows_now):
            raise RunError(
                f"has {rows_now} rows, but had {len(probe.logits)} when the run was trained on it",
                where=self.config.data.table or "data",
                remedy="restore the table or train again",
            )
        batches = self._batches(data.source, rows, batch_size)
        if len(batches.indices) == 0:
            return {name: self._no_scores() for name in ("probability", *self.learner.generators)}
        cells = torch.from_numpy(data.table.cells.copy()).to(self.device)
        return cell_scores(self.learner, cells, batches, self.transform, self.device, self.half)

    def _no_scores(self) -> FloatArray:
        return np.empty((0, len(self.classes)), dtype=np.float32)

    def _images_at_once(self) -> int:
        if self.device.type != "cuda":
            return _IMAGES_AT_ONCE
        side = self.config.images.input.size
        return max(_IMAGES_AT_ONCE, _IMAGES_AT_ONCE * _SIDE_OF_BATCHES**2 // side**2)

    def _batches(self, source: ImageSource | RowSource, rows: Any, batch_size: int | None) -> Batches:
        if batch_size is None:
            batch_size = _ROWS_AT_ONCE if self.config.on_features else self._images_at_once()
        return Batches(
            source,
            rows,
            batch_size=batch_size,
            workers=self.config.images.workers,
            pin_memory=self.device.type == "cuda",
        )
