"""Write files completely or not at all; check before the work that they can be written; lock a file."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import socket
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from satl.errors import Argument, ConfigError, Sentence, nearest
from satl.parsing import parse_json

CHECKSUMS = "checksums.json"
_BLOCK = 1 << 20
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_LEFTOVER = re.compile(r"\..*\.([0-9a-f]{6})([0-9a-f]{6,})-[0-9a-f]{4}\.partial(\.[^.]*){0,2}", re.DOTALL)
"""A temporary name: machine, process, a random part."""
_SECONDS_OF_A_STRANGER = 7 * 24 * 3600
"""Age from which on what a process of another machine left is taken for abandoned."""
_tidied = set[Path]()
"""Folders in which this process has removed leftovers."""


class UnwritableError(ConfigError, OSError):
    """A file cannot be written where it was asked for; an ``OSError`` too, for callers that can do without it.

    >>> print(UnwritableError(errno.EACCES, "Permission denied", "out/t.csv"))
    out/t.csv: cannot be written (Permission denied); choose another place.
    """

    def __init__(self, number: int | None, reason: str, path: str) -> None:
        super().__init__(f"cannot be written ({reason})", where=path, remedy="choose another place")
        self.errno, self.strerror, self.filename = number, reason, path

    def __reduce__(self) -> Any:
        return type(self), (self.errno, self.strerror, self.filename)

    @classmethod
    def of(cls, path: Path, error: OSError) -> UnwritableError:
        """Return the error of ``path`` that an error of the system means."""
        blocking = _file_in_the_way(path.parent)
        reason = error.strerror or str(error) if blocking is None else f"{blocking} is a file, not a folder"
        return cls(error.errno, reason, str(path))


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it takes the name ``path``, on error it is removed.

    The folder is created where it is missing. The temporary name keeps the extension, because some
    writers (``numpy.savez``) choose or append one, and begins with a dot, so that a pattern such as
    ``*.csv`` never meets a half-written file. What is written is on the disk before it takes the name, so that after
    a loss of power the name stands for the old content or for the new one. What killed processes left in the folder is
    removed.

    Raises:
        UnwritableError: the place is at fault. Any other error of the block stays what it is.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "numbers.txt"
    >>> with atomic_path(target) as temporary:
    ...     _ = temporary.write_text("1 2 3")
    >>> target.read_text(), [p.name for p in target.parent.iterdir()]
    ('1 2 3', ['numbers.txt'])
    """
    target = Path(path)
    temporary = temporary_path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableError.of(target, error) from error
    _tidy(target.parent)
    try:
        yield temporary
        sync(temporary)
        temporary.replace(target)
        sync_names(target.parent)
    except BaseException as error:
        translated = (
            UnwritableError.of(target, error)
            if isinstance(error, OSError) and _is_about_place(error, temporary)
            else None
        )
        # BaseException: an interrupt must not leave a partial file behind either.
        if _is_folder(temporary):
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            with suppress(OSError):  # where no file can be there is none to remove; the first error says why
                temporary.unlink(missing_ok=True)
        if translated is not None:
            raise translated from error
        raise


