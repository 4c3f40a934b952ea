"""Two machines train what two processes of one machine train; each machine is an agent of torchrun on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from training.test_processes import WORKER, finish, free_port, start, torchrun
from training.tiny import TINY, assert_same_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    training = {**TINY["training"], "checkpoint_steps": 1, "epochs": 2, "stage1_epochs": 1, "ema": 0.9}
    scenes = {**TINY["data"]["scenes"], "train": 320}
    content = {**TINY, "training": training, "data": {**TINY["data"], "scenes": scenes}}
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def one_machine(config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one torchrun with two processes."""
    folder = tmp_path_factory.mktemp("one")
    process = torchrun(folder / "dump", "train", config_file, "--out", folder / "run", "--quiet")
    code, _, err = finish(process)
    assert code == 0, err
    return folder / "run"


def machines(dump: Path, *arguments: object) -> list[subprocess.Popen[str]]:
    """Start two agents of one process each, as docs/howto/several_machines.md does on two machines."""
    dump.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "test"]
    command += ["--local-addr", "127.0.0.1", "--monitor-interval", "0.1", str(WORKER), str(dump)]
    return [start([*command, *map(str, arguments)]) for _ in range(2)]


def finish_both(agents: list[subprocess.Popen[str]]) -> tuple[list[int], str, str]:
    """Wait for the agents; return their exit codes and what they said together."""
    try:
        ended = [finish(agent) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    codes, outs, errs = zip(*ended, strict=True)
    return list(codes), "".join(outs), "".join(errs)


def children(agent: subprocess.Popen[str]) -> list[int]:
    return [int(one) for one in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()]


def wait_for_checkpoint(run: Path, agents: list[subprocess.Popen[str]], newer_than: int = 0) -> None:
    file = run / "checkpoints" / "last" / "training.pt"
    while all(agent.poll() is None for agent in agents):
        try:
            if file.stat().st_mtime_ns > newer_than:
                return
        except FileNotFoundError:  # not yet, or just being replaced
            pass
        time.sleep(0.02)


def test_two_machines_train_the_run_of_one_with_two_processes(
    config_file: Path, one_machine: Path, tmp_path: Path
) -> None:
    agents = machines(tmp_path / "dump", "train", config_file, "--out", tmp_path / "run", "--quiet")
    codes, out, err = finish_both(agents)
    assert codes == [0, 0], err
    assert out.count("is finished") == 1  # one of them speaks
    assert {file.name for file in (tmp_path / "dump").iterdir()} == {"rank-0.pt", "rank-1.pt"}
    assert_same_run(one_machine, tmp_path / "run")


def test_a_run_of_two_machines_goes_on_after_a_signal_and_after_a_machine_has_died(
    config_file: Path, one_machine: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    agents = machines(tmp_path / "dump", "train", config_file, "--out", run, "--quiet")
    wait_for_checkpoint(run, agents)
    for agent in agents:  # what SLURM and Kubernetes send before they end a job
        agent.send_signal(signal.SIGTERM)
    codes, out, err = finish_both(agents)
    assert 0 not in codes, out
    assert "resume with `satl train --resume" in err
    last = run / "checkpoints" / "last" / "training.pt"
    state = torch.load(last, weights_only=True)
    assert (state["epoch"], state["step"]) == (0, 10)  # all have saved the same step

    agents = machines(tmp_path / "dump", "train", "--resume", run, "--quiet")
    wait_for_checkpoint(run, agents, newer_than=last.stat().st_mtime_ns)
    (worker,) = children(agents[1])
    for process in (agents[1].pid, worker):  # the machine is gone, nothing is said to the other
        os.kill(process, signal.SIGKILL)
    codes, out, err = finish_both(agents)
    assert 0 not in codes, err  # the other machine does not wait for ever
    assert "is finished" not in out

    # As many processes, now on one machine.
    code, _, err = finish(torchrun(tmp_path / "dump", "train", "--resume", run, "--quiet"))
    assert code == 0, err
    assert_same_run(one_machine, run)
