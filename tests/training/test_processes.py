"""Two processes train what one process trains: every method's step, and whole runs through the command line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from satl.inference.recogniser import Recogniser
from training import step_worker
from training.tiny import TINY, assert_same, assert_same_run, metrics

WORKER = Path(__file__).with_name("rank_worker.py")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(command: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def torchrun(dump: Path, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Run ``satl`` in two processes."""
    dump.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master-addr"]
    command += ["127.0.0.1", "--master-port", str(free_port()), str(WORKER), str(dump)]
    return start([*command, *map(str, arguments)], **environment)


def alone(dump: Path, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Run ``satl`` in one process."""
    dump.mkdir(exist_ok=True)
    return start([sys.executable, str(WORKER), str(dump), *map(str, arguments)], **environment)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err


def assert_close(one: Any, other: Any, rtol: float, atol: float, place: str = "") -> None:
    """Compare nested data: whole numbers to the bit, others up to rounding."""
    if isinstance(one, dict):
        assert list(one) == list(other), place
        for key in one:
            assert_close(one[key], other[key], rtol, atol, f"{place}.{key}")
    elif isinstance(one, Tensor) and one.is_floating_point():
        torch.testing.assert_close(
            one, other, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{place}: {m}"
        )
    elif isinstance(one, Tensor):
        assert torch.equal(one, other), place
    elif isinstance(one, list):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=rtol, atol=atol)
    elif one is None:
        assert other is None, place
    else:
        assert one == pytest.approx(other, rel=rtol, abs=atol, nan_ok=True), place


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("steps")
    program = [sys.executable, step_worker.__file__]
    workers = [start([*program, str(rank), "2", str(folder)]) for rank in range(2)]
    try:
        complaints = [worker.communicate(timeout=600)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(complaints)
    return {name: torch.load(folder / f"{name}.pt", weights_only=True) for name in ("alone", "0", "1")}


@pytest.mark.parametrize("case", list(step_worker.cases()))
def test_every_step_of_every_method_is_that_of_one_process(steps: dict[str, Any], case: str) -> None:
    expected = steps["alone"][case]
    gradients = [value for name, value in expected.items() if ".gradient." in name]
    assert len(gradients) > 40
    assert all(bool(value.isfinite().all()) for value in gradients)
    for rank in "01":
        assert_close(steps[rank][case], expected, rtol=1e-9, atol=1e-12, place=f"rank {rank}")


def test_the_steps_that_are_compared_are_worth_comparing(steps: dict[str, Any]) -> None:
    emitted = {
        case: sum(int(value.abs().sum()) for name, value in found.items() if ".pseudo." in name)
        for case, found in steps["alone"].items()
    }
    assert {"sst", "hst", "satl+", "large-loss", "permanent", "cap"} <= {
        case for case in emitted if emitted[case]
    }
    # Mixed images are compared in both stages.
    mixing = {f"{step}.loss.mixed" for step in range(len(step_worker.STAGES))}
    assert mixing <= steps["alone"]["satl+"].keys()
    # Less is known of the second half of a batch, so that each process alone would divide by a count of its own.
    halves = (step_worker.table() != 0).view(-1, 2, step_worker.BATCH // 2 * step_worker.CLASSES).sum(-1)
    assert bool((halves[:, 0] > halves[:, 1]).all())


def small_demo() -> dict[str, Any]:
    """What ``satl demo`` trains with its last method, on fewer pictures and with a narrower network."""
    content: dict[str, Any] = yaml.safe_load(
        files("satl.demo").joinpath("demo.yaml").read_text(encoding="utf-8")
    )
    del content["warm_up"]  # comes before the training, in one process
    content["model"]["train_stages"] = "all"
    content["method"] = {"name": "sst+satl", **content.pop("methods")["sst+satl"]}
    content["method"]["thresholds"]["update_every"] = 2
    content["data"] = {"scenes": {"train": 100, "val": 41, "test": 8, "size": 48}, "proportion": 0.3}
    content["images"]["workers"] = 0
    content["model"] |= {"backbone_kwargs": {"widths": [8, 16, 16]}, "reduction": "components"}
    content["training"] |= {"epochs": 4, "stage1_epochs": 2, "batch_size": 24, "ema": 0.9}
    return content


@pytest.mark.parametrize("method", ["sst+satl", pytest.param("satl+", marks=pytest.mark.slow)])
def test_two_processes_train_the_demo_of_one(tmp_path: Path, method: str) -> None:
    config = tmp_path / "demo.yaml"
    content = small_demo()
    if method == "satl+":  # a teacher, and pictures mixed with their neighbours
        content["method"] = {"name": method, "thresholds": {"rate": 0.5, "update_every": 2}}
    config.write_text(yaml.safe_dump(content))
    train = ("train", config, "--out")
    # With 64 bits: with 32 a rounding grows to some tenths of a percent of the loss within these epochs.
    runs = [
        run(tmp_path / f"of {name}", *train, tmp_path / name, COMPUTE_PRECISELY="1")
        for run, name in ((alone, "one"), (torchrun, "two"))
    ]
    (code, _, complaint), (code_of_two, out, err) = (finish(run) for run in runs)
    assert (code, code_of_two) == (0, 0), complaint + err
    assert out.count("is finished") == 1
    assert err.count("training and 41 validation images") == 1  # one of them speaks
    assert err.count("val mAP") == 4

    expected = torch.load(tmp_path / "of one" / "rank-0.pt")
    ranks = [torch.load(tmp_path / "of two" / f"rank-{rank}.pt") for rank in (0, 1)]
    local = [name for name in expected["learner"] if name.endswith(".counts")]
    assert len(local) == 2
    for name in local:
        total = sum(rank["learner"].pop(name) for rank in ranks)
        assert torch.equal(total, expected["learner"].pop(name)), name
    for part in ("learner", "average"):
        assert_same(ranks[0][part], ranks[1][part])  # thresholds, banks, weights, statistics
        assert_close(ranks[0][part], expected[part], rtol=1e-6, atol=1e-9)
    assert bool((expected["learner"]["rules.cross.value"] < 1).any())
    assert ranks[0]["best"] == ranks[1]["best"] == pytest.approx(expected["best"], rel=1e-6)
    for one, other, both in zip(ranks[0]["steps"], ranks[1]["steps"], expected["steps"], strict=True):
        assert (len(one), len(other)) == (12, 12)
        assert one + other == both

    rows, expected_rows = metrics(tmp_path / "two"), metrics(tmp_path / "one")
    assert [row["stage"] for row in rows] == [1, 1, 2, 2]
    assert [row["val"]["num_images"] for row in rows] == [41] * 4  # each image once, though 41 is odd
    assert rows[-1]["pseudo_labels"]["union"]["emitted"] > 0
    for row, expected_row in zip(rows, expected_rows, strict=True):
        assert_close(row, expected_row, rtol=1e-6, atol=2e-6)
    assert (tmp_path / "two" / "thresholds.csv").read_text() == (
        tmp_path / "one" / "thresholds.csv"
    ).read_text()


@pytest.mark.slow
def test_micro_batches_make_the_same_weights_with_any_number_of_processes(tmp_path: Path) -> None:
    content = small_demo()
    content["method"] = {"name": "ml-gcn"}
    content["model"]["train_stages"] = []  # nothing is left in which the images of a micro-batch meet
    content["training"] |= {"clip_norm": 0.05}
    config = tmp_path / "parts.yaml"
    config.write_text(yaml.safe_dump(content))
    found = []
    for name, run, parts in (("whole", alone, 1), ("one", alone, 3), ("two", torchrun, 3)):
        arguments = (
            "train",
            config,
            "--out",
            tmp_path / name,
            "--set",
            f"training.accumulate={parts}",
            "--quiet",
        )
        code, _, err = finish(run(tmp_path / f"of {name}", *arguments, COMPUTE_PRECISELY="1"))
        assert code == 0, err
        found.append(torch.load(tmp_path / f"of {name}" / "rank-0.pt")["learner"])
    for state in found[1:]:
        assert_close(state, found[0], rtol=1e-6, atol=1e-9)
    code, _, err = finish(
        torchrun(
            tmp_path / "of none", *arguments[:2], "--out", tmp_path / "none", "--set", "training.accumulate=8"
        )
    )
    assert code != 0
    assert "24 cannot be shared by 2 processes in 8 micro-batches each; use a multiple of 16." in err


@pytest.mark.slow
def test_a_head_in_two_shards_is_the_head_of_one_process(tmp_path: Path) -> None:
    config = tmp_path / "demo.yaml"
    config.write_text(yaml.safe_dump(small_demo()))
    train = ("train", config, "--set", "training.shard=true", "--quiet", "--out")
    runs = [
        alone(tmp_path / "dump", *train, tmp_path / "one", COMPUTE_PRECISELY="1"),
        torchrun(tmp_path / "dump of two", *train, tmp_path / "two", COMPUTE_PRECISELY="1", STOP_AT_ONCE="1"),
    ]
    (code, _, err), (code_of_two, _, err_of_two) = (finish(run) for run in runs)
    assert code == 0, err
    assert code_of_two != 0
    assert "stopped after epoch 1" in err_of_two
    # Whole tensors are saved: the run goes on, and what it ends with is loaded by one process as ever.
    process = torchrun(
        tmp_path / "of two", "train", "--resume", tmp_path / "two", "--quiet", COMPUTE_PRECISELY="1"
    )
    code, _, err = finish(process)
    assert code == 0, err
    held = torch.load(tmp_path / "of two" / "rank-0.pt", weights_only=False)["learner"]
    weight = held["network.pair_head.classifier.weight"]
    assert weight.to_local().shape[0] == weight.shape[0] // 2
    for checkpoint in ("last", "best"):
        for file in sorted((tmp_path / "one" / "checkpoints" / checkpoint).glob("*.safetensors")):
            expected, found = (
                load_file(file),
                load_file(tmp_path / "two" / "checkpoints" / checkpoint / file.name),
            )
            local = [name for name in expected if name.endswith(".counts")]
            for state in (expected, found):
                for name in local:  # what the first process has counted alone
                    state.pop(name)
            assert_close(dict(sorted(found.items())), dict(sorted(expected.items())), rtol=1e-6, atol=1e-9)
    for row, expected_row in zip(metrics(tmp_path / "two"), metrics(tmp_path / "one"), strict=True):
        assert_close(row, expected_row, rtol=1e-6, atol=2e-6)
    Recogniser.load(tmp_path / "two")


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY))
    return path


@pytest.mark.slow
def test_two_processes_stop_together_and_go_on_to_the_bit(config_file: Path, tmp_path: Path) -> None:
    settings = [
        "training.ema=0.9",
        "training.checkpoint_steps=1",
        "training.epochs=3",
        "data.scenes.train=320",
    ]
    begin = ["train", config_file, *(part for setting in settings for part in ("--set", setting)), "--quiet"]
    code, _, err = finish(torchrun(tmp_path / "dump", *begin, "--out", tmp_path / "alone"))
    assert code == 0, err
    ranks = [torch.load(tmp_path / "dump" / f"rank-{rank}.pt") for rank in (0, 1)]
    assert_same(ranks[0]["average"], ranks[1]["average"])

    process = torchrun(tmp_path / "dump", *begin, "--out", tmp_path / "cut")
    children: list[str] = []
    while process.poll() is None and not (tmp_path / "cut" / "checkpoints" / "last").exists():
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[-1]), signal.SIGINT)  # one of them hears it, both must stop
    code, out, err = finish(process)
    assert code != 0
    assert "is finished" not in out
    assert "resume with `satl train --resume" in err
    state = torch.load(tmp_path / "cut" / "checkpoints" / "last" / "training.pt", weights_only=True)
    assert (state["epoch"], state["step"]) == (0, 10)
    code, _, err = finish(torchrun(tmp_path / "dump", "train", "--resume", tmp_path / "cut", "--quiet"))
    assert code == 0, err
    assert_same_run(tmp_path / "alone", tmp_path / "cut")
