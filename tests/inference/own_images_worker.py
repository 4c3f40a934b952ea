"""One of several processes that score images of their own; run by ``test_recogniser.py``.

Called with rank, number of processes, a folder, which holds the meeting point and takes the results, and a run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from satl.distributed import leave
from satl.images import ArrayImages, Batches
from satl.inference.recogniser import Recogniser
from satl.training.forward import class_probabilities


def images(rank: int) -> ArrayImages:
    """Images that only one process has, a different number in each."""
    shape = (5 + 4 * rank, 32, 32, 3)
    return ArrayImages(np.random.default_rng(rank).integers(0, 256, shape, dtype=np.uint8))


def main() -> None:
    """Meet the other processes and look at images: each at its own, all at the same ones, one process alone."""
    rank, processes, folder, run = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    recogniser = Recogniser.load(run)
    meeting = (folder / "meeting").absolute().as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=processes)
    found = {"own": recogniser.probabilities(images(rank), batch_size=3)}
    shared = Batches(images(1), batch_size=4, rank=rank, world_size=processes)
    found["shared"] = class_probabilities(
        recogniser.learner.network, shared, recogniser.transform, recogniser.device
    )
    if rank == 0:  # the others are on their way out: whoever waits for them fails
        found["alone"] = recogniser.probabilities(images(7), batch_size=16)
    torch.save({name: torch.from_numpy(value) for name, value in found.items()}, folder / f"{rank}.pt")
    leave()


if __name__ == "__main__":
    main()
