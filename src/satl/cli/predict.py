"""``satl predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from satl.cli.decisions import ThresholdOption, ThresholdsOption, chosen, tell_of_the_silent


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(predict)


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    images: Annotated[list[Path], typer.Argument(help="Image files or folders, or one packed store.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .csv or .jsonl.")],
    threshold: ThresholdOption = None,
    thresholds: ThresholdsOption = None,
    checkpoint: Annotated[str, typer.Option(help="best or last.")] = "best",
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --out.")] = False,
) -> None:
    """Write class probabilities and decisions for new images; ids are relative to a folder that is given alone."""
    from satl.cli.progress import loading
    from satl.images import is_store
    from satl.training.prediction import (
        find_images,
        image_ids,
        predict_files,
        predict_store,
        write_predictions,
    )
    from satl.training.run_folder import RunFolder

    packed = len(images) == 1 and is_store(images[0])
    files = [] if packed else find_images(images)
    # A wrong place is refused before the work, not after it. What the run itself keeps is never replaced.
    kept = RunFolder.open(run)
    decisions = chosen(threshold, thresholds)(kept.read_classes())
    inputs = (*files, kept.metrics, kept.thresholds, thresholds)
    write = write_predictions(out, decisions, force=force, inputs=inputs)
    with loading("Reading images") as progress:
        if packed:
            ids, classes, probabilities = predict_store(run, images[0], checkpoint, batch_size, progress)
        else:
            ids = image_ids(images, files)
            classes, probabilities = predict_files(run, files, checkpoint, batch_size, progress)
    write(ids, classes, probabilities)
    if thresholds is not None:
        tell_of_the_silent(decisions, classes)
    typer.echo(f"Wrote {len(ids):,} images x {len(classes)} classes to {out}")
