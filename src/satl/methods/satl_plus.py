"""SATL+: semantic-aware thresholds on the scores of a teacher.

The teacher is an average of the network's own past weights, which sees each image without augmentation, together with
a linear probe of the features that training starts from. Its class probability is a generator like any other, with its
own threshold per class, and beside the labels it emits it is the target of every unknown cell of images mixed of two
(mixup). In stage 1, while the average is still useless, the probe alone is that target; the average is used from the
last epoch of stage 1 on, in which its scores are first observed. The pair branch is gone: with few labels an image
the intra-image generator recalls almost nothing.
"""

from __future__ import annotations

from dataclasses import replace

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

    weight: float | None = Field(
        None,
        ge=0,
        description="Weight of the loss; 0 saves the pass of mixed images through the network. None: 20, or less where "
        "more than 15 % of the known cells are positive: 3 divided by their share.",
    )
    certainty: float = Field(
        0.0,
        ge=0,
        description="A target p of an unknown cell weighs |2 p - 1| to this power: 0 lets all weigh the same, 2 lets a "
        "teacher that knows nothing of a cell say nothing about it.",
    )

    @property
    def switched_off(self) -> bool:
        """Whether the weight is 0."""
        return self.weight == 0


def default_mixed_weight(positive_share: float) -> float:
    """Return how much mixed images weigh, for a share of positives among the known cells.

    The fewer labels an image has, the more a teacher knows of the others: that nearly all are absent. Where half of
    them are present its targets are near one half for long, and hold the network where it is.

    >>> default_mixed_weight(0.05), default_mixed_weight(0.5)
    (20.0, 6.0)
    """
    return min(20.0, 3.0 / max(positive_share, 0.15))


@LOSSES.register("mixed", MixedParameters, needs=["teacher", "mixed"])
def _mixed(context: StepContext, parameters: MixedParameters) -> Tensor:
    teacher, shares = context.inputs.teacher, context.inputs.shares
    assert teacher is not None
    assert shares is not None
    weight = parameters.weight
    if weight is None:
        weight = default_mixed_weight(context.positive_share)
    logits = context.output.logits.float()
    present = torch.where(context.labels == 0, teacher, (context.labels > 0).to(teacher))
    if parameters.certainty == 0:
        return weight * F.binary_cross_entropy_with_logits(logits, mix(present, shares))
    # Cross-entropy is linear in its target, so that each of the two images can weigh its own.
    weights = (2.0 * present - 1.0).abs().pow(parameters.certainty)
    cost = mix(weights, shares) * F.softplus(logits) - mix(weights * present, shares) * logits
    return weight * cost.mean()


_ON_IMAGES = Method(
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

register_method(
    replace(
        _ON_IMAGES,
        on_features=replace(
            _ON_IMAGES,
            network="vector",
            # Nothing that is trained stands before the vectors, so contrasting them would change nothing, and similar
            # vectors are what the probe goes by already.
            stage1=("classification", "mixed", "mixed_known"),
            stage2=("classification", "pseudo", "mixed", "mixed_known"),
            generators=("teacher",),
            # Chosen on known cells of left-out images (experiments/features): a linear classifier is past its probe
            # after a few hundred steps, so that an average of few steps, with little of the probe, teaches best; what
            # pulls at images that are not mixed costs more than it is worth.
            defaults={
                **_ON_IMAGES.defaults,
                # With tens of thousands of pictures a teacher's targets alone hold it back.
                "losses": {"pseudo": {"weight": 0.2}, "mixed_known": {"weight": None}},
                "teacher": {"probe_weight": 0.1, "decay": 0.99},
            },
        ),
    )
)
