"""Curriculum labelling: the network's confident predictions of either sign become labels."""

from __future__ import annotations

from torch import Tensor

from satl.losses import partial_bce
from satl.methods.declaration import TERMS, Method
from satl.methods.parts import StepContext
from satl.methods.registration import register_method
from satl.thresholds.functional import negative_labels


@TERMS.register("curriculum")
def _curriculum(context: StepContext) -> Tensor:
    scores, rule = context.scores["probability"], context.rules["probability"]
    labels = negative_labels(scores.values, context.pseudo["probability"], rule.value)
    return partial_bce(context.output.logits, labels, context.parameters.bce_reduction)


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
        threshold="fixed",
        defaults={"confidence": 0.88},
    )
)
