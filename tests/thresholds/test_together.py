"""Two processes that each see half of the data end with the thresholds of one that sees all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from thresholds import rank_worker

State = dict[str, dict[str, Tensor]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[State]:
    folder = tmp_path_factory.mktemp("pair")
    workers = [
        subprocess.Popen(
            [sys.executable, rank_worker.__file__, str(rank), "2", str(folder)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        complaints = [worker.communicate(timeout=120)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(complaints)
    return [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", ["fixed", "flexmatch", "cap", "mat"])
def test_thresholds_are_those_of_one_process(pair: list[State], name: str) -> None:
    alone = rank_worker.learn()[name]
    assert bool((alone["value"][:3] < 1).all())
    for state in pair:
        assert torch.equal(state[name]["value"], alone["value"])


def test_all_processes_remember_the_same_cells(pair: list[State]) -> None:
    one, other = (state["permanent"] for state in pair)
    for buffer, value in one.items():
        assert torch.equal(value, other[buffer]), buffer
    # Two batches of 24 cells take 2 each, one batch of 48 takes 3: a share is that of a process's batch.
    assert int(one["written"]) == 18 * 2 * 2
    assert int(rank_worker.learn()["permanent"]["written"]) == 18 * 3
    assert bool((one["value"] < 1).all())
