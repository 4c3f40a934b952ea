"""What other programs did while a training was timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from satl.training.other_work import other_processor_seconds
from training.tiny import tiny_config, train

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def pretend(proc: Path, worked: int, processes: dict[int, tuple[int, int]]) -> Path:
    """Write the files of a machine: what its processors worked in all, and process -> parent and own work."""
    proc.mkdir()
    (proc / "stat").write_text(f"cpu  {worked - 6} 1 2 900 90 1 1 1 5 5\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    (proc / "self").mkdir()
    for number, (parent, own) in processes.items():
        (proc / str(number)).mkdir()
        fields = ["S", parent, *([0] * 9), own - 3, 1, 1, 1, 0]
        (proc / str(number) / "stat").write_text(f"{number} (a ) name) {' '.join(map(str, fields))}\n")
    (proc / "77").mkdir()  # it ended while it was read
    return proc


def test_own_work_is_that_of_a_process_and_of_all_that_it_started(tmp_path: Path) -> None:
    processes = {1: (0, 10), 5: (1, 100), 6: (5, 200), 7: (6, 400), 8: (1, 800)}
    proc = pretend(tmp_path / "proc", 2000, processes)
    assert other_processor_seconds(5, proc) == (2000 - 700) / TICKS
    assert other_processor_seconds(8, proc) == (2000 - 800) / TICKS
    assert other_processor_seconds(1, proc) == (2000 - 1510) / TICKS


def test_a_system_that_does_not_say_it_is_none(tmp_path: Path) -> None:
    assert other_processor_seconds(5, tmp_path / "proc") is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text("cpu\n")
    assert other_processor_seconds(5, tmp_path / "proc") is None


@pytest.mark.skipif(other_processor_seconds() is None, reason="this system does not say it")
def test_what_a_child_does_is_own_work() -> None:
    busy = "import time\nwhile time.process_time() < 0.6: pass\nprint('done', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        # To this process the work of both is own work, to the child that of this process is work of others.
        own = time.process_time()
        others, others_of_child = other_processor_seconds(), other_processor_seconds(child.pid)
        child.communicate(b"\n")
    assert others is not None
    assert others_of_child is not None
    assert others_of_child - others > own - 0.2


def test_every_epoch_says_it(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config("training.epochs=2"))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    known = other_processor_seconds() is not None
    assert [row["other_seconds"] is not None for row in rows] == [known] * 2
    assert not known or all(row["other_seconds"] >= 0 for row in rows)
