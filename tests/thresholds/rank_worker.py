"""One of several processes whose rules observe a share of the same batches; run by ``test_together.py``.

Called with rank, number of processes and a folder, which holds the meeting point and takes the results.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from satl.distributed import leave
from satl.thresholds import (
    CalibratedThreshold,
    FixedThreshold,
    FlexibleThreshold,
    LargeLossThreshold,
    MetricThreshold,
    PrecisionThreshold,
    ProportionThreshold,
    ShrunkenThreshold,
    ThresholdRule,
)

CLASSES, BATCH, STEPS = 4, 12, 18


def rules() -> dict[str, ThresholdRule]:
    """One of every rule that is not tried elsewhere."""
    return {
        "fixed": FixedThreshold(CLASSES),
        "flexmatch": FlexibleThreshold(CLASSES, confidence=0.8, floor=0.1),
        "cap": ProportionThreshold(CLASSES, bins=64),
        "mat": MetricThreshold(CLASSES, bins=64),
        "precision": PrecisionThreshold(CLASSES, 0.6, bins=64),
        "shrunk": ShrunkenThreshold(CLASSES, 0.6, bins=64),
        "calibrated": CalibratedThreshold(CLASSES, 0.6, bins=64),
        "permanent": LargeLossThreshold(CLASSES, share_step=0.05, permanent=True, memory=100, bins=64),
    }


def batches() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Scores, labels and images, the same in every process; the last class has no known positives."""
    noise = torch.Generator().manual_seed(0)
    found = []
    for step in range(STEPS):
        labels = torch.randint(-1, 2, (BATCH, CLASSES), generator=noise)
        labels[:, 3] = labels[:, 3].clamp(max=0)
        scores = (torch.rand(BATCH, CLASSES, generator=noise) + 0.3 * (labels > 0)) / 1.3
        found.append((scores, labels, torch.arange(BATCH) + step % 6 * BATCH))
    return found


def learn(rank: int = 0, processes: int = 1) -> dict[str, dict[str, Tensor]]:
    """Feed every rule for three epochs of six steps and return all their state."""
    learned = rules()
    mine = slice(rank * BATCH // processes, (rank + 1) * BATCH // processes)
    for step, (scores, labels, images) in enumerate(batches()):
        for rule in learned.values():
            if step % 6 == 0:
                rule.update()
            rule.pseudo_labels(scores[mine], labels[mine], images[mine])
            rule.observe(scores[mine], labels[mine])
    for rule in learned.values():
        rule.update()
    return {name: rule.state_dict() for name, rule in learned.items()}


def main() -> None:
    """Meet the other processes and learn together."""
    rank, processes, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    meeting = (folder / "meeting").absolute().as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=processes)
    torch.save(learn(rank, processes), folder / f"{rank}.pt")
    leave()


if __name__ == "__main__":
    main()
