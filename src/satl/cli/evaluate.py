"""``satl evaluate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from satl.cli.completion import one_of
from satl.cli.json_output import JsonOption, print_json
from satl.cli.threshold_options import (
    ThresholdOption,
    ThresholdsOption,
    chosen_thresholds,
    print_classes_without_threshold,
)
from satl.cli.wording import percent, shell_words
from satl.errors import ConfigError, Task

if TYPE_CHECKING:
    from satl.inference.decision_thresholds import DecisionThresholds
    from satl.inference.run_evaluation import MeasuredImages


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    split: Annotated[
        str | None,
        typer.Option(
            help="train, val or test; by default test if there is one.",
            autocompletion=one_of("train", "val", "test"),
        ),
    ] = None,
    threshold: ThresholdOption = None,
    thresholds: ThresholdsOption = None,
    checkpoint: Annotated[
        str, typer.Option(help="best or last.", autocompletion=one_of("best", "last"))
    ] = "best",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write into instead of RUN.")
    ] = None,
    fiftyone: Annotated[
        str | None,
        typer.Option(help="Also write what was right and wrong in each picture into this FiftyOne dataset."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="With --fiftyone: name of the field there.  [default: satl]")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="With --fiftyone: folder of the pictures, where the run reads no files."),
    ] = None,
    as_json: JsonOption = False,
    per_class: Annotated[bool, typer.Option("--per-class", help="Also print the table of classes.")] = False,
) -> None:
    """Measure a trained run on the known cells of a split; writes RUN/evaluation-SPLIT.{json,csv}."""
    from satl.cli.progress import loading
    from satl.inference.run_evaluation import evaluate_run

    if fiftyone is None and (key is not None or images is not None):
        raise ConfigError("satl evaluate: --key and --images belong to --fiftyone DATASET.")
    dataset, added = None, 0
    if fiftyone is not None:
        from satl.export.fiftyone_dataset import KEY, EvaluationDataset

        dataset = EvaluationDataset(fiftyone, KEY if key is None else key)

    def write(measured: MeasuredImages) -> None:
        nonlocal added
        assert dataset is not None
        added = dataset.write(measured, images)

    choose = chosen_thresholds(threshold, thresholds)
    used: list[tuple[DecisionThresholds, tuple[str, ...]]] = []

    def chosen(classes: tuple[str, ...]) -> DecisionThresholds:
        decisions = choose(classes)
        used.append((decisions, classes))
        return decisions

    with loading("Reading images", as_json) as progress:
        evaluation, split = evaluate_run(
            run,
            split,
            checkpoint,
            progress,
            chosen,
            out,
            see=None if dataset is None else write,
        )
    folder = run if out is None else out
    if as_json:
        print_json(json.loads((folder / f"evaluation-{split}.json").read_text(encoding="utf-8")))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    table = Table(title=f"{run}, checkpoint {checkpoint}, split {split}: {evaluation.num_images} images")
    for column in ("", "mAP", "mAP plain", "OP", "OR", "OF1", "CP", "CR", "CF1"):
        table.add_column(column, justify="right")
    rows = (
        (
            f"at {thresholds.name}" if thresholds else f"at {0.5 if threshold is None else threshold:g}",
            evaluation.at_threshold,
            evaluation.mAP,
            evaluation.mAP_plain,
        ),
        ("top 3", evaluation.top3, None, None),
    )
    for name, counts, interpolated, plain in rows:
        values = (interpolated, plain, counts.OP, counts.OR, counts.OF1, counts.CP, counts.CR, counts.CF1)
        table.add_row(name, *("" if value is None else percent(value, 2) for value in values))
    console.print(table)
    for decisions, names in used:
        print_classes_without_threshold(decisions, names)
    found = evaluation.at_threshold
    if found.positives.any() and not found.correct.any():
        own = shell_words(Task("thresholds", scores=run, rule="mat", out="decide.csv"))
        console.print(
            "No cell that is known to be present is called so, hence the zeros; thresholds that suit the "
            f"probabilities: {own}, then --thresholds decide.csv.",
            soft_wrap=True,
        )
    if evaluation.left_out:
        number = evaluation.left_out
        console.print(
            f"Left out, cannot be read: {number:,} of the {evaluation.num_images + number:,} images of the split; "
            "they are in none of these numbers."
        )
    if evaluation.not_measurable:
        console.print(f"Not measurable, no known positive: {', '.join(evaluation.not_measurable)}.")
    certain = [row.name for row in evaluation.per_class if row.known_positives and not row.known_negatives]
    if certain:
        console.print(f"AP 100 whatever the scores, no known negative: {', '.join(certain)}.")
    if per_class:
        classes = Table()
        for column in ("class", "positives", "negatives", "AP", "precision", "recall", "F1"):
            classes.add_column(column, justify="left" if column == "class" else "right")
        for row in evaluation.per_class:
            shown = (row.average_precision, row.precision, row.recall, row.f1)
            numbers = (percent(value) for value in shown)
            classes.add_row(row.name, str(row.known_positives), str(row.known_negatives), *numbers)
        console.print(classes)
    console.print(
        f"Written: {folder / f'evaluation-{split}.json'} and {folder / f'evaluation-{split}.csv'}",
        soft_wrap=True,
    )
    if dataset is not None:
        console.print(
            f"Written to FiftyOne: field {dataset.key} of the dataset {dataset.name}; {added:,} of the "
            f"{evaluation.num_images:,} pictures are new there.",
            soft_wrap=True,
        )
