"""The threshold rules of other papers, for any method that makes pseudo-labels.

``method.threshold=NAME`` puts one in the place of the method's own.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from satl.methods.declaration import RULES, HistogramParameters, Parameters, not_above
from satl.methods.parts import Setting
from satl.thresholds import (
    FixedThreshold,
    FlexibleThreshold,
    LargeLossThreshold,
    MetricThreshold,
    PrecisionThreshold,
    ProportionThreshold,
    ThresholdRule,
)


class FixedParameters(Parameters):
    """Parameters of one constant threshold for all classes."""

    confidence: float = Field(
        0.95, ge=0, le=1, description="The threshold; FixMatch publishes 0.95, UPS 0.7, SPLC 0.6."
    )


class FlexibleParameters(FixedParameters):
    """Parameters of FlexMatch's curriculum per class."""

    confidence: float = Field(
        0.95, ge=0, le=1, description="The threshold of the class that is learned best."
    )
    threshold_floor: float = Field(
        0.5, ge=0, le=1, validate_default=True, description="The lowest threshold of a class."
    )

    @field_validator("threshold_floor")
    @classmethod
    def _not_above_the_confidence(cls, value: float, info: ValidationInfo) -> float:
        return not_above(value, info, "confidence")


class MetricParameters(HistogramParameters):
    """Parameters of thresholds that maximise a metric on the known cells (MAT)."""

    metric_beta: float = Field(
        1.0, gt=0, description="F-beta to maximise; below 1 counts precision more, above 1 recall."
    )


class PrecisionParameters(HistogramParameters):
    """Parameters of the lowest thresholds that are precise enough on the known cells."""

    least_precision: float = Field(
        0.97, ge=0, le=1, description="Wanted share of positives among the known cells above the threshold."
    )
    rate: float = Field(1.0, ge=0, le=1, description="Share of the way to the wanted threshold per update.")


class LargeLossParameters(Parameters):
    """Parameters of what becomes of unknown cells with a large loss."""

    variant: Literal["rejection", "temporary", "permanent"] = Field(
        "rejection",
        description="Leave them out (LL-R), count them as positive for a step (LL-Ct) or for good (LL-Cp).",
    )


class LargeShareParameters(LargeLossParameters):
    """Parameters of the share of unknown cells that is taken for positives."""

    share_step: float = Field(
        0.002,
        ge=0,
        le=1,
        description="Share of a batch's cells that each epoch adds; published 0.001 to 0.005.",
    )
    memory_cells: int = Field(
        1_000_000, ge=1, description="Cells that the permanent variant remembers, at 16 bytes each."
    )


@RULES.register("fixed", FixedParameters)
def _fixed(setting: Setting) -> ThresholdRule:
    """One constant for all classes and epochs (FixMatch, UPS)."""
    return FixedThreshold(setting.num_classes, setting.parameters.confidence)


@RULES.register("flexmatch", FlexibleParameters)
def _flexmatch(setting: Setting) -> ThresholdRule:
    """One confidence, scaled down for classes of which less has been learned (FlexMatch)."""
    parameters = setting.parameters
    return FlexibleThreshold(setting.num_classes, parameters.confidence, parameters.threshold_floor)


@RULES.register("cap", HistogramParameters)
def _cap(setting: Setting) -> ThresholdRule:
    """As large a share of the unknown cells as is positive among the known ones (CAP)."""
    parameters = setting.parameters
    return ProportionThreshold(setting.num_classes, parameters.bins, parameters.min_count)


@RULES.register("mat", MetricParameters)
def _mat(setting: Setting) -> ThresholdRule:
    """The threshold of the best F-beta on the known cells (MAT)."""
    parameters = setting.parameters
    return MetricThreshold(setting.num_classes, parameters.metric_beta, parameters.bins, parameters.min_count)


@RULES.register("precision", PrecisionParameters)
def _precision(setting: Setting) -> ThresholdRule:
    """The lowest threshold that is precise enough on the known cells."""
    parameters = setting.parameters
    return PrecisionThreshold(
        setting.num_classes,
        parameters.least_precision,
        parameters.rate,
        parameters.bins,
        parameters.min_count,
    )


@RULES.register("large-loss", LargeShareParameters)
def _large_loss(setting: Setting) -> ThresholdRule:
    """The unknown cells of a batch with the largest scores, a larger share each epoch (LL-R, LL-Ct, LL-Cp)."""
    parameters = setting.parameters
    return LargeLossThreshold(
        setting.num_classes,
        parameters.share_step,
        permanent=parameters.variant == "permanent",
        memory=parameters.memory_cells,
    )
