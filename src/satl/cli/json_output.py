"""What ``--json`` prints: one object on the standard output, and nothing else there."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Annotated, Any

import typer

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead; its keys: docs/json.md.")
]


def print_json(content: Mapping[str, Any]) -> None:
    """Print an object as JSON that every strict reader takes.

    It is ASCII, since the output need not be able to encode the names in it, and what is not finite is null.
    """
    typer.echo(json.dumps(_plain(content), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return a value without paths, tuples and numbers that JSON does not have.

    >>> from pathlib import PurePosixPath
    >>> _plain({"a": (1, float("nan")), "b": PurePosixPath("x/y")})
    {'a': [1, None], 'b': 'x/y'}
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return os.fspath(value) if isinstance(value, os.PathLike) else value
