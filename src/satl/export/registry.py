"""The formats of other tools: one small registry.

A new one is one new file in this folder that ends in a call of :func:`register_tool`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from satl.errors import Argument, ConfigError, nearest
from satl.export.content import Source
from satl.export.suggestions import Suggestions
from satl.labels import LabelTable

MAIN = "main"
"""The role of the file that the user names; the others lie beside it."""


@dataclass(frozen=True)
class Imported:
    """What a file of another tool says.

    Attributes:
        table: cells that a person confirmed, and nothing else.
        suggestions: what the file carries as predictions; they are counted and never written as known.
        looked_at: images that a person certainly looked at as a whole, (N,) of 0 and 1, or None where the format
            does not tell.
        skipped: tasks that a person skipped.
    """

    table: LabelTable
    suggestions: Suggestions
    looked_at: tuple[bool, ...] | None = None
    skipped: int = 0


@dataclass(frozen=True)
class ToolFormat:
    """A format of another tool.

    Attributes:
        name: as it is given to ``-f``.
        summary: one line for a person.
        extensions: of the main file.
        files: role -> file, for a main file of that name; all that may be written.
        roles: the roles that are written for a source.
        write: (source, role -> temporary file).
        read: (main file, encoding of a table or None) -> what it says, the files beside it included.
        takes_address: whether it writes where the tool finds the images, such as ``https://...``.
    """

    name: str
    summary: str
    extensions: tuple[str, ...]
    files: Callable[[Path], dict[str, Path]]
    roles: Callable[[Source], tuple[str, ...]]
    write: Callable[[Source, Mapping[str, Path]], None]
    read: Callable[[Path, str | None], Imported]
    takes_address: bool = False


TOOLS: dict[str, ToolFormat] = {}


def register_tool(tool: ToolFormat) -> ToolFormat:
    """Add a format under its name; a name is taken once."""
    if tool.name in TOOLS:
        raise ValueError(f"a format called {tool.name!r} exists already")
    TOOLS[tool.name] = tool
    return tool


def find_tool(name: str, path: Path) -> ToolFormat:
    """Return the format called ``name`` if a file called ``path`` can be of it."""
    if name not in TOOLS:
        raise ConfigError(
            f"is not a format{nearest(name, TOOLS)}",
            where=Argument("format", name),
            remedy=f"choose one of {', '.join(TOOLS)}",
        )
    tool = TOOLS[name]
    if path.suffix.lower() not in tool.extensions:
        raise ConfigError(
            f"{path}: format '{name}' is for {' or '.join(tool.extensions)} files: name such a file."
        )
    return tool


def beside(path: Path, kind: str, extension: str | None = None) -> Path:
    """Return the file of another role beside ``path``.

    >>> beside(Path("out/labels.json"), "predictions").name
    'labels.predictions.json'
    """
    return path.with_name(f"{path.stem}.{kind}{extension or path.suffix}")
