"""The parameters that a user may set: a model for each part of a method, in a section of its own."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo


class Parameters(BaseModel):
    """The parameters of one part of a method: none, unless a subclass adds some."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def switched_off(self) -> bool:
        """Whether the part does nothing with these values, so that its work can be saved."""
        return False

    def for_labels(self, known_per_class: float, proportion: float) -> Self:
        """Return these values with what depends on the training table decided.

        Args:
            known_per_class: how many cells of a class are known on average.
            proportion: share of all cells that are known.
        """
        return self

    @property
    def replaces(self) -> tuple[str, ...]:
        """Loss terms of stage 2 whose work this one does with these values, so that they are left out."""
        return ()


class TeacherParameters(Parameters):
    """The teacher: an average of past weights that sees each image without augmentation, and a linear probe."""

    decay: float = Field(
        0.995, gt=0, lt=1, description="Decay of the teacher's weights, unless training.ema says otherwise."
    )
    probe_weight: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Weight, in the teacher's log-odds, of a linear probe of the features that training starts from; "
        "0 fits none.",
    )
    agreement: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Pseudo-labels of generators that are no probabilities (cross, intra) count only where the "
        "teacher's probability is at least this.",
    )


def not_above(value: float, info: ValidationInfo, other: str) -> float:
    """Return a value, or refuse one that is above that of another field."""
    if value > info.data.get(other, value):
        raise ValueError(f"must not be above {other} ({info.data[other]})")
    return value
