"""``satl scenes``: write the embedded data set as image files and a label table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from satl.cli.completion import one_of


def scenes(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the images and labels.csv.")],
    count: Annotated[int, typer.Option("--count", help="Number of images.")] = 1000,
    size: Annotated[int, typer.Option("--size", help="Side of an image in pixels.")] = 96,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the images.")] = 0,
    objects: Annotated[
        str,
        typer.Option(
            "--objects",
            help="few (2 to 4 classes in a picture) or many (8 to 14, smaller).",
            autocompletion=one_of("few", "many"),
        ),
    ] = "few",
    image_format: Annotated[
        str, typer.Option("--format", help="png or jpg.", autocompletion=one_of("png", "jpg"))
    ] = "png",
    force: Annotated[
        bool, typer.Option("--force", help="Replace a labels.csv and images of the same names.")
    ] = False,
) -> None:
    """Render the embedded data set: images with complete, true labels."""
    from satl.scenes import write_scenes

    table = write_scenes(
        out,
        count,
        size=size,
        seed=seed,
        workers=os.cpu_count() or 1,
        image_format=image_format,
        objects=objects,
        force=force,
    )
    labels = float((table.cells == 1).sum()) / table.num_images
    typer.echo(
        f"{table.num_images} images of {size} x {size} pixels, {table.num_classes} classes, "
        f"{labels:.2f} labels per image: {out / 'labels.csv'}"
    )
