"""``satl onnx``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from satl.cli.completion import one_of
from satl.cli.threshold_options import (
    ThresholdOption,
    ThresholdsOption,
    chosen_thresholds,
    print_classes_without_threshold,
)

if TYPE_CHECKING:
    from satl.inference.onnx_file import OnnxFile


def onnx(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .onnx.")],
    threshold: ThresholdOption = None,
    thresholds: ThresholdsOption = None,
    checkpoint: Annotated[
        str, typer.Option(help="best or last.", autocompletion=one_of("best", "last"))
    ] = "best",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --out.")] = False,
) -> None:
    """Write a run as one ONNX file with the thresholds inside, for use without satl and torch."""
    from rich.console import Console

    from satl.inference.onnx_file import write_onnx

    choose = chosen_thresholds(threshold, thresholds)
    with Console(stderr=True).status("writing and checking, which takes a minute or two for a large network"):
        written = write_onnx(run, out, choose, checkpoint, force=force)
    _print(written)


def _print(written: OnnxFile) -> None:
    count = len(written.classes)
    typer.echo(f"Input   {written.input_name:<14} {written.input_kind}")
    typer.echo(f"Output  probabilities  float32 (N, {count})")
    typer.echo(f"Output  present        bool (N, {count})")
    typer.echo(f"Thresholds: {written.thresholds.source}")
    print_classes_without_threshold(written.thresholds, written.classes)
    typer.echo(f"Compared with torch: probabilities differ by {written.difference:.1e} at most")
    typer.echo(f"Wrote {count} classes, {written.megabytes:.1f} MB, to {written.path}")
