"""Prototype generator: cells whose class feature resembles the typical known positives of the class."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.distributed import gather_across
from satl.scoring.functional import cross_image_scores, kmeans
from satl.scoring.generator import Generator, GeneratorInputs, GeneratorScores, Survey


class PrototypeGenerator(Generator):
    """Summarise the known positives of every class by a few prototypes and score by mean cosine to them (HST's CST).

    Prototypes are the centres of a k-means over class features of known positives, taken in a survey of the
    training set before the first epoch of stage 2 and every few epochs after; in between they stay. A class with
    fewer known positives than prototypes has one for each of them, and the mean is over those it has. A class
    without known positives, and every class before the first survey, has no score.

    A known positive is part of the prototype it belongs to. Where it is all of it, which is the rule in rare
    classes, that prototype is left out of its score; in larger clusters its share stays.
    (``leave_one_out=False`` leaves nothing out.)

    Args:
        num_classes: C.
        feature_dim: D.
        size: prototypes per class (HST: 10).
        every: epochs of stage 2 between two surveys (HST: 5).
        samples: known positives per class in a survey, at most. It bounds the memory of a survey, which is twice
            ``C * samples * D`` numbers and is given back afterwards.
        leave_one_out: leave prototypes that are the image itself out of its score.
    """

    rows: Tensor
    members: Tensor
    owners: Tensor

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        size: int = 10,
        every: int = 5,
        samples: int = 512,
        leave_one_out: bool = True,
    ) -> None:
        super().__init__()
        if min(size, every, samples) < 1:
            raise ValueError(
                f"size, every and samples must be at least 1, got {size}, {every} and {samples}."
            )
        self.size = size
        self.every = every
        self.samples = samples
        self.leave_one_out = leave_one_out
        self.register_buffer("rows", torch.zeros(num_classes, size, feature_dim))
        self.register_buffer("members", torch.zeros(num_classes, size, dtype=torch.int64))
        self.register_buffer("owners", torch.full((num_classes, size), -1, dtype=torch.int64))

    def forward(self, inputs: GeneratorInputs) -> GeneratorScores:
        """Score a batch against the prototypes."""
        owners, images = (self.owners, inputs.images) if self.leave_one_out else (None, None)
        return GeneratorScores(
            *cross_image_scores(inputs.features, self.rows, self.members > 0, owners, images)
        )

    def survey_size(self, epoch: int) -> int:
        """Ask for a survey before the first epoch of stage 2 and every few epochs after."""
        return self.samples if epoch % self.every == 0 else 0

    @torch.no_grad()
    def study(self, survey: Survey, seed: int) -> None:
        """Compute new prototypes."""
        features, images = survey.features[:, : self.samples], survey.images[:, : self.samples]
        centres, cluster = kmeans(features, images >= 0, self.size, seed)
        number = torch.arange(self.size, device=cluster.device).view(1, -1, 1)
        belongs = cluster.unsqueeze(1) == number  # (C, K, M)
        members = belongs.sum(-1)
        alone = torch.where(belongs, images.unsqueeze(1), 0).sum(-1)
        owners = torch.where(members == 1, alone, -1)
        for buffer, value in (
            (self.rows, F.normalize(centres, dim=-1, eps=1e-9)),
            (self.members, members),
            (self.owners, owners),
        ):
            # All processes take those of the first: devices of different make may round differently.
            buffer.copy_(gather_across(value)[: value.shape[0]])
