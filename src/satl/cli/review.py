"""``satl review`` and ``satl merge``: a person reviews suggestions, and the decisions are merged into the table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from satl.cli.complete import OutArgument
from satl.cli.completion import one_of
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
    TableArgument,
    print_ignored_columns,
)
from satl.cli.wording import shell_words
from satl.errors import ConfigError, in_shell


def review(
    out: OutArgument,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images", help="Folder or packed store of the images, if it is not the one completed."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; another than this one lets the network in.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Port; 8484 or a free one if left out.")
    ] = None,
    annotator: Annotated[
        str | None,
        typer.Option(
            "--annotator", metavar="NAME", help="Your name, stored with every decision of this page."
        ),
    ] = None,
    ask_name: Annotated[
        bool,
        typer.Option("--ask-name", help="One page for several people: each gives a name before deciding."),
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Check suggestions in the browser: one by one, or many at once in a gallery; with the keyboard."""
    from satl.completion.outputs.completed_folder import CompletedFolder
    from satl.review.serve import serve

    if annotator is not None and ask_name:
        raise ConfigError(
            "--annotator names everybody on the page, and --ask-name asks them: give one of the two."
        )

    def ready(address: str, suggestions: int) -> None:
        typer.echo(f"{suggestions:,} suggestions in {out}")
        if host not in ("127.0.0.1", "localhost", "::1"):
            typer.echo(f"Anybody on the network of {host} can read along: this is plain HTTP.", err=True)
        typer.echo(f"Open  {address}")
        typer.echo(
            f"Every decision is stored at once in {CompletedFolder(out).review}; Ctrl+C stops the server."
        )
        if open_browser:
            import webbrowser

            webbrowser.open(address)

    def opened(again: str) -> None:
        typer.echo(f"Opened. For another browser: {again}")

    serve(out, images, host, port, ready, opened, shell_words, annotator=annotator, ask_name=ask_name)
    typer.echo(f"Stopped. Write the decisions back: satl merge {in_shell(out)} TABLE -o NEW")


def merge(
    out: OutArgument,
    table: TableArgument,
    new: Annotated[Path, typer.Option("-o", "--out", metavar="NEW", help="The table to write.")],
    include: Annotated[
        str | None,
        typer.Option(
            "--include",
            help="accepted: also the cells that were accepted and nobody looked at.",
            autocompletion=one_of("accepted"),
        ),
    ] = None,
    replace_known: ReplaceKnownOption = False,
    disagreements: DisagreementsOption = "leave",
    force: Annotated[bool, typer.Option("--force", help="Overwrite NEW.")] = False,
    encoding: EncodingOption = None,
    ignore_column: IgnoreOption = None,
) -> None:
    """Write the decisions of a review into a label table, in its own shape and encoding."""
    from satl.review.agreement import DisagreementRule
    from satl.review.merge import merge_review

    if include not in (None, "accepted"):
        raise ConfigError(f"--include {include}: the only choice is --include accepted.")
    report = merge_review(
        out,
        table,
        new,
        encoding=encoding,
        ignore_columns=ignore_column or (),
        include_accepted=include == "accepted",
        replace_known=replace_known,
        disagreements=cast(DisagreementRule, disagreements),  # checked where it is used
        force=force,
    )
    print_ignored_columns(ignore_column, new)
    lines = [f"Accepted by certificate: {report.included:,}"] if include else []
    lines += agreement_lines(report.agreement)
    print_disagreements(report, "satl review")
    print_decisions(report, table, f", {report.skipped:,} skipped", lines)
