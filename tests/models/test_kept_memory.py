"""Memory that is freed stays with the process where that is asked for, and only there."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

from satl.models import kept_memory
from satl.models.kept_memory import memory_is_kept

BLOCK = 64 << 20
MEASURE = f"""
import json, resource
import numpy as np
from satl.models.kept_memory import memory_is_kept

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def faults():
    # How often the system gives a page while a block is taken and freed eight times.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        np.ones({BLOCK}, dtype=np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

found = {{"before": faults()}}
try:
    with memory_is_kept():
        np.ones({BLOCK}, dtype=np.uint8)
        found["kept"] = faults()
        found["held"] = resident()
        raise ValueError
except ValueError:
    found["left"] = resident()
found["after"] = faults()
print(json.dumps(found))
"""


@pytest.mark.skipif(kept_memory._library() is None, reason="only the GNU C library takes these settings")
def test_a_block_is_taken_from_the_system_once_and_given_back_in_the_end() -> None:
    """In a process of its own, since others have threads and memory of many tests."""
    out = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True).stdout
    found = json.loads(out)
    assert found["kept"] < found["before"] / 8
    assert found["kept"] < found["after"] / 8
    assert found["left"] < found["held"] - BLOCK / 2, "after an error, too"


def test_other_systems_go_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> object:
        raise TypeError("name missing")

    for stand_in in (none, lambda _: object()):
        monkeypatch.setattr(ctypes, "CDLL", stand_in)
        assert kept_memory._library() is None
        with memory_is_kept():
            pass
