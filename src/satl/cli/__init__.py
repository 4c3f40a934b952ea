"""The command line: parse, call, print. Mistakes of the user end in one sentence and exit code 2."""

from __future__ import annotations

import errno
import io
import os
import sys
import unicodedata
import warnings
from importlib import import_module
from typing import Annotated

import typer

_COMMANDS = {
    "inspect": "labels:inspect_command",
    "mask": "labels:mask_command",
    "convert": "labels:convert_command",
    "scenes": "scenes:scenes",
    "pack": "pack:pack",
    "train": "train:train",
    "recipes": "recipes:recipes",
    "evaluate": "evaluate:evaluate",
    "predict": "predict:predict",
    "methods": "methods:methods",
    "thresholds": "thresholds:thresholds",
    "demo": "demo:demo",
    "experiment": "experiment:experiment",
    "figures": "figures:figures",
    "complete": "complete:complete_command",
    "audit": "audit:audit_command",
    "plan": "audit:plan_command",
    "review": "review:review",
    "merge": "review:merge",
    "export": "export:export_command",
    "import": "export:import_command",
    "onnx": "onnx:onnx",
}
"""Command -> the module of this folder and the function that runs it, in the order of the help text."""


def main() -> None:
    """Run the command line."""
    from rich.console import Console
    from rich.markup import escape

    from satl.cli.wording import shell_words
    from satl.errors import SatlError, Stopped

    _escape_unencodable_output()
    # Pillow warns of a large image and reads it all the same; one that is too large is an error.
    warnings.filterwarnings("ignore", message=r"Image size \(\d+ pixels\) exceeds limit")
    app = typer.Typer(
        name="satl",
        help="Multi-label image recognition when most labels are missing.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    add_commands(app)
    try:
        app()
    except SatlError as error:
        label = "" if isinstance(error, Stopped) else "[bold red]error:[/] "
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            f"{label}{escape(_in_one_line(error.worded(shell_words)))}"
        )
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _discard_output()
        where = "the output" if error.filename is None else error.filename
        Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(
            f"error: {where} cannot be written ({error.strerror}): make room, then run the command again."
        )
        sys.exit(2)


def add_commands(app: typer.Typer, *names: str) -> None:
    """Add the commands of these names to a command line; all commands where none is named."""
    for name in names or _COMMANDS:
        module, _, function = _COMMANDS[name].partition(":")
        app.command(name)(getattr(import_module(f"satl.cli.{module}"), function))


def _in_one_line(message: str) -> str:
    r"""Return a message with control characters escaped: names of files may hold line ends and colours.

    >>> _in_one_line("no\nsuch\x1b[31m.csv does not exist")
    'no\\nsuch\\x1b[31m.csv does not exist'
    """
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) == "Cc" else character
        for character in message
    )


def _discard_output() -> None:
    """Discard what is still to be written to the standard output: Python would fail at it again while it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _escape_unencodable_output() -> None:
    """Write characters that the output cannot encode as escapes, as Python does on standard error.

    Names of classes and images may hold any Unicode; a finished run must not end in an encoding error.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _version(wanted: bool) -> None:
    if wanted:
        from satl import __version__

        typer.echo(f"satl {__version__}")
        raise typer.Exit


def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Labels with holes go in; a classifier, one threshold per class and a completed table come out."""
