"""SPLC: unknown cells are negatives until the network is confident that they are positives."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from satl.losses import self_paced_loss
from satl.methods.method import Method
from satl.methods.method_parts import LOSSES
from satl.methods.parameters import Parameters
from satl.methods.registry import register_method
from satl.methods.step_data import StepContext


class SelfPacedParameters(Parameters):
    """The focal loss with a margin, unknown cells as negatives until they are confident."""

    margin: float = Field(1.0, ge=0, description="Margin of the logit of known positives.")
    gamma: float = Field(2.0, ge=0, description="How much easy cells are discounted.")


@LOSSES.register("self_paced", SelfPacedParameters)
def _self_paced(context: StepContext, parameters: SelfPacedParameters) -> Tensor:
    # Stage 1 makes no pseudo-labels: all unknown cells count as negative.
    corrected = context.pseudo.get("probability", context.labels)
    return self_paced_loss(
        context.output.logits, context.labels, corrected, parameters.margin, parameters.gamma
    )


register_method(
    Method(
        name="splc",
        summary="Focal loss over all cells; unknown cells count as negative, or as positive where the network's own "
        "probability is above a threshold.",
        # Published: from the second epoch on, so with training.stage1_epochs=1.
        reference="Zhang et al., Simple and robust loss design for multi-label learning with missing labels, 2021.",
        stage1=("self_paced",),
        stage2=("self_paced",),
        generators=("probability",),
        rule="fixed",
        defaults={"thresholds": {"confidence": 0.6}},
    )
)
