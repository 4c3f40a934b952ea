"""``satl zeroshot``: scores of features against prompts about the classes, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from satl.cli.labels import EncodingOption, IgnoreOption, TableArgument


def zero_shot(
    table: TableArgument,
    features: Annotated[
        Path,
        typer.Option(
            "--features",
            help="Features that the image side of the tower made: .npz, .npy, .parquet, a folder.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File of scores to write: .npz.")],
    text_model: Annotated[
        str | None,
        typer.Option(
            "--text-model",
            help="The tower: open_clip:NAME, open_clip:./FOLDER or, fetched, open_clip:NAME/TAG; by default the one "
            "that made the features, where they say so.",
        ),
    ] = None,
    text_weights: Annotated[
        Path | None, typer.Option("--text-weights", help="Weight file of a tower open_clip:NAME.")
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            "--prompt",
            help="A prompt with {} in the place of the class name; repeatable, averaged. Default: 'a photo of a {}.'",
        ),
    ] = None,
    encoding: EncodingOption = None,
    ignore_column: IgnoreOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --out.")] = False,
) -> None:
    """Score every image and class of a table by prompts: no training, no label is looked at."""
    from satl.errors import Argument, ConfigError, in_shell
    from satl.features import read_features
    from satl.files import check_out
    from satl.labels import open_table
    from satl.models.class_prompts import PREFIX, TextSource, is_tower, problem_of_prompts
    from satl.scoring.zero_shot import write_zero_shot, zero_shot_scores

    check_out(out, ".npz", overwrite=force, inputs=(table, features, text_weights))
    if text_model is not None and not is_tower(text_model):
        raise ConfigError(
            "is no tower of images and texts",
            where=Argument("text_model", text_model),
            remedy=f"name one, such as {PREFIX}ViT-B-32",
        )
    prompts = None if prompt is None else tuple(prompt)
    if prompts is not None and (problem := problem_of_prompts(prompts)) is not None:
        raise ConfigError(problem, where=Argument("prompt"), remedy="write one such as 'a photo of a {}.'")
    labels = open_table(table, encoding, ignore_columns=ignore_column or []).table
    vectors = read_features(features, labels.images)
    tower = text_model or vectors.made_by.get("backbone")
    if not isinstance(tower, str) or not is_tower(tower):
        raise ConfigError(
            "does not say which tower of images and texts made the features",
            where=features,
            remedy=f"name it with --text-model, such as {PREFIX}ViT-B-32",
        )
    source = TextSource(tower, text_weights, prompts)
    scores = zero_shot_scores(source, labels.classes, vectors)
    write_zero_shot(out, labels.images, labels.classes, scores)
    typer.echo(f"{labels.num_images:,} images, {labels.num_classes:,} classes: {out}")
    typer.echo(f"next: satl complete --scores {in_shell(out)} --labels {in_shell(table)} --out FOLDER")
