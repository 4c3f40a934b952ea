"""ASL: an asymmetric loss in the place of cross-entropy, on the known cells."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from satl.losses import asymmetric_loss
from satl.methods.loss_terms import ReductionParameters
from satl.methods.method import Method
from satl.methods.method_parts import LOSSES
from satl.methods.registry import register_method
from satl.methods.step_data import StepContext


class AsymmetricParameters(ReductionParameters):
    """Cross-entropy over the known cells that discounts easy ones, negatives more than positives."""

    gamma_positive: float = Field(0.0, ge=0, description="How much easy positives are discounted.")
    gamma_negative: float = Field(4.0, ge=0, description="How much easy negatives are discounted.")
    margin: float = Field(0.05, ge=0, lt=1, description="Probability below which a negative costs nothing.")


@LOSSES.register("asymmetric", AsymmetricParameters)
def _asymmetric(context: StepContext, parameters: AsymmetricParameters) -> Tensor:
    return asymmetric_loss(
        context.output.logits,
        context.labels,
        parameters.gamma_positive,
        parameters.gamma_negative,
        parameters.margin,
        parameters.reduction,
        context.all_labels,
    )


register_method(
    Method(
        name="asl",
        summary="A loss that discounts easy negatives, over the known cells; unknown cells are ignored.",
        reference="Ridnik et al., Asymmetric loss for multi-label classification, 2021.",
        stage1=("asymmetric",),
        stage2=("asymmetric",),
    )
)
