"""Two processes never train in one run folder, and nothing but a living process keeps one locked."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from satl.errors import RunError
from satl.files import try_lock
from satl.runs.run_folder import RunFolder
from satl.runs.run_lock import RunLock

HOLD = """
import os, sys, time
from pathlib import Path
from satl.runs.run_lock import RunLock
lock = RunLock(Path(sys.argv[1]))
if len(sys.argv) > 2 and os.fork() == 0:
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(600)
os.write(1, b"held\\n")
time.sleep(600)
"""


def holder(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_another_process_is_named_and_a_killed_one_is_forgotten(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            with pytest.raises(
                RunError, match=rf"is being trained by process {process.pid}; wait for it, or stop it"
            ):
                RunLock(tmp_path)
        finally:
            process.kill()
    RunLock(tmp_path).release()


def test_a_worker_that_outlives_its_training_does_not_keep_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path, "fork") as process:
        try:
            assert process.stdout is not None
            lines = {process.stdout.readline().strip() for _ in range(2)}
            worker = int((lines - {"held"}).pop())
        finally:
            process.kill()
        process.wait()
        try:
            RunLock(tmp_path).release()
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_run_of_the_same_process_is_locked_once_and_released(tmp_path: Path) -> None:
    folder, other = RunFolder(tmp_path), RunFolder(tmp_path)
    folder.lock()
    folder.lock()
    with pytest.raises(RunError, match="is being trained by this process"):
        other.lock()
    folder.unlock()
    folder.unlock()
    other.lock()
    del other  # what is dropped holds nothing
    folder.lock()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"process": null, "host": 1}', '{"host": "here"}'])
def test_a_lock_that_does_not_say_whose_it_is(content: str, tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(content)
    with (tmp_path / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="is being trained by another process"):
            RunLock(tmp_path)


def test_a_process_elsewhere_is_named_with_its_machine(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(json.dumps({"host": "node-of-nobody", "process": 7}))
    with (tmp_path / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="is being trained by process 7 on node-of-nobody;"):
            RunLock(tmp_path)


@pytest.mark.parametrize(
    ("number", "free"),
    [(errno.ENOSYS, True), (errno.ENOLCK, True), (errno.EAGAIN, False), (errno.EIO, False)],
)
def test_a_file_system_without_locks_blocks_nobody(
    number: int, free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (tmp_path / "file").open("w") as file:
        assert try_lock(file.fileno()) is free


def test_a_folder_that_cannot_be_written_to_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot be written .*train\(resume="):
        RunFolder(tmp_path / "gone").lock()
