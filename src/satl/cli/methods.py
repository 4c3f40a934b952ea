"""``satl methods``."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(methods)


def methods() -> None:
    """List the methods with what they do, where they come from and what can be set."""
    from rich.console import Console

    from satl.methods import METHODS

    console = Console(highlight=False)
    for method in METHODS.values():
        console.print(f"[bold]{method.name}[/]  {method.summary}")
        console.print(f"    {method.reference}", style="dim")
        for name, field in method.parameters.model_fields.items():
            console.print(f"    method.{name} = {field.default}  {field.description}", soft_wrap=True)
