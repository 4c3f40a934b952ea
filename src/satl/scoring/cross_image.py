"""Cross-image generator: cells whose class feature resembles those of known positives of other images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.distributed import gather_across
from satl.scoring.functional import cross_image_scores, shared_cross_image_scores
from satl.scoring.generator import Generator, GeneratorInputs, GeneratorScores


class CrossImageGenerator(Generator):
    """Keep the latest features of known positives per class and score by mean cosine to them.

    The bank is a ring buffer of unit vectors, written without asking the host. A batch is scored before the
    bank takes it in, empty slots do not count, and an image is never compared with its own stored features
    (``leave_one_out=False`` compares with them too).

    Args:
        num_classes: C.
        feature_dim: D.
        size: stored features per class (SST: 100).
        leave_one_out: leave an image's own stored features out of its score.
        shared: all classes of an image have one and the same feature, which saves most of the work.
    """

    rows: Tensor
    owners: Tensor
    written: Tensor

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        size: int = 100,
        leave_one_out: bool = True,
        shared: bool = False,
    ) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}.")
        self.size = size
        self.leave_one_out = leave_one_out
        self.shared = shared
        # One spare row takes what is not to be stored: writing needs no choice of rows on the host.
        self.register_buffer("rows", torch.zeros(num_classes * size + 1, feature_dim))
        self.register_buffer("owners", torch.full((num_classes * size + 1,), -1, dtype=torch.int64))
        self.register_buffer("written", torch.zeros(num_classes, dtype=torch.int64))

    def use_bfloat16_memory(self) -> None:
        """Store features in bfloat16."""
        self.rows = self.rows.bfloat16()

    def forward(self, inputs: GeneratorInputs) -> GeneratorScores:
        """Score a batch against the bank."""
        num_classes = self.written.shape[0]
        bank = self.rows[:-1].view(num_classes, self.size, -1)
        filled_by = self.owners[:-1].view(num_classes, self.size)
        owners, images = (filled_by, inputs.images) if self.leave_one_out else (None, None)
        if self.shared:
            vectors = inputs.features[:, 0]
            return GeneratorScores(*shared_cross_image_scores(vectors, bank, filled_by >= 0, owners, images))
        return GeneratorScores(*cross_image_scores(inputs.features, bank, filled_by >= 0, owners, images))

    @torch.no_grad()
    def remember(self, inputs: GeneratorInputs) -> None:
        """Store the class features of the known positives, the oldest slots first; none that is not finite."""
        found = inputs.features.detach()
        unit = F.normalize((found[:, :1] if self.shared else found).float(), dim=-1, eps=1e-9)
        # One stored NaN would be part of every score of its class until its slot is written again.
        storable = (inputs.labels > 0) & unit.isfinite().all(-1)
        features, present = gather_across(unit), gather_across(storable.to(torch.uint8)).bool()
        images = gather_across(inputs.images)
        num_classes, spare = self.written.shape[0], self.owners.shape[0] - 1
        order = present.long().cumsum(0) - 1
        arrived = present.sum(0)
        # Of more positives than slots only the last ones are written: no slot is written twice in one call.
        stored = present & (order >= arrived - self.size)
        first_slot = torch.arange(num_classes, device=features.device) * self.size
        slot = torch.where(stored, first_slot + (self.written + order) % self.size, spare).flatten()
        if self.shared:
            # By slots: a row for each cell would be as large as all class features.
            image = torch.arange(len(features), device=slot.device).repeat_interleave(num_classes)
            source = torch.full_like(self.owners, -1).index_copy_(0, slot, image)
            taken = features[:, 0].index_select(0, source.clamp(min=0)).to(self.rows.dtype)
            self.rows.copy_(torch.where((source >= 0).unsqueeze(1), taken, self.rows))
        else:
            self.rows.index_copy_(0, slot, features.flatten(0, 1).to(self.rows.dtype))
        self.owners.index_copy_(0, slot, images.unsqueeze(1).expand_as(present).flatten())
        self.rows[spare:].zero_()
        self.owners[spare:].fill_(-1)
        self.written += arrived
