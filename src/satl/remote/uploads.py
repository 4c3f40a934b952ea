"""What a command writes to an address: written on this machine first, and uploaded when all of it is there.

Objects of a bucket appear as a whole, folders do not. So the file by which a folder or a group of files is recognised
goes last: until it is there, nothing else counts. Where an upload fails, what it has put there is removed again, and
what was to be uploaded stays on this machine.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from satl.errors import Sentence, Stopped, call
from satl.files import try_lock
from satl.remote import copies
from satl.remote.addresses import RemoteError, RemotePath
from satl.remote.storage import Storage, below, parent_of

COMPLETES = ("store.json", "features.json", "_predictions.json", "checksums.json")
"""Files that make a folder whole: of packed stores, features, predictions and completions."""
_FILES_AT_ONCE = 64


@contextmanager
def uploaded(address: RemotePath, *, replace: bool, resumes: bool, remedy: str | Sentence) -> Iterator[Path]:
    """Yield a local place, and upload what is there at the end: a folder, or a file with those beside it.

    Args:
        address: where it goes.
        replace: replace what is at the address.
        resumes: what an earlier attempt left at the local place is gone on with, and stays when there is an error.
        remedy: what helps where something is at the address that is not to be replaced.

    Raises:
        RemoteError: something is at the address, another process writes to it, or it cannot be written.
        Stopped: the upload was stopped.
    """
    place = _place(address)
    there = Storage(str(address))
    if there.exists() and not replace and (not there.look().is_folder or there.listing()):
        raise RemoteError("exists already", where=str(address), remedy=remedy)
    with _locked(place.parent, address):
        if not resumes:
            _clear(place.parent)
        call(place.parent, below(parent_of(str(address))[0]))
        try:
            yield place
        except BaseException:
            if not resumes:
                _clear(place.parent)
            elif place.exists():  # what is left is on this machine
                call(place.parent, None)
            raise
        try:
            _upload(address, place, replace, remedy)
        except BaseException as error:
            call(place.parent, None)
            kept = f"what was to be uploaded is in {place}: copy it from there, or run the same command again"
            if isinstance(error, KeyboardInterrupt):
                raise Stopped("the upload was stopped", where=str(address), remedy=kept) from None
            if isinstance(error, RemoteError):
                raise RemoteError(error.what, where=error.where, remedy=kept) from error
            raise
        _clear(place.parent)


def _upload(address: RemotePath, place: Path, replace: bool, remedy: str | Sentence) -> None:
    """Upload a folder, or a file with those beside it; what makes it whole goes last."""
    is_folder = place.is_dir()
    base = place if is_folder else place.parent
    found = {file.relative_to(base).as_posix(): file for file in sorted(base.rglob("*")) if file.is_file()}
    files = {name: file for name, file in found.items() if not PurePosixPath(name).name.startswith(".")}
    storage = Storage(str(address) if is_folder else parent_of(str(address))[0])
    last = [name for name in files if name in (COMPLETES if is_folder else (address.name,))]
    parts = [name for name in files if name not in last]
    if is_folder and replace:
        there = storage.listing() if storage.exists() else {}
        if last and there and not set(COMPLETES) & set(there):
            raise RemoteError("holds other files", where=str(address), remedy=remedy)
        stale = [name for name in there if name.startswith("part-") and name not in files]
        storage.remove([*last, *stale])
    elif parts and replace:
        storage.remove(last)  # it would stand beside new files that are not its own
    elif parts and not is_folder:
        for name in parts:
            if Storage(f"{below(storage.address)}/{name}").exists():
                raise RemoteError(f"{name} exists already beside it", where=str(address), remedy=remedy)
    batches = [parts[first : first + _FILES_AT_ONCE] for first in range(0, len(parts), _FILES_AT_ONCE)]
    done = 0
    try:
        with copies.show(f"Uploading {address}") as progress:
            for batch in (*batches, *([name] for name in last)):
                storage.upload({name: files[name] for name in batch})
                done += len(batch)
                if progress is not None:
                    progress(done, len(files))
    except BaseException:
        if parts:  # a single object appears as a whole or not at all
            with suppress(RemoteError):
                storage.remove(list(files))
        raise


def _place(address: RemotePath) -> Path:
    """Return the local place of what goes to an address; the same each time, so that a folder can be gone on with."""
    digest = hashlib.blake2b(str(address).encode(), digest_size=10).hexdigest()
    return copies.remote_folder() / "uploads" / digest / address.name


@contextmanager
def _locked(folder: Path, address: RemotePath) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as file:
        if not try_lock(file.fileno()):
            raise RemoteError(
                "another process on this machine is writing to it",
                where=str(address),
                remedy="wait until it has ended",
            )
        yield


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != ".lock":
            entry.unlink(missing_ok=True)
