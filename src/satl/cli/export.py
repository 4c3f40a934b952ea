"""``satl export`` and ``satl import``: to other tools and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from satl.cli.completion import TOOLS, one_of
from satl.cli.decisions import (
    DisagreementsOption,
    agreement_lines,
    print_decisions,
    print_disagreements,
)
from satl.cli.labels import (
    EncodingOption,
    IgnoreOption,
    ReplaceKnownOption,
    print_ignored_columns,
)
from satl.errors import Argument, ConfigError, in_shell

if TYPE_CHECKING:
    from satl.export import Sent, ServerProject, Source

FORMATS_HELP = "Such as label-studio, fiftyone, cvat, huggingface, coco, wide or long."
FormatOption = Annotated[
    str,
    typer.Option("-f", "--format", metavar="FORMAT", help=FORMATS_HELP, autocompletion=one_of(*TOOLS)),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="ADDRESS",
        help="For label-studio: its server instead of a file; the token is in LABEL_STUDIO_API_KEY.",
    ),
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="A file with the token of the server."),
]


def export_command(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="Folder that `satl complete` wrote, or a label table."),
    ],
    format: FormatOption,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="File to write; others may come beside it."),
    ] = None,
    server: ServerOption = None,
    project: Annotated[
        str | None,
        typer.Option("--project", help="Number of the project on the server, or new."),
    ] = None,
    title: Annotated[
        str | None, typer.Option("--title", help="Of a new project; the name of SOURCE if left out.")
    ] = None,
    token_file: TokenOption = None,
    band: Annotated[
        list[str] | None,
        typer.Option(
            "--band",
            help="Suggestions to export: accepted or review; repeatable. Both if left out.",
            autocompletion=one_of("accepted", "review"),
        ),
    ] = None,
    suggestions_only: Annotated[
        bool,
        typer.Option(
            "--suggestions-only", help="Only images with suggestions, and without their known labels."
        ),
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            help="Take the known cells from this table: the one `satl merge` wrote after a review.",
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images", help="Folder of the image files: find each, and write its size (cvat, coco)."
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            help="For label-studio: where it finds the images, https://..., s3://... or a folder below its "
            "document root.",
        ),
    ] = None,
    encoding: EncodingOption = None,
    ignore_column: IgnoreOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the files of an earlier export.")] = False,
) -> None:
    """Write labels for another tool: known cells as annotations, suggestions only ever as predictions."""
    from satl.completion.outputs.completed_folder import CompletedFolder
    from satl.export import export, find_tool, read_source, send
    from satl.labels.bands import SUGGESTED_BANDS
    from satl.labels.io import check_new_files
    from satl.review.merge import is_reviewed

    tool = find_tool(format, out)
    place = _server_project(format, server, project, title, token_file, out, "-o FILE")
    if address is not None and not tool.takes_address:
        raise ConfigError(f"--address: format '{format}' writes no address of images; leave it out.")
    content = read_source(
        source,
        encoding=encoding,
        ignore_columns=ignore_column or (),
        labels=labels,
        bands=band or SUGGESTED_BANDS,
        suggestions_only=suggestions_only,
        images=images,
        address=address,
    )
    if place is not None:
        sent = send(content, format, place)
        _print_content(content)
        _print_sent(sent)
    elif out is not None:
        if out.parent.resolve() == source.resolve():
            raise ConfigError(f"{out} lies in the folder that is exported: name a file elsewhere with -o.")
        check_new_files(tool.files(out).values(), force=force, inputs=(source, labels))
        files = export(content, format, out, force=force)
        _print_content(content)
        for file in files:
            typer.echo(f"Wrote  {file}")
    if labels is None and is_reviewed(CompletedFolder(source)):
        typer.echo(
            f"Note: {source} has been reviewed, and decisions are not in it before "
            f"`satl merge {in_shell(source)} TABLE -o NEW`: export again with --labels NEW.",
            err=True,
        )


def _server_project(
    format: str,
    server: str | None,
    project: str | None,
    title: str | None,
    token_file: Path | None,
    file: Path | None,
    named: str,
) -> ServerProject | None:
    """Return the project on a server, or None for a file.

    Args:
        named: what a file is given with.
    """
    from satl.export import ServerProject
    from satl.export.registry import find_server

    if server is None:
        given = {"--project": project, "--title": title, "--token-file": token_file}
        for option, value in given.items():
            if value is not None:
                raise ConfigError(f"{option} belongs to --server ADDRESS: give both, or neither.")
        if file is None:
            raise ConfigError(
                f"name a file with {named}, or a server with --server ADDRESS --project NUMBER."
            )
        return None
    find_server(format)
    if file is not None:
        raise ConfigError(f"{named} names a file, and --server a server: give one of the two.")
    if project is None:
        raise ConfigError(
            "names no project", where=Argument("server", server), remedy="give --project with its number"
        )
    return ServerProject(server, project, title, token_file)


def _print_content(content: Source) -> None:
    """Say what is exported."""
    from satl.labels.bands import SUGGESTED_BANDS

    table, proposed = content.table, content.suggestions
    typer.echo(f"Known labels: {int(table.known.sum()):,} in {table.num_images:,} images")
    if proposed is not None:
        counts = ", ".join(
            f"{int((proposed.bands == code).sum()):,} {name}" for code, name in enumerate(SUGGESTED_BANDS)
        )
        typer.echo(f"Suggestions: {counts}")


def _print_sent(sent: Sent) -> None:
    """Say what was sent to a server."""
    typer.echo(f"Tasks: {sent.tasks:,} new" + (f", {sent.others:,} others left alone" if sent.others else ""))
    typer.echo(
        f"Predictions: {sent.added:,} added, {sent.changed:,} changed, {sent.withdrawn:,} withdrawn, "
        f"{sent.unchanged:,} the same as before"
    )
    if sent.annotations:
        typer.echo(f"Annotations of known labels renewed: {sent.annotations:,}")
    typer.echo(f"Project {sent.project}: {sent.place}")


def import_command(
    format: FormatOption,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="TABLE", help="Table to write; its extension says how.")
    ],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="What the tool exported, unless --server is given.")
    ] = None,
    server: ServerOption = None,
    project: Annotated[
        str | None, typer.Option("--project", help="Number of the project on the server.")
    ] = None,
    token_file: TokenOption = None,
    onto: Annotated[
        Path | None,
        typer.Option(
            "--onto", metavar="TABLE", help="Write the decisions into this table, in its own shape."
        ),
    ] = None,
    unticked: Annotated[
        str,
        typer.Option(
            "--unticked",
            help="For label-studio: what a class is that a person ticked neither as present nor as absent, "
            "unknown or absent.",
            autocompletion=one_of("unknown", "absent"),
        ),
    ] = "unknown",
    replace_known: ReplaceKnownOption = False,
    disagreements: DisagreementsOption = "leave",
    encoding: EncodingOption = None,
    ignore_column: IgnoreOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite TABLE.")] = False,
) -> None:
    """Read what people decided in another tool into a label table; predictions decide nothing."""
    from satl.export import import_file, import_project

    place = _server_project(format, server, project, None, token_file, file, "FILE")
    wishes: dict[str, Any] = {
        "onto": onto,
        "encoding": encoding,
        "ignore_columns": ignore_column or (),
        "unticked": unticked,
        "replace_known": replace_known,
        "disagreements": disagreements,
        "force": force,
    }
    if place is not None:
        report = import_project(place, format, out, **wishes)
    else:
        assert file is not None
        report = import_file(file, format, out, **wishes)
    print_ignored_columns(ignore_column, out)
    print_disagreements(report, "the tool")
    counts = (
        ("Absent because not ticked", report.unticked),
        ("Predictions, which decide nothing", report.suggestions),
        ("Skipped tasks", report.skipped),
    )
    lines = [f"{name}: {count:,}" for name, count in counts if count]
    print_decisions(report, onto, more=[*lines, *agreement_lines(report.agreement)])
