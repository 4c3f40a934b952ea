"""Run something in a process of its own that costs a fork, not the import of torch."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from chaos.layer import Fault

LIMIT = 600
"""Seconds after which a child counts as hanging."""
TRACEBACK = 70
"""Exit code of a child that ended in an error that is no sentence."""


class Ended(NamedTuple):
    """How a child ended: its exit code, negative for a signal, and what it printed."""

    code: int
    text: str

    @property
    def killed(self) -> bool:
        """Whether it was killed."""
        return self.code == -signal.SIGKILL

    @property
    def is_sentence(self) -> bool:
        """Whether it ended as a user's mistake or a full disk does: one sentence, exit code 2."""
        errors = [line for line in self.text.splitlines() if line.startswith("error: ")]
        return self.code == 2 and len(errors) == 1 and "Traceback" not in self.text


def call(action: Callable[[Path], object], place: Path, printed: Path, fault: Fault | None = None) -> Ended:
    """Call ``action(place)`` in a fork of this process, with faults below ``place``."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = TRACEBACK
        try:
            signal.alarm(LIMIT)
            output = os.open(printed, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            # pytest has put other streams there, which do not lead to these.
            sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w") for number in (1, 2))
            if fault is not None:
                fault.arm(place)
            action(place)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except OSError:
                    code = TRACEBACK
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), printed.read_text(errors="replace"))


def satl(*arguments: object) -> None:
    """Run the command line in this process, as a user does; ends with SystemExit where it does."""
    from satl.cli import main

    sys.argv = ["satl", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        if end.code not in (0, None):
            raise
