"""Grid runs in parallel, each in a worker process; a run that fails or a process that is killed affects no other.

Neither ``ProcessPoolExecutor`` nor loky is used: when one of their processes is killed (which is what a full memory
does), all tasks that are running or waiting fail with it. They also give no process its own environment before torch
is imported (number of threads, GPU), its own log file, or a SIGTERM to save and stop.
"""

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
from typing import Any

from satl.errors import Sentence, Stopped, Task
from satl.experiments.experiment_folder import ExperimentFolder
from satl.experiments.grid import GridRun, Models
from satl.experiments.grid_run import run_facts
from satl.experiments.progress_listener import Event, ProgressListener
from satl.runs.config import RunConfig
from satl.training.signals import stop_signals

_POLL_SECONDS = 0.2
_SECONDS_TO_END = 30.0
_COMMAND = (sys.executable, "-P", "-m", "satl.experiments.worker")


class _Worker:
    """A worker process and the grid run that it is working on."""

    def __init__(
        self, number: int, environment: Mapping[str, str], logs: Path, lock: int, events: queue.Queue[Any]
    ) -> None:
        self.number = number
        self.grid_run: GridRun | None = None
        self.began_at = 0.0
        self.closed_at: float | None = None
        self.log = logs / f"worker-{number}.log"
        posix = os.name == "posix"
        with self.log.open("ab") as log:
            # A new session: Ctrl-C reaches the parent alone, and all processes of a worker can be killed together.
            # Workers inherit the lock: if the parent is killed, the folder stays locked until they have ended too.
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

    def assign(self, grid_run: GridRun, task: Mapping[str, Any]) -> None:
        """Send it a grid run to work on."""
        self.grid_run, self.began_at = grid_run, time.monotonic()
        assert self.process.stdin is not None
        # If the process has just died, the end of its output reports it.
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """Close its input, so that the idle process ends."""
        self.closed_at = time.monotonic()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    @property
    def hangs(self) -> bool:
        """Whether the process is still there long after its input was closed."""
        return self.closed_at is not None and time.monotonic() - self.closed_at > _SECONDS_TO_END

    def terminate(self) -> None:
        """Ask it to save its run and stop."""
        self.process.terminate()

    def kill(self) -> None:
        """Kill it and all processes it has started."""
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def exit_reason(self) -> str:
        """Return how the process ended, as an error message of its grid run."""
        code = self.process.wait()
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            hint = " (often because memory is full: run fewer at a time)" if name == "SIGKILL" else ""
            return f"the process of the run was ended by {name}{hint}"
        return f"the process of the run ended with code {code}; see {self.log}"


def worker_environment(number: int, jobs: int, devices: tuple[str, ...]) -> dict[str, str]:
    """Return the environment variables of a worker: its share of the threads and, of several GPUs, one.

    Args:
        number: number of the worker, from 1.
        jobs: number of workers.
        devices: the GPUs, as CUDA_VISIBLE_DEVICES names them.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = max(1, cores // jobs)
    limit = os.environ.get("OMP_NUM_THREADS", "")
    if limit.isdigit() and int(limit) > 0:
        share = min(share, int(limit))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(share)), "PYTHONUNBUFFERED": "1"}
    if len(devices) > 1:
        environment["CUDA_VISIBLE_DEVICES"] = devices[(number - 1) % len(devices)]
    return environment


def visible_devices() -> tuple[str, ...]:
    """Return the GPUs that workers can use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(part.strip() for part in named.split(",") if part.strip())
    return tuple(str(index) for index in range(torch.cuda.device_count()))


def run_in_parallel(
    folder: ExperimentFolder,
    configs: Mapping[GridRun, RunConfig],
    lock: int,
    jobs: int = 1,
    listener: ProgressListener | None = None,
    models: Models = "all",
    seconds: float | None = None,
) -> None:
    """Train and test grid runs, ``jobs`` at a time; an error is written to the run's folder as ``failure.json``.

    Args:
        folder: folder of the experiment.
        configs: grid runs to run, in this order, and their configurations.
        lock: the open file that holds the folder's lock.
        jobs: number of worker processes.
        listener: is called with progress.
        models: which checkpoints of a finished run are kept.
        seconds: time limit for all of them. A run is not started if another of its method took longer than the time
            left, or, where none of its method has been run, if all others did; runs that are still running at the
            limit save their state and stop.

    Raises:
        Stopped: Ctrl-C or SIGTERM; the running ones have saved their state.
    """
    if not configs:
        return
    listener = listener or ProgressListener()
    listener.begin(len(configs))
    try:
        _Scheduler(folder, configs, lock, min(jobs, len(configs)), listener, models, seconds).run()
    finally:
        listener.end()


