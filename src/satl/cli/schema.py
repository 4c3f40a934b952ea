"""``satl schema``: the JSON Schema of what is written as YAML, for editors."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Described(StrEnum):
    """What a schema is about."""

    run = "run"
    grid = "grid"


def schema(
    what: Annotated[
        Described, typer.Argument(help="run: the configuration of a run; grid: that of an experiment.")
    ] = Described.run,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write it to this .json file instead of printing it.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Print the JSON Schema of a configuration, with which an editor completes and checks its keys."""
    import json

    from satl.experiments.grid_schema import grid_schema
    from satl.files import atomic_path, check_out
    from satl.runs.config_schema import config_schema

    if out is not None:
        check_out(out, ".json", overwrite=force)
    made = config_schema() if what is Described.run else grid_schema()
    text = json.dumps(made, indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
        return
    with atomic_path(out) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    typer.echo(f"Wrote {out}.")
