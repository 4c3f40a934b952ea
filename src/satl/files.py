"""Write a file completely or not at all; check before the work that it can be written; lock a file."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from satl.errors import Argument, ConfigError, Sentence, nearest

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


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
    ``*.csv`` never meets a half-written file.

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
    temporary = _temporary(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableError.of(target, error) from error
    try:
        yield temporary
        temporary.replace(target)
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
    _try_to_write(path, _temporary(path))


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
    _try_to_write(path, _temporary(existing / "trial"))


def nearest_file(path: Path) -> str:
    """Suggest the file beside a missing ``path`` whose name is closest, as the end of a sentence, or nothing."""
    return nearest(path.name, [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else [])


def try_lock(handle: int) -> bool:
    """Lock an open file without waiting, and return whether that worked.

    The lock belongs to the open file: it is gone when the last process that has it open ends, however it ends.

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
    except OSError:
        return False
    return True


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.stem}.{secrets.token_hex(4)}.partial{target.suffix}")


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
    try:
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        raise _refusal(path, f"cannot be written ({error.strerror or error})", "give another place") from None


def _refusal(out: Path, what: str, remedy: str | Sentence) -> ConfigError:
    return ConfigError(what, where=Argument("out", out), remedy=remedy)
