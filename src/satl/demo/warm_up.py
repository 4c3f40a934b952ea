"""The demo's warm-up: a backbone is pretrained on images of single objects, before any scene is seen.

The networks of the papers start from ImageNet, images of mostly one object each. The demo downloads nothing, so
it renders such images itself: one object alone, any category as likely as any other, on any backdrop. None of them is
a scene, and none tells which objects occur together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from satl.files import atomic_path
from satl.models.backbone import Backbone
from satl.runs.devices import device_for_use
from satl.runs.settling import settled
from satl.scenes import SCENE_CLASSES, render_object
from satl.sections import Section
from satl.training.build import build_augment, build_transform

if TYPE_CHECKING:
    from satl.runs.config import RunConfig

WEIGHTS = "backbone.safetensors"
_CHECKED = 10
"""One image in so many is held out, to measure the accuracy."""


class WarmUpConfig(Section):
    """How the backbone is trained on images of single objects."""

    pictures: int = Field(10000, ge=2 * _CHECKED, description="Images of one object each.")
    epochs: int = Field(6, ge=1, description="Epochs.")
    batch_size: int = Field(64, ge=2, description="Batch size.")
    lr: float = Field(0.003, gt=0, description="Largest learning rate of AdamW; it falls as a cosine.")
    weight_decay: float = Field(0.05, ge=0, description="Weight decay.")


@dataclass(frozen=True)
class WarmUp:
    """The result of a warm-up.

    Attributes:
        weights: file that ``model.weights`` can name.
        pictures: number of images of single objects.
        accuracy: share of held-out images that are classified correctly.
        seconds: time it took, rendering included.
    """

    weights: Path
    pictures: int
    accuracy: float
    seconds: float


class _ObjectClassifier(nn.Module):
    """Classifies the object of an image: backbone, global max pooling, linear layer."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.channels, len(SCENE_CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> logits (B, categories)."""
        logits: Tensor = self.head(self.backbone(images).amax(dim=(2, 3)))
        return logits


def single_objects(
    count: int, size: int, seed: int, progress: Callable[[int, int], Any] | None = None
) -> tuple[Tensor, Tensor]:
    """Render images of one object each: uint8 (N, 3, size, size), and the numbers of their categories (N,).

    >>> pictures, categories = single_objects(2, size=16, seed=0)
    >>> tuple(pictures.shape), int(categories.max()) < len(SCENE_CLASSES)
    ((2, 3, 16, 16), True)
    """
    pixels = np.empty((count, size, size, 3), dtype=np.uint8)
    categories = np.empty(count, dtype=np.int64)
    for index in range(count):
        pixels[index], categories[index] = render_object(index, size, seed)
        if progress is not None:
            progress(index + 1, count)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(categories)


def warm_up(
    config: RunConfig,
    settings: WarmUpConfig,
    path: Path,
    progress: Callable[[str, int, int], Any] | None = None,
) -> WarmUp:
    """Train the backbone of a run on single objects and write its weights to ``path``, whole or not at all.

    The same configuration gives the same weights on the same machine with as many threads: pictures follow the seed
    of the scenes; first weights, order and augmentation that of the training.

    Args:
        config: of any of the demo's runs; its backbone, images and seeds are used, not its weights.
        settings: of the warm-up.
        path: of the weight file.
        progress: is called with what is done, how much of it, and how much there is.
    """
    begun = time.perf_counter()
    config = settled(config)
    scenes, seed = config.data.scenes, config.training.seed
    assert scenes is not None
    say = progress or (lambda text, done, total: None)
    pictures, categories = single_objects(
        settings.pictures, scenes.size, scenes.seed, lambda done, total: say("drawing objects", done, total)
    )
    device = device_for_use(config.training.device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = config.model
        backbone = Backbone(
            model.backbone,
            kwargs=model.backbone_kwargs,
            pool=model.pool,
            stride_in_1x1=model.stride_in_1x1,
            final_layers=model.final_layers is not False,
        )
        classifier = _ObjectClassifier(backbone).to(device)
        seen = settings.pictures - settings.pictures // _CHECKED
        _train(classifier, config, settings, pictures[:seen].to(device), categories[:seen].to(device), say)
    accuracy = _accuracy(
        classifier, config, settings, pictures[seen:].to(device), categories[seen:].to(device)
    )
    with atomic_path(path) as temporary:
        backbone.save_weights(temporary)
    return WarmUp(path, settings.pictures, accuracy, time.perf_counter() - begun)


def _train(
    classifier: _ObjectClassifier,
    config: RunConfig,
    settings: WarmUpConfig,
    pictures: Tensor,
    categories: Tensor,
    say: Callable[[str, int, int], Any],
) -> None:
    augment = build_augment(config.images, pictures.shape[-1], pictures.device)
    # The last, incomplete batch is left out: one picture alone has no batch statistics.
    batch = min(settings.batch_size, len(pictures))
    steps = len(pictures) // batch
    optimiser = torch.optim.AdamW(classifier.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.epochs * steps)
    generator = torch.Generator().manual_seed(config.training.seed)
    classifier.train()
    for epoch in range(settings.epochs):
        order = torch.randperm(len(pictures)).to(pictures.device)
        for step, rows in enumerate(order[: steps * batch].split(batch)):
            loss = F.cross_entropy(classifier(augment(pictures[rows], generator)), categories[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            say("learning objects", epoch * steps + step + 1, settings.epochs * steps)
    classifier.eval()


@torch.no_grad()
def _accuracy(
    classifier: _ObjectClassifier,
    config: RunConfig,
    settings: WarmUpConfig,
    pictures: Tensor,
    categories: Tensor,
) -> float:
    transform = build_transform(config.images, pictures.device)
    predicted = torch.cat(
        [classifier(transform(part)).argmax(1) for part in pictures.split(settings.batch_size)]
    )
    return float((predicted == categories).float().mean())
