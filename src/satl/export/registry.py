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
from satl.review.agreement import Vote

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
        votes: what each person said, of the images that several looked at.
        disagreements: those of the votes that count and are about a cell on which persons disagree; ``table`` says
            nothing about it.
    """

    table: LabelTable
    suggestions: Suggestions
    looked_at: tuple[bool, ...] | None = None
    skipped: int = 0
    votes: tuple[Vote, ...] = ()
    disagreements: tuple[Vote, ...] = ()


@dataclass(frozen=True)
class ServerProject:
    """A project on the server of a tool.

    Attributes:
        address: of the server, such as ``https://example.org``.
        project: its number there, or :data:`NEW`.
        title: what a new project is called; the name of what is sent where it is None.
        token_file: a file that holds the token and nothing else; the environment is asked for it where it is None.
    """

    address: str
    project: str
    title: str | None = None
    token_file: Path | None = None


NEW = "new"
"""Asks for a project of its own, which is made."""


@dataclass(frozen=True)
class Sent:
    """What was sent to a server; what was there already and is the same is not sent again.

    Attributes:
        project: its number.
        place: the address of the project, for a person.
        tasks: made, for images that the project did not have.
        added, changed, withdrawn: predictions.
        unchanged: predictions that were there already.
        annotations: of known cells, in tasks that were there already.
        others: tasks of images that were not sent; they stay as they are.
    """

    project: int
    place: str
    tasks: int = 0
    added: int = 0
    changed: int = 0
    withdrawn: int = 0
    unchanged: int = 0
    annotations: int = 0
    others: int = 0


@dataclass(frozen=True)
class ToolServer:
    """How the server of a tool is reached.

    Attributes:
        send: sends known cells and suggestions; again only what differs.
        fetch: returns what people decided.
    """

    send: Callable[[Source, ServerProject], Sent]
    fetch: Callable[[ServerProject], Imported]


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
        server: how the tool's server is reached, or None where there is none.
    """

    name: str
    summary: str
    extensions: tuple[str, ...]
    files: Callable[[Path], dict[str, Path]]
    roles: Callable[[Source], tuple[str, ...]]
    write: Callable[[Source, Mapping[str, Path]], None]
    read: Callable[[Path, str | None], Imported]
    takes_address: bool = False
    server: ToolServer | None = None


TOOLS: dict[str, ToolFormat] = {}


def register_tool(tool: ToolFormat) -> ToolFormat:
    """Add a format under its name; a name is taken once."""
    if tool.name in TOOLS:
        raise ValueError(f"a format called {tool.name!r} exists already")
    TOOLS[tool.name] = tool
    return tool


def find_tool(name: str, path: Path | None = None) -> ToolFormat:
    """Return the format called ``name`` if a file called ``path`` can be of it, if one is given."""
    if name not in TOOLS:
        raise ConfigError(
            f"is not a format{nearest(name, TOOLS)}",
            where=Argument("format", name),
            remedy=f"choose one of {', '.join(TOOLS)}",
        )
    tool = TOOLS[name]
    if path is not None and path.suffix.lower() not in tool.extensions:
        raise ConfigError(
            f"{path}: format '{name}' is for {' or '.join(tool.extensions)} files: name such a file."
        )
    return tool


def find_server(name: str) -> ToolServer:
    """Return how the server of the tool called ``name`` is reached."""
    server = find_tool(name).server
    if server is None:
        raise ConfigError(
            f"satl reaches no server of format '{name}'",
            where=Argument("server"),
            remedy=f"choose {' or '.join(one.name for one in TOOLS.values() if one.server)}, or name a file",
        )
    return server


def beside(path: Path, kind: str, extension: str | None = None) -> Path:
    """Return the file of another role beside ``path``.

    >>> beside(Path("out/labels.json"), "predictions").name
    'labels.predictions.json'
    """
    return path.with_name(f"{path.stem}.{kind}{extension or path.suffix}")
