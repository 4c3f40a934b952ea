"""A step that is done in micro-batches is the step of the whole batch, but for what only a micro-batch can see."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from satl.errors import ConfigError
from satl.methods import Learner, StepInputs
from satl.models import Backbone, SemanticTransferNetwork
from satl.runs.config import MethodConfig
from satl.training.averaging import MovingAverage
from satl.training.step import TrainingStep
from satl.training.tally import EpochTally
from training.tiny import metrics, tiny_config, train

CLASSES, IMAGES = 4, 12


def make_learner(method: MethodConfig) -> Learner:
    torch.manual_seed(0)
    kwargs = {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16), "output_stride": 16}
    backbone = Backbone("resnet18", kwargs=kwargs, pool=1)
    sizes = {"feature_dim": 16, "attention_dim": 8, "pair_dim": 8, "pair_hidden": 8, "embedding_dim": 6}
    network = SemanticTransferNetwork(CLASSES, backbone, torch.eye(CLASSES), **sizes)
    learner = Learner(*method.configured(), network, proportion=0.5)
    if learner.probe is not None:
        learner.probe.keep(torch.arange(IMAGES), torch.randn(IMAGES, CLASSES), IMAGES)
    learner.network.eval()  # BatchNorm sees a micro-batch at a time
    return learner


def inputs(step: int, stage: int, parts: int, teacher: bool) -> StepInputs:
    generator = torch.Generator().manual_seed(step)
    labels = torch.randint(-1, 2, (IMAGES, CLASSES), generator=generator)
    labels[: IMAGES // 3] = labels[: IMAGES // 3].clamp(
        min=0
    )  # more is known of some micro-batches than of others
    pixels = torch.randn(IMAGES, 3, 32, 32, generator=generator)
    images = IMAGES // parts
    noise = torch.rand(CLASSES, parts * (images * (images - 1) // 2), generator=generator)
    clean = pixels if teacher else None
    shares = torch.linspace(0.5, 1.0, IMAGES) if teacher else None
    ramp = torch.tensor(0.5)
    return StepInputs(pixels, labels, torch.arange(IMAGES), stage, True, ramp, noise, clean, labels, shares)


# Pairs of images meet within a micro-batch, and pseudo-labels are counted there: these losses are left out.
ALONE = {"contrast": {"weight": 0.0}, "pseudo": {"weight": 0.0}}
METHODS = {
    "ignore": {},
    "sample": {"name": "ignore", "losses": {"classification": {"reduction": "sample"}}},
    "asl": {"losses": {"asymmetric": {"reduction": "sample"}}},
    "assume-negative": {},
    "splc": {},
    "sst+satl": {"losses": ALONE},
    "sum": {"name": "sst+satl", "losses": {"ranking": {"reduction": "sum"}, **ALONE}},
    "satl+": {"losses": ALONE},
}


@pytest.mark.parametrize("name", METHODS)
def test_micro_batches_make_the_step_of_the_batch(name: str) -> None:
    method = MethodConfig.model_validate({"name": name, **METHODS[name]})
    states, tallies = [], []
    for parts in (1, 3):
        learner = make_learner(method)
        average = MovingAverage(learner.network, 0.5)
        tally = EpochTally(tuple(learner.generators), CLASSES, torch.device("cpu"))
        optimiser = torch.optim.SGD(learner.parameters(), lr=0.1)
        step = TrainingStep(learner, optimiser, average=average, tally=tally, clip_norm=1.0, accumulate=parts)
        for number in range(4):
            stage = 1 + number // 2
            if stage == 2:
                learner.update_thresholds()
            step(inputs(number, stage, parts, learner.method.needs("teacher")))
        states.append({**learner.state_dict(), **average.module.state_dict(prefix="average.")})
        tallies.append(tally)
    key = "network.class_head.output.weight"
    assert not torch.equal(states[0][key], make_learner(method).state_dict()[key])
    for key, value in states[0].items():
        torch.testing.assert_close(
            states[1][key], value, rtol=1e-4, atol=2e-6, msg=lambda m, key=key: f"{key}: {m}"
        )
    torch.testing.assert_close(tallies[0].mean_losses(), tallies[1].mean_losses(), rtol=1e-5, atol=1e-6)
    assert torch.equal(tallies[0].counts, tallies[1].counts)


def test_a_run_in_micro_batches(tmp_path: Path) -> None:
    rows = {}
    for parts in (1, 2):
        train(tmp_path / str(parts), tiny_config(f"training.accumulate={parts}", "training.epochs=3"))
        rows[parts] = metrics(tmp_path / str(parts))
    assert [row["stage"] for row in rows[2]] == [1, 1, 2]
    for whole, part in zip(rows[1], rows[2], strict=True):
        assert part["losses"] == pytest.approx(whole["losses"], rel=0.3)
        assert part["losses"] != whole["losses"]  # BatchNorm and pairs of images see half of a batch
    with pytest.raises(ConfigError, match=r"batch_size \(16\) cannot be done in 3 equal micro-batches"):
        tiny_config("training.accumulate=3")
