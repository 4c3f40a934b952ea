"""What lies behind an address, through fsspec; whatever goes wrong there is told in one sentence."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from satl.errors import first_line
from satl.remote.addresses import RemoteError

_VERSIONS = (
    "ETag",
    "etag",
    "md5Hash",
    "generation",
    "content_md5",
    "LastModified",
    "mtime",
    "updated",
    "created",
)
"""What file systems call the mark of a version; the first one that is there is taken."""
_NO_CREDENTIALS = ("Credential", "ProfileNotFound", "TokenRetrieval", "SSOToken", "RefreshError")
_NO_NETWORK = ("Connect", "Connection", "Timeout", "gaierror", "HTTPClientError")
_HERE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of the disk of this machine, which have a sentence of their own."""
_CHECK_CREDENTIALS = (
    "set up the credentials of this storage, such as AWS_PROFILE or AWS_ACCESS_KEY_ID for s3://"
)


@dataclass(frozen=True)
class StoredFile:
    """A file behind an address.

    Attributes:
        size: in bytes.
        version: changes when the content does; empty where the storage does not tell.
        is_folder: whether it is a folder, of which the others say nothing.
    """

    size: int
    version: str
    is_folder: bool = False


class Storage:
    """An address and the file system that it belongs to.

    Args:
        address: of a file or a folder, whether it exists or not.

    Raises:
        RemoteError: there is no such kind of storage, or its client is not installed.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        kind = address.partition(":")[0]
        try:
            from fsspec.core import url_to_fs

            with told(address, "opened"):
                self._files, self._place = url_to_fs(address)
        except ImportError as error:
            raise RemoteError(
                f"addresses that begin with {kind}:// need a package that is missing ({first_line(error)})",
                where=address,
                remedy="install 'satl[remote]'",
            ) from error

    def look(self) -> StoredFile:
        """Return what is at the address.

        Raises:
            RemoteError: nothing is, or it cannot be asked.
        """
        with told(self.address, "read"):
            self._files.invalidate_cache()
            return _entry(self._files.info(self._place))

    def exists(self) -> bool:
        """Whether something is at the address.

        Raises:
            RemoteError: it cannot be asked, or there is no such bucket.
        """
        with told(self.address, "read"):
            self._files.invalidate_cache()
            try:
                self._files.info(self._place)
            except FileNotFoundError:
                bucket = self._place.strip("/").partition("/")[0]
                if self.address.startswith(("s3:", "s3a:", "gs:", "gcs:")) and not self._files.exists(bucket):
                    raise
                return False
            return True

    def listing(self) -> dict[str, StoredFile]:
        """Return all files below the address, by their names relative to it; names that lead elsewhere are left out.

        Raises:
            RemoteError: they cannot be listed.
        """
        with told(self.address, "listed"):
            self._files.invalidate_cache()
            found = self._files.find(self._place, detail=True)
        base = self._place.rstrip("/") + "/"
        named = ((path.removeprefix(base), info) for path, info in found.items() if path.startswith(base))
        return {
            name: _entry(info)
            for name, info in named
            if info.get("type", "file") == "file" and not name.endswith("/") and stays_inside(name)
        }

    def fetch(self, files: Mapping[str, Path]) -> None:
        """Copy files below the address, or the file itself, whose name is empty, to local places."""
        with told(self.address, "read"):
            self._files.get([self._at(name) for name in files], [str(place) for place in files.values()])

    def upload(self, files: Mapping[str, Path]) -> None:
        """Copy local files to names below the address; an empty name is the address itself."""
        with told(self.address, "written"):
            self._files.put([str(place) for place in files.values()], [self._at(name) for name in files])

    def remove(self, names: Sequence[str]) -> None:
        """Remove what is there of some files below the address."""
        with told(self.address, "written"):
            self._files.invalidate_cache()
            there = [self._at(name) for name in names if self._files.exists(self._at(name))]
            if there:
                self._files.rm(there)

    def _at(self, name: str) -> str:
        return f"{self._place.rstrip('/')}/{name}" if name else str(self._place)


@contextmanager
def told(address: str, done: str) -> Iterator[None]:
    """Turn what a client raises into one sentence about an address; ``done`` is what could not be done with it."""
    try:
        yield
    except (RemoteError, ImportError):
        raise
    except Exception as error:  # clients share no class of their errors
        if isinstance(error, OSError) and error.errno in _HERE:
            raise
        kinds = " ".join(kind.__name__ for one in (error, error.__cause__) for kind in type(one).__mro__)
        reason = first_line(error) or type(error).__name__
        if any(name in kinds for name in _NO_CREDENTIALS):
            what, remedy = f"no credentials are found ({reason})", _CHECK_CREDENTIALS
        elif any(name in kinds for name in _NO_NETWORK):  # also where a client calls that a missing file
            reason = reason if error.__cause__ is None else first_line(Exception(error.__cause__)) or reason
            what, remedy = (
                f"cannot be reached ({reason})",
                "check the network and the endpoint, then try again",
            )
        elif isinstance(error, FileNotFoundError):
            what, remedy = "does not exist", "check the address: bucket, folders and name"
        elif isinstance(error, PermissionError):
            what, remedy = f"access is denied ({reason})", _CHECK_CREDENTIALS
        else:
            what, remedy = f"cannot be {done} ({reason})", "check the address and try again"
        raise RemoteError(what, where=address, remedy=remedy) from error


def stays_inside(name: str) -> bool:
    r"""Whether a name of a storage stands for a file below a folder, on any system.

    >>> [stays_inside(name) for name in ("a/b.jpg", "../b.jpg", "/b.jpg", "a//b.jpg", "a\\b.jpg", "./a")]
    [True, False, False, False, False, False]
    """
    return not set(name) & set("\\\0") and all(part not in ("", ".", "..") for part in name.split("/"))


def parent_of(address: str) -> tuple[str, str]:
    """Return the address of the folder that something lies in, and its name there.

    >>> parent_of("s3://bucket/labels.csv"), parent_of("memory://labels.csv")
    (('s3://bucket', 'labels.csv'), ('memory://', 'labels.csv'))
    """
    kind, _, place = address.partition("://")
    path = PurePosixPath(place)
    return f"{kind}://{'' if str(path.parent) == '.' else path.parent}", path.name


def below(address: str) -> str:
    """Return what stands before ``/NAME`` in the address of a file in a folder.

    >>> below("s3://bucket/photos/"), below("memory://")
    ('s3://bucket/photos', 'memory:/')
    """
    return address[:-1] if address.endswith("://") else address.rstrip("/")


def _entry(info: Mapping[str, Any]) -> StoredFile:
    if info.get("type") == "directory":
        return StoredFile(0, "", is_folder=True)
    version = next((f"{key} {info[key]}" for key in _VERSIONS if info.get(key)), "")
    return StoredFile(int(info.get("size") or 0), version)
