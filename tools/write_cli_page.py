"""Write ``docs/cli.md``, every command with its arguments and options, from the command line itself.

``python tools/write_cli_page.py`` writes it; ``--check`` only says whether it is up to date.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from satl.cli import add_commands

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = """# Commands

<!-- written by tools/write_cli_page.py -->

Every command explains itself: `satl COMMAND --help` prints the same as this page. An error is one sentence that names
the file and the remedy, with exit code 2, and nothing is half written. An existing file is replaced only with
`--force`, where a command has it.
"""


class Parameter:
    """One argument or option, as the function of its command declares it."""

    def __init__(self, name: str, annotation: Any, default: Any) -> None:
        kind, self.info = get_args(annotation)[:2]
        self.option = isinstance(self.info, OptionInfo)
        self.kind, self.several = self._plain(kind)
        self.default = default
        self.required = default is inspect.Parameter.empty
        # Within Annotated, Typer keeps the first name where it otherwise keeps a default.
        given = [
            part for part in (self.info.default, *(self.info.param_decls or ())) if isinstance(part, str)
        ]
        declared = [word.strip() for part in given for word in part.split("/")]
        if not self.option:
            # A metavar may say in the way of usages that an argument is optional or repeatable.
            self.names = [str(self.info.metavar or name).upper().strip("[].")]
        elif any(word.startswith("-") for word in declared):
            self.names = sorted((word for word in declared if word.startswith("-")), key=len)
        else:
            flag = name.replace("_", "-")
            self.names = [f"--{flag}"] + ([f"--no-{flag}"] if self.kind is bool else [])

    @staticmethod
    def _plain(kind: Any) -> tuple[Any, bool]:
        """Return the type of one value, and whether there may be several."""
        several = False
        if get_origin(kind) in (Union, UnionType):
            kind = next(option for option in get_args(kind) if option is not type(None))
        if get_origin(kind) is list:
            kind, several = get_args(kind)[0], True
        return kind, several

    @property
    def values(self) -> str:
        """Say which values it takes."""
        if self.kind is bool:
            return "flag"
        if isinstance(self.kind, type) and issubclass(self.kind, Enum):
            text = ", ".join(f"`{choice.value}`" for choice in self.kind)
        elif get_origin(self.kind) is Literal:
            text = ", ".join(f"`{choice}`" for choice in get_args(self.kind))
        else:
            text = {int: "integer", float: "number", Path: "path", str: "text"}[self.kind]
        bounds = ((">=", self.info.min), ("<=", self.info.max))
        limits = " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)
        return f"{text}{' ' if limits else ''}{limits}{', repeatable' if self.several else ''}"

    def row(self) -> str:
        """Return its row of the table."""
        default = "required" if self.required else f"`{getattr(self.default, 'value', self.default)}`"
        if self.default is None or self.default is False or self.default == []:
            default = ""
        names = ", ".join(f"`{_cell(name)}`" for name in self.names)
        return "| " + " | ".join((names, self.values, default, _cell(self.info.help or ""))) + " |"


def commands() -> dict[str, Callable[..., None]]:
    """Return the function behind each command."""
    app = typer.Typer()
    add_commands(app)
    return {str(command.name): command.callback for command in app.registered_commands if command.callback}


def parameters(function: Callable[..., None]) -> list[Parameter]:
    """Return the arguments and options of a command.

    >>> [parameter.names for parameter in parameters(commands()["pack"])][:2]
    [['TABLE'], ['--images']]
    """
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function).parameters
    return [Parameter(name, hints[name], parameter.default) for name, parameter in signature.items()]


def _cell(text: str) -> str:
    r"""Return a text for a cell of a table.

    >>> _cell("a|b\n  c")
    'a\\|b c'
    """
    return " ".join(text.split()).replace("|", "\\|")


def _command(name: str, function: Callable[..., None]) -> list[str]:
    shown = parameters(function)
    usage = []
    for parameter in shown:
        if not parameter.option:
            word = parameter.names[0] + ("..." if parameter.several else "")
            usage.append(word if parameter.required else f"[{word}]")
    lines = [f"## satl {name}", "", inspect.cleandoc(function.__doc__ or ""), ""]
    lines += ["```text", " ".join(["satl", name, *usage, "[OPTIONS]"]), "```", ""]
    if shown:
        lines += ["| argument or option | values | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [*(parameter.row() for parameter in shown), ""]
    return lines


def page() -> str:
    """Return the page as it should be."""
    lines = [HEAD, "| command | what it does |", "| --- | --- |"]
    for name, function in commands().items():
        summary = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0]
        lines.append(f"| [`satl {name}`](#satl-{name}) | {_cell(summary)} |")
    lines.append("")
    for name, function in commands().items():
        lines += _command(name, function)
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description="Write docs/cli.md.")
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    check = parser.parse_args().check
    fresh = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == fresh:
        return
    if check:
        sys.exit("docs/cli.md is out of date; run `python tools/write_cli_page.py`.")
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
