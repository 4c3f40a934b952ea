"""``satl thresholds``: any threshold rule on a plain file of scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from satl.cli.completion import rule as complete_rule
from satl.cli.json_output import JsonOption, print_json
from satl.cli.labels import EncodingOption, IgnoreOption
from satl.cli.wording import percent
from satl.errors import ConfigError, TableError, first_of, nearest

if TYPE_CHECKING:
    from satl.labels import LabelTable
    from satl.methods import Parameters
    from satl.scores import ScoreTable
    from satl.thresholds import ThresholdRule
    from satl.thresholds.application import ClassThreshold


def thresholds(
    scores: Annotated[
        Path,
        typer.Option(
            "--scores",
            help="Scores in [0, 1]: .npz, or .csv, .parquet, .arrow with image,CLASS,..., or a folder of "
            "`satl predict`; or the folder of a run, whose model and labels are then taken.",
        ),
    ],
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            help="How to choose; `satl methods --rules` lists the rules.",
            autocompletion=complete_rule,
        ),
    ],
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Label table; not needed where an .npz holds them.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the rule: name=value; repeatable.")
    ] = None,
    updates: Annotated[
        int | None,
        typer.Option(
            "--updates", min=1, help="Epochs for which the rule moves; by default until it stops moving."
        ),
    ] = None,
    max_uncertainty: Annotated[
        float | None,
        typer.Option(
            "--max-uncertainty",
            min=0,
            help="Accept no cell that is less certain; the .npz has 'uncertainty'.",
        ),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option("--truth", help="A second table with the hidden truth, to measure by.")
    ] = None,
    encoding: EncodingOption = None,
    ignore_column: IgnoreOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write: .csv.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --out.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Choose one threshold per class from scores and labels, and count what it accepts."""
    from satl.files import check_out
    from satl.inference.threshold_files import write_rule_thresholds
    from satl.methods.method_parts import RULES

    if rule not in RULES:
        raise ConfigError(
            f"--rule {rule}: there is no such rule{nearest(rule, RULES)}; known: {', '.join(RULES)}."
        )
    parameters = _parameters(rule, settings or [])
    if out is not None:
        kept = (scores / "thresholds.csv",) if scores.is_dir() else ()  # a run's own, of another kind
        check_out(out, ".csv", overwrite=force, inputs=(scores, labels, truth, *kept))
    file, table = _read(scores, labels, truth, encoding, ignore_column or [])
    import numpy as np

    values = np.ascontiguousarray(file.values)
    if max_uncertainty is not None:
        values = _certain(file, values, table, max_uncertainty)
    from satl.methods.generators import PartContext
    from satl.thresholds import ThresholdRule
    from satl.thresholds.application import apply_rule

    proportion = float(table.known.mean())
    built: ThresholdRule = RULES[rule].build(PartContext(table.num_classes, 0, proportion), parameters)
    if updates is not None and any(True for _ in built.parameters()):
        raise ConfigError(
            f"--updates {updates}: rule '{rule}' is moved by training, not by updates; leave the option out to see "
            "where it would come to rest."
        )
    try:
        rows = apply_rule(built, values, table.cells, table.classes, table.truth, updates, encoding="signed")
    except NotImplementedError as error:
        raise ConfigError(f"--rule {rule}: {str(error).rstrip('.')}; say how often with --updates.") from None
    observes = type(built).observe is not ThresholdRule.observe or built.learns_by_gradient
    if observes and not table.known.any() and all(row.threshold >= 1.0 for row in rows):
        raise ConfigError(
            f"{scores}: holds no known label, which rule '{rule}' needs to find a threshold; name the table of labels "
            "with --labels, or take a rule that needs none, such as fixed."
        )
    if out is not None:
        write_rule_thresholds(out, rule, rows)
    if as_json:
        print_json({"rule": rule, "classes": [row.as_dict() for row in rows]})
    else:
        _print(rows, rule, file, table, out)


def _parameters(rule: str, settings: list[str]) -> Parameters:
    from pydantic import ValidationError

    from satl.methods.method_parts import RULES
    from satl.runs.settings import parse_setting, validation_error

    given = {}
    for text in settings:
        if "=" not in text:
            raise ConfigError(
                f"--set {text}: write it as name=value; `satl methods --rules {rule}` lists the names."
            )
        try:
            name, value = parse_setting(text)
        except ValueError as error:
            raise ConfigError(f"--set {text}: {error}.") from None
        given[name.removeprefix("method.thresholds.")] = value
    model = RULES[rule].parameters
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise validation_error(error, f"--set for rule '{rule}'", model) from None


