"""The options ``--threshold`` and ``--thresholds``: the probability from which on a class is present."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from satl.errors import ConfigError, first_of

if TYPE_CHECKING:
    from satl.inference.decision_thresholds import DecisionThresholds, ThresholdsOfClasses

ThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        min=0,
        max=1,
        help="Probability from which a class is present.",
        show_default="0.5 for every class",
    ),
]
ThresholdsOption = Annotated[
    Path | None,
    typer.Option(
        "--thresholds",
        help="One threshold per class instead: the .csv of `satl thresholds` or `satl complete`, or class,threshold.",
    ),
]


def chosen_thresholds(threshold: float | None, thresholds: Path | None) -> ThresholdsOfClasses:
    """Return a function from the classes of a run to their thresholds; both options None: 0.5 for all."""
    from satl.inference.decision_thresholds import same_threshold
    from satl.inference.threshold_files import read_thresholds

    if threshold is not None and thresholds is not None:
        raise ConfigError(f"--threshold {threshold:g} and --thresholds {thresholds}: give one of the two.")

    def choose(classes: tuple[str, ...]) -> DecisionThresholds:
        if thresholds is not None:
            return read_thresholds(thresholds, classes)
        return same_threshold(0.5 if threshold is None else threshold, len(classes))

    return choose


def print_classes_without_threshold(thresholds: DecisionThresholds, classes: tuple[str, ...]) -> None:
    """Print the classes that have no threshold and are therefore never present."""
    never = [name for name, off in zip(classes, thresholds.never, strict=True) if off]
    if never:
        verbs = ("has", "is") if len(never) == 1 else ("have", "are")
        typer.echo(
            f"{len(never)} of {len(classes)} classes {verbs[0]} no threshold and {verbs[1]} never present: "
            + first_of(never, 5)
        )
