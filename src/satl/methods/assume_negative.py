"""The other baseline next to every result: unknown cells count as negative."""

from __future__ import annotations

import torch
from torch import Tensor

from satl.losses import partial_bce
from satl.methods.declaration import TERMS, Method
from satl.methods.parts import StepContext
from satl.methods.registration import register_method


@TERMS.register("assumed")
def _assumed(context: StepContext) -> Tensor:
    labels = torch.where(context.labels == 0, -1, context.labels)
    return partial_bce(context.output.logits, labels, context.parameters.bce_reduction)


register_method(
    Method(
        name="assume-negative",
        summary="Binary cross-entropy over all cells; unknown cells count as negative.",
        reference="Cole et al., Multi-label learning from single positive labels, 2021.",
        stage1=("assumed",),
        stage2=("assumed",),
    )
)
