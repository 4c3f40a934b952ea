"""How the command line words what the library says: arguments as options, tasks as commands."""

from __future__ import annotations

import math
import shlex
from typing import Any

from satl.errors import Argument, Task

_OPTIONS = {
    "formats": "--format",
    "bands": "--band",
    "ignore_columns": "--ignore-column",
    "image_format": "--format",
    "include_accepted": "--include accepted",
    "settings": "--set",
}
"""Options that are not called like the argument they set."""


def shell_words(part: Argument | Task) -> str:
    """Return an argument as an option, a task as a command that can be copied.

    >>> shell_words(Argument("force", True)), shell_words(Argument("ignore_columns", "notes"))
    ('--force', '--ignore-column notes')
    >>> shell_words(Task("complete", "my runs/first", list_all=True))
    "`satl complete 'my runs/first' --list-all`"

    A key of a configuration is an argument too:

    >>> shell_words(Argument("data.encoding", "blank"))
    '--set data.encoding=blank'
    """
    if isinstance(part, Argument):
        return " ".join(_option(part.name, part.value))
    words = ["satl", part.name, *(shlex.quote(target) for target in part.targets)]
    for name, value in part.options.items():
        words += _option(name, value)
    return f"`{' '.join(words)}`"


def percent(value: float | None, digits: int = 1) -> str:
    """Write a share of one as per cent, or a dash where there is none.

    >>> percent(0.1234), percent(None), percent(float("nan"))
    ('12.3', '-', '-')
    """
    return "-" if value is None or math.isnan(value) else f"{100 * value:.{digits}f}"


def _option(name: str, value: Any) -> list[str]:
    if "." in name:
        return [f"--set {name}=" + ("..." if value is None else shlex.quote(str(value)))]
    option = _OPTIONS.get(name, "--" + name.replace("_", "-"))
    if value is None or value is True:
        return [option]
    return [option, shlex.quote(str(value))]
