"""What stands for a backbone where features come in: a map of one position, of unit length and standardised."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from satl.errors import ArrayError


class WholeVectors(nn.Module):
    """Feature vectors as maps of one position, nothing left out: (B, D) -> (B, D, 1, 1).

    Args:
        unit_length: scale each vector to the length 1; one of zeros stays as it is.

    >>> WholeVectors(unit_length=True)(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).flatten(1).tolist()
    [[0.6..., 0.8...], [0.0, 0.0]]
    """

    def __init__(self, unit_length: bool) -> None:
        super().__init__()
        self.unit_length = unit_length

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, D) -> (B, D, 1, 1)."""
        vectors = F.normalize(features.float(), dim=1) if self.unit_length else features.float()
        return vectors[:, :, None, None]


class FeatureInput(nn.Module):
    """Map feature vectors to feature maps of one position, shifted, projected and scaled as in training.

    ``forward``: features (B, D) -> feature map (B, K, 1, 1). All that was learned from the training vectors is in
    buffers, so a checkpoint holds it. What is a map already passes: a training step computes the maps of its batch once
    for all that sees them.

    Args:
        dim: D.
        mean: (D,) subtracted; None: nothing is.
        deviation: (K,) divided by; None: nothing is. Where a number never varies it is 0, and counts as 1.
        unit_length: scale each vector to the length 1 before all that; one of zeros stays as it is.
        components: (K, D) that the shifted vectors are projected onto; None: they are not, and K is D.

    Attributes:
        channels: K.
        whole: the module that gives the vectors before they are shifted and projected.

    >>> inputs = FeatureInput(2, torch.tensor([1.0, 1.0]), torch.tensor([2.0, 0.0]))
    >>> inputs(torch.tensor([[3.0, 1.0]])).flatten().tolist(), inputs.channels
    ([1.0, 0.0], 2)
    >>> inputs = FeatureInput(2, components=torch.tensor([[0.6, 0.8]]))
    >>> inputs(torch.tensor([[3.0, 4.0]])).flatten().tolist()
    [5.0]
    >>> inputs(inputs(torch.tensor([[3.0, 4.0]]))).flatten().tolist()
    [5.0]
    """

    mean: Tensor
    scale: Tensor
    components: Tensor | None

    def __init__(
        self,
        dim: int,
        mean: Tensor | None = None,
        deviation: Tensor | None = None,
        unit_length: bool = False,
        components: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.channels = dim if components is None else components.shape[0]
        self.whole = WholeVectors(unit_length)
        mean = torch.zeros(dim) if mean is None else mean
        deviation = torch.ones(self.channels) if deviation is None else deviation
        for values, shape in ((mean, (dim,)), (deviation, (self.channels,))):
            if values.shape != shape:
                raise ArrayError(
                    f"features of {dim} numbers cannot be standardised by {tuple(values.shape)}."
                )
        if components is not None and components.shape != (self.channels, dim):
            raise ArrayError(
                f"features of {dim} numbers cannot be projected onto components {tuple(components.shape)}."
            )
        self.register_buffer("mean", mean.detach().clone().float())
        self.register_buffer("scale", torch.where(deviation > 0, deviation, 1.0).reciprocal().float())
        self.register_buffer(
            "components", None if components is None else components.detach().clone().float()
        )

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, D), or the maps that they became (B, K, 1, 1) -> (B, K, 1, 1)."""
        if features.ndim == 4:
            return features
        vectors = self.whole(features).flatten(1) - self.mean
        if self.components is not None:
            vectors = F.linear(vectors, self.components)
        return (vectors * self.scale)[:, :, None, None]
