"""Two processes under torchrun, on the CPU, through the command line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from training.tiny import TINY, assert_same, assert_same_run, fix_statistics, metrics, tiny_config, train

WORKER = Path(__file__).with_name("rank_worker.py")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def torchrun(dump: Path, *arguments: object) -> subprocess.Popen[str]:
    dump.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master-addr"]
    command += ["127.0.0.1", "--master-port", str(free_port()), str(WORKER), str(dump)]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=180)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY))
    return path


# With features that do not depend on the other images of a batch and weights that hardly move, two processes
# must see the very scores that one sees.
STILL = ("training.lr=1e-12", "training.optimiser=sgd", "training.epochs=3", "training.stage1_epochs=1")


def test_two_processes_find_the_thresholds_of_one(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [part for setting in STILL for part in ("--set", setting)]
    monkeypatch.setenv("FIXED_STATISTICS", "1")
    fix_statistics(monkeypatch.setattr)
    code, out, err = finish(
        torchrun(tmp_path / "dump", "train", config_file, "--out", tmp_path / "two", *settings)
    )
    assert code == 0, err
    assert out.count("is finished") == 1
    assert err.count("training and 24 validation images") == 1  # one of them speaks
    assert err.count("val mAP") == 3

    ranks = [torch.load(tmp_path / "dump" / f"rank-{rank}.pt") for rank in (0, 1)]
    first, second = (dict(rank["learner"]) for rank in ranks)
    local = [name for name in first if name.endswith(".counts")]
    assert len(local) == 2
    counts = {name: first.pop(name) + second.pop(name) for name in local}
    assert_same(first, second)  # thresholds, banks, weights, statistics
    assert ranks[0]["best"] == ranks[1]["best"]
    for one, other in zip(ranks[0]["steps"], ranks[1]["steps"], strict=True):
        assert (len(one), len(other)) == (8, 8)
        assert not set(one) & set(other)

    train(tmp_path / "one", tiny_config(*STILL))
    alone = load_file(tmp_path / "one" / "checkpoints" / "last" / "learner.safetensors")
    for name, total in counts.items():
        assert total.sum() == alone[name].sum() > 0
        assert torch.equal(total.sum(-1), alone[name].sum(-1))
        # A score may fall on the other side of a bin's edge by rounding, and no farther.
        assert (total - alone[name]).cumsum(-1).abs().max() <= 2
    for name in ("rules.intra.value", "rules.cross.value"):
        assert (first[name] < 1).any()
        torch.testing.assert_close(first[name], alone[name], rtol=0, atol=2 / 2048)
    assert torch.equal(first["generators.cross.written"], alone["generators.cross.written"])
    assert torch.equal(first["generators.cross.owners"], alone["generators.cross.owners"])
    rows, expected = metrics(tmp_path / "two"), metrics(tmp_path / "one")
    assert [row["val"]["num_images"] for row in rows] == [24, 24, 24]  # each image once
    assert rows[-1]["val"]["mAP"] == pytest.approx(expected[-1]["val"]["mAP"], abs=1e-4)
    assert (tmp_path / "two" / "thresholds.csv").read_text().count("\n") == 1 + 2 * 24


@pytest.mark.slow
def test_two_processes_stop_together_and_go_on_to_the_bit(config_file: Path, tmp_path: Path) -> None:
    settings = [
        "training.ema=0.9",
        "training.checkpoint_steps=1",
        "training.epochs=3",
        "data.scenes.train=320",
    ]
    start = ["train", config_file, *(part for setting in settings for part in ("--set", setting)), "--quiet"]
    code, _, err = finish(torchrun(tmp_path / "dump", *start, "--out", tmp_path / "alone"))
    assert code == 0, err
    ranks = [torch.load(tmp_path / "dump" / f"rank-{rank}.pt") for rank in (0, 1)]
    assert_same(ranks[0]["average"], ranks[1]["average"])

    process = torchrun(tmp_path / "dump", *start, "--out", tmp_path / "cut")
    children: list[str] = []
    while process.poll() is None and not (tmp_path / "cut" / "checkpoints" / "last").exists():
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[-1]), signal.SIGINT)  # one of them hears it, both must stop
    code, out, err = finish(process)
    assert code != 0
    assert "is finished" not in out
    assert "go on with `satl train --resume" in err
    state = torch.load(tmp_path / "cut" / "checkpoints" / "last" / "training.pt", weights_only=True)
    assert (state["epoch"], state["step"]) == (0, 10)
    code, _, err = finish(torchrun(tmp_path / "dump", "train", "--resume", tmp_path / "cut", "--quiet"))
    assert code == 0, err
    assert_same_run(tmp_path / "alone", tmp_path / "cut")
