"""A part of a package's own gets what it asks the step for: a teacher, mixed images, or both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from satl.methods import LOSSES, METHODS, Method, Parameters, StepContext, register_method
from satl.methods.method_parts import Registry
from satl.methods.mixing import mix
from training.tiny import metrics, tiny_config, train


class DistilParameters(Parameters):
    """Parameters of a part that knows nothing of satl's own teacher."""

    distil_weight: float = Field(1.0, ge=0, description="Weight of the loss.")


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Iterator[list[StepContext]]:
    """A method with a term of the test's needs, and what that term has seen."""
    seen: list[StepContext] = []

    def distil(context: StepContext, parameters: DistilParameters) -> Tensor:
        """Agree with the teacher, or with the labels where there is none."""
        seen.append(context)
        teacher, shares = context.inputs.teacher, context.inputs.shares
        target = (context.labels > 0).float() if teacher is None else teacher
        # Inputs are the same for both passes; only a term that needs mixed images is called with their output.
        if "mixed" in LOSSES["distil"].needs:
            assert shares is not None
            target = mix(target, shares)
        cost = F.binary_cross_entropy_with_logits(context.output.logits.float(), target)
        return parameters.distil_weight * cost

    LOSSES.register("distil", DistilParameters, needs=request.param)(distil)
    try:
        terms = ("classification", "distil")
        register_method(Method("distilled", "Ours.", "Ours, 2026.", stage1=terms, stage2=terms))
        yield seen
    finally:
        LOSSES.pop("distil")
        METHODS.pop("distilled", None)


@pytest.mark.parametrize("registered", [["teacher"]], indirect=True)
def test_a_term_that_needs_a_teacher_has_one_in_both_stages(
    registered: list[StepContext], tmp_path: Path
) -> None:
    config = tiny_config("method.name=distilled", "training.epochs=3", "training.stage1_epochs=2")
    trainer = train(tmp_path / "run", config)
    assert trainer.average is not None
    assert trainer.average.decay == 0.995
    assert len(registered) == 3 * len(trainer.batches)
    assert all(context.inputs.teacher is not None and context.inputs.shares is None for context in registered)
    assert all(row["losses"]["distil"] > 0 for row in metrics(tmp_path / "run"))


@pytest.mark.parametrize("registered", [["teacher"]], indirect=True)
def test_the_configuration_sets_the_decay(registered: list[StepContext], tmp_path: Path) -> None:
    config = tiny_config(
        "method.name=distilled", "training.ema=0.9", "training.epochs=1", "training.stage1_epochs=1"
    )
    trainer = train(tmp_path / "run", config)
    assert trainer.average is not None
    assert trainer.average.decay == 0.9


@pytest.mark.parametrize("registered", [["mixed"]], indirect=True)
def test_a_mixed_term_needs_no_teacher_in_either_stage(registered: list[StepContext], tmp_path: Path) -> None:
    config = tiny_config("method.name=distilled", "training.epochs=2", "training.stage1_epochs=1")
    trainer = train(tmp_path / "run", config)
    assert trainer.average is None
    assert len(registered) == 2 * len(trainer.batches)
    assert all(context.inputs.teacher is None and context.inputs.shares is not None for context in registered)
    assert all(row["losses"]["distil"] > 0 for row in metrics(tmp_path / "run"))


@pytest.mark.parametrize("registered", [["teacher", "mixed"]], indirect=True)
def test_a_mixed_term_may_have_a_teacher(registered: list[StepContext], tmp_path: Path) -> None:
    config = tiny_config("method.name=distilled", "training.epochs=2", "training.stage1_epochs=1")
    train(tmp_path / "run", config)
    assert registered
    for context in registered:
        assert context.inputs.teacher is not None
        assert context.inputs.shares is not None
        assert torch.isfinite(context.inputs.teacher).all()


@pytest.mark.parametrize(
    ("needs", "part"),
    [
        (
            ["pairs", "techer"],
            "'techer', which no step brings (did you mean 'teacher'?); known: pairs, teacher,",
        ),
        (
            ["prototype score"],
            "'prototype score', which no step brings; known: pairs, teacher, noise, mixed, generators,",
        ),
        ("nois", "'nois', which no step brings (did you mean 'noise'?)"),
    ],
)
def test_a_misspelt_need_is_refused_when_the_part_is_registered(needs: list[str] | str, part: str) -> None:
    registry = Registry()
    with pytest.raises(ValueError, match=r"part 'mine': needs names ") as caught:
        registry.register("mine", needs=needs)(lambda context: context)
    assert part in str(caught.value)
    assert not registry
    registry.register("mine", needs="noise")(lambda context: context)
    assert registry["mine"].needs == {"noise"}
