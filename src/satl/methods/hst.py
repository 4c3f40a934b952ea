"""HST, and HST with the parts of SATL."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from satl.losses import prototype_contrast
from satl.methods.declaration import GENERATORS, RULES, TERMS, LeaveOneOutParameters, Method, Parameters
from satl.methods.parts import Setting, StepContext
from satl.methods.registration import register_method
from satl.methods.satl_parts import register_with_satl
from satl.scoring import Generator, PrototypeGenerator
from satl.thresholds import LearnedThreshold, ThresholdRule


class PrototypeParameters(LeaveOneOutParameters):
    """Parameters of the prototype generator."""

    prototypes: int = Field(10, ge=1, description="Prototypes per class.")
    prototype_every: int = Field(5, ge=1, description="Epochs of stage 2 after which they are computed anew.")
    prototype_samples: int = Field(
        512, ge=1, description="Known positives per class that they are computed from, at most."
    )


class LearnedParameters(Parameters):
    """Parameters of HST's dynamic threshold learning (DTL)."""

    threshold_weight: float = Field(0.1, ge=0, description="Weight of the loss that moves the thresholds.")
    threshold_shared: bool = Field(
        True,
        description="One threshold for all classes, as in HST's code; false gives each class its own.",
    )
    threshold_decay: bool = Field(
        True,
        description="Let weight decay lower the thresholds too, as in HST's code; without it they hardly leave 1.",
    )


class PrototypeContrastParameters(Parameters):
    """Parameters of the prototype contrast."""

    prototype_weight: float = Field(0.05, ge=0, description="Weight of the prototype contrast.")
    prototype_sign: Literal["fixed", "reference"] = Field(
        "fixed",
        description="'reference' is the published code, which pushes positives away from their prototypes.",
    )


@GENERATORS.register("prototype", PrototypeParameters)
def _prototype(setting: Setting) -> Generator:
    parameters = setting.parameters
    return PrototypeGenerator(
        setting.num_classes,
        setting.feature_dim,
        size=parameters.prototypes,
        every=parameters.prototype_every,
        samples=parameters.prototype_samples,
        leave_one_out=parameters.leave_one_out,
    )


@RULES.register("learned", LearnedParameters)
def _learned(setting: Setting) -> ThresholdRule:
    """HST's dynamic threshold learning: the optimiser moves the thresholds."""
    parameters = setting.parameters
    return LearnedThreshold(
        setting.num_classes,
        weight=parameters.threshold_weight,
        shared=parameters.threshold_shared,
        decay=parameters.threshold_decay,
    )


@TERMS.register("prototype_contrast", PrototypeContrastParameters, needs=["prototype scores"])
def _prototype_contrast(context: StepContext) -> Tensor:
    parameters = context.parameters
    # A score that means nothing is 0 and has no gradient: it costs as much as an unknown cell.
    scores = context.scores["prototype"].values
    weight: float = parameters.prototype_weight
    return weight * prototype_contrast(scores, context.labels, parameters.prototype_sign)


_STAGE1 = ("classification", "cooccurrence", "contrast")

HST = register_method(
    Method(
        name="hst",
        summary="Pseudo-labels from co-occurrence and from prototypes of each class, thresholds learned by gradient.",
        reference="Chen et al., Heterogeneous semantic transfer for multi-label recognition with partial labels, 2024.",
        stage1=_STAGE1,
        stage2=(*_STAGE1, "pseudo", "prototype_contrast"),
        generators=("intra", "prototype"),
        threshold="learned",
    )
)
register_with_satl(HST, usual_thresholds="its learned thresholds")
