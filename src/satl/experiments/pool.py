"""Run cells side by side in processes of their own; what happens to one does not touch the others."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from satl.errors import Stopped, in_shell
from satl.experiments.experiment_folder import ExperimentFolder
from satl.experiments.grid import Cell, Models
from satl.experiments.grid_run import cell_facts
from satl.runs.config import RunConfig
from satl.training.signals import stop_signals

_POLL_SECONDS = 0.2
_SECONDS_TO_LEAVE = 30.0
_COMMAND = (sys.executable, "-P", "-m", "satl.experiments.worker")
Event = dict[str, Any]


class Listener(Protocol):
    """Is told what happens while cells run; the command line draws it."""

    def begin(self, total: int) -> None:
        """``total`` cells are to be run."""

    def event(self, cell: Cell, event: Event) -> None:
        """Something happened to a cell.

        ``event["event"]`` is ``loading``, ``begin``, ``step``, ``epoch``, ``testing``, ``done``, ``failed`` or
        ``stopped``; the other keys are its particulars.
        """

    def stopping(self, expired: bool) -> None:
        """Running cells are asked to save and stop: the time is up (``expired``), or somebody asked for it."""

    def end(self) -> None:
        """No cell runs any more."""


class Quiet:
    """Tells nobody."""

    def begin(self, total: int) -> None:
        """Do nothing."""

    def event(self, cell: Cell, event: Event) -> None:
        """Do nothing."""

    def stopping(self, expired: bool) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class _Worker:
    """One process and the cell it works on."""

    def __init__(
        self, number: int, environment: Mapping[str, str], logs: Path, lock: int, events: queue.Queue[Any]
    ) -> None:
        self.number = number
        self.cell: Cell | None = None
        self.began_at = 0.0
        self.closed_at: float | None = None
        self.log = logs / f"worker-{number}.log"
        posix = os.name == "posix"
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches the parent alone, and all that a worker started can be ended.
            # The lock is handed on: should the parent be killed, the folder is not free before its workers are gone.
            self.process = subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(environment),
                encoding="utf-8",
                start_new_session=posix,
                pass_fds=(lock,) if posix else (),
            )
        threading.Thread(target=self._read, args=(events,), daemon=True).start()

    def _read(self, events: queue.Queue[Any]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):  # a line cut off by the end of the process
                events.put((self, json.loads(line)))
        self.process.wait()
        events.put((self, None))

    def give(self, cell: Cell, task: Mapping[str, Any]) -> None:
        """Let it work on a cell."""
        self.cell, self.began_at = cell, time.monotonic()
        assert self.process.stdin is not None
        # If it died just now, the end of its output says so.
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """Let it end, now that it is idle."""
        self.closed_at = time.monotonic()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    @property
    def lingers(self) -> bool:
        """Whether it should have ended long ago."""
        return self.closed_at is not None and time.monotonic() - self.closed_at > _SECONDS_TO_LEAVE

    def terminate(self) -> None:
        """Ask it to save and stop."""
        self.process.terminate()

    def kill(self) -> None:
        """End it, and all that it started, at once."""
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        """Say how the process ended."""
        code = self.process.wait()
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            hint = " (often for lack of memory: run fewer cells side by side)" if name == "SIGKILL" else ""
            return f"the process of the cell was ended by {name}{hint}; go on with --retry-failed"
        return f"the process of the cell ended with code {code}; see {self.log}, then use --retry-failed"


def worker_environment(number: int, jobs: int, devices: tuple[str, ...]) -> dict[str, str]:
    """Return the environment of a worker: its fair share of threads and, of several GPUs, one.

    Args:
        number: of the worker, from 1.
        jobs: how many there are.
        devices: what CUDA_VISIBLE_DEVICES may name.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = max(1, cores // jobs)
    wish = os.environ.get("OMP_NUM_THREADS", "")
    if wish.isdigit() and int(wish) > 0:
        share = min(share, int(wish))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(share)), "PYTHONUNBUFFERED": "1"}
    if len(devices) > 1:
        environment["CUDA_VISIBLE_DEVICES"] = devices[(number - 1) % len(devices)]
    return environment


