"""Errors that a user can read: one sentence that names the place and the remedy.

Every mistake that a user can make (a file, a table, a configuration, a run folder) is raised as a
:class:`SatlError`. The command line prints its message without a traceback and exits with code 2.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterable


class SatlError(Exception):
    """Base of all errors a user can cause and mend."""

    exit_code = 2


class TableError(SatlError):
    """A label table cannot be read, or says something impossible."""


class EncodingError(TableError):
    """A label table's values can be read in more than one way."""


class ImageError(SatlError):
    """An image file is missing or cannot be decoded."""


class ConfigError(SatlError):
    """A configuration has a wrong key or value."""


class RunError(SatlError):
    """A run folder is missing, incomplete or of another shape than expected."""


class Stopped(SatlError):
    """Work was stopped because somebody asked for it."""

    exit_code = 130  # what a shell expects of a program that Ctrl-C ended


def nearest(word: str, choices: Iterable[str]) -> str:
    """Suggest the choice closest to ``word``, as the end of a sentence, or nothing.

    >>> nearest("epoch", ["epochs", "seed"])
    " (did you mean 'epochs'?)"
    >>> nearest("zzz", ["epochs", "seed"])
    ''
    """
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""


def in_shell(path: str | os.PathLike[str]) -> str:
    """Return a path as it must stand in a command that a user copies.

    >>> in_shell("runs/first"), in_shell("my runs/first")
    ('runs/first', "'my runs/first'")
    """
    return shlex.quote(os.fspath(path))
