"""``satl inspect``, ``satl mask`` and ``satl convert``: parse, call, print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from satl.cli.completion import DATASETS, ENCODINGS, one_of
from satl.cli.json_output import JsonOption, print_json
from satl.errors import ConfigError, EncodingError, in_shell

if TYPE_CHECKING:
    from rich.console import Console

    from satl.labels import LabelTable, TableFile
    from satl.labels.file_report import FileReport
    from satl.labels.inspection import ClassReport, Inspection

ENCODING_HELP = (
    "What the values mean: complete, blank, signed, csl, chexpert or words. "
    "Needed where the file can be read in several ways."
)
SHOWN_CLASSES = 20

TableArgument = Annotated[
    Path, typer.Argument(metavar="TABLE", help="Label table: .csv, .tsv, .parquet, .jsonl, .json or .npz.")
]
SourceArgument = Annotated[
    Path, typer.Argument(metavar="SOURCE", help="Label table, or the folder of a data set with --dataset.")
]
EncodingOption = Annotated[
    str | None, typer.Option("--encoding", help=ENCODING_HELP, autocompletion=one_of(*ENCODINGS))
]
TruthOption = Annotated[Path | None, typer.Option("--truth", help="A second table with the hidden truth.")]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore-column", help="A column of a wide table that is not a class, such as an age; repeatable."
    ),
]
ReplaceKnownOption = Annotated[
    bool, typer.Option("--replace-known", help="Let a decision overwrite a known cell that says otherwise.")
]
DatasetOption = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="Read a data set in its published layout: coco2014, vg200, voc2007, chexpert, ...",
        autocompletion=one_of(*DATASETS),
    ),
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option("--option", help="An option of the data set: key=value, see docs/datasets.md; repeatable."),
]


def inspect_command(
    table: SourceArgument,
    images: Annotated[
        Path | None,
        typer.Option("--images", help="Folder or packed store of the images: read and compare them all."),
    ] = None,
    encoding: EncodingOption = None,
    truth: TruthOption = None,
    ignore_column: IgnoreOption = None,
    dataset: DatasetOption = None,
    option: OptionsOption = None,
    show_all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Show every class, not only the thinnest, and with --images every missing or unreadable file and "
            "all copies.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a label table knows: coverage per class, thin classes, broken image files."""
    from satl.labels import inspect_table

    source = _open(table, encoding, truth, ignore_column, dataset, option)
    report = inspect_table(source, None if images is None else _inspect_images(source.table, images))
    if as_json:
        print_json(report.as_dict())
    else:
        _print_report(report, show_all, source.table.images)


def mask_command(
    table: TableArgument,
    proportion: Annotated[
        float, typer.Option("--proportion", help="Share of the labels to keep, above 0 and at most 1.")
    ],
    seed: Annotated[int, typer.Option("--seed", help="Seed of the mask; one seed gives nested masks.")] = 0,
    encoding: EncodingOption = None,
    ignore_column: IgnoreOption = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="The masked table (default: beside TABLE, named after the mask)."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the masked table and its truth, if they exist.")
    ] = False,
) -> None:
    """Hide known labels by the published recipe; the complete labels are kept apart as truth."""
    from satl.files import split_ending
    from satl.labels import mask_table, open_table, write_table
    from satl.labels.io import check_new_files, find_format, table_files
    from satl.labels.masking import check_proportion

    check_proportion(proportion)
    stem, ending = split_ending(table)
    target = table.with_name(f"{stem}.known-{proportion:g}-seed-{seed}{ending}") if out is None else out
    # Of the kinds of .json only this one can say unknown.
    format = "lvis" if target.suffix.lower() == ".json" else None
    written = table_files(target, find_format(target, writing=True, name=format), with_truth=True)
    check_new_files(written, force=force, inputs=(table,))
    source = open_table(table, encoding, ignore_columns=ignore_column or ())
    masked = mask_table(source.table, proportion, seed)
    files = write_table(masked, target, format=format)
    train = source.table.train_rows()
    before, after = int(source.table.known[train].sum()), int(masked.known[train].sum())
    console = _console()
    rows = "the train images" if source.table.split is not None else f"{masked.num_images:,} images"
    _say(
        console,
        f"Masked {rows} with proportion {proportion:g} and seed {seed}: "
        f"{after:,} of {before:,} known labels stay.",
    )
    _say(console, f"Table  {files[0]}")
    _say(console, f"Truth  {files[-1]}" + (" (inside)" if len(files) == 1 else ""))
    option = "" if len(files) == 1 else f" --truth {in_shell(files[-1])}"
    _say(console, f"Look at it: satl inspect {in_shell(files[0])}{option}")


