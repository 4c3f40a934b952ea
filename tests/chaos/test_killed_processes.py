"""Real processes that are killed: a review server, a rank of torchrun, a worker of Ray."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from chaos.comparing import difference, snapshot, strays
from review.synthetic import small_folder
from satl.review.database import ReviewStore
from satl.scenes import write_scenes
from training.tiny import TINY, assert_same_run, tiny_config, train

LIMIT = 600


def environment(**further: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **further}


def wait_for(condition: object, process: subprocess.Popen[str]) -> None:
    """Wait until a condition holds or a process ends."""
    assert callable(condition)
    end = time.monotonic() + LIMIT
    while process.poll() is None and not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def decide_until_killed(out: Path, cells: list[tuple[str, str]], first: int, most: int) -> int:
    """Serve a review, send decisions one after the other, kill the server meanwhile; return how many it answered."""
    command = [sys.executable, "-m", "satl", "review", str(out), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as server:
        assert server.stdout is not None
        address = next(
            found[0]
            for line in server.stdout
            if (found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line))
        )
        home = address.partition("/?")[0]
        cookie = urllib.request.urlopen(address).headers["set-cookie"].partition(";")[0]
        headers = {
            **{"cookie": cookie, "origin": home, "x-satl-review": "1", "sec-fetch-site": "same-origin"},
            "content-type": "application/json",
        }
        answered = 0
        killer = threading.Timer(0.05, lambda: None)
        for number, (image, label) in enumerate(cells[first:], start=first):
            cell = {"image": image, "label": label, "value": 1, "based_on": None}
            body = json.dumps({"tab": "t", "request": f"cell {number}", "cells": [cell]}).encode()
            if answered == most:
                # While the next request is under way.
                killer = threading.Timer(0.002 * (first % 5), server.kill)
                killer.start()
            try:
                urllib.request.urlopen(urllib.request.Request(f"{home}/api/decide", body, headers)).read()
            except (OSError, HTTPException):
                break
            answered += 1
        killer.join(LIMIT)
        server.kill()
        return answered


@pytest.mark.slow
def test_decisions_that_a_server_acknowledged_survive_its_kill(tmp_path: Path) -> None:
    completed = small_folder(tmp_path / "out")
    cells = [(row[0], row[1]) for row in completed.rows]
    sent = 0
    for _ in range(4):
        answered = decide_until_killed(completed.out, cells, sent, most=6)
        assert answered >= 6
        with ReviewStore(completed.out) as store:
            found = [(cell.image, cell.label) for cell in store.decisions()]
        assert found[: sent + answered] == cells[: sent + answered]
        assert len(found) <= sent + answered + 1  # one more may be stored that nobody was told of
        sent = len(found)
    assert sent >= 24


SECONDS_TO_MEET = 180.0
"""After them ranks are taken to wait for each other in vain; stopping others costs nothing, since they are resumed."""


@pytest.mark.slow
def test_a_killed_rank_is_restarted_by_torchrun_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    settings = {**TINY["training"], "checkpoint_steps": 1, "epochs": 3, "stage1_epochs": 1}
    scenes = {**TINY["data"]["scenes"], "train": 128}
    content = {**TINY, "training": settings, "data": {**TINY["data"], "scenes": scenes}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(content))

    def torchrun(*arguments: object) -> subprocess.Popen[str]:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc_per_node",
            "2",
            "--max-restarts",
            "3",
        ]
        command += [
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            f"127.0.0.1:{port}",
            "--monitor-interval",
            "0.1",
        ]
        command += ["--local-addr", "127.0.0.1", "-m", "satl", *map(str, arguments), "--quiet"]
        errors = (tmp_path / "errors").open("w")
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, text=True, env=environment()
        )

    def errors() -> str:
        return (tmp_path / "errors").read_text()[-3000:]

    def kill_a_rank(process: subprocess.Popen[str], checkpoint: Path) -> None:
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        wait_for(lambda: checkpoint.exists() and checkpoint.stat().st_mtime_ns > before, process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2, errors()
        os.kill(int(children[1]), signal.SIGKILL)

    def code_or_stopped(process: subprocess.Popen[str]) -> int | None:
        try:
            return process.wait(SECONDS_TO_MEET)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(LIMIT)
            return None

    alone = torchrun("train", tmp_path / "tiny.yaml", "--out", tmp_path / "alone")
    assert alone.wait(LIMIT) == 0, errors()

    # The command that begins a run is refused when the agent repeats it, and says what to do instead.
    process = torchrun("train", tmp_path / "tiny.yaml", "--out", tmp_path / "cut")
    kill_a_rank(process, tmp_path / "cut" / "checkpoints" / "last" / "training.pt")
    assert process.wait(LIMIT) != 0
    assert "already holds a run; resume it with `satl train --resume" in " ".join(errors().split())

    # The command that resumes it goes on after a kill.
    process = torchrun("train", "--resume", tmp_path / "cut")
    kill_a_rank(process, tmp_path / "cut" / "checkpoints" / "last" / "training.pt")
    for _ in range(5):
        code = code_or_stopped(process)
        if code == 0:
            break
        # Restarted ranks may miss each other: gloo then gives up, or waits for half an hour. The same command goes on.
        process = torchrun("train", "--resume", tmp_path / "cut")
    assert code == 0, errors()
    assert_same_run(tmp_path / "alone", tmp_path / "cut")


@pytest.mark.slow
def test_a_killed_worker_of_ray_costs_one_part(tmp_path: Path) -> None:
    if find_spec("ray") is None:  # not imported here: satl must be first, to keep it to this machine
        pytest.skip("ray is not installed")
    import psutil

    train(tmp_path / "run", tiny_config("training.epochs=1", "training.stage1_epochs=1"))
    write_scenes(tmp_path / "scenes", 60, size=32)

    def predict(out: str, *further: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "satl", "predict", tmp_path / "run", tmp_path / "scenes"]
        command += ["-o", tmp_path / out, "--part-size", "1", *further]
        return subprocess.Popen(
            list(map(str, command)), stderr=subprocess.PIPE, text=True, env=environment(RAY_DEDUP_LOGS="0")
        )

    assert predict("alone").wait(LIMIT) == 0

    def kill_a_worker(process: subprocess.Popen[str], out: Path) -> bool:
        """Kill a worker once some parts are there; false if all was done before this process got to it."""
        wait_for(lambda: len(list(out.glob("part-*"))) > 3, process)
        with suppress(psutil.NoSuchProcess):
            for one in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if "PartPredictor" in " ".join(one.cmdline()[:1]):
                        one.kill()
                        return process.poll() is None
        return False

    for attempt in range(10):  # on a busy machine the work may end first
        out = tmp_path / f"shared{attempt}"
        process = predict(out.name, "--ray", "local")
        killed = kill_a_worker(process, out)
        _, text = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, text
        assert difference(snapshot(tmp_path / "alone"), snapshot(out)) == ""
        assert strays(out) == []
        if killed:
            break
    else:
        pytest.fail("the work always ended before a worker could be killed")
