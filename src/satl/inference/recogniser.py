"""The trained network of a run, loaded for inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from satl.errors import RunError
from satl.images import Batches, ImageSource
from satl.methods import Learner
from satl.runs.config import RunConfig
from satl.runs.data import RunData
from satl.runs.run_folder import RunFolder
from satl.training.build import build_learner, build_transform, place_on_device
from satl.training.checkpoints import AVERAGE, LEARNER, load_module
from satl.training.forward import FloatArray, cell_scores, class_probabilities


class Recogniser:
    """The trained network of a run with its class names, ready for inference.

    Args:
        config: configuration of the run.
        classes: class names, in the order of the network's outputs.
        learner: the method with its trained network; it is moved to the device and to evaluation mode.
        device: where to compute; None for the one that the configuration asks for.
    """

    def __init__(
        self, config: RunConfig, classes: tuple[str, ...], learner: Learner, device: str | None = None
    ) -> None:
        self.config = config
        self.classes = classes
        default = "cuda" if torch.cuda.is_available() and config.training.device == "auto" else "cpu"
        self.device = torch.device(default if device is None else device)
        self.bf16 = config.training.precision == "bf16"
        self.learner = place_on_device(learner, self.device, self.bf16).eval()
        self.transform = build_transform(config.images, self.device, self.bf16)

    @classmethod
    def load(
        cls, run: Path | str, checkpoint: str = "best", averaged: bool = True, device: str | None = None
    ) -> Recogniser:
        """Load a checkpoint of a run folder.

        Args:
            run: folder of a run.
            checkpoint: "best" or "last".
            averaged: use the moving average of the weights where the run keeps one, as validation does; False uses
                the weights in training, which only the last checkpoint has as well.
            device: where to compute; None for the one that the configuration asks for.

        Raises:
            RunError: the folder is not a run, or has no such checkpoint.
        """
        folder = RunFolder.open(run)
        if checkpoint not in ("best", "last"):
            raise RunError(f"there is no checkpoint '{checkpoint}'", where=run, remedy="use best or last")
        config, classes = folder.read_config(), folder.read_classes()
        weights = folder.checkpoint(checkpoint)  # before anything is built: it may not be there
        learner = build_learner(config, classes)
        load_module(learner, weights / LEARNER)
        if averaged and (weights / AVERAGE).is_file():
            load_module(learner.network, weights / AVERAGE)
        return cls(config, classes, learner, device)

    def probabilities(self, source: ImageSource, rows: Any = None, batch_size: int = 64) -> FloatArray:
        """Return the class probabilities of images, ``(N, C)``.

        Processes do not share this work: each one gets the probabilities of the images that it passes.

        Args:
            source: where images come from.
            rows: positions in the source, not a mask; None for all of them. There may be none.
            batch_size: images in a batch.
        """
        batches = self._batches(source, rows, batch_size)
        if len(batches.indices) == 0:
            return self._no_scores()
        return class_probabilities(self.learner.network, batches, self.transform, self.device, self.bf16)

    def scores(self, data: RunData, rows: Any, batch_size: int = 64) -> dict[str, FloatArray]:
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
        return cell_scores(self.learner, cells, batches, self.transform, self.device, self.bf16)

    def _no_scores(self) -> FloatArray:
        return np.empty((0, len(self.classes)), dtype=np.float32)

    def _batches(self, source: ImageSource, rows: Any, batch_size: int) -> Batches:
        return Batches(
            source,
            rows,
            batch_size=batch_size,
            workers=self.config.images.workers,
            pin_memory=self.device.type == "cuda",
        )
