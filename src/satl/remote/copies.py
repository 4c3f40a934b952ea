"""Copies on this machine of files that lie behind addresses: fetched once, and again only when they have changed.

Each folder behind an address has a mirror in the cache: the files as they were when they were last asked for, and
beside them which version of each that is. Whoever opens an address asks the storage for its versions and fetches what
is missing or other by now. A file takes its name when all of it is there, and one process at a time changes a mirror.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from satl.errors import call
from satl.files import atomic_path, try_lock
from satl.parsing import parse_json
from satl.remote.addresses import RemoteError, RemotePath, as_path
from satl.remote.cache_place import VARIABLE, cache_root
from satl.remote.storage import Storage, StoredFile, below, parent_of

ALLOWED = "SATL_REMOTE"
"""Environment variable with beginnings of addresses that run folders may name, separated by spaces."""
STORE_FILES = ("store.json", "journal.jsonl")
"""What makes a folder a packed store, finished or not, as :mod:`satl.images.store` calls them."""
_FORMAT = "satl mirror 1"
_FILES_AT_ONCE = 256
_BESIDE = {".npy": ("{stem}.txt", "{stem}.csv", "ids.txt", "ids.csv")}
"""Files that may lie beside one with this ending and are read with it."""

Progress = Callable[[int, int], None]

_trusted = set[str]()
_listed: dict[str, tuple[Mirror, Storage, dict[str, StoredFile]]] = {}
"""Folders of pictures by their mirrors: what is behind their address, of which only what is asked for is fetched."""


def no_bar(title: str) -> AbstractContextManager[Progress | None]:
    """Draw nothing."""
    return nullcontext()


show: Callable[[str], AbstractContextManager[Progress | None]] = no_bar
"""Draws what is fetched and uploaded, where somebody looks on; the command line sets it."""


def trust(address: str) -> None:
    """Note that the person at work has named an address, in a configuration of their own."""
    _trusted.add(address)


def require_trust(address: str) -> None:
    """Refuse an address that came with a run folder, unless it was read here before or is allowed.

    Raises:
        RemoteError: it is refused.
    """
    above, name = parent_of(address)
    if address in _trusted or Mirror(address).knows("") or Mirror(above).knows(name):
        return
    allowed = os.environ.get(ALLOWED, "").split()
    if any(address == start or address.startswith(start.rstrip("/") + "/") for start in allowed):
        return
    raise RemoteError(
        "is named by a run folder and was never read on this machine, so it is not opened",
        where=address,
        remedy=f"if you trust it, name it in the environment variable {ALLOWED}",
    )


def local_copy(path: str | os.PathLike[str]) -> Path:
    """Return a local path as it is; fetch what lies behind an address, a file or a whole folder, and return the copy.

    Raises:
        RemoteError: it does not exist or cannot be fetched.
    """
    place = as_path(path)
    if not isinstance(place, RemotePath):
        return place
    address = str(place)
    found = Storage(address).look()
    if found.is_folder:
        storage, mirror = Storage(address), Mirror(address)
        listing = storage.listing()
        mirror.fetch(storage, listing, listing)
        mirror.note("")
        return mirror.place
    above, name = parent_of(address)
    storage, mirror = Storage(above), Mirror(above)
    mirror.fetch(storage, {name: found})
    if found.version and Storage(address).look() != found:
        mirror.forget(name)
        raise RemoteError("was changed while it was read", where=address, remedy="run the command again")
    mirror.note(name)
    path = PurePosixPath(name)
    for pattern in _BESIDE.get(path.suffix.lower(), ()):
        beside = pattern.format(stem=path.stem)
        companion = Storage(f"{below(above)}/{beside}")
        if companion.exists():
            mirror.fetch(storage, {beside: companion.look()})
    return mirror.at(name)


def picture_folder(path: str | os.PathLike[str]) -> Path:
    """Return a local path as it is; of a folder behind an address, return the place that :func:`fill` puts pictures to.

    A packed store is fetched as a whole.

    Raises:
        RemoteError: the address does not exist, cannot be listed, or is that of a file.
    """
    place = as_path(path)
    if not isinstance(place, RemotePath):
        return place
    address = str(place)
    storage = Storage(address)
    if not storage.look().is_folder:
        raise RemoteError("is a file", where=address, remedy="name the folder that the pictures are in")
    listing = storage.listing()
    mirror = Mirror(address)
    if any(name in listing for name in STORE_FILES):
        mirror.fetch(storage, listing, listing)
    else:
        mirror.place.mkdir(parents=True, exist_ok=True)
        _listed[str(mirror.place)] = mirror, storage, listing
    mirror.note("")
    return mirror.place


def fill(folder: Path, names: Iterable[str]) -> None:
    """Fetch pictures into a folder that :func:`picture_folder` returned; any other folder is left alone.

    Args:
        folder: the folder.
        names: of the pictures, with or without their extensions; those that do not exist are passed over.
    """
    found = _listed.get(str(folder))
    if found is None:
        return
    mirror, storage, listing = found
    asked = {PurePosixPath(name).as_posix() for name in names}
    wanted = {
        name: entry for name, entry in listing.items() if name in asked or name.rpartition(".")[0] in asked
    }
    mirror.fetch(storage, wanted, listing)


class Mirror:
    """What has been fetched of one folder behind an address.

    Attributes:
        place: the local folder, called like the one behind the address.
    """

    def __init__(self, address: str) -> None:
        digest = hashlib.blake2b(address.encode(), digest_size=10).hexdigest()
        self._address, self._folder = address, remote_folder() / "copies" / digest
        self.place = self._folder / (parent_of(address)[1] or "files")
        call(self.place, below(address))

    def at(self, name: str) -> Path:
        """Return the local place of a file; what web servers are asked for is no part of its name."""
        return self.place / (name.partition("?")[0] if self._address.startswith("http") else name)

    def fetch(
        self,
        storage: Storage,
        wanted: Mapping[str, StoredFile],
        existing: Mapping[str, StoredFile] | None = None,
    ) -> None:
        """Fetch the files that are not here yet, or no longer as they are there.

        Args:
            storage: where they are.
            wanted: the files, by their names.
            existing: all that there is; what is here and not among it is removed.
        """
        with self._locked():
            state = self._read()
            kept: dict[str, str] = state["files"]
            for name in [] if existing is None else [name for name in kept if name not in existing]:
                del kept[name]
                self.at(name).unlink(missing_ok=True)
            missing = [name for name, entry in wanted.items() if not self._has(name, entry, kept)]
            if not missing:
                return
            self._require_room(sum(wanted[name].size for name in missing))
            with show(f"Fetching {self._address}") as progress:
                done = 0
                for first in range(0, len(missing), _FILES_AT_ONCE):
                    batch = missing[first : first + _FILES_AT_ONCE]
                    self._fetch_batch(storage, {name: wanted[name] for name in batch}, kept)
                    self._write(state)
                    done += len(batch)
                    if progress is not None:
                        progress(done, len(missing))

    def note(self, name: str) -> None:
        """Note that somebody asked for a file, or for the whole folder, which has no name."""
        with self._locked():
            state = self._read()
            if name not in state["named"]:
                state["named"].append(name)
                self._write(state)

    def forget(self, name: str) -> None:
        """Forget the version of a file, so that it is fetched again."""
        with self._locked():
            state = self._read()
            state["files"].pop(name, None)
            self._write(state)

    def knows(self, name: str) -> bool:
        """Whether somebody asked for a file, or for the whole folder, on this machine before."""
        return name in self._read()["named"]

    def _has(self, name: str, entry: StoredFile, kept: Mapping[str, str]) -> bool:
        if not entry.version or kept.get(name) != entry.version:
            return False
        with suppress(OSError):
            return self.at(name).stat().st_size == entry.size
        return False

    def _fetch_batch(self, storage: Storage, wanted: Mapping[str, StoredFile], kept: dict[str, str]) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="incoming-") as incoming:
            places = {name: Path(incoming, str(number)) for number, name in enumerate(wanted)}
            storage.fetch(places)
            for name, place in places.items():
                if not place.is_file() or place.stat().st_size != wanted[name].size:
                    raise RemoteError(
                        "was cut off or changed while it was read",
                        where=f"{below(self._address)}/{name}",
                        remedy="run the command again",
                    )
                target = self.at(name)
                target.parent.mkdir(parents=True, exist_ok=True)
                kept.pop(name, None)
                place.replace(target)
            kept.update({name: entry.version for name, entry in wanted.items()})

    def _require_room(self, needed: int) -> None:
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise RemoteError(
                f"{needed / 1e9:.1f} GB are to be fetched, and {self._folder} has room for {free / 1e9:.1f} GB",
                where=self._address,
                remedy=f"make room, or name a folder on a larger disk in {VARIABLE}",
            )

    def _read(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = parse_json((self._folder / "state.json").read_bytes())
            if content["format"] == _FORMAT and content["address"] == self._address:
                return {"named": list(content["named"]), "files": dict(content["files"])}
        return {"named": [], "files": {}}

    def _write(self, state: Mapping[str, Any]) -> None:
        with atomic_path(self._folder / "state.json") as temporary:
            content = {"format": _FORMAT, "address": self._address, **state}
            temporary.write_text(json.dumps(content), encoding="utf-8")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Wait until no other process changes the mirror."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("a") as file:
            while not try_lock(file.fileno()):
                time.sleep(0.05)
            yield


@cache
def remote_folder() -> Path:
    """Return the folder of copies and uploads; one that lasts as long as the process where there is no cache."""
    root = cache_root()
    if root is None:
        root = Path(tempfile.mkdtemp(prefix="satl-"))
        atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root / "remote"
