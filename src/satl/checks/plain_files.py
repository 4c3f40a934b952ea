"""Folders of a stranger: what is in them is a file or a folder, or nothing is read."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from satl.errors import SatlError, Sentence


def refuse_endless_files(
    folder: Path, error: type[SatlError], remedy: str | Sentence | None, levels: int = 1
) -> None:
    """Refuse a folder with something in it that is neither a file nor a folder, before anything is read from it.

    Whoever opens a pipe waits for a writer, and a link to a device such as ``/dev/zero`` can be read for ever; both can
    be in an archive or a repository. Links to plain files and folders pass.

    Args:
        folder: a folder that has few entries.
        error: raised where there is such a thing.
        remedy: of that error.
        levels: how many levels of folders are looked at.

    >>> import tempfile
    >>> from satl.errors import RunError
    >>> folder = Path(tempfile.mkdtemp())
    >>> refuse_endless_files(folder, RunError, "restore it")
    >>> (folder / "a.json").symlink_to("/dev/zero")
    >>> refuse_endless_files(folder, RunError, "restore it")
    Traceback (most recent call last):
    satl.errors.RunError: ...a.json: is no plain file but a pipe or a device, which nothing is read from; restore it.
    """
    endless = _endless_file(folder, levels)
    if endless is not None:
        what = "is no plain file but a pipe or a device, which nothing is read from"
        raise error(what, where=endless, remedy=remedy)


def _endless_file(folder: Path, levels: int) -> Path | None:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda own: own.name):
            with suppress(OSError):  # it leads nowhere, or in a circle: opening it fails at once
                if entry.is_dir():
                    found = _endless_file(Path(entry.path), levels - 1) if levels > 1 else None
                    if found is not None:
                        return found
                elif not stat.S_ISREG(entry.stat().st_mode):
                    return Path(entry.path)
    return None