def _read(
    scores: Path, labels: Path | None, truth: Path | None, encoding: str | None, ignore_columns: list[str]
) -> tuple[ScoreTable, LabelTable]:
    """Return the scores, and the labels in the same order; all unknown where there are none."""
    import numpy as np

    from satl.labels import LabelTable, open_table
    from satl.scores import ScoreTable, read_scores
    from satl.scores.prediction_folder import is_prediction_folder

    if scores.is_dir() and not is_prediction_folder(scores):
        ignored = ignore_columns[0] if ignore_columns else None
        for option, given in (
            ("--labels", labels),
            ("--truth", truth),
            ("--encoding", encoding),
            ("--ignore-column", ignored),
        ):
            if given is not None:
                raise ConfigError(
                    f"{option} {given}: {scores} is a run and has labels of its own; leave it out."
                )
        from satl.cli.progress import loading
        from satl.inference.run_evaluation import score_training_data

        with loading("Reading images") as progress:
            table, values = score_training_data(scores, progress)
        return ScoreTable(scores, table.images, table.classes, values), table
    file = read_scores(scores, encoding=encoding)
    file.require_probabilities()
    if labels is not None:
        if file.labels is not None:
            raise TableError(
                f"{scores} holds labels of its own: leave out --labels {labels}, or the array from the file."
            )
        opened = open_table(labels, encoding, truth=truth, ignore_columns=ignore_columns)
        return file, file.match_labels(opened.table, labels)
    if ignore_columns:
        raise ConfigError(f"--ignore-column {ignore_columns[0]}: belongs to --labels TABLE; leave it out.")
    if truth is not None:
        raise ConfigError(f"--truth {truth}: needs --labels TABLE, the labels that are known.")
    if file.labels is not None:
        return file, file.labels.table
    return file, LabelTable(
        file.images, file.classes, np.zeros(file.values.shape, dtype=np.int8), encoding="signed"
    )


def _certain(file: ScoreTable, values: Any, table: LabelTable, limit: float) -> Any:
    """Return the scores without those of unknown cells that are too uncertain."""
    import numpy as np

    if file.uncertainty is None:
        raise TableError(
            f"{file.path}: there is no array 'uncertainty' to apply --max-uncertainty to: add it to an .npz file."
        )
    return np.where(~table.known & ~(file.uncertainty <= limit), np.float32(np.nan), values)


def _print(
    rows: list[ClassThreshold], rule: str, file: ScoreTable, table: LabelTable, out: Path | None
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False)
    with_truth = table.truth is not None
    grid = Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=True, header_style="bold")
    grid.add_column("class", overflow="fold")
    columns = ["threshold", "known\n+", "known\n-", "unknown", "accepted", "prec.", "recall"]
    for column in (*columns, *(("true\nprec.", "true\nrecall") if with_truth else ())):
        grid.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        ratios = [row.precision, row.recall, *((row.truth_precision, row.truth_recall) if with_truth else ())]
        counts = (row.known_positives, row.known_negatives, row.unknown, row.accepted)
        grid.add_row(
            Text(row.name),
            f"{row.threshold:.4f}",
            *(f"{count:,}" for count in counts),
            *map(percent, ratios),
        )
    console.print(f"{file.path}: {table.num_images:,} images, rule {rule}", style="bold", soft_wrap=True)
    console.print(grid)
    for what, ours, theirs in (
        ("images", file.images, table.images),
        ("classes", file.classes, table.classes),
    ):
        if ours != theirs:  # else they were matched by name
            console.print(
                f"Note: the scores name no {what}: the order of the labels was taken.", soft_wrap=True
            )
    accepted, unknown = sum(row.accepted for row in rows), sum(row.unknown for row in rows)
    classes = sum(row.accepted > 0 for row in rows)
    meaning = "Precision and recall are those on known cells" + (
        ", the true ones those on unknown cells by the hidden truth." if with_truth else "."
    )
    console.print(
        f"Accepted {accepted:,} of {unknown:,} unknown cells, in {classes} of {len(rows)} classes. {meaning}",
        soft_wrap=True,
    )
    without = [row.name for row in rows if row.threshold >= 1.0]
    if without:
        console.print(
            f"! {len(without)} of {len(rows)} classes have threshold 1 and accept nothing, because labels are too few "
            f"or no lower one is safe: {first_of(without, 8)}.",
            style="yellow",
            soft_wrap=True,
        )
    if out is not None:
        console.print(f"Written: {out}", soft_wrap=True)
