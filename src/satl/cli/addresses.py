"""Addresses such as ``s3://bucket/labels.csv`` on the command line: a command sees local copies of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from satl.errors import Argument, ConfigError, Sentence, called
from satl.remote.addresses import RemoteError, RemotePath, as_path

_PICTURES = "images"
"""The argument that names the pictures of a table, of which only those are fetched that the table lists."""
_OUTPUTS = {"merge": "new", "audit": "target", "plan": "target", "convert": "target"}
"""The argument that names what a command writes, where it is not ``out``."""
_STAYS_HERE = {
    "train": ("out", "resume"),
    "experiment": ("out",),
    "demo": ("out",),
    "complete": ("model",),
}
"""Folders that are locked, written to while a command works, and continued after a kill."""
_CHANGED = {
    "evaluate": ("run",),
    "figures": ("folders",),
    "review": ("out",),
    "audit": ("out",),
    "plan": ("out",),
}
"""Folders that are read and written into."""
_RESUMED = ("pack", "embed", "predict")
"""Commands that go on with what an earlier attempt has left."""
_REPLACED = ("evaluate", "figures")
"""Commands that write over what they wrote before."""


def with_addresses(command: str, function: Callable[..., None]) -> Callable[..., None]:
    """Return the function of a command with local copies of what lies behind addresses among its arguments.

    A call without addresses is passed on as it is.

    >>> with_addresses("train", lambda out: None)(out=Path("s3://bucket/run"))
    Traceback (most recent call last):
    satl.remote.addresses.RemoteError: s3://bucket/run: this folder is written to bit by bit, so it ...
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
    from satl.remote.uploads import uploaded

    _refuse_folders(
        arguments, _STAYS_HERE.get(command, ()), "name a local folder, and copy it there afterwards"
    )
    _refuse_folders(arguments, _CHANGED.get(command, ()), "copy it to this machine first")
    if arguments.get("ray") is not None:
        raise ConfigError(
            "the machines of a cluster do not share what is fetched to this one",
            where=Argument("ray", arguments["ray"]),
            remedy="give files on a disk that all of them see",
        )
    copies.show = functools.partial(loading, quiet=quiet)
    output = _OUTPUTS.get(command, "out")
    out = arguments.get(output)
    inputs = {name: value for name, value in arguments.items() if _is_path(value) and name != output}
    with ExitStack() as stack:
        stack.enter_context(_own_names())
        if isinstance(out, RemotePath):
            if any(str(place) == str(out) for value in inputs.values() for place in _listed(value)):
                raise ConfigError(
                    "belongs to the inputs and would be overwritten",
                    where=str(out),
                    remedy="give another address",
                )
            if command == "complete":
                _require_model(arguments)
            force = arguments.get("force")
            other = "give another address, or remove what is there"
            arguments[output] = stack.enter_context(
                uploaded(
                    out,
                    replace=bool(force) or command in _REPLACED,
                    resumes=command in _RESUMED,
                    remedy=other
                    if force is not False
                    else Sentence(f"{other}, or pass {{force}} to replace it", force=Argument("force", True)),
                )
            )
        for name, value in inputs.items():
            whole = name != _PICTURES or isinstance(value, list) or command == "review"
            arguments[name] = _each(value, copies.local_copy if whole else copies.picture_folder)
        function(**arguments)


def _refuse_folders(arguments: dict[str, Any], names: Sequence[str], remedy: str) -> None:
    for name in names:
        for place in _listed(arguments.get(name)):
            if isinstance(place, RemotePath):
                what = "this folder is written to bit by bit, so it has to be on this machine"
                raise RemoteError(what, where=str(place), remedy=remedy)


def _require_model(arguments: dict[str, Any]) -> None:
    """Ask where the model of a table is to be kept, which usually lies beside the completed folder."""
    from satl.api.given_data import is_table_path

    if (
        arguments["run"] is not None
        and arguments["model"] is None
        and is_table_path(Path(arguments["run"].name))
    ):
        raise ConfigError(
            "the model that is trained cannot be kept beside it",
            where=str(arguments["out"]),
            remedy=Sentence("name a local folder for it with {model}", model=Argument("model", "FOLDER")),
        )


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
