"""Addresses such as ``s3://bucket/labels.csv`` among the paths that users give."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from satl.errors import SatlError

if TYPE_CHECKING:
    from pathlib import PosixPath as _Path
else:
    _Path = type(Path())

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}(?=[^/])(.*)", re.DOTALL)
"""With one slash, too, because that is what :class:`pathlib.Path` leaves of two. A drive of Windows has one letter."""


class RemoteError(SatlError):
    """What lies behind an address cannot be read or written."""


class RemotePath(_Path):
    """The path of something that is not on this machine; its text is the address.

    Names, endings and neighbours are those of any path. Whoever treats it as a file gets one sentence, instead of a
    folder called ``s3:`` in the working folder.

    >>> path = RemotePath("s3://bucket/labels.csv")
    >>> str(path), path.suffix, str(path.parent)
    ('s3://bucket/labels.csv', '.csv', 's3://bucket')
    >>> path.exists()
    Traceback (most recent call last):
    satl.remote.addresses.RemoteError: s3://bucket/labels.csv: is not on this machine, and a local path is needed ...
    """

    __slots__ = ()

    def __str__(self) -> str:
        return _ADDRESS.sub(r"\1://\2", super().__str__())

    def __fspath__(self) -> str:
        raise RemoteError(
            "is not on this machine, and a local path is needed here",
            where=str(self),
            remedy="copy it here first, or name a local file or folder",
        )


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path: a :class:`RemotePath` where it is an address, the file itself where it is ``file://``.

    >>> str(as_path("gs://bucket/photos/")), str(as_path(Path("gs://bucket/photos"))), str(as_path("photos/a.jpg"))
    ('gs://bucket/photos', 'gs://bucket/photos', 'photos/a.jpg')
    >>> as_path("file:///data/a.csv").as_posix(), as_path("C:/data/a.csv").as_posix()
    ('/data/a.csv', 'C:/data/a.csv')
    """
    if isinstance(path, RemotePath):
        return path
    text = os.fspath(path)
    if text.startswith("file:/"):
        return Path("/", text.removeprefix("file:").lstrip("/"))
    if _ADDRESS.fullmatch(text) is None or ("://" not in text and os.path.lexists(text)):
        return Path(path)
    return RemotePath(text)


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address.

    >>> is_remote("s3://bucket/labels.csv"), is_remote("labels.csv"), is_remote("C:/labels.csv")
    (True, False, False)
    """
    return isinstance(as_path(path), RemotePath)
