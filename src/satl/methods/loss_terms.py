"""The loss terms that several methods name; those of one method alone are in its file."""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from satl.losses import (
    contrastive_loss,
    cooccurrence_loss,
    differential_ranking,
    mixed_bce,
    partial_bce,
)
from satl.methods.method_parts import LOSSES
from satl.methods.mixing import neighbours
from satl.methods.parameters import Parameters
from satl.methods.step_data import StepContext
from satl.thresholds.functional import fused_labels


class ReductionParameters(Parameters):
    """Binary cross-entropy over the known cells."""

    reduction: Literal["known", "sample"] = Field(
        "known", description="Average over all known cells of the batch, or first per image (equation 9)."
    )


class PseudoParameters(ReductionParameters):
    """Binary cross-entropy over known cells and pseudo-labels."""

    weight: float = Field(1.0, ge=0, description="Weight of the loss on each generator's labels.")
    fused: bool = Field(
        False,
        description="One loss over the known cells and the pseudo-labels of all generators together, in the place of "
        "one for each generator and of the loss `classification` (equations 11 to 13 as they are written).",
    )

    @property
    def replaces(self) -> tuple[str, ...]:
        """The loss of the known cells, which the fused one counts too."""
        return ("classification",) if self.fused else ()


class MixedKnownParameters(Parameters):
    """Cross-entropy on images mixed of two, over the known cells of both."""

    weight: float | None = Field(
        1.0,
        ge=0,
        description="Weight of the loss; 0 saves the pass of mixed images through the network. None, beside the "
        "targets of a teacher: 2.4 for every 1,000 known cells a class, at most 30, less 20 times the share of known "
        "cells; 0 with up to 8,000 images.",
    )

    @property
    def switched_off(self) -> bool:
        """Whether the weight is 0."""
        return self.weight == 0

    def for_labels(self, known_per_class: float, proportion: float) -> Self:
        """Decide the weight."""
        if self.weight is not None:
            return self
        return self.model_copy(update={"weight": default_known_weight(known_per_class, proportion)})


def default_known_weight(known_per_class: float, proportion: float) -> float:
    """Return how much mixed images weigh by their known cells alone, beside the targets that a teacher has for all.

    The more cells are known, the less a network needs a teacher to hold it back, and the longer it would take to move
    while most targets are its own past answers. All in all known cells should weigh 2.4 for every 1,000 of a class, up
    to 30; the loss ``mixed``, whose weight is 20, has their share of that already.

    >>> default_known_weight(900, 0.1)  # of 9,000 images
    0.16
    >>> default_known_weight(3500, 0.05), default_known_weight(7000, 0.1), default_known_weight(35000, 0.5)
    (7.4, 14.8, 20.0)
    """
    return round(max(min(0.0024 * known_per_class, 30.0) - 20.0 * proportion, 0.0), 6)


class CooccurrenceParameters(Parameters):
    """The co-occurrence loss of the pair branch."""

    weight: float = Field(10.0, ge=0, description="Weight of the loss.")


class ContrastParameters(Parameters):
    """The contrastive loss of class features."""

    weight: float = Field(0.05, ge=0, description="Weight of the loss.")


class RankingParameters(Parameters):
    """The differential ranking loss (DRL)."""

    weight: float = Field(0.01, ge=0, description="Weight of the loss of each generator.")
    clamp: bool = Field(True, description="The literal loss; false also lifts positives below.")
    reduction: Literal["batch", "sum", "known"] = Field("batch", description="What to divide by.")


@LOSSES.register("classification", ReductionParameters)
def _classification(context: StepContext, parameters: ReductionParameters) -> Tensor:
    return partial_bce(context.output.logits, context.labels, parameters.reduction, context.all_labels)


@LOSSES.register("pseudo", PseudoParameters, needs=["generators"])
def _pseudo(context: StepContext, parameters: PseudoParameters) -> Tensor:
    filled = list(context.pseudo.values())
    if parameters.fused:
        filled = [fused_labels(filled)]
    costs = [partial_bce(context.output.logits, labels, parameters.reduction) for labels in filled]
    return parameters.weight * torch.stack(costs).sum()


@LOSSES.register("mixed_known", MixedKnownParameters, needs=["mixed"], for_any=True)
def _mixed_known(context: StepContext, parameters: MixedKnownParameters) -> Tensor:
    shares, labels = context.inputs.shares, context.labels
    assert shares is not None
    others = labels.index_select(0, neighbours(labels.shape[0], labels.device))
    assert parameters.weight is not None
    return parameters.weight * mixed_bce(context.output.logits, labels, others, shares, context.all_labels)


@LOSSES.register("cooccurrence", CooccurrenceParameters, needs=["pairs"], ramped=True)
def _cooccurrence(context: StepContext, parameters: CooccurrenceParameters) -> Tensor:
    assert context.output.pair_logits is not None
    return parameters.weight * cooccurrence_loss(context.output.pair_logits, context.labels)


@LOSSES.register("contrast", ContrastParameters, needs=["noise"], ramped=True)
def _contrast(context: StepContext, parameters: ContrastParameters) -> Tensor:
    return parameters.weight * contrastive_loss(context.output.features, context.labels, context.inputs.noise)


@LOSSES.register("ranking", RankingParameters, needs=["generators"])
def _ranking(context: StepContext, parameters: RankingParameters) -> Tensor:
    costs = [
        differential_ranking(
            scores.values,
            torch.where(scores.informative, context.labels, 0),
            context.rules[name].value,
            parameters.clamp,
            parameters.reduction,
        )
        for name, scores in context.scores.items()
    ]
    # A sum over the batch is as many times the mean of its micro-batches as there are of them.
    parts = context.all_labels.shape[0] / context.labels.shape[0] if parameters.reduction == "sum" else 1.0
    return parameters.weight * parts * torch.stack(costs).sum()
