"""``satl push``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from satl.cli.json_output import JsonOption, print_json


def push(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    repository: Annotated[str, typer.Argument(help="Repository on the Hugging Face Hub: OWNER/NAME.")],
    yes: Annotated[bool, typer.Option("--yes", help="Upload; without it the files are only listed.")] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Everybody may see it; a new repository is private otherwise.")
    ] = False,
    completed: Annotated[
        Path | None, typer.Option(help="Folder that `satl complete` wrote with this run, for the card.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Upload the model of a run with its card: no pictures, no tables, no decisions; lists the files without --yes."""
    from satl.errors import in_shell
    from satl.reports.sharing import push_run, require_repository, shared_folder

    require_repository(repository)
    with shared_folder(run, completed) as shared:
        if as_json:
            files = [{"name": name, "bytes": size} for name, size in shared.sizes.items()]
            print_json({"files": files, "uploaded_to": push_run(shared, repository, public) if yes else None})
            return
        for name, size in shared.sizes.items():
            typer.echo(f"{size:>15,}  {name}")
        typer.echo(f"{sum(shared.sizes.values()):>15,}  bytes in {len(shared.sizes)} files")
        if not yes:
            typer.echo(
                f"Nothing was sent. `satl push {in_shell(run)} {repository} --yes` uploads these files to "
                f"{'a repository that everybody may see' if public else 'a private repository'}."
            )
            return
        typer.echo(f"Uploaded to {push_run(shared, repository, public)}")
