"""``satl export`` and ``satl import``: to other tools and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from satl.cli.labels import (
    EncodingOption,
    IgnoreOption,
    ReplaceKnownOption,
    print_decisions,
    print_ignored_columns,
)
from satl.errors import ConfigError, in_shell

FORMATS_HELP = "Such as label-studio, fiftyone, cvat, huggingface, coco, wide or long."
FormatOption = Annotated[str, typer.Option("-f", "--format", metavar="FORMAT", help=FORMATS_HELP)]


def export_command(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="Folder that `satl complete` wrote, or a label table."),
    ],
    format: FormatOption,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="File to write; others may come beside it.")
    ],
    band: Annotated[
        list[str] | None,
        typer.Option(
            "--band", help="Suggestions to export: accepted or review; repeatable. Both if left out."
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
    from satl.export import export, find_tool, read_source
    from satl.labels.bands import SUGGESTED_BANDS
    from satl.labels.io import check_new_files

    tool = find_tool(format, out)
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
    if out.parent.resolve() == source.resolve():
        raise ConfigError(f"{out} lies in the folder that is exported: name a file elsewhere with -o.")
    check_new_files(tool.files(out).values(), force=force, inputs=(source, labels))
    files = export(content, format, out, force=force)
    table, proposed = content.table, content.suggestions
    typer.echo(f"Known labels: {int(table.known.sum()):,} in {table.num_images:,} images")
    if proposed is not None:
        counts = ", ".join(
            f"{int((proposed.bands == code).sum()):,} {name}" for code, name in enumerate(SUGGESTED_BANDS)
        )
        typer.echo(f"Suggestions: {counts}")
    for file in files:
        typer.echo(f"Wrote  {file}")
    if labels is None and CompletedFolder(source).review.is_file():
        typer.echo(
            f"Note: {source} has been reviewed, and decisions are not in it before "
            f"`satl merge {in_shell(source)} TABLE -o NEW`: export again with --labels NEW.",
            err=True,
        )


def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What the tool exported.")],
    format: FormatOption,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="TABLE", help="Table to write; its extension says how.")
    ],
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
        ),
    ] = "unknown",
    replace_known: ReplaceKnownOption = False,
    encoding: EncodingOption = None,
    ignore_column: IgnoreOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite TABLE.")] = False,
) -> None:
    """Read what people decided in another tool into a label table; predictions decide nothing."""
    from satl.export import import_file

    report = import_file(
        file,
        format,
        out,
        onto=onto,
        encoding=encoding,
        ignore_columns=ignore_column or (),
        unticked=unticked,
        replace_known=replace_known,
        force=force,
    )
    print_ignored_columns(ignore_column, out)
    counts = (
        ("Absent because not ticked", report.unticked),
        ("Predictions, which decide nothing", report.suggestions),
        ("Skipped tasks", report.skipped),
    )
    print_decisions(report, onto, more=[f"{name}: {count:,}" for name, count in counts if count])
