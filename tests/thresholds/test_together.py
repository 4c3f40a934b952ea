"""Two processes that each see half of the data end with the thresholds of one that sees all of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harness.two_processes import run_in_two_processes
from thresholds import rank_worker

State = dict[str, dict[str, Tensor]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[State]:
    return run_in_two_processes(rank_worker.__file__, tmp_path_factory.mktemp("pair"))


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
