"""The command line: parse, call, print. Mistakes of the user end in one sentence and exit code 2."""

from __future__ import annotations

import io
import os
import sys
import unicodedata
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

_COMMANDS = {
    "inspect": "labels:inspect_command",
    "mask": "labels:mask_command",
    "convert": "labels:convert_command",
    "scenes": "scenes:scenes",
    "pack": "pack:pack",
    "embed": "embed:embed",
    "train": "train:train",
    "recipes": "recipes:recipes",
    "evaluate": "evaluate:evaluate",
    "compare": "compare:compare",
    "predict": "predict:predict",
    "methods": "methods:methods",
    "thresholds": "thresholds:thresholds",
    "zeroshot": "zero_shot:zero_shot",
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
    "card": "card:card",
    "push": "push:push",
    "doctor": "doctor:doctor",
    "schema": "schema:schema",
}
"""Command -> the module of this folder and the function that runs it, in the order of the help text."""


class _Commands(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Print every command with its whole first sentence; by default it is cut off at the width."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None
            rows.append((name, command.get_short_help_str(limit=1000)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def main() -> None:
    """Run the command line; one of several processes leaves as such."""
    try:
        _run()
    except SystemExit as end:
        together = sys.modules.get("satl.distributed")
        if together is not None and together.world_size() > 1:
            together.leave(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise


def _run() -> None:
    from satl.errors import SatlError, Stopped

    _escape_unencodable_output()
    # Pillow warns of a large image and reads it all the same; one that is too large is an error.
    warnings.filterwarnings("ignore", message=r"Image size \(\d+ pixels\) exceeds limit")
    warnings.showwarning = _show_warning
    app = typer.Typer(
        name="satl",
        help="Multi-label image recognition when most labels are missing.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # boxes and colours would double the time until the help is there
        cls=_Commands,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_options)
    # Of the commands only the one that is called is read: the others would take time and change nothing.
    add_commands(app, *(name for name in _words()[1:2] if name in _COMMANDS))
    try:
        app(prog_name="satl")
    except SatlError as error:
        from satl.cli.wording import shell_words

        label = "" if isinstance(error, Stopped) else "[bold red]error:[/] "
        _print_mistake(label, _in_one_line(error.worded(shell_words)))
        sys.exit(error.exit_code)
    except OSError as error:
        from satl.files import is_disk_error

        # Libraries look for a place for temporary files while they are imported.
        nowhere = "No usable temporary directory" in str(error.strerror)
        if not nowhere and not is_disk_error(error):
            raise
        _discard_output()
        what = f"{'the output' if error.filename is None else error.filename} cannot be written"
        if nowhere:
            what = "no folder for temporary files can be written to"
        _print_mistake(
            "error: ", f"{what} ({error.strerror}): make room or lift the limit, then run the command again."
        )
        sys.exit(2)


def _print_mistake(label: str, message: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True, soft_wrap=True, highlight=False).print(f"{label}{escape(message)}")


def _words() -> list[str]:
    """Return the words of the command line; where a shell asks how one could go on, those it has so far."""
    if "_SATL_COMPLETE" not in os.environ:
        return sys.argv
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    *complete, _ = line.split(" ")  # the last may be the beginning of a name
    return " ".join(complete).split()


def add_commands(app: typer.Typer, *names: str) -> None:
    """Add the commands of these names to a command line; all commands where none is named."""
    from satl.cli.addresses import with_addresses

    for name in names or _COMMANDS:
        module, _, function = _COMMANDS[name].partition(":")
        app.command(name)(with_addresses(name, getattr(import_module(f"satl.cli.{module}"), function)))


def _in_one_line(message: str) -> str:
    r"""Return a message with control characters escaped: names of files may hold line ends and colours.

    >>> _in_one_line("no\nsuch\x1b[31m.csv does not exist")
    'no\\nsuch\\x1b[31m.csv does not exist'
    """
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) == "Cc" else character
        for character in message
    )


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of satl as one sentence, and any other as Python does."""
    from satl.errors import SatlWarning

    text = (
        f"warning: {_in_one_line(str(message))}\n"
        if issubclass(category, SatlWarning)
        else warnings.formatwarning(message, category, filename, lineno, line)
    )
    with suppress(OSError):
        (file or sys.stderr).write(text)


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
