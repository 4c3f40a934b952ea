"""From a batch of images or features to what a step reads: augmented inputs, labels and random numbers."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from satl.images import Batch, Batches
from satl.methods import Learner, StepInputs
from satl.methods.mixing import draw_shares
from satl.models.feature_input import FeatureInput
from satl.runs.data import RunData
from satl.runs.training_config import TrainingConfig
from satl.training.build import Augment, Transform
from satl.training.feature_maps import maps_of_training
from satl.training.seeds import mix_seed


class BatchInputs:
    """Makes the inputs of steps; nothing in here waits for the device.

    Args:
        config: seed and micro-batches.
        data: labels, and hidden truth where there is one.
        batches: of the training images.
        learner: which inputs its method needs.
        augment: of the training images.
        transform: of the images that the teacher sees.
    """

    def __init__(
        self,
        config: TrainingConfig,
        data: RunData,
        batches: Batches,
        learner: Learner,
        augment: Augment,
        transform: Transform,
    ) -> None:
        backbone = getattr(learner.network, "backbone", None)  # a network of one's own may have none
        # Features become maps once, for all that sees those of a batch; unless something needs the vectors themselves.
        projects = isinstance(backbone, FeatureInput) and not learner.method.needs("vectors")
        self.project: FeatureInput | None = backbone if projects else None
        self.config, self.batches, self.learner = config, batches, learner
        self.augment, self.transform = augment, transform
        self.data = data
        self.device = next(learner.parameters()).device
        self.generator = torch.Generator(self.device)
        self.cells = torch.from_numpy(data.table.cells.copy()).to(self.device)
        truth = data.table.truth
        self.truth = None if truth is None else torch.from_numpy(truth.copy()).to(self.device)

    @torch.no_grad()
    def _projected(self, pixels: Tensor) -> Tensor:
        return pixels if self.project is None else self.project(pixels)

    @cached_property
    def _maps(self) -> Tensor | None:
        """Maps (N, K, 1, 1) of training features by row, where they are computed once for all epochs."""
        return None if self.project is None else maps_of_training(self.data, self.project)

    def make(self, batch: Batch, epoch: int, step: int, stage: int, observe: bool) -> StepInputs:
        """Augment a batch, look up its labels and draw the random numbers that the method needs.

        Args:
            batch: this process's share of a batch.
            epoch: of the run.
            step: of the epoch.
            stage: 1 or 2.
            observe: whether the threshold rules take note of the scores.
        """
        learner, share = self.learner, self.batches.share(step)
        teaches = learner.method.needs("teacher") and (observe or learner.uses_teacher(stage))
        images = batch.images.to(self.device, non_blocking=True)
        indices = batch.indices.to(self.device, non_blocking=True)
        # Seeding by position makes all random numbers independent of where a run was cut off, and the same in
        # every process: each draws those of the global batch.
        self.generator.manual_seed(mix_seed(self.config.seed, epoch, step))
        if self._maps is not None:
            pixels = self._maps.index_select(0, indices)
        else:
            pixels = self.augment(images, self.generator, first=share.first, total=share.total)
            pixels = self._projected(pixels)
        clean = None
        if teaches:
            one_view = self.project is not None and images.shape[1] == 1
            clean = pixels if one_view else self._projected(self.transform(images))
        noise = None
        if learner.method.needs("noise"):
            parts = self.config.accumulate
            images_of_part = share.total // parts
            shape = (self.cells.shape[1], parts * (images_of_part * (images_of_part - 1) // 2))
            noise = torch.rand(shape, generator=self.generator, device=self.device)
        shares = None
        if learner.mixes(stage):
            shares = draw_shares(share.total, self.generator)[share.first : share.first + share.num]
        return StepInputs(
            pixels=pixels,
            labels=self.cells.index_select(0, indices),
            indices=indices,
            stage=stage,
            observe=observe,
            ramp=torch.full((), step / len(self.batches) if epoch == 0 else 1.0, device=self.device),
            noise=noise,
            clean=clean,
            truth=None if self.truth is None else self.truth.index_select(0, indices),
            shares=shares,
        )
