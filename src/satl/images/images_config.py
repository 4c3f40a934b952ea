"""The section ``images`` of a configuration: from files to batches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from satl.images.input_format import Channels, InputFormat, Interpolation
from satl.sections import Effect, Section

LARGEST_SIDE = 16_384
"""Pixels: a batch of larger images fits into no machine, and a stranger's configuration must not ask for one."""


class ImagesConfig(Section):
    """From files to batches."""

    store_size: int = Field(
        512, ge=8, le=LARGEST_SIDE, description="Images are read as squares of this side."
    )
    size: int | None = Field(
        None,
        ge=8,
        le=LARGEST_SIDE,
        description="The network sees squares of this side; by default 448, or that of a backbone made for one size.",
    )
    mean: Channels | None = Field(
        None, description="Mean of red, green and blue (0 to 1); by default that of the backbone in timm."
    )
    std: Channels | None = Field(
        None,
        description="Standard deviation of red, green and blue; by default that of the backbone in timm.",
    )
    interpolation: Interpolation | None = Field(
        None, description="How images are resized; by default as timm does for the backbone."
    )
    crop_sizes: tuple[int, ...] | None = Field(
        None, description="Sides of training crops; by default 1, 7/8, 6/8, 5/8 and 4/8 of store_size."
    )
    flip: bool = Field(True, description="Mirror half of the training images.")
    jitter: float = Field(0.0, ge=0, le=1, description="Random change of brightness, contrast, saturation.")
    workers: Annotated[int, Effect.NOTHING] = Field(
        4, ge=0, le=1024, description="Processes that decode images."
    )
    cache_gb: Annotated[float, Effect.NOTHING] = Field(
        2.0, ge=0, description="Keep decoded images in memory up to this size."
    )
    gpu_cache_gb: Annotated[float | None, Effect.NOTHING] = Field(
        None,
        ge=0,
        description="Keep them on the GPU up to this size; by default up to a quarter of what is free there.",
    )

    broken: Annotated[Literal["error", "skip"], Effect.START] = Field(
        "error",
        description="Images that cannot be read: error stops before the training, skip leaves them out of it and lists "
        "them in `broken.csv` of the run.",
    )
    broken_share: Annotated[float, Effect.START] = Field(
        0.05, ge=0, lt=1, description="With skip, the largest share of the images that may be left out."
    )

    @field_validator("std")
    @classmethod
    def _positive(cls, std: Channels | None) -> Channels | None:
        if std is not None and min(std) <= 0:
            raise ValueError("a standard deviation must be above 0")
        return std

    @property
    def input(self) -> InputFormat:
        """What the network takes, of a configuration that :func:`satl.runs.settling.settled` completed."""
        if self.size is None or self.mean is None or self.std is None or self.interpolation is None:
            raise ValueError(
                "size, mean, std and interpolation are those of the backbone: settle the configuration"
            )
        return InputFormat(self.size, self.mean, self.std, self.interpolation)
