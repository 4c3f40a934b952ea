"""Large loss matters: unknown cells are negatives, except those whose loss as such is largest."""

from __future__ import annotations

from torch import Tensor

from satl.losses import large_loss
from satl.methods.declaration import TERMS, Method
from satl.methods.parts import StepContext
from satl.methods.registration import register_method
from satl.methods.rules import LargeLossParameters


@TERMS.register("large_loss", LargeLossParameters)
def _large_loss(context: StepContext) -> Tensor:
    # Stage 1 makes no pseudo-labels: all unknown cells count as negative.
    chosen = context.pseudo.get("probability", context.labels)
    return large_loss(context.output.logits, context.labels, chosen, context.parameters.variant)


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
        threshold="large-loss",
    )
)
