"""A frozen network that makes vectors of pictures: a timm model, or the image side of a tower."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from satl.errors import Argument, ConfigError, ImageError, Sentence
from satl.images import EvalTransform, decode_image
from satl.images.input_format import InputFormat
from satl.models import Backbone
from satl.models.class_prompts import is_tower
from satl.models.timm_models import model_facts
from satl.models.tower_images import TowerImages
from satl.models.weight_digest import weight_digest
from satl.training.forward import FloatArray

Pool = Literal["mean", "token"]
MOST_VIEWS = 12
_CROP = 3 / 4
"""Side of a crop as a share of the picture's."""
_CORNERS = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.5, 0.5))
"""Where crops lie, rows first: 0 begins at the border, 1 ends there."""
_ARGUMENTS = {"model.weights": "weights", "model.stride_in_1x1": "stride_in_1x1"}
"""What is called otherwise here than in the configuration of a run."""


@dataclass(frozen=True)
class Embedding:
    """What makes a vector of a picture.

    Attributes:
        backbone: a timm model, or a tower such as ``open_clip:ViT-B-32``.
        weights: a local weight file; None lets timm fetch its published weights. A tower fetches none unless its name
            says so.
        size: side of the squares that the model sees; None for the size that its weights were trained with.
        pool: "mean" of the map of features, or the class "token".
        views: vectors of each picture. 1: the whole picture; 2: and its mirror image; more: also crops of three
            quarters of its side, in the four corners and the centre, and then their mirror images.
        kwargs: further arguments for timm.
        stride_in_1x1: the weights are those of a ResNet of the first version (:class:`satl.models.Backbone`).
        bfloat16: compute in bfloat16 where that is safe: about twice as fast on processors with instructions for it,
            and on GPUs.
    """

    backbone: str
    weights: Path | None = None
    size: int | None = None
    pool: Pool = "mean"
    views: int = 1
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    stride_in_1x1: bool = False
    bfloat16: bool = False


class Embedder:
    """A network that makes vectors of pictures.

    Args:
        embedding: what to make.
        device: where to compute; None takes a GPU if there is one.

    Raises:
        ConfigError: timm does not know the model, its weights do not fit or cannot be fetched, it cannot take the
            size, or it has no class token.
    """

    def __init__(self, embedding: Embedding, device: str | None = None) -> None:
        if not 1 <= embedding.views <= MOST_VIEWS:
            raise ConfigError(
                f"is not between 1 and {MOST_VIEWS}",
                where=Argument("views", embedding.views),
                remedy="choose such a number",
            )
        self.embedding = embedding
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        backbone = self._tower() if is_tower(embedding.backbone) else self._timm_model()
        if embedding.pool == "token" and not backbone.has_class_token:
            raise ConfigError(
                f"{embedding.backbone} has no class token",
                where=Argument("pool", "token"),
                remedy=Sentence("use {mean}", mean=Argument("pool", "mean")),
            )
        self.dim = backbone.channels
        self.backbone = backbone.eval().to(self.device).to(memory_format=torch.channels_last)
        size, taken = self.input.size, self.input
        self.side = size if embedding.views <= 2 else round(size / _CROP)
        self.transform = EvalTransform(
            size,
            mean=taken.mean,
            std=taken.std,
            interpolation=taken.interpolation,
            channels_last=True,
        )

    def _timm_model(self) -> Backbone:
        """Build a model of timm, and note what it takes."""
        embedding = self.embedding
        facts = model_facts(embedding.backbone, embedding.kwargs)
        size = embedding.size or facts.trained_size
        kwargs = dict(embedding.kwargs)
        if facts.fixed_size and not {"img_size", "dynamic_img_size"} & set(kwargs):
            kwargs["img_size"] = size
        taken = facts.input
        self.input = InputFormat(size, taken.mean, taken.std, taken.interpolation)
        try:
            backbone = Backbone(
                embedding.backbone,
                pretrained=embedding.weights is None,
                weights=embedding.weights,
                kwargs=kwargs,
                pool=1,
                train_stages=[],
                stride_in_1x1=embedding.stride_in_1x1,
            )
        except ConfigError as error:
            raise error.with_arguments(_ARGUMENTS) from None
        try:
            backbone.require_size(size)
        except ConfigError as error:
            raise ConfigError(error.what, where=Argument("size", size), remedy=error.remedy) from None
        return backbone

    def _tower(self) -> TowerImages:
        """Load the image side of a tower, and note what it takes."""
        if self.embedding.stride_in_1x1:
            raise ConfigError(
                f"needs a ResNet of timm, and {self.embedding.backbone} is a tower",
                where=Argument("stride_in_1x1", True),
                remedy="leave it out",
            )
        tower = TowerImages(self.embedding.backbone, self.embedding.weights)
        tower.require_size(self.embedding.size or tower.input.size)
        self.input = tower.input
        return tower

    def made_by(self) -> dict[str, Any]:
        """Return what decides the numbers, as plain data."""
        chosen = self.embedding
        return {
            "backbone": chosen.backbone,
            "kwargs": dict(chosen.kwargs),
            "weights_sha256": weight_digest(self.backbone.network),
            **asdict(self.input),
            "mean": list(self.input.mean),
            "std": list(self.input.std),
            "pool": chosen.pool,
            # Where the weights do not say it, it changes the numbers as they do.
            **({"stride_in_1x1": True} if chosen.stride_in_1x1 else {}),
            **({"bfloat16": True} if chosen.bfloat16 else {}),
        }

    def decode(self, file: str, pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> str | None:
        """Read a picture into ``pixels``, uint8 (side, side, 3); return why it cannot be read, or None."""
        try:
            pixels[:] = decode_image(file, self.side, interpolation=self.input.interpolation)
        except ImageError as error:
            return str(error)
        return None

    @torch.inference_mode()
    def vectors(self, pixels: Tensor) -> FloatArray:
        """Return the vectors (B, V, D) of pictures, uint8 (B, side, side, 3)."""
        pictures = pixels.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        found = [self._pooled(self.transform(view)) for view in views_of(pictures, self.embedding.views)]
        return torch.stack(found, dim=1).float().cpu().numpy()

    def _pooled(self, images: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.embedding.bfloat16):
            if self.embedding.pool == "token":
                assert isinstance(self.backbone, Backbone)  # towers have none, and were refused
                return self.backbone.class_token(images).float()
            return self.backbone(images).mean(dim=(2, 3), dtype=torch.float32)


def views_of(pictures: Tensor, views: int) -> Iterator[Tensor]:
    """Yield so many views of pictures (B, 3, S, S): the whole, its mirror image, crops, their mirror images.

    >>> [tuple(view.shape) for view in views_of(torch.zeros(1, 3, 8, 8), 4)]
    [(1, 3, 8, 8), (1, 3, 8, 8), (1, 3, 6, 6), (1, 3, 6, 6)]
    """
    side = pictures.shape[2]
    crop = round(side * _CROP)
    for number in range(views):
        if number < 2:
            view = pictures
        else:
            down, right = _CORNERS[(number - 2) % len(_CORNERS)]
            top, left = round(down * (side - crop)), round(right * (side - crop))
            view = pictures[:, :, top : top + crop, left : left + crop]
        yield view.flip(3) if number == 1 or number >= 2 + len(_CORNERS) else view
