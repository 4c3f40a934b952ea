"""The threshold rules that methods name; ``method.thresholds.rule`` replaces the one of a method."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from satl.methods.generators import PartContext
from satl.methods.method_parts import RULES
from satl.methods.parameters import Parameters, not_above
from satl.thresholds import (
    CalibratedThreshold,
    FixedThreshold,
    FlexibleThreshold,
    LargeLossThreshold,
    LinearDecayThreshold,
    MetricThreshold,
    PrecisionThreshold,
    ProportionThreshold,
    SemanticAwareThreshold,
    ShrunkenThreshold,
    ThresholdRule,
)


class LinearParameters(Parameters):
    """One threshold for all classes, lowered by a step each epoch (SST)."""

    start: float = Field(0.95, ge=0, le=1, description="Threshold at the beginning of stage 2.")
    step: float = Field(0.025, ge=0, description="How much lower each further epoch, or update, is.")
    end: float = Field(0.75, ge=0, le=1, validate_default=True, description="The lowest threshold.")

    update_every: int | None = Field(
        None,
        ge=1,
        description="Approximate number of training steps between updates, for trainings of few epochs; by "
        "default once an epoch.",
    )

    @field_validator("end")
    @classmethod
    def _not_above_the_start(cls, value: float, info: ValidationInfo) -> float:
        return not_above(value, info, "start")


class HistogramParameters(Parameters):
    """A rule that estimates thresholds from histograms of scores."""

    bins: int = Field(2048, ge=2, description="Bins of the score histograms.")
    min_count: int = Field(1, ge=1, description="A class with fewer known cells keeps its threshold.")


class SemanticParameters(HistogramParameters):
    """Semantic-aware thresholds (SATE): one per class, from the scores of the known cells."""

    rate: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Share of the way to the ideal threshold per update; none: from the known proportion "
        "(0.3 at 20 %, 0.5 at 50 %, linear between and beyond).",
    )
    negative_quantile: float = Field(0.999, ge=0, le=1, description="Level on known negatives' scores.")
    positive_quantile: float = Field(0.1, ge=0, le=1, description="Level on known positives' scores.")
    negatives_per_positive: float = Field(
        0.0,
        ge=0,
        description="Known negatives that may lie above the threshold for each known positive of the class, where that "
        "is more than negative_quantile lets pass: for classes that most images show. For scores that are "
        "probabilities (generators teacher and probability). 0 is the paper's rule.",
    )
    floor: float = Field(
        0.0,
        ge=0,
        le=1,
        description="The lowest threshold of a class for scores that are probabilities (generators teacher and "
        "probability). 0 is the paper's rule.",
    )
    convention: Literal["rate", "eq5"] = Field(
        "rate",
        description="'eq5' is the paper's literal equation 5, in which the rate has the opposite sense.",
    )
    update_every: int | None = Field(
        None,
        ge=1,
        description="Approximate number of training steps between updates; by default once an epoch.",
    )


class FixedParameters(Parameters):
    """One constant threshold for all classes and epochs (FixMatch, UPS)."""

    confidence: float = Field(
        0.95, ge=0, le=1, description="The threshold; FixMatch publishes 0.95, UPS 0.7, SPLC 0.6."
    )


class FlexibleParameters(FixedParameters):
    """One confidence, scaled down for classes of which less has been learned (FlexMatch)."""

    confidence: float = Field(
        0.95, ge=0, le=1, description="The threshold of the class that is learned best."
    )
    floor: float = Field(
        0.5, ge=0, le=1, validate_default=True, description="The lowest threshold of a class."
    )

    @field_validator("floor")
    @classmethod
    def _not_above_the_confidence(cls, value: float, info: ValidationInfo) -> float:
        return not_above(value, info, "confidence")


class MetricParameters(HistogramParameters):
    """The threshold of the best F-beta on the known cells (MAT)."""

    beta: float = Field(
        1.0, gt=0, description="F-beta to maximise; below 1 counts precision more, above 1 recall."
    )


class PrecisionParameters(HistogramParameters):
    """The lowest threshold that is precise enough on the known cells."""

    least_precision: float = Field(
        0.97, ge=0, le=1, description="Wanted share of positives among the known cells above the threshold."
    )
    rate: float = Field(1.0, ge=0, le=1, description="Share of the way to the wanted threshold per update.")


class ShrunkenParameters(PrecisionParameters):
    """The lowest threshold that is precise enough, where rare classes lean on all classes together."""

    strength: float = Field(
        30.0, ge=0, description="How many known cells the precision of all classes together counts for."
    )
    floor: float = Field(
        0.5,
        ge=0,
        le=1,
        description="The lowest threshold of a class for scores that are probabilities (generators teacher and "
        "probability).",
    )


class CalibratedParameters(PrecisionParameters):
    """The thresholds of the highest mean recall at a mean precision to be expected of the unknown cells."""

    least_precision: float = Field(
        0.9,
        ge=0,
        le=1,
        description="Wanted mean over classes of the share of positives among the unknown cells above the threshold, "
        "as their calibrated scores let expect.",
    )
    floor: float = Field(
        0.5, ge=0, le=1, description="The lowest calibrated probability of a cell that is accepted."
    )


class LargeLossRuleParameters(Parameters):
    """The unknown cells of a batch with the largest scores, a larger share each epoch (large loss)."""

    share_step: float = Field(
        0.002,
        ge=0,
        le=1,
        description="Share of a batch's cells that each epoch adds; published 0.001 to 0.005.",
    )
    permanent: bool = Field(False, description="Remember accepted cells, so that they stay accepted (LL-Cp).")
    memory_cells: int = Field(
        1_000_000, ge=1, description="Cells that are remembered with permanent, at 16 bytes each."
    )


def default_rate(proportion: float) -> float:
    """Return the update rate for a known proportion: the paper's 0.3 at 20 % and 0.5 at 50 %, linear between.

    >>> round(default_rate(0.1), 3), round(default_rate(0.5), 3)
    (0.233, 0.5)
    """
    return min(max(0.3 + (proportion - 0.2) * 2.0 / 3.0, 0.05), 1.0)


@RULES.register("linear", LinearParameters)
def _linear(context: PartContext, parameters: LinearParameters) -> ThresholdRule:
    """One threshold for all classes, lowered by a step each epoch (SST)."""
    return LinearDecayThreshold(
        context.num_classes,
        start=parameters.start,
        step=parameters.step,
        end=parameters.end,
        update_every=parameters.update_every,
    )


@RULES.register("semantic", SemanticParameters)
def _semantic(context: PartContext, parameters: SemanticParameters) -> ThresholdRule:
    """The larger of two quantiles, of the known negatives' and of the known positives' scores (SATE)."""
    return SemanticAwareThreshold(
        context.num_classes,
        negative_quantile=parameters.negative_quantile,
        positive_quantile=parameters.positive_quantile,
        rate=default_rate(context.proportion) if parameters.rate is None else parameters.rate,
        bins=parameters.bins,
        min_count=parameters.min_count,
        convention=parameters.convention,
        # Both are about chances; the scores of other generators are similarities.
        negatives_per_positive=parameters.negatives_per_positive if context.probability else 0.0,
        floor=parameters.floor if context.probability else 0.0,
        update_every=parameters.update_every,
    )


@RULES.register("fixed", FixedParameters)
def _fixed(context: PartContext, parameters: FixedParameters) -> ThresholdRule:
    """One constant for all classes and epochs (FixMatch, UPS)."""
    return FixedThreshold(context.num_classes, parameters.confidence)


@RULES.register("flexmatch", FlexibleParameters)
def _flexmatch(context: PartContext, parameters: FlexibleParameters) -> ThresholdRule:
    """One confidence, scaled down for classes of which less has been learned (FlexMatch)."""
    return FlexibleThreshold(context.num_classes, parameters.confidence, parameters.floor)


@RULES.register("cap", HistogramParameters)
def _cap(context: PartContext, parameters: HistogramParameters) -> ThresholdRule:
    """As large a share of the unknown cells as is positive among the known ones (CAP)."""
    return ProportionThreshold(context.num_classes, parameters.bins, parameters.min_count)


@RULES.register("mat", MetricParameters)
def _mat(context: PartContext, parameters: MetricParameters) -> ThresholdRule:
    """The threshold of the best F-beta on the known cells (MAT)."""
    return MetricThreshold(context.num_classes, parameters.beta, parameters.bins, parameters.min_count)


@RULES.register("precision", PrecisionParameters)
def _precision(context: PartContext, parameters: PrecisionParameters) -> ThresholdRule:
    """The lowest threshold that is precise enough on the known cells."""
    return PrecisionThreshold(
        context.num_classes,
        parameters.least_precision,
        parameters.rate,
        parameters.bins,
        parameters.min_count,
    )


@RULES.register("shrunk", ShrunkenParameters)
def _shrunk(context: PartContext, parameters: ShrunkenParameters) -> ThresholdRule:
    """The lowest threshold that is precise enough, where rare classes lean on all classes together."""
    return ShrunkenThreshold(
        context.num_classes,
        parameters.least_precision,
        parameters.strength,
        parameters.floor if context.probability else 0.0,
        parameters.rate,
        parameters.bins,
        parameters.min_count,
    )


@RULES.register("calibrated", CalibratedParameters)
def _calibrated(context: PartContext, parameters: CalibratedParameters) -> ThresholdRule:
    """The highest mean recall at a mean precision that calibrated scores of the unknown cells let expect."""
    return CalibratedThreshold(
        context.num_classes,
        parameters.least_precision,
        parameters.floor,
        parameters.rate,
        parameters.bins,
        parameters.min_count,
    )


@RULES.register("large-loss", LargeLossRuleParameters)
def _large_loss(context: PartContext, parameters: LargeLossRuleParameters) -> ThresholdRule:
    """The unknown cells of a batch with the largest scores, a larger share each epoch (large loss)."""
    return LargeLossThreshold(
        context.num_classes,
        parameters.share_step,
        permanent=parameters.permanent,
        memory=parameters.memory_cells,
    )
