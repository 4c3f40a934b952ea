"""Errors that a user can read: one sentence that says what is wrong, where, and what helps.

Every mistake that a user can make (a file, a table, an array, a configuration, a run folder) is raised as a
:class:`SatlError`. What it says is data: arguments (:class:`Argument`) and tasks (:class:`Task`) that it names are
worded as Python where a program reads the error, and as options and commands by ``satl.cli``, which prints the
sentence without a traceback and exits with code 2.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Argument:
    """An argument of a function of satl, which is an option on the command line.

    >>> str(Argument("force", True)), str(Argument("encoding")), str(Argument("size", 64))
    ('force=True', 'encoding', 'size=64')
    """

    name: str
    value: Any = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        value = str(self.value) if isinstance(self.value, os.PathLike) else self.value
        return f"{self.name}={value!r}"


class Task:
    """Something that satl can do, which is a command on the command line: its name, what it is done to, and how.

    >>> str(Task("complete", "runs/first", force=True))
    "complete('runs/first', force=True)"
    """

    def __init__(self, name: str, *targets: str | os.PathLike[str], **options: Any) -> None:
        self.name, self.targets, self.options = name, tuple(str(target) for target in targets), options

    def __str__(self) -> str:
        arguments = [repr(target) for target in self.targets]
        arguments += [str(Argument(name, value)) for name, value in self.options.items()]
        return f"{self.name}({', '.join(arguments)})"


_NAMES: dict[str, str] = {}


def call(place: str | os.PathLike[str], name: str | None) -> None:
    """Have a place on this machine called by another name in errors: what was copied here, by its address.

    >>> call("/cache/1/labels.csv", "s3://bucket/labels.csv")
    >>> str(SatlError("is empty", where="/cache/1/labels.csv"))
    's3://bucket/labels.csv: is empty'
    >>> call("/cache/1/labels.csv", None)
    >>> str(SatlError("is empty", where="/cache/1/labels.csv"))
    '/cache/1/labels.csv: is empty'

    Args:
        place: a file, or a folder with all that is in it.
        name: what it is called from now on; None: by its own name again.
    """
    if name is None:
        _NAMES.pop(os.fspath(place), None)
    else:
        _NAMES[os.fspath(place)] = name


def called(text: str) -> str:
    """Return a text with the names that :func:`call` gave instead of the places."""
    for place in sorted(_NAMES, key=len, reverse=True):
        text = text.replace(place, _NAMES[place])
    return text


Wording = Callable[["Argument | Task"], str]
"""Says an argument or a task in words: ``str`` for Python; the command line has its own."""


class Sentence:
    """A text that names arguments and tasks, which are worded for whoever reads it.

    >>> sentence = Sentence("pass {force} to replace it", force=Argument("force", True))
    >>> str(sentence), sentence.worded(lambda part: f"--{part.name}")
    ('pass force=True to replace it', 'pass --force to replace it')

    Args:
        text: with a field in braces for each part.
        parts: arguments and tasks; also a text that a user chose, such as a path, which may hold braces itself.
    """

    def __init__(self, text: str, **parts: Argument | Task | str) -> None:
        self.text, self.parts = text, parts

    def with_arguments(self, names: Mapping[str, str]) -> Sentence:
        """Return the text with arguments called as ``names`` says; others keep their names."""
        return Sentence(self.text, **{name: _renamed(part, names) for name, part in self.parts.items()})

    def worded(self, words: Wording) -> str:
        """Return the text with its arguments and tasks in these words."""
        return self.text.format_map(
            {name: part if isinstance(part, str) else words(part) for name, part in self.parts.items()}
        )

    def __str__(self) -> str:
        return self.worded(str)


def worded(content: str | os.PathLike[str] | Argument | Task | Sentence, words: Wording = str) -> str:
    """Return a text, a path, an argument, a task or a sentence in words."""
    if isinstance(content, Sentence):
        return content.worded(words)
    return words(content) if isinstance(content, Argument | Task) else str(content)


class SatlError(Exception):
    """Base of all errors a user can cause and fix.

    Args:
        what: what is wrong.
        where: the file, row, key or argument that it is about.
        remedy: what helps.

    >>> str(SatlError("exists already", where="a.csv", remedy="choose another name"))
    'a.csv: exists already; choose another name.'
    >>> str(SatlError("Nothing is known."))
    'Nothing is known.'
    """

    exit_code = 2

    def __init__(
        self,
        what: str | Sentence,
        *,
        where: str | os.PathLike[str] | Argument | None = None,
        remedy: str | Sentence | None = None,
    ) -> None:
        super().__init__(what)
        self.what, self.where, self.remedy = what, where, remedy

    def worded(self, words: Wording = str) -> str:
        """Return the whole sentence, its arguments and tasks in these words."""
        text = worded(self.what, words)
        if self.where is not None:
            text = f"{worded(self.where, words)}: {text}"
        if self.remedy is not None:
            text = f"{text}; {worded(self.remedy, words).rstrip('.')}."
        return called(text)

    def __str__(self) -> str:
        return self.worded()

    def at(self, where: str | os.PathLike[str]) -> Self:
        """Return the same error about ``where``, unless it says itself where.

        >>> str(SatlError("is empty").at("a.csv")), str(SatlError("is empty", where="b.csv").at("a.csv"))
        ('a.csv: is empty', 'b.csv: is empty')
        """
        return type(self)(self.what, where=where if self.where is None else self.where, remedy=self.remedy)

    def with_arguments(self, names: Mapping[str, str]) -> Self:
        """Return the same error with its arguments called as where the user gave them.

        >>> error = SatlError("is empty", where=Argument("encoding", "csl"), remedy="choose another")
        >>> str(error.with_arguments({"encoding": "data.encoding"}))
        "data.encoding='csl': is empty; choose another."

        Args:
            names: new names of arguments by their old ones; others are kept.
        """
        what, where, remedy = (_renamed(part, names) for part in (self.what, self.where, self.remedy))
        return type(self)(what, where=where, remedy=remedy)

    def __reduce__(self) -> Any:
        # Keywords are not among the arguments that an exception is made again from in another process.
        return _remake, (type(self), self.what, self.where, self.remedy)


def _renamed(part: Any, names: Mapping[str, str]) -> Any:
    """Return an argument, or a sentence with arguments, under the new names; anything else as it is."""
    if isinstance(part, Argument):
        return Argument(names.get(part.name, part.name), part.value)
    return part.with_arguments(names) if isinstance(part, Sentence) else part


def _remake(kind: type[SatlError], what: Any, where: Any, remedy: Any) -> SatlError:
    return kind(what, where=where, remedy=remedy)


class ArrayError(SatlError, ValueError):
    """An array or tensor has a shape, kind or value that cannot be what was meant."""


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


class SatlWarning(UserWarning):
    """Something that a user should know of and that did not stop the work: one sentence."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """Suggest the choice closest to ``word``, as the end of a sentence, or nothing.

    >>> nearest("epoch", ["epochs", "seed"])
    " (did you mean 'epochs'?)"
    >>> nearest("zzz", ["epochs", "seed"])
    ''
    """
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""


def first_line(error: Exception) -> str:
    """Return the reason that a library gives, short enough for a part of a sentence.

    >>> first_line(ValueError("Not a Parquet file.\\nLine 7 of reader.cc"))
    'Not a Parquet file'
    """
    return str(error).partition("\n")[0].rstrip(".")[:160]


def first_of(names: Sequence[str], most: int = 3) -> str:
    """List the first few names, and say how many more there are.

    >>> first_of(["a", "b"]), first_of(["a", "b", "c", "d"])
    ('a, b', 'a, b, c and 1 more')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def in_shell(path: str | os.PathLike[str]) -> str:
    """Return a path as it must stand in a command that a user copies.

    >>> in_shell("runs/first"), in_shell("my runs/first")
    ('runs/first', "'my runs/first'")
    """
    return shlex.quote(str(path))
