from __future__ import annotations

import errno
import os
import pickle
import shutil
from pathlib import Path

import pytest

from satl import files
from satl.cli.wording import shell_words
from satl.errors import ConfigError
from satl.files import (
    UnwritableError,
    atomic_path,
    atomic_paths,
    check_out,
    check_out_folder,
    remove_folder,
    temporary_path,
)


def test_success_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.txt"
    for text in ("one", "two"):
        with atomic_path(target) as temporary:
            temporary.write_text(text)
            assert temporary.parent == target.parent
            assert temporary.suffix == ".txt"
        assert target.read_text() == text
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_keeps_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "file.txt"
    target.write_text("old")

    def write() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_removes_a_temporary_folder(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_path(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / "part").write_text("half")
            raise ValueError

    with pytest.raises(ValueError):
        write()
    assert list(tmp_path.iterdir()) == []


def write(target: Path, error: Exception | None = None) -> None:
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        if error is not None:
            raise error


def test_a_place_that_is_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("mine")
    for target in (tmp_path / "afile" / "t.csv", tmp_path / "afile" / "deep" / "t.csv"):
        with pytest.raises(UnwritableError) as caught:
            write(target)
        assert str(caught.value) == (
            f"{target}: cannot be written ({tmp_path / 'afile'} is a file, not a folder); choose another place."
        )
        assert isinstance(caught.value, OSError)  # so that whoever can go on without the file does
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert (tmp_path / "afile").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that nobody can write to")
@pytest.mark.parametrize("name", ["/proc/t.csv", "/proc/deep/t.csv"])
def test_a_place_that_the_system_keeps_is_told(name: str) -> None:
    with pytest.raises(UnwritableError, match=rf"^{name}: cannot be written \(.*\); choose another place\.$"):
        write(Path(name))


def test_a_folder_of_that_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(UnwritableError, match=r"t\.csv: cannot be written \(Is a directory\)"):
        write(tmp_path / "t.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_name_that_is_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnwritableError, match=r"cannot be written \(File name too long\)"):
        write(tmp_path / f"{'long' * 70}.csv")


def test_a_full_disk_is_told_and_other_errors_stay(tmp_path: Path) -> None:
    target = tmp_path / "t.csv"
    with pytest.raises(UnwritableError, match=r"t\.csv: cannot be written \(No space left\)") as caught:
        write(target, OSError(errno.ENOSPC, "No space left"))
    assert caught.value.errno == errno.ENOSPC
    for other in (FileNotFoundError(errno.ENOENT, "No such file", "input.csv"), OSError("of a library")):
        with pytest.raises(OSError) as kept:
            write(target, other)
        assert kept.value is other
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_writes_nothing_is_not_the_fault_of_the_place(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, atomic_path(tmp_path / "t.csv"):
        pass
    assert not isinstance(caught.value, ConfigError)


def test_a_file_that_could_not_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    afile = tmp_path / "afile"
    afile.write_text("mine")
    for path, words in (
        (afile / "t.csv", f"{afile} is a file, not a folder; give another place."),
        (afile / "deep" / "t.csv", f"{afile} is a file, not a folder; give another place."),
        (tmp_path / "none" / "t.csv", f"the folder {tmp_path / 'none'} does not exist; make it first."),
        (tmp_path / f"{'long' * 70}.csv", "cannot be written (File name too long); give another place."),
        (Path("/proc/t.csv"), "cannot be written (No such file or directory); give another place."),
    ):
        with pytest.raises(ConfigError) as caught:
            check_out(path, ".csv")
        assert str(caught.value) == f"out={str(path)!r}: {words}"
        assert caught.value.worded(shell_words) == f"--out {path}: {words}"
    check_out(tmp_path / "t.csv", ".csv", overwrite=False, inputs=(tmp_path / "gone.csv", None))
    assert list(tmp_path.iterdir()) == [afile]


def test_a_folder_that_could_not_be_made_is_refused_before_the_work(tmp_path: Path) -> None:
    afile = tmp_path / "afile"
    afile.write_text("mine")
    for path, words in (
        (afile, "is a file, not a folder; give another place."),
        (afile / "deep" / "er", f"{afile} is a file, not a folder; give another place."),
        (Path("/proc/deep/er"), "cannot be written (No such file or directory); give another place."),
    ):
        with pytest.raises(ConfigError) as caught:
            check_out_folder(path)
        assert str(caught.value) == f"out={str(path)!r}: {words}"
        assert caught.value.worded(shell_words) == f"--out {path}: {words}"
    for path in (tmp_path, tmp_path / "new" / "er"):
        check_out_folder(path)
    assert list(tmp_path.iterdir()) == [afile]


def test_files_that_exist_and_inputs_are_not_overwritten(tmp_path: Path) -> None:
    mine, link = tmp_path / "mine.csv", tmp_path / "link.csv"
    mine.write_text("mine")
    link.symlink_to(mine)
    check_out(mine, ".csv", inputs=(tmp_path / "other.csv", None))
    with pytest.raises(
        ConfigError, match=r"mine\.csv': exists already; give another name, or pass force=True"
    ):
        check_out(mine, ".csv", overwrite=False)
    for out, read in ((mine, mine), (link, mine), (mine, link)):
        with pytest.raises(ConfigError, match="belongs to the inputs and would be overwritten"):
            check_out(out, ".csv", inputs=(read,))
    assert mine.read_text() == "mine"


def dead_process() -> int:
    """Return the number of a process that has ended."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def left_by(process: int, folder: Path, monkeypatch: pytest.MonkeyPatch, machine: str | None = None) -> Path:
    with monkeypatch.context() as other:
        other.setattr(os, "getpid", lambda: process)
        if machine is not None:
            other.setattr(files, "_machine", lambda: machine)
        left = temporary_path(folder / "file.txt")
    left.write_text("half")
    return left


def test_what_killed_processes_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, living = (left_by(number, tmp_path, monkeypatch) for number in (dead_process(), os.getppid()))
    own = left_by(os.getpid(), tmp_path, monkeypatch)
    folder = left_by(dead_process(), tmp_path, monkeypatch)
    folder.unlink()
    folder.mkdir()
    (folder / "part").touch()
    away, long_away = (left_by(dead_process(), tmp_path, monkeypatch, "00ab12") for _ in range(2))
    os.utime(long_away, (0, 0))
    foreign = tmp_path / ".notes.partial.txt"
    foreign.touch()
    write(tmp_path / "other.csv")
    assert sorted(tmp_path.iterdir()) == sorted((living, own, away, foreign, tmp_path / "other.csv"))
    assert not dead.exists()
    assert not long_away.exists()


def test_a_folder_is_removed_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").touch()

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as other:
        other.setattr(shutil, "rmtree", killed)
        gone = dead_process()
        other.setattr(os, "getpid", lambda: gone)
        with pytest.raises(KeyboardInterrupt):
            remove_folder(folder)
    assert not folder.exists()
    remove_folder(folder)
    assert list(tmp_path.iterdir()) == []


def test_an_old_main_file_never_stands_beside_new_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, other = tmp_path / "table.csv", tmp_path / "names.txt"

    def write_both(text: str) -> None:
        with atomic_paths([main, other]) as temporary:
            for place in temporary:
                place.write_text(text)

    write_both("old")
    replace = Path.replace

    def cut_off(self: Path, target: Path) -> Path:
        if target == main:
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", cut_off)
        with pytest.raises(KeyboardInterrupt):
            write_both("new")
    assert other.read_text() == "new"
    assert not main.exists()
    write_both("new")

    def fail() -> None:
        with atomic_paths([main, other]) as places:
            places[0].write_text("half")
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert (main.read_text(), other.read_text()) == ("new", "new")
