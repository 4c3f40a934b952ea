"""Replace the files of a folder as one, whenever the process is killed, and leave alone what others put there.

The new files are written into a folder beside it, then that folder is renamed to ``.new`` inside the old one: from
then on the new files count. They take their places one by one, and a process that is killed meanwhile leaves the rest
to whoever opens the folder next. The folder itself is never replaced: a database in it may be open.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from satl.completion.outputs.changes import COMPLETE_AGAIN
from satl.errors import RunError
from satl.files import (
    CHECKSUMS,
    checksum,
    read_checksums,
    remove_leftovers,
    sync,
    sync_names,
    temporary_path,
    write_checksums,
)

_NEW = ".new"
_STALE = "stale"
"""The file that names what the old folder has and the new one has not."""
_ATTEMPTS = 100


@contextmanager
def new_folder(out: Path, own: Callable[[Path], Iterable[Path]]) -> Iterator[Path]:
    """Yield a temporary folder beside ``out``; on success its files replace those of ``out``, on error it is removed.

    Args:
        out: the folder; made where it is missing.
        own: returns the files in a folder that may be replaced or removed; all others stay.

    Raises:
        OSError: it cannot be written.
    """
    place = out.resolve()  # "." has no name of its own
    remove_leftovers(place.parent)
    temporary = temporary_path(place)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        write_checksums(temporary)
        sync(temporary)
        if place.is_dir():
            _commit(temporary, place, own)
            finish_exchange(place)
        else:
            temporary.replace(place)
        sync_names(place.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def finish_exchange(folder: Path) -> None:
    """Put the files of ``.new`` into their places, if a process was killed before it had done so.

    Raises:
        RunError: they cannot be put there.
    """
    fresh = folder / _NEW
    if not fresh.is_dir():
        return
    try:
        # Another process may do the same at this moment: what is gone is in its place.
        with suppress(FileNotFoundError):
            for name in (fresh / _STALE).read_text(encoding="utf-8").splitlines():
                (folder / Path(name).name).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            names = read_checksums(fresh)
            for name in names:
                with suppress(FileNotFoundError):
                    (fresh / name).replace(folder / name)
            sync_names(folder)
            (fresh / CHECKSUMS).replace(folder / CHECKSUMS)
            sync_names(folder)  # before the folder that tells of the exchange is gone
        shutil.rmtree(fresh, ignore_errors=True)
    except (OSError, ValueError) as error:
        raise RunError(
            f"holds a completion that was cut off and cannot be finished ({error})",
            where=folder,
            remedy=COMPLETE_AGAIN,
        ) from error


def require_one_completion(folder: Path) -> None:
    """Refuse a folder whose files are not all of one completion; one of an older version does not say.

    Raises:
        RunError: a file is missing or is not the one that was written.
    """
    try:
        expected = read_checksums(folder)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise RunError("cannot be read", where=folder / CHECKSUMS, remedy=COMPLETE_AGAIN) from error
    for name, value in expected.items():
        file = folder / name
        try:
            same = checksum(file) == value
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
            raise RunError(what, where=file, remedy=COMPLETE_AGAIN) from error
        if not same:
            raise RunError(
                "is not the file that was completed with the others of its folder",
                where=file,
                remedy=COMPLETE_AGAIN,
            )


def _commit(temporary: Path, place: Path, own: Callable[[Path], Iterable[Path]]) -> None:
    """Let the new files count from now on."""
    for attempt in range(_ATTEMPTS):
        finish_exchange(place)
        stale = [file.name for file in own(place) if file.exists() and not (temporary / file.name).exists()]
        (temporary / _STALE).write_text("".join(f"{name}\n" for name in stale), encoding="utf-8")
        sync(temporary)
        try:
            temporary.rename(place / _NEW)
        except OSError:
            if attempt + 1 == _ATTEMPTS or not (place / _NEW).exists():
                raise  # it is not another completion that was quicker
            continue
        sync_names(place)
        return
