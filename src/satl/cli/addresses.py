"""Addresses such as ``s3://bucket/labels.csv`` on the command line: a command sees local copies of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from satl.errors import Argument, ConfigError, called
from satl.remote.addresses import RemoteError, RemotePath, as_path

_PICTURES = "images"
"""The argument that names the pictures of a table, of which only those are fetched that the table lists."""
_OUTPUTS = {"merge": "new", "audit": "target", "plan": "target", "convert": "target"}
"""The argument that names what a command writes, where it is not ``out``."""
_STAYS_HERE = {
    "train": ("out", "resume"),
    "experiment": ("out",),
    "demo": ("out",),
    "evaluate": ("run",),
    "figures": ("folders",),
    "complete": ("model",),
    "review": ("out",),
    "audit": ("out",),
    "plan": ("out",),
}
"""Folders that are written to while a command works: they are locked, and continued after a kill."""


def with_addresses(command: str, function: Callable[..., None]) -> Callable[..., None]:
    """Return the function of a command with local copies of what lies behind addresses among its arguments.

    A call without addresses is passed on as it is.

    >>> with_addresses("train", lambda out: None)(out=Path("s3://bucket/run"))
    Traceback (most recent call last):
    satl.remote.addresses.RemoteError: s3://bucket/run: a folder that is locked and continued has to be on this ...
    """

    @functools.wraps(function)
    def called_with(**arguments: Any) -> None:
        given = {name: _each(value, as_path) for name, value in arguments.items() if _is_path(value)}
        if not any(isinstance(place, RemotePath) for value in given.values() for place in _listed(value)):
            return function(**arguments)
        return _run(command, function, {**arguments, **given}, bool(arguments.get("quiet")))

    return called_with


def _run(command: str, function: Callable[..., None], arguments: dict[str, Any], quiet: bool) -> None:
    from satl.cli.progress import loading
    from satl.remote import copies

    for name in _STAYS_HERE.get(command, ()):
        for place in _listed(arguments.get(name)):
            if isinstance(place, RemotePath):
                raise RemoteError(
                    "a folder that is locked and continued has to be on this machine",
                    where=str(place),
                    remedy="name a local folder, and copy it there when it is finished",
                )
    if arguments.get("ray") is not None:
        raise ConfigError(
            "the machines of a cluster do not share what is fetched to this one",
            where=Argument("ray", arguments["ray"]),
            remedy="give files on a disk that all of them see",
        )
    copies.show = functools.partial(loading, quiet=quiet)
    output = _OUTPUTS.get(command, "out")
    local = {}
    for name, value in arguments.items():
        if not _is_path(value) or name == output:
            continue
        whole = name != _PICTURES or isinstance(value, list) or command == "review"
        local[name] = _each(value, copies.local_copy if whole else copies.picture_folder)
    with _own_names():
        function(**{**arguments, **local})


def _is_path(value: Any) -> bool:
    return isinstance(value, Path) or (
        isinstance(value, list) and any(isinstance(one, Path) for one in value)
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _each(value: Any, change: Callable[[Path], Path]) -> Any:
    return [change(one) for one in value] if isinstance(value, list) else change(value)


@contextmanager
def _own_names() -> Iterator[None]:
    """Have everything that is printed name addresses, not the copies of what lies behind them."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Renaming(sys.stdout), _Renaming(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Renaming:
    """A stream that writes addresses in place of the paths of their copies."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("text is written here")
        return int(self._stream.write(called(text)) or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
