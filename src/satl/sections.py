"""What all sections of a configuration have in common, and the mark that says what a setting can change."""

from __future__ import annotations

from enum import Enum, auto

from pydantic import BaseModel, ConfigDict


class Effect(Enum):
    """What a setting can change; a mark on its field, inherited by the fields of a section."""

    RESULT = auto()
    """The result: a resumed run must have the same value."""
    START = auto()
    """How a run starts, how far it goes or what computes it: a resumed run may have another value, though a run that
    is started with another value may have another result."""
    NOTHING = auto()
    """No result: only where time and memory go, and what is kept."""


class Section(BaseModel):
    """A part of the configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
