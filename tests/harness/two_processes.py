"""Run a program in two processes and read what each of them saved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch


def run_in_two_processes(program: str, folder: Path, *arguments: str) -> list[Any]:
    """Call a program with rank, 2, the folder and further arguments; each process leaves ``RANK.pt`` in the folder."""
    workers = [
        subprocess.Popen(
            [sys.executable, program, str(rank), "2", str(folder), *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        complaints = [worker.communicate(timeout=600)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(complaints)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]
