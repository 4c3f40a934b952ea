"""A completed folder changes as one, wherever the process that replaces it is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from satl.completion.outputs.completed_folder import CompletedFolder
from satl.errors import RunError
from satl.files import CHECKSUMS

OLD = {
    "report.json": "old",
    "changes.csv": "old",
    "labels.npz": "old",
    "completed.csv": "old",
    "scores.npz": "old",
}
NEW = {"report.json": "new", "changes.csv": "new", "labels.npz": "new", "completed.parquet": "new"}
FOREIGN = {"review.sqlite": "mine", "notes.txt": "mine"}

EVENTS = ("rename", "replace", "unlink", "rmdir", "fsync")


def write(out: Path, content: dict[str, str], force: bool = False) -> None:
    with CompletedFolder.write(out, force) as folder:
        for name, text in content.items():
            (folder.path / name).write_text(text)


def files(out: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in out.iterdir() if file.name != CHECKSUMS}


def kill_at(number: int, out: Path) -> bool:
    """Replace a completion in another process that kills itself before an event; return whether it was killed."""
    program = f"""
import os, signal, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
import completion.outputs.test_exchange as here
seen = 0
def wrapped(function):
    def call(*arguments, **options):
        global seen
        if seen == {number}:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1
        return function(*arguments, **options)
    return call
for name in here.EVENTS:
    setattr(os, name, wrapped(getattr(os, name)))
here.write(Path({str(out)!r}), here.NEW, force=True)
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode in (0, -9), finished.stderr
    return finished.returncode != 0


@pytest.mark.slow
def test_a_folder_is_old_or_new_after_a_kill_at_any_file_event(tmp_path: Path) -> None:
    outcomes = []
    for number in range(200):
        out = tmp_path / f"{number}" / "out"
        write(out, OLD)
        for name, text in FOREIGN.items():
            (out / name).write_text(text)
        killed = kill_at(number, out)
        CompletedFolder.open(out)
        outcomes.append(files(out) == NEW | FOREIGN)
        assert files(out) in (OLD | FOREIGN, NEW | FOREIGN)
        write(out, NEW, force=True)
        assert files(out) == NEW | FOREIGN
        assert list(out.parent.iterdir()) == [out]
        if not killed:
            break
    assert number > 20
    assert outcomes == sorted(outcomes)  # old at first, new from some event on
    assert not outcomes[0]
    assert outcomes[-1]


@pytest.mark.parametrize("place", ["before", "after", "within"])
def test_a_folder_changes_as_one(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    write(out, OLD)
    for name, text in FOREIGN.items():
        (out / name).write_text(text)
    rename, replace = Path.rename, Path.replace
    moved: list[str] = []

    def interrupted_rename(self: Path, target: Path) -> Path:
        if place == "before":
            os._exit(9)
        result = rename(self, target)
        if place == "after":
            os._exit(9)
        return result

    def interrupted_replace(self: Path, target: Path) -> Path:
        if len(moved) == 2:
            os._exit(9)
        moved.append(self.name)
        return replace(self, target)

    child = os.fork()
    if child == 0:  # it ends without any clean-up, as one that is killed
        monkeypatch.setattr(Path, "rename", interrupted_rename)
        monkeypatch.setattr(Path, "replace", interrupted_replace)
        try:
            write(out, NEW, force=True)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    CompletedFolder.open(out)
    assert files(out) == (OLD if place == "before" else NEW) | FOREIGN
    write(out, NEW, force=True)
    assert files(out) == NEW | FOREIGN
    assert list(tmp_path.iterdir()) == [out]  # nothing half written stays beside it


def test_an_error_leaves_everything_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, OLD)

    def fail() -> None:
        with CompletedFolder.write(out, force=True) as folder:
            folder.changes.write_text("new")
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert files(out) == OLD
    assert list(tmp_path.iterdir()) == [out]


def test_the_temporary_folder_of_a_living_process_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with CompletedFolder.write(out) as folder:
        for name in OLD:
            (folder.path / name).write_text("slow")
        write(out, NEW)
        assert folder.path.is_dir()
    assert files(out) == dict.fromkeys(OLD, "slow")


@pytest.mark.parametrize("name", ["report.json", "changes.csv", "labels.npz", "completed.csv"])
def test_a_mixture_is_refused(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, OLD)
    CompletedFolder.open(out)
    (out / name).write_text("new")
    with pytest.raises(RunError, match=rf"{name}: is not the file that was completed with the others"):
        CompletedFolder.open(out)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"a": "b"}', '{"../x": 1}', "[" * 9999, '{"report.json": 1e999}']
)
def test_checksums_that_say_nothing_are_refused(content: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, OLD)
    (out / CHECKSUMS).write_text(content)
    with pytest.raises(RunError, match=r"checksums\.json: cannot be read"):
        CompletedFolder.open(out)


def test_a_folder_of_an_older_version_is_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, OLD)
    (out / CHECKSUMS).unlink()
    CompletedFolder.open(out)


def test_an_exchange_that_cannot_be_finished_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    write(out, OLD)
    (out / ".new").mkdir()
    (out / ".new" / CHECKSUMS).write_text('{"report.json": 1}')
    (out / ".new" / "report.json").write_text("new")

    def refuse(*_: Any) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(RunError, match=r"a completion that was cut off and cannot be finished \(.*denied"):
        CompletedFolder.open(out)
