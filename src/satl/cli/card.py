"""``satl card``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def card(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write it to this .md file instead of printing it.")
    ] = None,
    completed: Annotated[
        Path | None, typer.Option(help="Folder that `satl complete` wrote with this run: its certificates.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a model card: data, known share, classes, metrics, certificates, limits; nothing is computed."""
    from satl.files import atomic_path, check_out
    from satl.reports.model_card import model_card

    if out is not None:
        check_out(out, ".md", overwrite=force)
    text = model_card(run, completed)
    if out is None:
        typer.echo(text, nl=False)
        return
    with atomic_path(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    typer.echo(f"Wrote {out}; choose a licence in its first lines.")
