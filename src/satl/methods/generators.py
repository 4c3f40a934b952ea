"""The generators of pseudo-labels that methods name; those of one method alone are in its file."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from satl.methods.method_parts import GENERATORS
from satl.methods.parameters import Parameters
from satl.scoring import (
    CrossImageGenerator,
    Generator,
    IntraImageGenerator,
    ProbabilityGenerator,
    TeacherGenerator,
)


@dataclass(frozen=True)
class PartContext:
    """What a generator or a threshold rule may need to know to be built."""

    num_classes: int
    feature_dim: int
    proportion: float
    """Share of known cells in the training table."""
    shared_feature: bool = False
    """Whether all classes of an image have one and the same feature."""
    probability: bool = True
    """Whether the scores that a threshold rule is for are probabilities."""


class LeaveOneOutParameters(Parameters):
    """A generator that compares known positives with each other."""

    leave_one_out: bool = Field(
        True,
        description="Score a known positive without itself; false counts it too, as the published code does (which "
        "also counts empty places of the bank as 0).",
    )


class CrossParameters(LeaveOneOutParameters):
    """Similarity to known positives in other images, whose features a bank keeps."""

    bank_size: int = Field(100, ge=1, description="Stored features per class.")


@GENERATORS.register("intra", LeaveOneOutParameters, needs=["pairs"])
def _intra(context: PartContext, parameters: LeaveOneOutParameters) -> Generator:
    """Co-occurrence with the known positives of the same image."""
    return IntraImageGenerator(parameters.leave_one_out)


@GENERATORS.register("cross", CrossParameters)
def _cross(context: PartContext, parameters: CrossParameters) -> Generator:
    """Similarity to known positives in other images."""
    return CrossImageGenerator(
        context.num_classes,
        context.feature_dim,
        parameters.bank_size,
        parameters.leave_one_out,
        context.shared_feature,
    )


@GENERATORS.register("probability")
def _probability(context: PartContext, parameters: Parameters) -> Generator:
    """The network's own class probability."""
    return ProbabilityGenerator()


@GENERATORS.register("teacher", needs=["teacher"])
def _teacher(context: PartContext, parameters: Parameters) -> Generator:
    """The class probability of the teacher."""
    return TeacherGenerator()
