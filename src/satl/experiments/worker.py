"""The worker process that trains and tests grid runs: tasks come in and events go out as lines of JSON.

``python -m satl.experiments.worker`` is started by :mod:`satl.experiments.parallel`, which sets threads and GPU in its
environment before torch is imported. It runs until its standard input is closed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from satl.training.display import Display

_SECONDS_BETWEEN_STEPS = 0.3

Send = Callable[[dict[str, Any]], None]


class EventDisplay(Display):
    """A training display that sends its events to the parent process."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.sent_at = 0.0

    def start(self, epochs: int, steps: int) -> None:
        """Send the start of the training."""
        self.send({"event": "begin", "epochs": epochs, "steps": steps})

    def step(self, epoch: int, stage: int, step: int, losses: Callable[[], dict[str, float]]) -> None:
        """Send the position now and then; losses are not copied from the device."""
        now = time.monotonic()
        if now - self.sent_at > _SECONDS_BETWEEN_STEPS:
            self.sent_at = now
            self.send({"event": "step", "epoch": epoch, "stage": stage, "step": step})

    def epoch(self, row: dict[str, Any]) -> None:
        """Send the validation mAP of an epoch."""
        self.send({"event": "epoch", "epoch": row["epoch"], "mAP": row.get("val", {}).get("mAP")})

    def stop(self) -> None:
        """Send the end of the training."""
        self.send({"event": "testing"})


def main() -> None:
    """Run tasks until standard input ends."""
    channel = _event_channel()

    def send(event: dict[str, Any]) -> None:
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    tasks: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=_read_tasks, args=(tasks, busy), daemon=True).start()
    from satl.experiments.grid_run import DataCache

    shared = DataCache()
    while (task := tasks.get()) is not None:
        busy.set()
        ending = run_task(task, shared, send)
        busy.clear()  # before it is sent: the parent may close our input at once
        send(ending)


def _read_tasks(tasks: queue.SimpleQueue[dict[str, Any] | None], busy: threading.Event) -> None:
    """Read tasks; if the parent process ends while one is running, save it and stop."""
    for line in sys.stdin:
        tasks.put(json.loads(line))
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
    tasks.put(None)


def run_task(task: dict[str, Any], shared: Any, send: Send) -> dict[str, Any]:
    """Run one task; return the event of its end."""
    from satl.errors import SatlError
    from satl.experiments.grid_run import train_and_test
    from satl.runs.reading import own_config
    from satl.training.trainer import Interrupted

    try:
        config = own_config(task["config"], f"run {task['run']}")
        send({"event": "loading"})
        data = shared.load(config)
        result = train_and_test(
            config, Path(task["path"]), data, EventDisplay(send), task["jobs"], keep=task["models"]
        )
    except Interrupted:
        return {"event": "stopped"}
    except SatlError as error:
        return {"event": "failed", "error": str(error), "traceback": ""}
    except Exception as error:
        return {"event": "failed", "error": error_sentence(error), "traceback": traceback.format_exc()}
    return {"event": "done", "result": result}


def error_sentence(error: Exception) -> str:
    """Return an unexpected error as one line, with a remedy where memory was full.

    >>> error_sentence(ValueError("first line\\nsecond line"))
    'ValueError: first line'
    """
    lines = str(error).strip().splitlines() or ["no message"]
    text = f"{type(error).__name__}: {lines[0].strip()}"
    if type(error).__name__ in ("OutOfMemoryError", "MemoryError"):
        text += "; run fewer at a time or lower training.batch_size"
    return text


def _event_channel() -> TextIO:
    """Return standard output for events only; what libraries print goes to standard error, the log."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return channel


if __name__ == "__main__":
    main()
