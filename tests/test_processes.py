"""Two processes that each see half of the data end where one process ends that sees all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from reference import two_processes
from satl.processes import gather_across, sum_across, world_size


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    folder = tmp_path_factory.mktemp("pair")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen(
            [sys.executable, two_processes.__file__, str(rank), "2", str(folder)],
            env=environment,
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


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    return two_processes.learn()


def test_thresholds_are_those_of_one_process(pair: list[dict[str, Tensor]], alone: dict[str, Tensor]) -> None:
    assert bool((alone["value"] < 1).all())
    for name in ("value", "ideal", "counts_of_all"):
        for state in pair:
            torch.testing.assert_close(state[name], alone[name], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(pair[0]["counts"] + pair[1]["counts"], alone["counts"])
    assert not torch.equal(pair[0]["counts"], pair[1]["counts"])


def test_banks_are_those_of_one_process(pair: list[dict[str, Tensor]], alone: dict[str, Tensor]) -> None:
    assert int(alone["written"][0]) > 8
    for name in ("rows", "owners", "written"):
        for state in pair:
            assert torch.equal(state[name], alone[name]), name


def test_prototypes_are_those_of_one_process(pair: list[dict[str, Tensor]]) -> None:
    alone = two_processes.look()
    assert int((pair[0]["shares"] + pair[1]["shares"] - alone["shares"]).abs().max()) == 0
    assert not torch.equal(pair[0]["shares"], pair[1]["shares"])
    assert int(alone["prototype_members"].sum()) > 12
    for state in pair:
        for name in ("images", "prototype_members", "prototype_owners"):
            assert torch.equal(state[name], alone[name]), name
        for name in ("features", "prototype_rows"):
            torch.testing.assert_close(state[name], alone[name], rtol=0, atol=1e-5)
    for name in ("features", "prototype_rows"):
        assert torch.equal(pair[0][name], pair[1][name]), name


def test_thresholds_that_stage_1_does_not_use_learn_together(pair: list[dict[str, Tensor]]) -> None:
    for name in ("path", "weight"):
        assert torch.equal(pair[0][name], pair[1][name]), name
    assert bool((pair[0]["path"][:2] == 1.0).all())
    assert bool((pair[0]["path"][2:] < 1.0).all())
    assert not torch.equal(pair[0]["weight"], two_processes.make_network().class_head.output.weight)


def test_sums_and_concatenations(pair: list[dict[str, Tensor]]) -> None:
    for rank, state in enumerate(pair):
        assert int(state["world_size"]) == 2
        assert state["sum"].tolist() == [3, 3]
        assert state["kept"].tolist() == [rank + 1, rank + 1]
        assert state["gathered"].tolist() == [[0, 3], [1, 4], [2, 5], [10, 13], [11, 14], [12, 15]]


def test_one_process_changes_nothing() -> None:
    tensor = torch.arange(3)
    assert world_size() == 1
    assert sum_across(tensor) is tensor
    assert gather_across(tensor) is tensor
