"""Ctrl-C and termination as a request to stop after the current step."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or termination into a request to stop after the current step."""
    received: list[int] = []
    previous: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, note)
    except ValueError:  # not in the main thread, which gets no signals
        previous.clear()
    try:
        yield lambda: bool(received)
    finally:
        for stopped, handler in previous.items():
            signal.signal(stopped, handler)