def convert_command(
    source: SourceArgument,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="File to write; its extension says how.")],
    encoding: EncodingOption = None,
    truth: TruthOption = None,
    ignore_column: IgnoreOption = None,
    dataset: DatasetOption = None,
    option: OptionsOption = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Kind of TARGET where its extension has several: long or positives (.csv, .tsv; long also "
            ".parquet), coco or lvis (.json). A .csv or .parquet file is wide without it.",
            autocompletion=one_of("long", "positives", "coco", "lvis"),
        ),
    ] = None,
    to_encoding: Annotated[
        str | None,
        typer.Option(
            "--to-encoding",
            help="Encoding of TARGET; else one that reads back by itself.",
            autocompletion=one_of(*ENCODINGS),
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite TARGET.")] = False,
) -> None:
    """Write a label table or a data set in another format; splits and hidden truth are kept."""
    from satl.labels import write_table
    from satl.labels.io import check_new_files, find_format, table_files

    kind = find_format(target, writing=True, name=format)
    # Before a large data set is read; only then is known whether a truth comes with it.
    check_new_files((target,), force=force, inputs=(source, truth))
    opened = _open(source, encoding, truth, ignore_column, dataset, option)
    written = table_files(target, kind, opened.table.truth is not None)
    check_new_files(written, force=force, inputs=(source, truth))
    try:
        files = write_table(opened.table, target, to_encoding, format=format)
    except EncodingError as error:
        raise error.with_arguments({"encoding": "to_encoding"}) from None
    console = _console()
    _say(console, f"Read   {source}: {opened.format}" + (f", {opened.encoding}" if opened.encoding else ""))
    table = opened.table
    splits = ", ".join(f"{name} {count:,}" for name, count in table.splits.items())
    _say(
        console,
        f"Wrote  {files[0]}: {kind.name}, {table.num_images:,} images, {table.num_classes:,} classes"
        + (f" ({splits})" if splits else ""),
    )
    if table.truth is not None:
        _say(console, f"Truth  {files[-1]}" + (" (inside)" if len(files) == 1 else ""))


def _open(
    source: Path,
    encoding: str | None,
    truth: Path | None,
    ignore_columns: list[str] | None,
    dataset: str | None,
    options: list[str] | None,
) -> TableFile:
    """Read a table, or a data set where one is named."""
    from satl.labels import DATASETS, TableFile, open_table, read_dataset

    if dataset is None:
        if options:
            raise ConfigError("--option belongs to a data set: name it with --dataset.")
        if source.is_dir():
            raise ConfigError(
                f"{source} is a folder: name the table in it, or pass --dataset with one of {', '.join(DATASETS)}."
            )
        return open_table(source, encoding, truth=truth, ignore_columns=ignore_columns or ())
    if encoding is not None or truth is not None or ignore_columns:
        raise ConfigError(
            f"--encoding, --truth and --ignore-column belong to a table, not to data set '{dataset}': "
            f"leave them out."
        )
    values = {}
    for text in options or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--option {text}: write it as key=value, for example splits=train.")
        values[name.strip()] = value.strip()
    return TableFile(read_dataset(dataset, source, **values), source, dataset)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False)


def _say(console: Console, text: str, style: str | None = None) -> None:
    # Paths and ids stay whole, so that they can be copied: the terminal wraps, not the program.
    console.print(text, style=style, soft_wrap=True)


def _inspect_images(table: LabelTable, images: Path) -> FileReport:
    from satl.cli.progress import loading
    from satl.images.file_checks import inspect_images

    with loading("Reading images") as progress:
        return inspect_images(table, images, progress)


def print_ignored_columns(columns: list[str] | None, table: Path) -> None:
    """Print that columns which are not classes are not in the table that was written."""
    if columns:
        names = ", ".join(repr(name) for name in columns)
        what = "which is not a class" if len(columns) == 1 else "which are not classes"
        typer.echo(f"Left out: {table} is without {names}, {what}", err=True)


