"""The command line: parse, call, print. Mistakes of the user end in one sentence and exit code 2."""

from __future__ import annotations

import sys
from importlib import import_module

_ROOMS = (
    "labels",
    "scenes",
    "pack",
    "train",
    "recipes",
    "evaluate",
    "predict",
    "methods",
    "thresholds",
    "demo",
    "experiment",
    "figures",
    "complete",
    "audit",
    "review",
    "export",
    "onnx",
)


def main() -> None:
    """Run the command line."""
    import typer
    from rich.console import Console
    from rich.markup import escape

    from satl.errors import SatlError

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
    for room in _ROOMS:
        import_module(f"satl.cli.{room}").register(app)
    try:
        app()
    except SatlError as error:
        code = getattr(error, "exit_code", 2)
        label = "[bold red]error:[/] " if code == 2 else ""  # a run that was asked to stop is no error
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"{label}{escape(str(error))}")
        sys.exit(code)


def _options() -> None:
    """Labels with holes go in; a classifier, one threshold per class and a completed table come out."""
