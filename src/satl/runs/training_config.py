"""The section ``training`` of a run's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from satl.sections import Effect, Section


def with_trackers(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section with ``tensorboard`` of earlier versions as one of ``trackers``.

    >>> with_trackers({"epochs": 3, "tensorboard": True}), with_trackers({"tensorboard": False})
    ({'epochs': 3, 'trackers': ['tensorboard']}, {})
    """
    new = {key: value for key, value in training.items() if key != "tensorboard"}
    if training.get("tensorboard"):
        named = list(new.get("trackers") or ())
        new["trackers"] = named if "tensorboard" in named else ["tensorboard", *named]
    return new


class TrainingConfig(Section):
    """Optimiser, schedule, stages."""

    epochs: Annotated[int, Effect.START] = Field(
        20, ge=1, le=1_000_000, description="Epochs of both stages together."
    )
    stage1_epochs: int = Field(5, ge=1, description="Epochs before pseudo-labels are used.")
    batch_size: int = Field(32, ge=2, le=1_000_000, description="Images a step, over all processes.")
    accumulate: int = Field(
        1, ge=1, description="Micro-batches that a step is done in, one after the other, to save memory."
    )
    optimiser: Literal["adam", "adamw", "sgd"] = Field("adam", description="What moves the weights.")
    lr: float = Field(1e-5, gt=0, description="Learning rate.")
    head_lr: float | None = Field(
        None, gt=0, description="Learning rate of all but the backbone, if it differs."
    )
    weight_decay: float = Field(5e-4, ge=0, description="Weight decay.")
    momentum: float = Field(0.9, ge=0, lt=1, description="For sgd.")
    schedule: Literal["step", "cosine", "constant"] = Field(
        "step", description="How the learning rate changes."
    )
    step_epochs: int = Field(10, ge=1, description="The step schedule divides the rate by 10 this often.")
    warmup_epochs: float = Field(0.0, ge=0, description="Linear warm-up.")
    clip_norm: float | None = Field(None, gt=0, description="Largest norm of the gradient.")
    ema: float | None = Field(None, gt=0, lt=1, description="Decay of an average of weights to evaluate.")
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="bf16 and fp16 compute in half the bits; fp16, for older GPUs, scales the loss."
    )
    compile: Annotated[bool, Effect.START] = Field(
        False,
        description="Compile network and losses with torch.compile: a slower start, faster steps on a GPU.",
    )
    cuda_graphs: Annotated[bool, Effect.START] = Field(
        False, description="On one GPU, replay the whole step as one CUDA graph; ignored elsewhere."
    )
    shard: Annotated[bool, Effect.START] = Field(
        False, description="Spread the pair head over the processes, for one that outgrows a card."
    )
    device: Annotated[str, Effect.START] = Field(
        "auto", description="auto takes a GPU if there is one; or cpu, cuda, cuda:1 (the second card), mps."
    )
    seed: int = Field(0, ge=0, lt=1 << 63, description="Decides weights, order, augmentation and split.")
    checkpoint_steps: Annotated[int | None, Effect.NOTHING] = Field(
        None, ge=1, description="Steps between checkpoints within an epoch; by default there are none."
    )
    checkpoint_epochs: Annotated[int, Effect.NOTHING] = Field(
        1, ge=1, description="Epochs between checkpoints to resume from (the last is always written)."
    )
    keep_epochs: Annotated[tuple[int, ...], Effect.NOTHING] = Field(
        (), description="Epochs, counted from 1, whose model is kept too, for figures of that epoch."
    )
    trackers: Annotated[tuple[Literal["tensorboard", "wandb", "mlflow"], ...], Effect.NOTHING] = Field(
        (), description="Where else to send the metrics of every epoch; each needs the extra with its name."
    )
    evaluate_every: Annotated[int, Effect.START] = Field(
        1, ge=1, description="Epochs between validations (the last is always done)."
    )

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,4})?", value):
            raise ValueError("must be auto, cpu, mps, cuda or the number of a card, such as cuda:1")
        return value

    @model_validator(mode="before")
    @classmethod
    def _old_keys(cls, content: Any) -> Any:
        return with_trackers(content) if isinstance(content, Mapping) else content

    @field_validator("trackers")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("names a tracker twice")
        return value

    @model_validator(mode="after")
    def _stages(self) -> TrainingConfig:
        if self.stage1_epochs > self.epochs:
            raise ValueError(f"stage1_epochs ({self.stage1_epochs}) is more than epochs ({self.epochs})")
        for epoch in self.keep_epochs:
            if not 1 <= epoch <= self.epochs:
                raise ValueError(
                    f"keep_epochs has epoch {epoch}, but they are counted from 1 to {self.epochs}"
                )
        if self.shard and self.compile:
            raise ValueError(
                "a head that is spread over processes cannot be compiled: set shard or compile to false"
            )
        if self.precision == "fp16" and (self.shard or self.cuda_graphs):
            raise ValueError(
                "precision: fp16 goes neither with shard nor with cuda_graphs: set bf16, or those to false"
            )
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size ({self.batch_size}) cannot be done in {self.accumulate} equal micro-batches (accumulate)"
            )
        return self
