"""A lock on the folder of a run: one training at a time, whatever ends the process that holds it."""

from __future__ import annotations

import json
import os
import socket
import weakref
from pathlib import Path

from satl.errors import RunError
from satl.files import try_lock

NAME = ".lock"
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
"""A link is not followed: the file is emptied, and in the folder of a stranger the link can lead to any other."""
_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


class RunLock:
    """Holds the lock of a run folder until :meth:`release`, or until the process ends.

    The system keeps the lock with the open file, so nothing is left of it when a process is killed. The file says who
    holds it, for the message to the next one; it is never removed, because a third process may have it open.

    Args:
        folder: the folder of the run, which exists.
        doing: what the one who holds it does with the folder, for the message to the next one.

    Raises:
        RunError: another process holds the lock.
        OSError: the folder cannot be written to.
    """

    def __init__(self, folder: Path, doing: str = "trained") -> None:
        self._handle = os.open(folder / NAME, _FLAGS, 0o644)
        try:
            if not try_lock(self._handle):
                raise RunError(
                    f"is being {doing} by {self._holder()}",
                    where=folder,
                    remedy="wait for it, or stop it there",
                )
            os.ftruncate(self._handle, 0)
            os.write(
                self._handle, json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode()
            )
        except BaseException:
            os.close(self._handle)
            raise
        _held.add(self)
        # The garbage collector must release it too: a program may drop a run that it does not train to the end.
        self._close = weakref.finalize(self, os.close, self._handle)
        self._close.atexit = False  # the end of the process closes it anyway

    def release(self) -> None:
        """Let the next process train; a second call does nothing."""
        self._close()

    def _holder(self) -> str:
        try:
            holder = json.loads(os.read(self._handle, 1000))
            number = int(holder["process"])
            where = "" if holder["host"] == socket.gethostname() else f" on {str(holder['host'])[:80]}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"  # it has the lock and has not written its name yet
        return "this process" if number == os.getpid() and not where else f"process {number}{where}"


def _leave_to_parent() -> None:
    """Close the lock in a forked child: a worker that outlives a killed training must not keep its folder locked."""
    for lock in _held:
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