class _Scheduler:
    """Gives grid runs to worker processes and handles what they report."""

    def __init__(
        self,
        folder: ExperimentFolder,
        configs: Mapping[GridRun, RunConfig],
        lock: int,
        jobs: int,
        listener: ProgressListener,
        models: Models,
        seconds: float | None,
    ) -> None:
        self.end = math.inf if seconds is None else time.monotonic() + seconds
        self.longest: dict[str, float] = {}  # seconds of the longest run so far, by method
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

    def run(self) -> None:
        """Run everything; return when all workers have ended."""
        try:
            with stop_signals() as asked_to_stop:
                for number in range(1, self.jobs + 1):
                    self._start_worker(number)
                while self.workers:
                    with contextlib.suppress(queue.Empty):
                        self._handle(*self.events.get(timeout=_POLL_SECONDS))
                    if asked_to_stop() and not self.stopped:
                        self._stop()
                    if time.monotonic() > self.end and not self.stopped:
                        self.expired = True
                        self._stop()
                    for worker in self.workers.values():
                        if worker.hangs:
                            worker.kill()
        except KeyboardInterrupt:
            self.stopped = True
        finally:
            for worker in self.workers.values():
                worker.kill()
        if self.stopped and not self.expired:
            resume = Task("experiment", out=self.folder.path)
            raise Stopped(
                "stopped", where=self.folder.path, remedy=Sentence("continue with {resume}", resume=resume)
            )

    def _start_worker(self, number: int) -> None:
        if self._next_run() is not None:
            environment = worker_environment(number, self.jobs, self.devices)
            worker = _Worker(number, environment, self.folder.logs, self.lock, self.events)
            self.workers[number] = worker
            self._assign(worker)

    def _next_run(self) -> GridRun | None:
        """Return the first waiting grid run that can be expected to finish in time."""
        left = 0.0 if self.stopped else self.end - time.monotonic()
        # A method that was not run yet takes at least as long as the quickest of the others, as far as is known.
        quickest = min(self.longest.values(), default=0.0)
        return next(
            (grid_run for grid_run in self.pending if self.longest.get(grid_run.method, quickest) < left),
            None,
        )

    def _assign(self, worker: _Worker) -> None:
        grid_run = self._next_run()
        if grid_run is None:
            worker.grid_run = None
            worker.close()
            return
        self.pending.remove(grid_run)
        task = {
            "run": grid_run.name,
            "path": str(self.folder.run_path(grid_run).absolute()),
            "config": self.configs[grid_run].resolved(),
            "jobs": self.jobs,
            "models": self.models,
        }
        worker.assign(grid_run, task)

    def _handle(self, worker: _Worker, event: Event | None) -> None:
        grid_run = worker.grid_run
        if event is None:  # the process has ended
            del self.workers[worker.number]
            worker.close()
            if worker.process.returncode == -signal.SIGTERM and not self.stopped:
                self._stop()  # a cluster's scheduler sends SIGTERM to all processes of a job, and the worker was first
            if grid_run is not None and self.stopped:
                self.listener.event(grid_run, {"event": "stopped"})
            elif grid_run is not None:
                self._record_failure(
                    grid_run, {"event": "failed", "error": worker.exit_reason(), "traceback": ""}
                )
            self._start_worker(worker.number)
            return
        assert grid_run is not None
        if event["event"] == "failed":
            # After an error the GPU may be in any state, so the next run gets a new process.
            worker.grid_run = None
            worker.kill()
            self._record_failure(grid_run, event)
            return
        if event["event"] == "begin":
            # Later runs of this worker need no start of a process and find the images read, so that is not counted.
            worker.began_at = time.monotonic()
        self.listener.event(grid_run, event)
        if event["event"] == "done":
            took = time.monotonic() - worker.began_at
            self.longest[grid_run.method] = max(took, self.longest.get(grid_run.method, 0.0))
        if event["event"] in ("done", "stopped"):
            if event["event"] == "stopped" and not self.stopped:
                self._stop()  # the worker itself was sent a signal
            self._assign(worker)

    def _record_failure(self, grid_run: GridRun, event: Event) -> None:
        facts = run_facts(self.configs[grid_run])
        self.folder.write_failure(grid_run, event["error"], event["traceback"], facts)
        self.listener.event(grid_run, event)

    def _stop(self) -> None:
        self.stopped = True
        self.pending.clear()
        self.listener.stopping(self.expired)
        for worker in self.workers.values():
            if worker.grid_run is not None:
                worker.terminate()
