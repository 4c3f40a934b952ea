"""Curriculum labelling: the network's confident predictions of either sign become labels."""

from __future__ import annotations

from torch import Tensor

from satl.losses import partial_bce
from satl.methods.loss_terms import ReductionParameters
from satl.methods.method import Method
from satl.methods.method_parts import LOSSES
from satl.methods.registry import register_method
from satl.methods.step_data import StepContext
from satl.thresholds.functional import negative_labels


@LOSSES.register("curriculum", ReductionParameters, needs=["probability scores"])
def _curriculum(context: StepContext, parameters: ReductionParameters) -> Tensor:
    """Binary cross-entropy over the known cells and the confident ones of either sign."""
    scores, rule = context.scores["probability"], context.rules["probability"]
    labels = negative_labels(scores.values, context.pseudo["probability"], rule.value)
    return partial_bce(context.output.logits, labels, parameters.reduction)


register_method(
    Method(
        name="curriculum",
        # Published as a threshold of the score before the sigmoid on either side of zero, with the labels of the
        # whole training set renewed every few epochs. Here the labels of a batch are made by the present weights:
        # present above the threshold, absent below one minus it; 0.88 is a score of 2.
        summary="Cross-entropy over the known cells and those of which the network is confident, present or absent.",
        reference="Durand et al., Learning a deep ConvNet for multi-label classification with partial labels, 2019.",
        stage1=("classification",),
        stage2=("curriculum",),
        generators=("probability",),
        rule="fixed",
        defaults={"thresholds": {"confidence": 0.88}},
    )
)
