"""``satl predict``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from satl.cli.completion import one_of
from satl.cli.threshold_options import (
    ThresholdOption,
    ThresholdsOption,
    chosen_thresholds,
    print_classes_without_threshold,
)
from satl.errors import Argument, ConfigError, ImageError, Stopped

if TYPE_CHECKING:
    from satl.inference.prediction_parts import PredictionFolder, PredictionJob, PredictParts


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Image files or folders, or one packed store; for a run on features also one file or folder of them."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="File to write, .csv or .jsonl; or a folder, a name without ending: Parquet files, one after the "
            "other; run the same command again to resume.",
        ),
    ],
    threshold: ThresholdOption = None,
    thresholds: ThresholdsOption = None,
    checkpoint: Annotated[
        str, typer.Option(help="best or last.", autocompletion=one_of("best", "last"))
    ] = "best",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images in a batch; 64 by default, 4096 for features.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="For images and a run on features: weight file that its features were made with, if one was given."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is at --out.")] = False,
    part_size: Annotated[
        int, typer.Option("--part-size", min=1, help="Images in a file of a folder.")
    ] = 1024,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            help="Share the files of a folder among the machines of a Ray cluster: auto, local or HOST:PORT.",
        ),
    ] = None,
) -> None:
    """Write class probabilities and decisions for new images, or features; ids are relative to a folder given alone."""
    from functools import partial

    from satl.cli.progress import loading
    from satl.features.feature_reader import is_feature_file
    from satl.images import is_store
    from satl.inference.picture_vectors import embedder_of
    from satl.inference.prediction import (
        find_images,
        image_ids,
        open_features,
        predict_features,
        predict_files,
        predict_store,
        write_predictions,
    )
    from satl.inference.prediction_parts import PredictionFolder, predict_locally
    from satl.inference.ray_cluster import predict_on_ray
    from satl.runs.run_folder import RunFolder

    packed = len(images) == 1 and is_store(images[0])
    in_parts = not out.suffix
    if ray is not None and not in_parts:
        raise ConfigError(
            "shares the files of a folder",
            where=Argument("ray", ray),
            remedy="give --out a name without extension",
        )
    if packed and in_parts:
        raise ConfigError(
            "of a packed store one file is written",
            where=Argument("out", out),
            remedy="end the name in .csv or .jsonl",
        )
    # A wrong path is refused before the work, not after it. Files of the run itself are never replaced.
    kept = RunFolder.open(run)
    on_features = kept.read_features() is not None
    vectors = open_features(run, images) if on_features and any(map(is_feature_file, images)) else None
    embeds = on_features and vectors is None
    if weights is not None and not embeds:
        raise ConfigError(
            "is for images and a run on features",
            where=Argument("weights", weights),
            remedy="leave it out: everything else has the weights of the run",
        )
    files = [] if packed or vectors is not None else find_images(images)
    decisions = chosen_thresholds(threshold, thresholds)(kept.read_classes())
    if in_parts:
        # Built here as well where a cluster does the work, so that wrong weights are told before there is a folder.
        embedder = embedder_of(run, weights) if embeds else None
        predict_parts = partial(predict_locally, embedder=embedder) if ray is None else predict_on_ray(ray)
        ids = image_ids(images, files) if vectors is None else list(vectors.ids)
        settings: dict[str, Any] = {"part_size": part_size, "force": force, "features": vectors}
        with closing(PredictionFolder(out, run, checkpoint, ids, files, decisions, **settings)) as folder:
            _predict_missing(folder, predict_parts, folder.job(batch_size, weights))
        if thresholds is not None:
            print_classes_without_threshold(decisions, kept.read_classes())
        return
    inputs = (*files, *(images if vectors is not None else ()), kept.metrics, kept.thresholds, thresholds)
    write = write_predictions(out, decisions, force=force, inputs=inputs)
    with loading("Embedding" if embeds else "Reading images") as progress:
        if vectors is not None:
            ids = list(vectors.ids)
            classes, probabilities = predict_features(run, vectors, checkpoint, batch_size)
        elif packed:
            ids, classes, probabilities = predict_store(run, images[0], checkpoint, batch_size, progress)
        else:
            ids = image_ids(images, files)
            classes, probabilities = predict_files(run, files, checkpoint, batch_size, progress, weights)
    write(ids, classes, probabilities)
    if thresholds is not None:
        print_classes_without_threshold(decisions, classes)
    typer.echo(f"Wrote {len(ids):,} images x {len(classes)} classes to {out}")


def _predict_missing(folder: PredictionFolder, predict_parts: PredictParts, job: PredictionJob) -> None:
    """Predict the parts that are missing, and report images that cannot be read."""
    from satl.cli.progress import loading
    from satl.scores.prediction_folder import BROKEN
    from satl.training.signals import stop_signals

    missing, total = folder.missing(), len(folder.ids)
    left = sum(len(part.ids) for part in missing)
    if left < total:
        typer.echo(f"{total - left:,} of {total:,} images are there already", err=True)
    with stop_signals() as stopped, loading("Predicting") as progress:
        for count in predict_parts(job, missing) if missing else ():
            left -= count
            if progress is not None:
                progress(total - left, total)
            if stopped() and left:
                raise Stopped(
                    f"stopped: {total - left:,} of {total:,} images are in {folder.path}",
                    remedy="run the same command again to resume",
                )
    broken = folder.broken()
    files = f"{len(folder.parts):,} Parquet file{'s' * (len(folder.parts) != 1)}"
    if broken:
        raise ImageError(
            f"{len(broken):,} of {total:,} images cannot be read ({folder.path / BROKEN} says why), such as "
            f"{broken[0][0]}, and the others are in {folder.path}, {files}",
            remedy="replace the broken ones and run the same command again",
        )
    typer.echo(f"{folder.path} has {total:,} images x {len(folder.content['classes'])} classes, {files}")
