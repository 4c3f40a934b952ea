"""SATL+: semantic-aware thresholds on the scores of a teacher.

The teacher is an average of the network's own past weights, which sees each image without augmentation, together with
a linear probe of the features that training starts from. Its class probability is a generator like any other, with its
own threshold per class, and beside the labels it emits it is the target of every unknown cell of images mixed of two
(mixup). In stage 1, while the average is still useless, the probe alone is that target; the average is used from the
last epoch of stage 1 on, in which its scores are first observed. The pair branch is gone: with few labels an image
the intra-image generator recalls almost nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from satl.methods.method import Method
from satl.methods.method_parts import LOSSES
from satl.methods.mixing import mix
from satl.methods.parameters import Parameters
from satl.methods.registry import register_method
from satl.methods.step_data import StepContext


class MixedParameters(Parameters):
    """Cross-entropy on images mixed of two, with the teacher's probabilities as targets of unknown cells."""

    weight: float = Field(
        20.0, ge=0, description="Weight of the loss; 0 saves the pass of mixed images through the network."
    )

    @property
    def switched_off(self) -> bool:
        """Whether the weight is 0."""
        return self.weight == 0


@LOSSES.register("mixed", MixedParameters, needs=["teacher", "mixed"])
def _mixed(context: StepContext, parameters: MixedParameters) -> Tensor:
    teacher, shares = context.inputs.teacher, context.inputs.shares
    assert teacher is not None
    assert shares is not None
    present = torch.where(context.labels == 0, teacher, (context.labels > 0).to(teacher))
    cost = F.binary_cross_entropy_with_logits(context.output.logits.float(), mix(present, shares))
    return parameters.weight * cost


register_method(
    Method(
        name="satl+",
        summary="Semantic-aware thresholds on a teacher and on similar images, and the teacher's probabilities as "
        "targets of mixed images.",
        reference="satl, built on SATL (arXiv 2507.23263), mean teachers (Tarvainen and Valpola, 2017) and mixup "
        "(Zhang et al., 2018).",
        stage1=("classification", "contrast", "mixed"),
        stage2=("classification", "contrast", "pseudo", "mixed"),
        generators=("cross", "teacher"),
        rule="semantic",
        # What it was measured with, chosen on validation images. The rate that follows from the known proportion is for
        # longer trainings; the other two hold for the teacher, and fill in more cells that are right as often.
        defaults={
            "thresholds": {"rate": 0.5, "negatives_per_positive": 0.01, "floor": 0.5},
            "teacher": {"probe_weight": 0.3},
        },
    )
)