def visible_devices() -> tuple[str, ...]:
    """Return the GPUs that workers may be spread over."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(part.strip() for part in named.split(",") if part.strip())
    return tuple(str(index) for index in range(torch.cuda.device_count()))


def run_cells(
    folder: ExperimentFolder,
    configs: Mapping[Cell, RunConfig],
    lock: int,
    jobs: int = 1,
    listener: Listener | None = None,
    models: Models = "all",
    seconds: float | None = None,
) -> None:
    """Run cells to their ends, ``jobs`` at a time; a failure is noted in the cell's folder.

    Args:
        folder: of the experiment.
        configs: the cells to run, in this order.
        lock: the open file that holds the folder's lock.
        jobs: processes side by side.
        listener: is told what happens.
        models: that are kept of each cell.
        seconds: time for all of it. A cell is not begun if others of its method took longer than what is left; cells
            that still run in the end save their state and stop.

    Raises:
        Stopped: Ctrl-C or termination; running cells have saved their state.
    """
    if not configs:
        return
    show: Listener = listener or Quiet()
    show.begin(len(configs))
    try:
        _Shift(folder, configs, lock, min(jobs, len(configs)), show, models, seconds).work()
    finally:
        show.end()


class _Shift:
    """The workers of one call and what is left for them to do."""

    def __init__(
        self,
        folder: ExperimentFolder,
        configs: Mapping[Cell, RunConfig],
        lock: int,
        jobs: int,
        listener: Listener,
        models: Models,
        seconds: float | None,
    ) -> None:
        self.end = math.inf if seconds is None else time.monotonic() + seconds
        self.took: dict[str, float] = {}  # by method, the longest so far
        self.folder = folder
        self.configs = configs
        self.lock = lock
        self.jobs = jobs
        self.listener = listener
        self.models = models
        self.pending = deque(configs)
        self.workers: dict[int, _Worker] = {}
        self.events: queue.Queue[tuple[_Worker, Event | None]] = queue.Queue()
        self.devices = visible_devices()
        self.stopped = False
        self.expired = False
        folder.logs.mkdir(parents=True, exist_ok=True)

    def work(self) -> None:
        """Keep the workers busy until nothing is left."""
        try:
            with stop_signals() as asked_to_stop:
                for number in range(1, self.jobs + 1):
                    self._hire(number)
                while self.workers:
                    with contextlib.suppress(queue.Empty):
                        self._take_in(*self.events.get(timeout=_POLL_SECONDS))
                    if asked_to_stop() and not self.stopped:
                        self._stop()
                    if time.monotonic() > self.end and not self.stopped:
                        self.expired = True
                        self._stop()
                    for worker in self.workers.values():
                        if worker.lingers:
                            worker.kill()
        except KeyboardInterrupt:
            self.stopped = True
        finally:
            for worker in self.workers.values():
                worker.kill()
        if self.stopped and not self.expired:
            raise Stopped(
                f"{self.folder.path}: stopped; go on with `satl experiment --out {in_shell(self.folder.path)}`."
            )

    def _hire(self, number: int) -> None:
        if self._next_cell() is not None:
            environment = worker_environment(number, self.jobs, self.devices)
            worker = _Worker(number, environment, self.folder.logs, self.lock, self.events)
            self.workers[number] = worker
            self._assign(worker)

    def _next_cell(self) -> Cell | None:
        """Return the first cell that can be expected to be finished in time."""
        left = 0.0 if self.stopped else self.end - time.monotonic()
        return next((cell for cell in self.pending if self.took.get(cell.method, 0.0) < left), None)

    def _assign(self, worker: _Worker) -> None:
        cell = self._next_cell()
        if cell is None:
            worker.cell = None
            worker.close()
            return
        self.pending.remove(cell)
        task = {
            "cell": cell.name,
            "path": str(self.folder.run(cell).absolute()),
            "config": self.configs[cell].resolved(),
            "jobs": self.jobs,
            "models": self.models,
        }
        worker.give(cell, task)

    def _take_in(self, worker: _Worker, event: Event | None) -> None:
        cell = worker.cell
        if event is None:  # the process is gone
            del self.workers[worker.number]
            worker.close()
            if worker.process.returncode == -signal.SIGTERM and not self.stopped:
                self._stop()  # a scheduler ends all processes of a job, and the worker heard of it first
            if cell is not None and self.stopped:
                self.listener.event(cell, {"event": "stopped"})
            elif cell is not None:
                self._note_failure(cell, {"event": "failed", "error": worker.last_words(), "traceback": ""})
            self._hire(worker.number)
            return
        assert cell is not None
        if event["event"] == "failed":
            # After an error the device may be in any state, so its successor starts afresh.
            worker.cell = None
            worker.kill()
            self._note_failure(cell, event)
            return
        if event["event"] == "begin":
            # Its next cell will find the process started and the pictures read.
            worker.began_at = time.monotonic()
        self.listener.event(cell, event)
        if event["event"] == "done":
            took = time.monotonic() - worker.began_at
            self.took[cell.method] = max(took, self.took.get(cell.method, 0.0))
        if event["event"] in ("done", "stopped"):
            if event["event"] == "stopped" and not self.stopped:
                self._stop()  # somebody asked the worker itself
            self._assign(worker)

    def _note_failure(self, cell: Cell, event: Event) -> None:
        facts = cell_facts(self.configs[cell])
        self.folder.write_failure(cell, event["error"], event["traceback"], facts)
        self.listener.event(cell, event)

    def _stop(self) -> None:
        self.stopped = True
        self.pending.clear()
        self.listener.stopping(self.expired)
        for worker in self.workers.values():
            if worker.cell is not None:
                worker.terminate()
