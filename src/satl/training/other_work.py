"""What other programs do on this machine while a training is timed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from satl.distributed import world_size

_WORKING = (0, 1, 2, 5, 6, 7)
"""Columns of the first line of ``/proc/stat`` that are work: user, nice, system, irq, softirq, and stolen by others."""


class EpochTimer:
    """Times the steps of an epoch, and what other programs do meanwhile."""

    def __init__(self) -> None:
        self._begun, self._others = time.perf_counter(), other_processor_seconds()

    def read(self) -> dict[str, float | None]:
        """Return what ``metrics.jsonl`` says: seconds of the steps, and of the processors for other programs."""
        seconds, before, after = time.perf_counter() - self._begun, self._others, other_processor_seconds()
        others = None if before is None or after is None else round(max(after - before, 0.0), 3)
        return {"train_seconds": round(seconds, 3), "other_seconds": others}


def other_processor_seconds(root: int | None = None, proc: Path = Path("/proc")) -> float | None:
    """Return how long the processors have worked for other programs since the machine was started.

    The difference of two calls, divided by the time between them, is the number of processors that others kept busy.

    Args:
        root: the process that counts as this program, with all that it started; None: this one, or where several
            processes train together the one that started them.
        proc: the files in which Linux tells it.

    Returns:
        Seconds; None on a system that does not say.
    """
    if root is None:
        root = os.getpid() if world_size() == 1 else os.getppid()
    try:
        ticks = os.sysconf("SC_CLK_TCK")
        columns = (proc / "stat").read_text(encoding="ascii").partition("\n")[0].split()[1:]
        worked = sum(int(columns[place]) for place in _WORKING)
        return (worked - _own_ticks(root, proc)) / ticks
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _own_ticks(root: int, proc: Path) -> int:
    """Return what a process and all that it started have worked."""
    parents, ticks = {}, {}
    for process, parent, worked in _processes(proc):
        parents[process], ticks[process] = parent, worked
    own = {root}
    while found := {process for process, parent in parents.items() if parent in own} - own:
        own |= found
    return sum(ticks.get(process, 0) for process in own)


def _processes(proc: Path) -> Iterator[tuple[int, int, int]]:
    """Yield number, parent and work of every process, that of the ended processes that it waited for included."""
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended
            continue
        fields = text.rpartition(")")[2].split()  # its name, in brackets, may hold anything
        yield int(folder.name), int(fields[1]), sum(int(field) for field in fields[11:15])
