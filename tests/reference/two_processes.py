"""One of several processes that share their histograms and their bank; run by ``test_processes.py``.

Called with rank, number of processes and a folder, which holds the meeting point and takes the results.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from satl.processes import gather_across, sum_across, world_size
from satl.scoring import CrossImageGenerator, Evidence
from satl.thresholds import SemanticAwareThreshold

CLASSES, BATCH, STEPS = 4, 12, 25


def batches() -> list[Evidence]:
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
        found.append(Evidence(features, None, labels, torch.arange(BATCH) + step * BATCH))
    return found


def part_of(evidence: Evidence, rank: int, processes: int) -> Evidence:
    """The share of one process: a run of consecutive images."""
    rows = slice(rank * BATCH // processes, (rank + 1) * BATCH // processes)
    return Evidence(evidence.features[rows], None, evidence.labels[rows], evidence.images[rows])


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
        "gathered": gather_across(torch.arange(6).view(2, 3).t() + 10 * rank),
    }
    torch.save({**learn(rank, processes), **together}, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
