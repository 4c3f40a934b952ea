"""Two processes that each see half of the data end where one process ends that sees all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness import shared_batch_worker, shared_state_worker
from harness.two_processes import run_in_two_processes
from satl.distributed import (
    count_per_process,
    gather_across,
    gather_with_gradient,
    own_part,
    process_rank,
    sum_across,
    world_size,
)
from satl.errors import ConfigError
from satl.models.batch_norm import SharedBatchNorm, convert_to_shared_batch_norm


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    return run_in_two_processes(shared_state_worker.__file__, tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_in_two_processes(shared_batch_worker.__file__, tmp_path_factory.mktemp("sharing"))


@pytest.fixture(scope="module")
def whole() -> dict[str, dict[str, Tensor]]:
    return shared_batch_worker.learn()


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    return shared_state_worker.learn()


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


def in_order(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The prototypes of each class by their first coordinate: which of them is found first hangs on rounding."""
    order = state["prototype_rows"][..., 0].argsort(-1)
    sorted_rows = {
        "prototype_rows": state["prototype_rows"].take_along_dim(order.unsqueeze(-1), 1),
        **{
            f"prototype_{name}": state[f"prototype_{name}"].gather(1, order) for name in ("members", "owners")
        },
    }
    return {**state, **sorted_rows}


def test_prototypes_are_those_of_one_process(pair: list[dict[str, Tensor]]) -> None:
    for name in ("prototype_members", "prototype_owners"):
        assert torch.equal(pair[0][name], pair[1][name]), name
    alone, pair = in_order(shared_state_worker.look()), [in_order(state) for state in pair]
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
    assert not torch.equal(pair[0]["weight"], shared_state_worker.make_network().class_head.output.weight)


def test_sums_and_concatenations(pair: list[dict[str, Tensor]]) -> None:
    for rank, state in enumerate(pair):
        assert int(state["world_size"]) == 2
        assert state["sum"].tolist() == [3, 3]
        assert state["first"].tolist() == [1, 1]
        assert state["kept"].tolist() == [rank + 1, rank + 1]
        assert state["gathered"].tolist() == [[0, 3], [1, 4], [2, 5], [10, 13], [11, 14], [12, 15]]


def test_one_process_changes_nothing() -> None:
    tensor = torch.arange(3)
    assert (world_size(), process_rank()) == (1, 0)
    for function in (sum_across, gather_across, gather_with_gradient):
        assert function(tensor) is tensor
    assert torch.equal(own_part(tensor), tensor)
    assert count_per_process(torch.tensor(0)).tolist() == 1
    assert count_per_process(torch.tensor(7)).tolist() == 7
    layer = nn.Sequential(nn.BatchNorm2d(3))
    assert type(convert_to_shared_batch_norm(layer)[0]) is nn.BatchNorm2d


def test_a_share_of_a_count(sharing: list[dict[str, Any]]) -> None:
    for rank, state in enumerate(sharing):
        few = state["few"]
        assert int(few["rank"]) == rank
        assert float(few["nothing"]) == 0.5  # one cell, for both of them together
        assert float(few["count"]) == 1.5
        torch.testing.assert_close(few["whole"], torch.tensor([0.0, 0.1, 1.0, 0.1]), rtol=0, atol=0)


LAYERS = ["2d", "1d", "activated", "cumulative", "bare", "frozen"]


@pytest.mark.parametrize("name", [*LAYERS, "half", "compare"])
def test_a_batch_in_two_shares_is_that_batch(
    sharing: list[dict[str, Any]], whole: dict[str, dict[str, Tensor]], name: str
) -> None:
    wrong = {"half": 0.02, "frozen": 5e-4}.get(name, 2e-5)
    for state in sharing:
        assert list(state[name]) == list(whole[name])
        for key, value in whole[name].items():
            found = state[name][key]
            torch.testing.assert_close(
                found, value, rtol=wrong, atol=wrong, msg=lambda m, key=key: f"{key}: {m}"
            )
    for key in whole[name]:
        assert torch.equal(sharing[0][name][key], sharing[1][name][key]), key


@pytest.mark.slow
def test_compiled_code_shares_as_well(whole: dict[str, dict[str, Tensor]], tmp_path: Path) -> None:
    for state in run_in_two_processes(shared_batch_worker.__file__, tmp_path, "compiled"):
        assert list(state) == ["2d", "compare"]
        for name, found in state.items():
            for key, value in whole[name].items():
                torch.testing.assert_close(found[key], value, rtol=2e-5, atol=2e-5)


def test_shares_matter(whole: dict[str, dict[str, Tensor]]) -> None:
    layer = nn.BatchNorm2d(shared_batch_worker.CHANNELS)
    half = layer(shared_batch_worker.batch(0, 4, 5)[:4])
    assert float((half - whole["bare"]["0.result"][:4]).detach().abs().max()) > 0.05


def test_a_shared_layer_alone_is_the_layer() -> None:
    for name in LAYERS[:-1]:
        plain, shape = shared_batch_worker.layers()[name]
        shared = SharedBatchNorm(shared_batch_worker.layers()[name][0][0])  # type: ignore[index, arg-type]
        pixels = shared_batch_worker.batch(0, *shape)
        torch.testing.assert_close(shared(pixels), plain(pixels), rtol=1e-5, atol=1e-5)
        for key, value in plain[0].state_dict().items():  # type: ignore[index, union-attr]
            torch.testing.assert_close(shared.state_dict()[key], value)


def test_an_unknown_kind_of_statistics_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Whitening(nn.BatchNorm2d):
        pass

    monkeypatch.setattr("satl.models.batch_norm.world_size", lambda: 2)
    convert_to_shared_batch_norm(nn.Sequential(Whitening(3).eval()))  # frozen: nothing to share
    with pytest.raises(ConfigError, match=r"layer Whitening, .*model\.train_stages"):
        convert_to_shared_batch_norm(nn.Sequential(nn.Sequential(Whitening(3))))


# What gloo does when Python is taken down before its threads are: it aborts.
LEAVING = """
import atexit, os, sys

class Fragile:
    def __del__(self):
        os.abort()

fragile = Fragile()
atexit.register(lambda: open(sys.argv[1], "w").write("exit functions ran"))
sys.stdout.write("said")
{end}
"""


@pytest.mark.parametrize("status", [0, 2])
def test_a_process_that_leaves_is_not_taken_down(status: int, tmp_path: Path) -> None:
    def run(end: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-c", LEAVING.format(end=end), str(tmp_path / "file")]
        return subprocess.run(program, capture_output=True, text=True, timeout=600, check=False)

    assert run("").returncode < 0
    (tmp_path / "file").unlink()
    left = run(f"import satl.distributed; satl.distributed.leave({status})")
    assert (left.returncode, left.stdout, left.stderr) == (status, "said", "")
    assert (tmp_path / "file").read_text() == "exit functions ran"


@pytest.mark.parametrize(("command", "status"), [("--version", 0), ("no-such-command", 2)])
def test_a_command_of_one_of_several_processes_leaves(command: str, status: int) -> None:
    """As the command line sees it: the group is there when the command ends, whatever its end."""
    program = f"""
import sys
import satl.distributed
satl.distributed.world_size = lambda: 2
satl.distributed.leave = lambda status: sys.exit(100 + status)
sys.argv = ["satl", "{command}"]
from satl.cli import main
main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=600, check=False
    ).returncode
    assert ended == 100 + status
