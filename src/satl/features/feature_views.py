"""From the views of pictures to one vector each: a random view in training, their mean everywhere else."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RandomView(nn.Module):
    """The augmentation of features: one view of each picture at random.

    ``forward``: (B, V, D) -> (B, D), float32. Random numbers are those of the global batch, of which every process
    takes its share; a single view draws none.

    >>> RandomView()(torch.zeros(4, 3, 8), torch.Generator().manual_seed(0)).shape
    torch.Size([4, 8])
    """

    def forward(
        self,
        features: Tensor,
        generator: torch.Generator | None = None,
        *,
        first: int = 0,
        total: int | None = None,
    ) -> Tensor:
        """Features (B, V, D) -> (B, D); the B pictures start at ``first`` of ``total`` of the global batch."""
        num, views = features.shape[:2]
        if views == 1:
            return features[:, 0].float()
        total = num if total is None else total
        drawn = torch.randint(views, (total,), generator=generator, device=features.device)
        chosen = drawn[first : first + num, None, None].expand(-1, 1, features.shape[2])
        return features.gather(1, chosen)[:, 0].float()


class MeanView(nn.Module):
    """The transform of features in validation, test and prediction: the mean over the views.

    ``forward``: (B, V, D) -> (B, D), float32.

    >>> MeanView()(torch.tensor([[[1.0], [3.0]]])).tolist()
    [[2.0]]
    """

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, V, D) -> (B, D)."""
        return features[:, 0].float() if features.shape[1] == 1 else features.float().mean(dim=1)
