"""SATL+: semantic-aware thresholds on the scores of a teacher.

The teacher is an average of the network's own past weights, which sees each image without augmentation, together with
a linear probe of the features that training starts from. Its class probability is a generator like any other, with its
own threshold per class, and beside the labels it emits it is the target of every unknown cell for pictures mixed of
two. In stage 1, while the average is still worth nothing, the probe alone is that target; the average has its say from
the last epoch of stage 1 on, in which its scores are first observed. The pair branch is gone: with few labels an image
the intra-image generator recalls almost nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from satl.methods.declaration import GENERATORS, TEACHER_DECAY, TERMS, Method, Parameters
from satl.methods.mixing import mix
from satl.methods.parts import Setting, StepContext
from satl.methods.registration import register_method
from satl.scoring import Generator, TeacherGenerator


class TeacherParameters(Parameters):
    """Parameters of the teacher: an average of past weights that sees a view without augmentation, and a probe."""

    teacher_decay: float = Field(
        TEACHER_DECAY,
        gt=0,
        lt=1,
        description="Decay of the teacher's weights, unless training.ema says otherwise.",
    )
    probe_weight: float = Field(
        0.3,
        ge=0,
        le=1,
        description="Share in the teacher's log-odds of a linear probe of the features that training starts from; 0 "
        "saves it.",
    )


@GENERATORS.register("teacher", TeacherParameters, needs=["teacher"])
def _teacher(setting: Setting) -> Generator:
    return TeacherGenerator()


class MixParameters(TeacherParameters):
    """Parameters of the loss on pictures mixed of two."""

    mix_weight: float = Field(
        20.0,
        ge=0,
        description="Weight of the loss on mixed pictures; 0 saves their pass through the network.",
    )


@TERMS.register("mixed", MixParameters, needs=["teacher", "mixed"])
def _mixed(context: StepContext) -> Tensor:
    assert context.teacher is not None
    assert context.shares is not None
    present = torch.where(context.labels == 0, context.teacher, (context.labels > 0).to(context.teacher))
    cost = F.binary_cross_entropy_with_logits(context.output.logits.float(), mix(present, context.shares))
    weight: float = context.parameters.mix_weight
    return weight * cost


register_method(
    Method(
        name="satl+",
        summary="Semantic-aware thresholds on a teacher and on similar images, and the teacher's probabilities as "
        "targets of mixed pictures.",
        reference="satl, built on SATL (arXiv 2507.23263), mean teachers (Tarvainen and Valpola, 2017) and mixup "
        "(Zhang et al., 2018).",
        stage1=("classification", "contrast", "mixed"),
        stage2=("classification", "contrast", "pseudo", "mixed"),
        generators=("cross", "teacher"),
        threshold="semantic",
        # What it was measured with, chosen on validation images. The rate that follows from the known proportion is for
        # longer trainings; the other two hold for the teacher, and fill in more cells that are right as often.
        defaults={"rate": 0.5, "negatives_per_positive": 0.01, "threshold_floor": 0.5},
    )
)
