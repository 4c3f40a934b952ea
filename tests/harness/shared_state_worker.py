"""One of several processes that share histograms, bank, survey and gradients; run by ``test_distributed.py``.

Called with rank, number of processes and a folder, which holds the meeting point and takes the results.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from satl.distributed import gather_across, leave, of_first_process, sum_across, world_size
from satl.images import ArrayImages, Batches, EvalTransform
from satl.methods import Learner, StepInputs, configure, get_method
from satl.models import SemanticTransferNetwork
from satl.scoring import CrossImageGenerator, GeneratorInputs, PrototypeGenerator
from satl.thresholds import SemanticAwareThreshold
from satl.training.survey import plan_survey, take_survey

CLASSES, BATCH, STEPS = 4, 12, 25


def batches() -> list[GeneratorInputs]:
    """The same batches in every process."""
    noise = torch.Generator().manual_seed(0)
    found = []
    for step in range(STEPS):
        labels = torch.randint(-1, 2, (BATCH, CLASSES), generator=noise)
        labels[:, 3] = labels[:, 3].clamp(max=0)
        if step % 2:
            labels[BATCH // 2 :, 2] = 0  # a class of which the second process sometimes knows nothing
        features = torch.randn(CLASSES, BATCH, 5, generator=noise).transpose(
            0, 1
        )  # strided, as networks' are
        found.append(GeneratorInputs(features, None, labels, torch.arange(BATCH) + step * BATCH))
    return found


def part_of(evidence: GeneratorInputs, rank: int, processes: int) -> GeneratorInputs:
    """The share of one process: a run of consecutive images."""
    rows = slice(rank * BATCH // processes, (rank + 1) * BATCH // processes)
    return GeneratorInputs(evidence.features[rows], None, evidence.labels[rows], evidence.images[rows])


def learn(rank: int = 0, processes: int = 1) -> dict[str, Tensor]:
    """Feed a generator and its thresholds, and return all their state."""
    generator, rule = (
        CrossImageGenerator(CLASSES, 5, size=8),
        SemanticAwareThreshold(CLASSES, rate=0.4, bins=64),
    )
    for step, evidence in enumerate(batches()):
        mine = part_of(evidence, rank, processes)
        rule.observe(generator(mine).values, mine.labels)
        generator.remember(mine)
        if step % 8 == 7:
            rule.update()
    state = {**generator.state_dict(), **rule.state_dict()}
    return {**state, "ideal": rule.ideal(), "counts_of_all": sum_across(rule.counts)}


class Stripes(nn.Module):
    """A backbone of one convolution."""

    channels = 6

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 6, 3, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layer(images).tanh()
        return features


def make_network() -> SemanticTransferNetwork:
    """The same weights in every process."""
    torch.manual_seed(0)
    sizes = {"feature_dim": 5, "attention_dim": 4, "pair_dim": 4, "pair_hidden": 4, "embedding_dim": 3}
    return SemanticTransferNetwork(CLASSES, Stripes(), torch.eye(CLASSES), **sizes)


def look(rank: int = 0, processes: int = 1) -> dict[str, Tensor]:
    """Take a survey of 25 images by threes, so that shares differ and the last is empty for all but one."""
    noise = np.random.RandomState(0)
    source = ArrayImages(noise.randint(0, 256, (30, 16, 16, 3)).astype(np.uint8))
    cells = noise.randint(-1, 2, (30, CLASSES)).astype(np.int8)
    cells[:, 3], cells[[2, 9, 11, 20, 29]] = 0, 0
    rows = np.arange(30)
    plan = plan_survey(cells, rows, 7, seed=0, epoch=5)
    needed = np.unique(plan.rows)
    batches = Batches(source, needed, batch_size=3, rank=rank, world_size=processes)
    device = torch.device("cpu")
    survey = take_survey(make_network(), plan, batches, EvalTransform(16), device)
    generator = PrototypeGenerator(CLASSES, 5, size=3)
    generator.study(survey, seed=1)
    shares = torch.tensor([batches.share(step).num for step in range(len(batches))])
    prototypes = {f"prototype_{name}": value for name, value in generator.state_dict().items()}
    return {**prototypes, "features": survey.features, "images": survey.images, "shares": shares}


def descend(rank: int = 0, processes: int = 1) -> dict[str, Tensor]:
    """Train HST, whose thresholds are parameters that stage 1 does not use, for a few steps."""
    method = get_method("hst")
    learner = Learner(*configure(method, {}), make_network(), proportion=0.5)
    model = nn.parallel.DistributedDataParallel(learner) if processes > 1 else learner
    optimiser = torch.optim.SGD(learner.parameters(), lr=0.1, weight_decay=0.5)
    paths: list[Tensor] = []
    for step in range(4):
        pixels = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(10 * step + rank))
        labels = torch.randint(-1, 2, (4, CLASSES), generator=torch.Generator().manual_seed(rank))
        stage = 1 if step < 2 else 2
        images = 4 * processes
        shape = (CLASSES, images * (images - 1) // 2)
        noise = torch.rand(shape, generator=torch.Generator().manual_seed(step))
        result = model(StepInputs(pixels, labels, torch.arange(4), stage, observe=True, noise=noise))
        result.loss.backward()
        if stage == 1:
            learner.rules.zero_grad(set_to_none=True)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        paths.append(learner.thresholds()["intra"].clone())
    weight = learner.network.class_head.output.weight.detach()
    return {"path": torch.stack(paths), "weight": weight}


def main() -> None:
    """Meet the other processes and learn together."""
    rank, processes, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    meeting = (folder / "meeting").absolute().as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=processes)
    mine = torch.full((2,), rank + 1)
    together = {
        "world_size": torch.tensor(world_size()),
        "sum": sum_across(mine),
        "kept": mine,
        "first": of_first_process(mine),
        "gathered": gather_across(torch.arange(6).view(2, 3).t() + 10 * rank),
    }
    found = {**learn(rank, processes), **look(rank, processes), **descend(rank, processes), **together}
    torch.save(found, folder / f"{rank}.pt")
    leave()


if __name__ == "__main__":
    main()
