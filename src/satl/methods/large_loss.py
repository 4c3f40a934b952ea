"""Large loss matters: unknown cells are negatives, except those whose loss as such is largest."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from satl.losses import large_loss
from satl.methods.method import Method
from satl.methods.method_parts import LOSSES
from satl.methods.parameters import Parameters
from satl.methods.registry import register_method
from satl.methods.step_data import StepContext


class LargeLossParameters(Parameters):
    """Cross-entropy over all cells, unknown ones as negatives, except those with the largest loss."""

    variant: Literal["rejection", "correction"] = Field(
        "rejection",
        description="Leave those with the largest loss out (LL-R), or count them as positive (LL-Ct; LL-Cp with "
        "thresholds.permanent).",
    )


@LOSSES.register("large_loss", LargeLossParameters)
def _large_loss(context: StepContext, parameters: LargeLossParameters) -> Tensor:
    # Stage 1 makes no pseudo-labels: all unknown cells count as negative.
    chosen = context.pseudo.get("probability", context.labels)
    return large_loss(context.output.logits, context.labels, chosen, parameters.variant)


register_method(
    Method(
        name="large-loss",
        summary="Cross-entropy over all cells; unknown cells count as negative, but those with the largest loss are "
        "left out or count as positive, more of them each epoch.",
        # Published: from the second epoch on, so with training.stage1_epochs=1.
        reference="Kim et al., Large loss matters in weakly supervised multi-label classification, 2022.",
        stage1=("large_loss",),
        stage2=("large_loss",),
        generators=("probability",),
        rule="large-loss",
    )
)
