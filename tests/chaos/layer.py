"""Faults in the file operations of a process, below one folder.

``faults.c``, loaded with LD_PRELOAD, sees the operations of every library. Where there is no compiler, an audit hook of
Python stands in: it sees what Python itself opens, renames and removes, and can only kill.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COUNT, KILL, FULL, SHORT = 1, 2, 3, 4
_SOURCE = Path(__file__).with_name("faults.c")


@dataclass(frozen=True)
class Fault:
    """What happens to the file operations of a process.

    Attributes:
        mode: COUNT notes them, KILL ends the process before operation ``at``, FULL lets write ``at`` write half of its
            bytes and fails all later ones, SHORT writes half of every write.
        at: number of the operation or write, from 1.
        error: number of the error of FULL.
        log: file to note operations in, outside of the folder.
    """

    mode: int
    at: int = 0
    error: int = errno.ENOSPC
    log: Path | None = None

    def arm(self, folder: Path) -> None:
        """Begin in this process, for operations below ``folder``."""
        log = -1
        if self.log is not None:
            log = os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o600)
        if has_shim():
            ctypes.CDLL(None).chaos_arm(
                self.mode, ctypes.c_long(self.at), os.fsencode(folder), self.error, log
            )
        elif self.mode in (COUNT, KILL):
            _arm_python(self, str(folder), log)
        else:
            raise RuntimeError("errors need the library that is loaded with LD_PRELOAD")


def has_shim() -> bool:
    """Whether the library is loaded into this process."""
    return hasattr(ctypes.CDLL(None), "chaos_arm")


def build_shim(folder: Path) -> tuple[Path | None, str]:
    """Compile the library; return its path, or None and why there is none."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None, "no C compiler"
    if not sys.platform.startswith("linux"):
        return None, "it is for Linux"
    target = folder / "faults.so"
    command = [compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", str(target), str(_SOURCE), "-ldl"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    return (target, "") if made.returncode == 0 else (None, made.stderr.strip()[-300:])


def _arm_python(fault: Fault, folder: str, log: int) -> None:
    seen = 0
    words = {
        "os.rename": "name",
        "os.remove": "remove",
        "os.rmdir": "remove",
        "os.mkdir": "mkdir",
        "os.truncate": "truncate",
    }

    def note(word: str, *paths: Any) -> None:
        nonlocal seen
        texts = [os.fsdecode(path) for path in paths if isinstance(path, (str, bytes, os.PathLike))]
        if not any(text.startswith(folder) for text in texts):
            return
        seen += 1
        if fault.mode == KILL and seen == fault.at:
            os.kill(os.getpid(), signal.SIGKILL)
        if log >= 0:
            os.write(log, ("\t".join((word, *texts)) + "\n").encode())

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_CREAT | os.O_TRUNC):
            note("open", arguments[0])
        elif event in words:
            note(words[event], *arguments[: 2 if event == "os.rename" else 1])

    fsync = os.fsync

    def noted_fsync(handle: int) -> None:
        note("sync", Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    os.fsync = noted_fsync
    sys.addaudithook(hook)
