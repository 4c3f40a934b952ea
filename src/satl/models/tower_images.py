"""The image side of a tower as a backbone whose map has one position."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from satl.errors import Argument, ConfigError
from satl.models.image_text_tower import ImageTextTower


class TowerImages(nn.Module):
    """Images to the space that a tower's images and texts share.

    ``forward``: images (B, 3, S, S), normalised as ``input`` says -> a map of one position (B, E, 1, 1).

    Args:
        name: of the tower; see :mod:`satl.models.image_text_tower`.
        weights: its weight file.

    Attributes:
        input: size, normalisation and interpolation of its images.
        channels: E.
        network: the whole tower as open_clip has it, so that its weights are told from others by all of them.

    Raises:
        ConfigError: the tower cannot be loaded, or takes no squares.
    """

    has_class_token = False

    def __init__(self, name: str, weights: Path | None = None) -> None:
        super().__init__()
        self.tower = ImageTextTower.load(name, weights, texts=False)
        self.network = self.tower.model
        self.input = self.tower.image_format()
        self.channels = self.tower.image_dim()

    def require_size(self, size: int) -> None:
        """Refuse another size than the tower's own, for which its weights are."""
        if size != self.input.size:
            raise ConfigError(
                f"{self.tower.name} takes images of {self.input.size} pixels only",
                where=Argument("size", size),
                remedy="leave it out",
            )

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, S, S) -> (B, E, 1, 1)."""
        vectors: Tensor = self.tower(images)
        return vectors[:, :, None, None]
