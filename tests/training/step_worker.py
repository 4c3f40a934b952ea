"""One of several processes that train every method for a few steps; run by ``test_processes.py``.

Called with rank, number of processes and a folder, which holds the meeting point and takes the results. Everything is
computed with 64 bits, also what is written to be computed with 32, so that hardly any rounding hides a difference.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from satl.distributed import leave, own_part, sum_across
from satl.methods import METHODS, Learner, StepInputs
from satl.models.batch_norm import convert_to_shared_batch_norm
from satl.runs.reading import apply_overrides, make_config
from satl.scoring import Survey
from satl.training.build import build_learner

CLASSES, BATCH, IMAGES, SIDE = 5, 8, 24, 16
STAGES = (1, 1, 2, 2)

TINY: dict[str, Any] = {
    "data": {"scenes": {}},
    "model": {
        "backbone": "satl_tiny",
        "backbone_kwargs": {"widths": [6, 8]},
        "pretrained": False,
        "train_stages": "all",
        "pool": 1,
        "feature_dim": 8,
        "attention_dim": 6,
        "pair_dim": 6,
        "pair_hidden": 6,
        "embedding_dim": 5,
    },
}

# Beside every method as it is: the other ways to count, and every rule that is no method's own.
VARIANTS: dict[str, tuple[str, ...]] = {
    "sample": (
        "method.name=sst+satl",
        "method.losses.classification.reduction=sample",
        "method.losses.pseudo.reduction=sample",
        "method.losses.ranking.reduction=known",
    ),
    "sum": (
        "method.name=sst+satl",
        "method.losses.ranking.reduction=sum",
        "method.losses.ranking.clamp=false",
    ),
    "asl by sample": ("method.name=asl", "method.losses.asymmetric.reduction=sample"),
    "own thresholds": ("method.name=hst", "method.thresholds.shared=false"),
    "temporary": (
        "method.name=large-loss",
        "method.losses.large_loss.variant=correction",
        "method.thresholds.share_step=0.07",
    ),
    "permanent": (
        "method.name=large-loss",
        "method.losses.large_loss.variant=correction",
        "method.thresholds.permanent=true",
        "method.thresholds.memory_cells=30",
    ),
    "flexmatch": ("method.name=sst", "method.thresholds.rule=flexmatch", "method.thresholds.confidence=0.6"),
    "cap": ("method.name=sst", "method.thresholds.rule=cap"),
    "mat": ("method.name=sst", "method.thresholds.rule=mat"),
    "large share": (
        "method.name=satl+",
        "method.thresholds.rule=large-loss",
        "method.thresholds.share_step=0.07",
    ),
    "frozen": ("method.name=sst+satl", "model.train_stages=[stages.1]"),
}


def cases() -> dict[str, tuple[str, ...]]:
    """Return the settings of every case by its name."""
    return {name: (f"method.name={name}",) for name in METHODS} | VARIANTS


def numbers(*shape: int, seed: int) -> Tensor:
    """The same numbers in every process."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def table() -> Tensor:
    """Labels of the training set; of the last images of a batch, which another process holds, less is known."""
    labels = (numbers(IMAGES, CLASSES, seed=1) * 3).floor() - 1
    hidden = numbers(IMAGES, CLASSES, seed=2) < 0.6
    late = (torch.arange(IMAGES) % BATCH >= BATCH // 2).unsqueeze(1)
    labels = torch.where(hidden & late, 0, labels)
    labels[BATCH - 1] = 0  # an image of which nothing is known
    return labels.to(torch.int8)


def make_learner(settings: tuple[str, ...]) -> Learner:
    """The same weights in every process."""
    torch.manual_seed(0)
    config = make_config(apply_overrides(TINY, settings), "tiny")
    learner = build_learner(config, tuple("abcde"), np.asarray(table()))
    for number, buffer in enumerate(learner.network.buffers()):
        if buffer.is_floating_point() and buffer.ndim == 1:  # statistics that frozen stages were trained with
            buffer.add_(numbers(*buffer.shape, seed=number))
    return learner.double().train()


def train(settings: tuple[str, ...]) -> dict[str, Tensor]:
    """Train for a few steps of either stage; return all gradients, losses and what is remembered in the end."""
    learner = make_learner(settings)
    if learner.probe is not None:
        learner.probe.keep(torch.arange(IMAGES), numbers(IMAGES, CLASSES, seed=4) * 6 - 3, IMAGES)
    convert_to_shared_batch_norm(learner)
    together = dist.is_initialized()
    model = nn.parallel.DistributedDataParallel(learner, broadcast_buffers=False) if together else learner
    optimiser = torch.optim.SGD(learner.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    found: dict[str, Tensor] = {}
    for step, stage in enumerate(STAGES):
        if stage == 2:
            if STAGES[step - 1] == 1:
                features = numbers(CLASSES, 6, learner.network.feature_dim, seed=3) - 0.5
                learner.study(Survey(features, torch.arange(6).expand(CLASSES, 6)), 0, seed=0)
            learner.update_thresholds()
        indices = (torch.arange(BATCH) + step * BATCH) % IMAGES
        pixels = numbers(BATCH, 3, SIDE, SIDE, seed=10 + step) - 0.5
        batch = [own_part(tensor) for tensor in (pixels, table()[indices], indices)]
        teacher = None
        if learner.method.needs("teacher"):
            averaged = own_part(numbers(BATCH, CLASSES, seed=20 + step)) if step > 0 else None
            teacher = learner.teacher_probabilities(averaged, batch[-1])
        inputs = StepInputs(
            *batch,
            stage=stage,
            ramp=0.5,
            observe=step > 0,
            teacher=teacher,
            noise=numbers(CLASSES, BATCH * (BATCH - 1) // 2, seed=30 + step),
            shares=own_part(0.5 + 0.5 * numbers(BATCH, seed=40 + step)),
        )
        if learner.mixes(stage):
            mixed = model(inputs, True)
            mixed.loss.backward()
            found[f"{step}.loss.mixed"] = sum_across(mixed.loss.detach()) / (2 if together else 1)
        result = model(inputs)
        result.loss.backward()
        if stage == 1:
            learner.rules.zero_grad(set_to_none=True)
        for name, parameter in learner.named_parameters():
            if parameter.grad is not None:
                found[f"{step}.gradient.{name}"] = parameter.grad.clone()
        for name, part in result.parts.items():
            found[f"{step}.loss.{name}"] = sum_across(part) / (2 if together else 1)
        for name, labels in result.pseudo.items():
            found[f"{step}.pseudo.{name}"] = sum_across(labels.sum(0))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        learner.remember(result.generator_inputs)
    for name, value in learner.state_dict().items():
        found[f"state.{name}"] = sum_across(value) if name.endswith(".counts") else value
    return found


def main() -> None:
    """Train alone what one process trains, or meet the others and train together."""
    rank, processes, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from training.precise import compute_precisely

    compute_precisely()
    if rank == 0:
        torch.save({name: train(settings) for name, settings in cases().items()}, folder / "alone.pt")
    meeting = (folder / "meeting").absolute().as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=processes)
    torch.save({name: train(settings) for name, settings in cases().items()}, folder / f"{rank}.pt")
    leave()


if __name__ == "__main__":
    main()
