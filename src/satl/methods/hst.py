"""HST, and HST with the parts of SATL."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from satl.losses import prototype_contrast
from satl.methods.generators import LeaveOneOutParameters, PartContext
from satl.methods.method import Method
from satl.methods.method_parts import GENERATORS, LOSSES, RULES
from satl.methods.parameters import Parameters
from satl.methods.registry import register_method
from satl.methods.satl_parts import register_with_satl
from satl.methods.step_data import StepContext
from satl.scoring import Generator, PrototypeGenerator
from satl.thresholds import LearnedThreshold, ThresholdRule


class PrototypeParameters(LeaveOneOutParameters):
    """Similarity to prototypes of each class."""

    size: int = Field(10, ge=1, description="Prototypes per class.")
    every: int = Field(5, ge=1, description="Epochs of stage 2 after which they are computed again.")
    samples: int = Field(
        512, ge=1, description="Known positives per class that they are computed from, at most."
    )


class LearnedParameters(Parameters):
    """HST's dynamic threshold learning (DTL): the optimiser moves the thresholds."""

    weight: float = Field(0.1, ge=0, description="Weight of the loss that moves the thresholds.")
    shared: bool = Field(
        True,
        description="One threshold for all classes, as in HST's code; false gives each class its own.",
    )
    decay: bool = Field(
        True,
        description="Let weight decay lower the thresholds too, as in HST's code; without it they hardly leave 1.",
    )
    initial: float = Field(1.0, ge=0, le=1, description="Where the thresholds start.")
    lr: float | None = Field(
        None,
        gt=0,
        description="Learning rate of the thresholds, which follows the schedule of the others; by default that of the "
        "head. With adam or adamw a threshold moves by about this much a step.",
    )


class PrototypeContrastParameters(Parameters):
    """The contrastive loss of class features and prototypes."""

    weight: float = Field(0.05, ge=0, description="Weight of the prototype contrast.")
    sign: Literal["fixed", "reference"] = Field(
        "fixed",
        description="'reference' is the published code, which pushes positives away from their prototypes.",
    )


@GENERATORS.register("prototype", PrototypeParameters)
def _prototype(context: PartContext, parameters: PrototypeParameters) -> Generator:
    """Similarity to prototypes of each class."""
    return PrototypeGenerator(
        context.num_classes,
        context.feature_dim,
        size=parameters.size,
        every=parameters.every,
        samples=parameters.samples,
        leave_one_out=parameters.leave_one_out,
    )


@RULES.register("learned", LearnedParameters)
def _learned(context: PartContext, parameters: LearnedParameters) -> ThresholdRule:
    """HST's dynamic threshold learning: the optimiser moves the thresholds."""
    return LearnedThreshold(
        context.num_classes,
        weight=parameters.weight,
        shared=parameters.shared,
        decay=parameters.decay,
        initial=parameters.initial,
        rate=parameters.lr,
    )


@LOSSES.register("prototype_contrast", PrototypeContrastParameters, needs=["prototype scores"])
def _prototype_contrast(context: StepContext, parameters: PrototypeContrastParameters) -> Tensor:
    # A score that means nothing is 0 and has no gradient: it costs as much as an unknown cell.
    scores = context.scores["prototype"].values
    return parameters.weight * prototype_contrast(scores, context.labels, parameters.sign)


_STAGE1 = ("classification", "cooccurrence", "contrast")

HST = register_method(
    Method(
        name="hst",
        summary="Pseudo-labels from co-occurrence and from prototypes of each class, thresholds learned by gradient.",
        reference="Chen et al., Heterogeneous semantic transfer for multi-label recognition with partial labels, 2024.",
        stage1=_STAGE1,
        stage2=(*_STAGE1, "pseudo", "prototype_contrast"),
        generators=("intra", "prototype"),
        rule="learned",
    )
)
register_with_satl(HST, usual_thresholds="its learned thresholds")
