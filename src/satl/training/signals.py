"""Ctrl-C, termination and a terminal that is closed as a request to stop after the current step."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C, termination or hang-up into a request to stop after the current step.

    Ctrl-C after that stops at once. A termination or a hang-up does not: schedulers that end a whole job send it to
    every process, and the program that started this one passes it on; shells hang up twice. A hang-up that ``nohup``
    has switched off stays so.
    """
    received: list[int] = []
    previous: dict[int, Any] = {}
    hang_up = getattr(signal, "SIGHUP", None)  # Windows has none

    def note(number: int, frame: Any) -> None:
        received.append(number)
        if number == signal.SIGINT and any(one != hang_up for one in received[:-1]):
            raise KeyboardInterrupt

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, note)
        if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:
            previous[hang_up] = signal.signal(hang_up, note)
    except ValueError:  # not in the main thread, which gets no signals
        previous.clear()
    try:
        yield lambda: bool(received)
    finally:
        for stopped, handler in previous.items():
            signal.signal(stopped, handler)
