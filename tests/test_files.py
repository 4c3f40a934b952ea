from __future__ import annotations

import errno
import pickle
from pathlib import Path

import pytest

from satl.cli.wording import shell_words
from satl.errors import ConfigError
from satl.files import UnwritableError, atomic_path, check_out, check_out_folder


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
