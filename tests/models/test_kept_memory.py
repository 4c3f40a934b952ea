"""Memory that is freed stays with the process where that is asked for, and only there."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path

import numpy as np
import pytest

from satl.models import kept_memory
from satl.models.kept_memory import memory_is_kept

BLOCK = 64 << 20
PAGES = BLOCK // resource.getpagesize()
takes_settings = pytest.mark.skipif(
    kept_memory._library() is None, reason="only the GNU C library takes these settings"
)


def resident() -> int:
    """Return the bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def faults(times: int) -> int:
    """Return how often the system gave this process a page while it took and freed a block several times."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        np.ones(BLOCK, dtype=np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@takes_settings
def test_a_block_is_taken_from_the_system_once() -> None:
    assert faults(8) > 4 * PAGES / 512, "pages may be large ones"
    with memory_is_kept():
        faults(1)
        assert faults(8) < PAGES / 512
    assert faults(8) > 4 * PAGES / 512


@takes_settings
def test_memory_is_given_back_in_the_end_and_after_an_error() -> None:
    held = []

    def fail() -> None:
        with memory_is_kept():
            faults(4)
            held.append(resident())
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    assert resident() < held[0] - BLOCK / 2


def test_other_systems_go_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> object:
        raise TypeError("name missing")

    for stand_in in (none, lambda _: object()):
        monkeypatch.setattr(ctypes, "CDLL", stand_in)
        assert kept_memory._library() is None
        with memory_is_kept():
            pass
