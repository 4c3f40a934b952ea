"""A process that runs cells: tasks come in as lines of JSON, what happens goes out as lines of JSON.

``python -m satl.experiments.worker`` is started by :mod:`satl.experiments.pool`, which decides threads and device
through the environment before torch is imported. It lives as long as its standard input is open.
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

_SECONDS_BETWEEN_STEPS = 0.3

Send = Callable[[dict[str, Any]], None]


class Reporter:
    """A display that sends what happens to the parent."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.sent_at = 0.0

    def start(self, epochs: int, steps: int) -> None:
        """Begin a run."""
        self.send({"event": "begin", "epochs": epochs, "steps": steps})

    def step(self, epoch: int, stage: int, step: int, losses: Callable[[], dict[str, float]]) -> None:
        """Tell the place now and then; the losses stay on the device."""
        now = time.monotonic()
        if now - self.sent_at > _SECONDS_BETWEEN_STEPS:
            self.sent_at = now
            self.send({"event": "step", "epoch": epoch, "stage": stage, "step": step})

    def epoch(self, row: dict[str, Any]) -> None:
        """Tell the validation mAP of an epoch."""
        self.send({"event": "epoch", "epoch": row["epoch"], "mAP": row.get("val", {}).get("mAP")})

    def stop(self) -> None:
        """Tell that the training is over."""
        self.send({"event": "testing"})


def main() -> None:
    """Run tasks until standard input ends."""
    channel = _private_output()

    def send(event: dict[str, Any]) -> None:
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    tasks: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=_listen, args=(tasks, busy), daemon=True).start()
    from satl.experiments.grid_run import DataOnce

    shared = DataOnce()
    while (task := tasks.get()) is not None:
        busy.set()
        ending = _attempt(task, shared, send)
        busy.clear()  # before it is told: the parent may close our input at once
        send(ending)


def _listen(tasks: queue.SimpleQueue[dict[str, Any] | None], busy: threading.Event) -> None:
    """Read tasks; if the parent is gone while one is running, ask it to save and stop."""
    for line in sys.stdin:
        tasks.put(json.loads(line))
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
    tasks.put(None)


def _attempt(task: dict[str, Any], shared: Any, send: Send) -> dict[str, Any]:
    """Run one task and say how it ended."""
    from satl.errors import SatlError
    from satl.experiments.grid_run import run_cell
    from satl.runs.reading import make_config
    from satl.training.trainer import Interrupted

    try:
        config = make_config(task["config"], f"cell {task['cell']}")
        send({"event": "loading"})
        data = shared.load(config)
        result = run_cell(config, Path(task["path"]), data, Reporter(send), task["jobs"], keep=task["models"])
    except Interrupted:
        return {"event": "stopped"}
    except SatlError as error:
        return {"event": "failed", "error": str(error), "traceback": ""}
    except Exception as error:
        return {"event": "failed", "error": error_sentence(error), "traceback": traceback.format_exc()}
    return {"event": "done", "result": result}


def error_sentence(error: Exception) -> str:
    """Say in one line what went wrong, with a way out where there is a usual one.

    >>> error_sentence(ValueError("first line\\nsecond line"))
    'ValueError: first line'
    """
    lines = str(error).strip().splitlines() or ["no message"]
    text = f"{type(error).__name__}: {lines[0].strip()}"
    if type(error).__name__ in ("OutOfMemoryError", "MemoryError"):
        text += (
            "; run fewer cells side by side (--jobs) or lower training.batch_size, then use --retry-failed"
        )
    return text


def _private_output() -> TextIO:
    """Keep standard output for events; whatever a library prints goes to the log."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return channel


if __name__ == "__main__":
    main()
