"""The other baseline next to every result: unknown cells count as negative."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.losses import partial_bce
from satl.methods.loss_terms import ReductionParameters
from satl.methods.method import Method
from satl.methods.method_parts import LOSSES
from satl.methods.registry import register_method
from satl.methods.step_data import StepContext


@LOSSES.register("assumed", ReductionParameters)
def _assumed(context: StepContext, parameters: ReductionParameters) -> Tensor:
    """Binary cross-entropy over all cells, unknown ones as negatives."""
    labels = torch.where(context.labels == 0, -1, context.labels)
    return partial_bce(context.output.logits, labels, parameters.reduction)


register_method(
    Method(
        name="assume-negative",
        summary="Binary cross-entropy over all cells; unknown cells count as negative.",
        reference="Cole et al., Multi-label learning from single positive labels, 2021.",
        stage1=("assumed",),
        stage2=("assumed",),
    )
)