@contextmanager
def atomic_paths(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield a temporary path for each of several files that belong together; see :func:`atomic_path`.

    The first one is the main file: where it is, the others belong to it. An old one is removed before the others take
    their names, so that a process that is killed meanwhile leaves no main file, and never an old one beside new others.

    >>> import tempfile
    >>> main = Path(tempfile.mkdtemp()) / "table.csv"
    >>> with atomic_paths([main, main.with_name("names.txt")]) as temporary:
    ...     for place in temporary:
    ...         _ = place.write_text("new")
    >>> sorted(file.name for file in main.parent.iterdir())
    ['names.txt', 'table.csv']
    """
    main, *others = paths
    with ExitStack() as written:  # unwinds from the last one to the main one
        temporary = [written.enter_context(atomic_path(path)) for path in (main, *others)]
        yield temporary
        if others:
            for place in temporary:
                sync(place)
            if not main.is_dir():
                main.unlink(missing_ok=True)


def temporary_path(target: Path) -> Path:
    """Return a hidden name beside ``target``, with its extension, that says which process made it."""
    token = f"{_machine()}{os.getpid():06x}-{secrets.token_hex(2)}"
    stem, ending = split_ending(target)
    return target.with_name(f".{stem}.{token}.partial{ending}")


def split_ending(path: Path) -> tuple[str, str]:
    """Return the name of a file without its ending, and the ending; that of a compressed file has two parts.

    >>> split_ending(Path("out/labels.csv.gz")), split_ending(Path("labels.v2.csv")), split_ending(Path("a.gz"))
    (('labels', '.csv.gz'), ('labels.v2', '.csv'), ('a', '.gz'))
    """
    inner = Path(path.stem).suffix if path.suffix.lower() == ".gz" else ""
    ending = inner + path.suffix
    return path.name[: len(path.name) - len(ending)], ending


def file_ending(path: Path) -> str:
    """Return the ending of a file in lower case, such as ``.csv`` or ``.csv.gz``."""
    return split_ending(path)[1].lower()


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders of processes that are gone; those of other machines after a week."""
    if os.name != "posix":
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            made_by = _LEFTOVER.fullmatch(entry.name) if entry.name.startswith(".") else None
            if made_by is None:
                continue
            with suppress(OSError):  # it is gone, or cannot be removed: then it stays
                here = made_by[1] == _machine()
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if _is_gone(int(made_by[2], 16)) if here else age > _SECONDS_OF_A_STRANGER:
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path)
                    else:
                        Path(entry.path).unlink()


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, as one: a process that is killed leaves all of it or nothing.

    Raises:
        OSError: it cannot be removed.
    """
    remove_leftovers(folder.parent)
    if folder.exists():
        hidden = temporary_path(folder)
        folder.rename(hidden)
        sync_names(folder.parent)
        shutil.rmtree(hidden)


def is_disk_error(error: OSError) -> bool:
    """Whether an error is about the disk: full, over a limit, not writable, broken."""
    return error.errno in _DISK_ERRORS


def sync(path: Path) -> None:
    """Have a file, or a folder with all that is in it, written to the disk; what does not exist is passed over.

    Raises:
        OSError: it cannot be written.
    """
    if path.is_symlink() or not path.exists():
        return
    if path.is_dir():
        for entry in path.iterdir():
            sync(entry)
        sync_names(path)
    else:
        _sync(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)


def sync_names(folder: Path) -> None:
    """Have the names in a folder written to the disk: which files there are, not what they hold.

    Raises:
        OSError: they cannot be written.
    """
    if os.name == "posix":  # Windows opens no folders, and writes the names itself
        _sync(folder, os.O_RDONLY)


def checksum(file: Path) -> int:
    """Return the CRC-32 of a file: against damage and mixtures, not against a forger, and quick."""
    value = 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            value = zlib.crc32(block, value)
    return value


def write_checksums(folder: Path) -> None:
    """Write ``checksums.json`` about every file of a folder.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("one")
    >>> write_checksums(folder)
    >>> read_checksums(folder)
    {'a.txt': 2053932785}
    """
    found = {file.name: checksum(file) for file in sorted(folder.iterdir()) if file.name != CHECKSUMS}
    (folder / CHECKSUMS).write_text(json.dumps(found) + "\n", encoding="utf-8")


def read_checksums(folder: Path) -> dict[str, int]:
    """Return what :func:`write_checksums` wrote: name -> CRC-32.

    Raises:
        OSError: it is missing or cannot be read.
        ValueError: it holds something else.
    """
    try:
        content = {
            str(name): int(value) for name, value in parse_json((folder / CHECKSUMS).read_bytes()).items()
        }
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError("not checksums") from error
    if not all(map(is_file_name, content)):
        raise ValueError("a name leads elsewhere")
    return content


def is_file_name(name: str) -> bool:
    """Whether a name that was read from a file stands for something in a folder itself, on any system.

    >>> [is_file_name(name) for name in ("a.npy", "/a.npy", "../a.npy", "..", "b\\\\a.npy", "C:a.npy", "")]
    [True, False, False, False, False, False, False]
    """
    return name not in ("", ".", "..") and not set(name) & set("/\\:\0")


def check_out(path: Path, *endings: str, overwrite: bool = True, inputs: Iterable[Path | None] = ()) -> None:
    """Check before the work begins that a file can and may be written.

    Args:
        path: the file, called ``out`` in messages.
        endings: what its name may end in.
        overwrite: whether a file that exists may be replaced; the caller has an argument ``force`` for it.
        inputs: files that are read, or None; they are never replaced.

    Raises:
        ConfigError: it cannot or must not be written.

    >>> check_out(Path("scores.txt"), ".csv", ".jsonl")
    Traceback (most recent call last):
    satl.errors.ConfigError: out='scores.txt': cannot be written as '.txt'; end the name in .csv or .jsonl.
    """
    if path.suffix not in endings:
        remedy = f"end the name in {' or '.join(endings)}"
        raise _refusal(path, f"cannot be written as '{path.suffix}'", remedy)
    if _is_folder(path):
        raise _refusal(path, "is a folder", "give the name of a file")
    _refuse_file_in_the_way(path, path.parent)
    if not _is_folder(path.parent):
        raise _refusal(path, f"the folder {path.parent} does not exist", "make it first")
    if any(_is_same_file(path, file) for file in inputs if file is not None):
        raise _refusal(path, "belongs to the inputs and would be overwritten", "give another name")
    if not overwrite and os.path.lexists(path):
        force = Sentence("give another name, or pass {force} to overwrite it", force=Argument("force", True))
        raise _refusal(path, "exists already", force)
    _try_to_write(path, temporary_path(path))


def check_out_folder(path: Path) -> None:
    """Check before the work begins that a folder can be made or written to; nothing is made.

    Args:
        path: the folder, called ``out`` in messages.

    Raises:
        ConfigError: it cannot be made or written to.

    >>> check_out_folder(Path(__file__, "figures"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    satl.errors.ConfigError: out='...files.py/figures': ...files.py is a file, not a folder; give another place.
    """
    _refuse_file_in_the_way(path, path)
    existing = next(place for place in (path, *path.parents) if _is_folder(place))
    _try_to_write(path, temporary_path(existing / "trial"))


def nearest_file(path: Path) -> str:
    """Suggest the file beside a missing ``path`` whose name is closest, as the end of a sentence, or nothing."""
    return nearest(path.name, [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else [])


def try_lock(handle: int) -> bool:
    """Lock an open file without waiting, and return whether no other process has it locked.

    The lock belongs to the open file: it is gone when the last process that has it open ends, however it ends. Where
    the file system knows no locks, nobody can hold one.

    Args:
        handle: descriptor of the open file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file, open(file.name) as second:
    ...     try_lock(file.fileno()), try_lock(second.fileno())
    (True, False)
    """
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        windows: Any = msvcrt
        try:
            windows.locking(handle, windows.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_LOCKS
    return True


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:  # some network and virtual file systems know nothing of it
            raise
    finally:
        os.close(handle)


def _tidy(folder: Path) -> None:
    if folder not in _tidied:  # once: a folder may have a hundred thousand files
        _tidied.add(folder)
        remove_leftovers(folder)


@cache
def _machine() -> str:
    """Six digits for this machine, or this container: process numbers mean nothing elsewhere."""
    space = ""
    with suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return f"{zlib.crc32(f'{socket.gethostname()} {space}'.encode()) & 0xFFFFFF:06x}"


def _is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _is_about_place(error: OSError, temporary: Path) -> bool:
    """Tell whether an error is about the place of a file, and not about something else that the writer did."""
    if error.filename is None:
        return error.errno in _DISK_ERRORS  # writing into an open file names none
    about = (
        Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes, os.PathLike)) else None
    )
    if about is None or not about.is_relative_to(temporary):
        return False
    # A writer that wrote nothing is wrong itself; only then the renaming finds no file.
    return error.filename2 is None or os.path.lexists(temporary)


def _is_folder(path: Path) -> bool:
    with suppress(OSError):  # a name that is too long, a folder that may not be entered: no folder for us
        return path.is_dir()
    return False


def _is_same_file(one: Path, other: Path) -> bool:
    with suppress(OSError):  # one of them does not exist
        return one.samefile(other)
    return False


def _file_in_the_way(folder: Path) -> Path | None:
    """Return what is a file where ``folder`` needs a folder, or None."""
    for place in (folder, *folder.parents):
        with suppress(OSError):  # what cannot be looked at is no file that we know of
            if place.exists():
                return None if place.is_dir() else place
    return None


def _refuse_file_in_the_way(path: Path, folder: Path) -> None:
    blocking = _file_in_the_way(folder)
    if blocking is not None:
        name = "" if blocking == path else f"{blocking} "
        raise _refusal(path, f"{name}is a file, not a folder", "give another place")


def _try_to_write(path: Path, trial: Path) -> None:
    """Write an empty file and remove it: permissions alone do not tell what the system allows."""
    _tidy(trial.parent)
    try:
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        raise _refusal(path, f"cannot be written ({error.strerror or error})", "give another place") from None


def _refusal(out: Path, what: str, remedy: str | Sentence) -> ConfigError:
    return ConfigError(what, where=Argument("out", out), remedy=remedy)
