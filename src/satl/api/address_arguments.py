"""Addresses such as ``s3://bucket/labels.csv`` among the arguments of the calls."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar

from satl.errors import Argument, Sentence
from satl.remote.addresses import RemoteError, RemotePath, as_path
from satl.remote.copies import local_copy, picture_folder
from satl.remote.uploads import uploaded

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def takes_addresses(
    *whole: str, pictures: str = "", uploads: str = "", here: tuple[str, ...] = ()
) -> Callable[[Callable[_Given, _Result]], Callable[_Given, _Result]]:
    """Give a call local copies of what lies behind addresses among its arguments.

    Args:
        whole: names of arguments that are fetched as a whole.
        pictures: name of the argument that is a folder of pictures, of which those are fetched that are asked for.
        uploads: name of the argument that is a file to write, which is uploaded at the end.
        here: names of arguments that have to be on this machine.

    >>> @takes_addresses(here=("out",))
    ... def call(out: str) -> str:
    ...     return out
    >>> call("here")
    'here'
    >>> call("s3://bucket/run")
    Traceback (most recent call last):
    satl.remote.addresses.RemoteError: s3://bucket/run: this folder is written to bit by bit, so it has to be on ...
    """

    def with_copies(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*positional: _Given.args, **named: _Given.kwargs) -> _Result:
            try:
                given = signature.bind(*positional, **named)
            except TypeError:
                return function(*positional, **named)  # which says what is wrong
            values = given.arguments
            for name in here:
                if (address := _address(values.get(name))) is not None:
                    raise RemoteError(
                        "this folder is written to bit by bit, so it has to be on this machine",
                        where=str(address),
                        remedy="name a local folder, and copy it there afterwards",
                    )
            out = _address(values.get(uploads))
            with nullcontext() if out is None else _upload(out, bool(values.get("force"))) as place:
                if out is not None:
                    values[uploads] = place
                for name in whole:
                    if name in values:
                        values[name] = _with_copies(values[name])
                if (folder := _address(values.get(pictures))) is not None:
                    values[pictures] = picture_folder(folder)
                return function(*given.args, **given.kwargs)

        return call

    return with_copies


def _upload(out: RemotePath, force: bool) -> Any:
    remedy = Sentence("give another address, or pass {force} to replace it", force=Argument("force", True))
    return uploaded(out, replace=force, resumes=False, remedy=remedy)


def _address(value: Any) -> RemotePath | None:
    path = as_path(value) if isinstance(value, str | os.PathLike) else None
    return path if isinstance(path, RemotePath) else None


def _with_copies(value: Any) -> Any:
    """Return a path of a copy, a list with such paths, or anything else as it is."""
    if isinstance(value, list | tuple):
        return [_with_copies(one) for one in value]
    address = _address(value)
    return value if address is None else local_copy(address)
