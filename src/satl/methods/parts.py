"""The parts that methods name: generators, threshold rules and loss terms.

A further part is one function here, or in a file of its own that :mod:`satl.methods` imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from satl.losses import contrastive_loss, cooccurrence_loss, differential_ranking, partial_bce
from satl.methods.declaration import (
    GENERATORS,
    RULES,
    TERMS,
    BankParameters,
    ContrastParameters,
    CooccurrenceParameters,
    LeaveOneOutParameters,
    LinearParameters,
    PseudoParameters,
    RankingParameters,
    SemanticParameters,
    default_rate,
)
from satl.models.semantic_transfer import NetworkOutput
from satl.scoring import CrossImageGenerator, Generator, IntraImageGenerator, ProbabilityGenerator, Scores
from satl.thresholds import LinearDecayThreshold, SemanticAwareThreshold, ThresholdRule


@dataclass(frozen=True)
class Setting:
    """What a part may need to know to be built."""

    parameters: Any
    """The method's own parameter model; each part reads the fields it brought along."""
    num_classes: int
    feature_dim: int
    proportion: float
    """Share of known cells in the training table."""
    probability: bool = True
    """Whether the scores that a threshold rule is for are probabilities."""


@dataclass(frozen=True)
class StepContext:
    """What a loss term may look at."""

    parameters: Any
    output: NetworkOutput
    labels: Tensor
    scores: dict[str, Scores]
    pseudo: dict[str, Tensor]
    rules: dict[str, ThresholdRule]
    teacher: Tensor | None = None
    """``(B, C)`` probabilities of the teacher, for methods that need one."""
    noise: Tensor | None = None
    """``(C, pairs)`` in [0, 1) for terms that choose pairs of images at random."""
    whole: Tensor | None = None
    """``(N, C)`` labels of the whole batch of this process, where ``labels`` are those of a micro-batch."""
    shares: Tensor | None = None
    """``(B,)`` how much of each image is the image itself, where ``output`` is that of mixed images."""

    @property
    def batch(self) -> Tensor:
        """``(N, C)`` labels of the whole batch of this process."""
        return self.labels if self.whole is None else self.whole


@GENERATORS.register("intra", LeaveOneOutParameters, needs=["pairs"])
def _intra(setting: Setting) -> Generator:
    return IntraImageGenerator(setting.parameters.leave_one_out)


@GENERATORS.register("cross", BankParameters)
def _cross(setting: Setting) -> Generator:
    parameters = setting.parameters
    return CrossImageGenerator(
        setting.num_classes, setting.feature_dim, parameters.bank_size, parameters.leave_one_out
    )


@GENERATORS.register("probability")
def _probability(setting: Setting) -> Generator:
    return ProbabilityGenerator()


@RULES.register("linear", LinearParameters)
def _linear(setting: Setting) -> ThresholdRule:
    """One threshold for all classes, lowered by a step each epoch (SST)."""
    parameters = setting.parameters
    return LinearDecayThreshold(
        setting.num_classes,
        start=parameters.threshold_start,
        step=parameters.threshold_step,
        end=parameters.threshold_end,
    )


@RULES.register("semantic", SemanticParameters)
def _semantic(setting: Setting) -> ThresholdRule:
    """The larger of two quantiles, of the known negatives' and of the known positives' scores (SATE)."""
    parameters = setting.parameters
    return SemanticAwareThreshold(
        setting.num_classes,
        negative_quantile=parameters.negative_quantile,
        positive_quantile=parameters.positive_quantile,
        rate=default_rate(setting.proportion) if parameters.rate is None else parameters.rate,
        bins=parameters.bins,
        min_count=parameters.min_count,
        convention=parameters.convention,
        # Both are about chances; the scores of other generators are similarities.
        negatives_per_positive=parameters.negatives_per_positive if setting.probability else 0.0,
        floor=parameters.threshold_floor if setting.probability else 0.0,
    )


@TERMS.register("classification")
def _classification(context: StepContext) -> Tensor:
    return partial_bce(context.output.logits, context.labels, context.parameters.bce_reduction, context.batch)


@TERMS.register("pseudo", PseudoParameters)
def _pseudo(context: StepContext) -> Tensor:
    parameters = context.parameters
    costs = [
        partial_bce(context.output.logits, labels, parameters.bce_reduction)
        for labels in context.pseudo.values()
    ]
    return parameters.pseudo_weight * torch.stack(costs).sum()


@TERMS.register("cooccurrence", CooccurrenceParameters, needs=["pairs"], ramped=True)
def _cooccurrence(context: StepContext) -> Tensor:
    assert context.output.pair_logits is not None
    return context.parameters.cooccurrence_weight * cooccurrence_loss(
        context.output.pair_logits, context.labels
    )


@TERMS.register("contrast", ContrastParameters, needs=["noise"], ramped=True)
def _contrast(context: StepContext) -> Tensor:
    return context.parameters.contrast_weight * contrastive_loss(
        context.output.features, context.labels, context.noise
    )


@TERMS.register("ranking", RankingParameters)
def _ranking(context: StepContext) -> Tensor:
    parameters = context.parameters
    costs = [
        differential_ranking(
            scores.values,
            torch.where(scores.informative, context.labels, 0),
            context.rules[name].value,
            parameters.ranking_clamp,
            parameters.ranking_reduction,
        )
        for name, scores in context.scores.items()
    ]
    # A sum over the batch is as many times the mean of its micro-batches as there are of them.
    parts = context.batch.shape[0] / context.labels.shape[0] if parameters.ranking_reduction == "sum" else 1.0
    return parameters.ranking_weight * parts * torch.stack(costs).sum()
