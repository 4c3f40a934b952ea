"""Compute with 64 bits what is written to be computed with 32, so that rounding does not hide a difference."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.models import Backbone


def compute_precisely() -> None:
    """From now on let this process compute with 64 bits: weights, losses, scores; images are read as ever."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    forward = Backbone.forward

    def forward_precisely(self: Backbone, images: Tensor) -> Tensor:
        return forward(self, images.double())

    Backbone.forward = forward_precisely  # type: ignore[method-assign]
