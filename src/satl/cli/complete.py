"""``satl complete``: fill the table, and say how far to trust it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from satl.cli.completion import one_of
from satl.cli.embed import BfloatOption, StrideOption
from satl.cli.labels import EncodingOption, IgnoreOption
from satl.errors import ConfigError, in_shell, nearest

if TYPE_CHECKING:
    from satl.completion.workflow.case import Case
    from satl.completion.workflow.complete import Completion
    from satl.completion.workflow.from_table import TableModel
    from satl.inference.embedder import Embedding

OutArgument = Annotated[Path, typer.Argument(metavar="OUT", help="Folder that `satl complete` wrote.")]


def complete_command(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="TABLE|RUN",
            help="A label table, with --images: its images are embedded and a model is trained on the features, which "
            "takes minutes. Or the folder of a run, trained with data.holdout.",
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            "--scores",
            help="Instead of TABLE or RUN: scores of any model, .csv, .parquet, .arrow (image,CLASS,...) or .npz "
            "(scores, images, classes, and labels if there is no --labels), or a folder of `satl predict`.",
        ),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Label table to complete; by default the table of RUN.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="OUT", help="Folder to write.")] = None,
    precision: Annotated[
        float, typer.Option(help="Share of the accepted cells that must be right, above 0 and below 1.")
    ] = 0.95,
    confidence: Annotated[float, typer.Option(help="Of each promise, above 0 and below 1.")] = 0.95,
    family_wise: Annotated[
        bool, typer.Option("--family-wise", help="Promise all classes at once, not each on its own.")
    ] = False,
    transfer: Annotated[
        str,
        typer.Option(
            help="same: known cells are a random choice. prevalence: positives may be rarer among the unknown.",
            autocompletion=one_of("same", "prevalence"),
        ),
    ] = "same",
    review_only: Annotated[
        bool, typer.Option("--review-only", help="Accept nothing; only propose cells for review.")
    ] = False,
    held_out: Annotated[
        Path | None,
        typer.Option("--held-out", help="Table whose known cells the model of --scores has not seen."),
    ] = None,
    certify_on: Annotated[
        Path | None,
        typer.Option("--certify-on", help="The table before review and merge: certificates rest on it."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="A file of `satl plan` with answers, to be counted.")
    ] = None,
    reviewed: Annotated[
        list[Path] | None,
        typer.Option(
            "--reviewed",
            help="An earlier completion that was reviewed: labels that a person confirmed there are not suspected "
            "again; repeatable.",
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            help="Folder of the images: those of TABLE; otherwise (a packed store too) only noted for the review.",
        ),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option("--features", help="With TABLE: features of its images, of `satl embed` or your own."),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option("--backbone", help="With TABLE: any timm model; a ResNet-50 if none is named."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights", help="With TABLE: a file with the weights of the backbone, instead of a download."
        ),
    ] = None,
    stride_in_1x1: StrideOption = False,
    bfloat16: BfloatOption = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="With TABLE: change the training, section.key=value; repeatable."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", help="With TABLE: folder that keeps features and run; by default OUT-model."),
    ] = None,
    encoding: EncodingOption = None,
    ignore_column: IgnoreOption = None,
    checkpoint: Annotated[
        str, typer.Option(help="Of RUN: best or last.", autocompletion=one_of("best", "last"))
    ] = "best",
    list_all: Annotated[
        bool,
        typer.Option("--list-all", help="List every cell in changes.csv, also those that stay unknown."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a completion in OUT; decisions of a review are kept.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No live progress.")] = False,
) -> None:
    """Fill the unknown cells of a table as far as a precision can be promised, and propose the rest for review."""
    from satl.api.given_data import is_table_path
    from satl.completion.outputs.completed_folder import CompletedFolder
    from satl.completion.statistics.assessment import CompletionSettings
    from satl.completion.workflow.complete import complete
    from satl.completion.workflow.from_table import TableModel

    if (run is None) == (scores is None):
        raise ConfigError(
            "satl complete needs TABLE with --images DIR, or RUN, or --scores FILE with --labels TABLE: give one of "
            "them."
        )
    if out is None:
        raise ConfigError("satl complete needs a folder to write: give it with -o OUT.")
    for name, share in (("--precision", precision), ("--confidence", confidence)):
        if not 0 < share < 1:
            raise ConfigError(f"{name} {share:g}: must lie above 0 and below 1, for example 0.95.")
    choices = ("same", "prevalence")
    if transfer not in choices:
        raise ConfigError(f"--transfer {transfer}: is none of same, prevalence{nearest(transfer, choices)}.")
    table = run if run is not None and is_table_path(run) else None
    if run is not None and (held_out is not None or certify_on is not None):
        raise ConfigError("--held-out and --certify-on belong to --scores: a run has its own.")
    if table is not None and labels is not None:
        raise ConfigError(f"--labels {labels}: {table} is the table already; leave out one of the two.")
    if run is not None and table is None and labels is None and (encoding is not None or ignore_column):
        raise ConfigError(
            "--encoding and --ignore-column say how --labels TABLE is read: a run knows that of its own table."
        )
    embeds = {
        **{"--backbone": backbone, "--weights": weights},
        **{"--stride-in-1x1": stride_in_1x1, "--bfloat16": bfloat16},
    }
    if table is None:
        for name, value in ({"--features": features, **embeds, "--set": settings, "--model": model}).items():
            if value:
                raise ConfigError(
                    f"{name} belongs to TABLE, of which a model is trained first; leave it out."
                )
    elif features is not None:
        for name, value in embeds.items():
            if value:
                raise ConfigError(
                    f"{name} makes features, and --features has them; leave out one of the two."
                )
    if plan is not None and transfer == "prevalence":
        raise ConfigError(
            "--plan and --transfer prevalence: cells picked by their score say nothing about the share of positives; "
            "leave out one of the two."
        )
    CompletedFolder.check_free(out, force)
    family: Literal["class", "table"] = "table" if family_wise else "class"
    assumed: Literal["same", "prevalence"] = "prevalence" if transfer == "prevalence" else "same"
    wanted = CompletionSettings(precision, confidence, family, assumed, review_only)
    columns = tuple(ignore_column or ())
    if table is not None:
        from satl.completion.workflow.from_table import BACKBONE
        from satl.inference.embedder import Embedding

        case = _case_from_table(
            table,
            TableModel.beside(out) if model is None else TableModel(model),
            Embedding(backbone or BACKBONE, weights, stride_in_1x1=stride_in_1x1, bfloat16=bfloat16),
            images=images,
            features=features,
            encoding=encoding,
            ignore_columns=columns,
            settings=settings or (),
            plan=plan,
            checkpoint=checkpoint,
            review_only=review_only,
            force=force,
            quiet=quiet,
        )
    elif run is not None:
        from satl.cli.progress import loading
        from satl.completion.workflow.from_run import case_from_run

        with loading("Reading images", quiet) as progress:
            case = case_from_run(
                run,
                labels,
                encoding=encoding,
                ignore_columns=columns,
                checkpoint=checkpoint,
                plan=plan,
                images=images,
                review_only=review_only,
                progress=progress,
            )
    else:
        from satl.completion.workflow.from_scores import case_from_scores

        assert scores is not None
        case = case_from_scores(
            scores,
            labels,
            encoding=encoding,
            ignore_columns=columns,
            held_out=held_out,
            certify_on=certify_on,
            plan=plan,
            images=images,
        )
    if reviewed:
        from satl.completion.workflow.case import with_confirmed
        from satl.review.merge import confirmed_cells

        case = with_confirmed(case, confirmed_cells(reviewed, case.table))
    _print(complete(case, out, wanted, list_all=list_all, force=force))


def _case_from_table(
    table: Path, model: TableModel, embedding: Embedding, quiet: bool, **further: Any
) -> Case:
    """Embed, train and score, with a bar for the first and the lines of a training for the second."""
    from satl.cli.progress import RichDisplay, loading
    from satl.completion.workflow.from_table import case_from_table

    with loading("Embedding", quiet) as progress:
        return case_from_table(
            table,
            model,
            embedding=embedding,
            progress=progress,
            display=lambda data: None if quiet else RichDisplay(data),
            **further,
        )


def _print(done: Completion) -> None:
    folder, report = done.folder, done.report
    typer.echo(report["statement"])
    typer.echo(report["model"])
    for note in report["notes"]:
        typer.echo(f"Note: {note}")
    for entry in report["classes"]:
        if entry["shift"]["code"] == "does_not_fit":
            typer.echo(f"Note: {entry['shift']['verdict']}")
    if done.errors:
        typer.echo(f"Suspected label errors, offered for review: {done.errors:,}")
    typer.echo(f"Table   {folder.completed}")
    typer.echo(f"Report  {folder.page}")
    typer.echo(f"Review what is doubtful: satl review {in_shell(folder.path)}")
