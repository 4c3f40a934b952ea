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


def test_all_processes_remember_the_cells_of_one(pair: list[State]) -> None:
    alone = rank_worker.learn()["permanent"]
    assert int(alone["written"]) == 18 * 3
    assert bool((alone["value"] < 1).all())
    for state in pair:
        for buffer, value in state["permanent"].items():
            assert torch.equal(value, alone[buffer]), buffer
