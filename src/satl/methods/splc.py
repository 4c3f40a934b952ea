"""SPLC: unknown cells are negatives until the network is confident that they are positives."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from satl.losses import self_paced_loss
from satl.methods.declaration import TERMS, Method, Parameters
from satl.methods.parts import StepContext
from satl.methods.registration import register_method


class SelfPacedParameters(Parameters):
    """Parameters of the focal loss with a margin."""

    focal_margin: float = Field(1.0, ge=0, description="Margin of the logit of known positives.")
    focal_gamma: float = Field(2.0, ge=0, description="How much easy cells are discounted.")


@TERMS.register("self_paced", SelfPacedParameters)
def _self_paced(context: StepContext) -> Tensor:
    parameters = context.parameters
    # Stage 1 makes no pseudo-labels: all unknown cells count as negative.
    corrected = context.pseudo.get("probability", context.labels)
    return self_paced_loss(
        context.output.logits, context.labels, corrected, parameters.focal_margin, parameters.focal_gamma
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
        threshold="fixed",
        defaults={"confidence": 0.6},
    )
)