def _print_report(report: Inspection, show_all: bool, images: Sequence[str]) -> None:
    from satl.labels.encodings import describe_counts

    console = _console()
    _say(console, f"{report.path}", style="bold")
    if report.encoding is not None:
        from satl.labels.encodings import ENCODINGS

        how = "found from the values" if report.encoding_detected else "as given"
        _say(console, f"encoding   {report.encoding}, {how}: {ENCODINGS[report.encoding].summary}")
        _say(console, f"values     {describe_counts(report.values)}")
    splits = ", ".join(f"{name} {count:,}" for name, count in report.splits.items())
    _say(
        console,
        f"size       {report.num_images:,} images, {report.num_classes:,} classes"
        + (f" ({splits})" if splits else ""),
    )
    total = report.positive + report.negative + report.unknown
    scope = f" of the {report.counted} images" if report.counted else ""
    _say(
        console,
        f"known      {report.known_proportion:.1%} of {total:,} cells{scope}: {report.positive:,} present, "
        f"{report.negative:,} absent, {report.unknown:,} unknown",
    )
    if report.truth_known is not None:
        _say(console, f"truth      {report.truth_known:,} cells, {report.truth_contradicted:,} contradicted")
    if report.files is not None:
        files = report.files
        groups, near = len(files.duplicates), len(files.near_duplicates)
        _say(
            console,
            f"files      {files.checked:,} looked for: {len(files.missing):,} missing, "
            f"{len(files.unreadable):,} unreadable, {groups:,} group{'s' * (groups != 1)} of duplicates"
            + (f", {near:,} of near duplicates" if near else ""),
        )
        if not show_all and len(files.missing) + len(files.unreadable) + groups + near > 1:
            _say(
                console, "           --all lists every missing and every unreadable file, and the duplicates"
            )
    console.print()
    _print_classes(console, report, show_all)
    if show_all and report.files is not None:
        _print_files(console, report.files, images)
    for note in report.notes:
        console.print()
        console.print(f"! {note}", style="yellow")
    if not report.notes:
        console.print()
        console.print("No problem found.", style="green")


def _print_classes(console: Console, report: Inspection, show_all: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    thin = report.thin_classes
    others = sorted((c for c in report.classes if not c.thin), key=lambda c: (c.positive, c.negative))
    ordered = [*thin, *others]
    shown = ordered if show_all else ordered[:SHOWN_CLASSES]
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    grid.add_column("class", overflow="fold", ratio=3)
    for name in ("present", "absent", "unknown", "known"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("remark", overflow="fold", ratio=4)
    for entry in shown:
        known = entry.positive + entry.negative
        grid.add_row(
            Text(entry.name),
            f"{entry.positive:,}",
            f"{entry.negative:,}",
            f"{entry.unknown:,}",
            f"{known / (known + entry.unknown):.1%}",
            Text(_remark(entry)),
            style="yellow" if entry.thin else None,
        )
    console.print(grid)
    hidden = len(ordered) - len(shown)
    if hidden:
        kind = "more" if len(thin) > len(shown) else "more, better known"
        console.print(f"... and {hidden} {kind}: --all shows every class.")


def _print_files(console: Console, files: FileReport, images: Sequence[str]) -> None:
    """Print each missing and each unreadable file with the row of the table that names it, counted from 1."""
    from satl.labels.cells import NameIndex

    rows = NameIndex(images)
    for title, broken in (
        ("missing", [(image, "") for image in files.missing]),
        ("unreadable", [(image, f" ({' '.join(reason.split())})") for image, reason in files.unreadable]),
    ):
        if broken:
            console.print()
            console.print(f"{title} in {files.folder}", style="bold", soft_wrap=True)
        for image, reason in broken:
            _say(console, f"row {rows.position(image) + 1}  {image}{reason}")
    for title, groups in (("same content", files.duplicates), ("same looks", files.near_duplicates)):
        if groups:
            console.print()
            console.print(f"{title} in {files.folder}", style="bold", soft_wrap=True)
        for group in groups:
            splits = f" ({', '.join(group.splits)})" if len(group.splits) > 1 else ""
            clash = ", labels contradict each other" if group.contradictory else ""
            _say(console, f"{' = '.join(group.images)}{splits}{clash}")


def _remark(entry: ClassReport) -> str:
    """Name the lack in a word or two; the notes and the documentation say what follows from it."""
    if entry.positive == 0 and entry.negative == 0:
        return "nothing known"
    lacks = [
        f"{'no' if count == 0 else 'few'} {word}"
        for count, word, lack in (
            (entry.positive, "positives", "positive"),
            (entry.negative, "negatives", "negative"),
        )
        if any(f"known {lack}" in problem for problem in entry.problems)
    ]
    return ", ".join(lacks)
