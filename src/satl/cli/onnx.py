"""``satl onnx``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from satl.export.decision_thresholds import DecisionThresholds
    from satl.export.onnx_file import OnnxFile

_SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(onnx)


def onnx(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .onnx.")],
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Probability from which a class is present.",
            show_default="0.5 for every class",
        ),
    ] = None,
    thresholds: Annotated[
        Path | None,
        typer.Option(
            help="One threshold per class instead: the .csv of `satl thresholds` or `satl complete`, or "
            "class,threshold.",
        ),
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="best or last.")] = "best",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --out.")] = False,
) -> None:
    """Write a run as one ONNX file with the thresholds inside, for use without satl and torch."""
    from rich.console import Console

    from satl.errors import ConfigError
    from satl.export.decision_thresholds import read_thresholds, same_threshold
    from satl.export.onnx_file import write_onnx

    if threshold is not None and thresholds is not None:
        raise ConfigError(f"--threshold {threshold:g} and --thresholds {thresholds}: give one of the two.")

    def choose(classes: tuple[str, ...]) -> DecisionThresholds:
        if thresholds is not None:
            return read_thresholds(thresholds, classes)
        return same_threshold(0.5 if threshold is None else threshold, len(classes))

    with Console(stderr=True).status("writing and checking, which takes a minute or two for a large network"):
        written = write_onnx(run, out, choose, checkpoint, force=force)
    _print(written)


def _print(written: OnnxFile) -> None:
    side, count = written.source_size, len(written.classes)
    typer.echo(f"Input   images         uint8 (N, 3, {side}, {side})")
    typer.echo(f"Output  probabilities  float32 (N, {count})")
    typer.echo(f"Output  present        bool (N, {count})")
    typer.echo(f"Thresholds: {written.thresholds.source}")
    never = [name for name, off in zip(written.classes, written.thresholds.never, strict=True) if off]
    if never:
        shown = ", ".join(never[:_SHOWN]) + (
            f" and {len(never) - _SHOWN} more" if len(never) > _SHOWN else ""
        )
        verbs = ("has", "is") if len(never) == 1 else ("have", "are")
        typer.echo(
            f"{len(never)} of {count} classes {verbs[0]} no threshold and {verbs[1]} never present: {shown}"
        )
    typer.echo(f"Compared with torch: probabilities differ by {written.difference:.1e} at most")
    typer.echo(f"Wrote {count} classes, {written.megabytes:.1f} MB, to {written.path}")
