"""``satl embed``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from satl.cli.labels import EncodingOption, IgnoreOption
from satl.errors import Argument, ConfigError, Stopped

_NOT_WRITTEN = {
    *(".npz", ".npy", ".csv", ".tsv", ".arrow", ".feather", ".json", ".jsonl", ".txt", ".zip", ".tar"),
    *(".pt", ".pth", ".pkl", ".h5", ".hdf5", ".safetensors"),
}
"""Ends of files that somebody may expect and does not get; any other dot is one in the name of a folder."""


class PoolKind(StrEnum):
    """How the features of a picture become one vector."""

    mean = "mean"
    token = "token"


StrideOption = Annotated[
    bool,
    typer.Option("--stride-in-1x1", help="The weight file is of a ResNet of version 1, or of Caffe or MSRA."),
]
"""``satl embed`` and ``satl complete``."""
BfloatOption = Annotated[
    bool,
    typer.Option(
        "--bfloat16",
        help="Compute in bfloat16: twice as fast on GPUs and on processors with instructions for it.",
    ),
]
"""``satl embed`` and ``satl complete``."""


def embed(
    table: Annotated[Path, typer.Argument(help="Label table, or a folder of pictures.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder of features; or one file that ends in .parquet. Run again to resume."
        ),
    ],
    backbone: Annotated[
        str,
        typer.Option(
            "--backbone",
            help="Any timm model, such as resnet50; or the image side of a tower, such as open_clip:ViT-B-32.",
        ),
    ],
    images: Annotated[
        Path | None, typer.Option("--images", help="Folder that the image ids of TABLE are relative to.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option("--weights", help="Weight file (.safetensors or .pth); else timm fetches its own."),
    ] = None,
    stride_in_1x1: StrideOption = False,
    bfloat16: BfloatOption = False,
    pool: Annotated[
        PoolKind, typer.Option("--pool", help="mean of the map of features, or the class token.")
    ] = PoolKind.mean,
    views: Annotated[
        int,
        typer.Option(
            "--views",
            min=1,
            max=12,
            help="Vectors a picture: 1 whole, 2 and its mirror image, more: crops and their mirror images.",
        ),
    ] = 1,
    size: Annotated[
        int | None, typer.Option("--size", min=8, help="Side of the pictures; by default the backbone's own.")
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1)] = 32,
    part_size: Annotated[
        int, typer.Option("--part-size", min=1, help="Pictures in a file of the folder.")
    ] = 1024,
    encoding: EncodingOption = None,
    ignore_column: IgnoreOption = None,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", help="Share the work among the machines of a Ray cluster: auto, local or HOST:PORT."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace features that are at --out.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Write features of pictures by a frozen network: embed once, then train and complete in seconds."""
    from satl.cli.progress import loading
    from satl.images.broken_list import BROKEN
    from satl.inference.embedder import Embedding
    from satl.inference.embedding import embed as embed_pictures
    from satl.inference.embedding import embed_to_parquet, find_files
    from satl.inference.prediction import find_images, image_ids
    from satl.inference.ray_cluster import embed_on_ray

    files: list[Path]
    if table.is_dir():
        if images is not None:
            raise ConfigError(
                "is the folder of the pictures itself",
                where=table,
                remedy="leave --images out, or give a table",
            )
        files = find_images([table])
        ids = image_ids([table], files)
    else:
        if images is None:
            raise ConfigError("satl embed TABLE needs --images DIR, the folder of its pictures.")
        from satl.labels import open_table

        ids = list(open_table(table, encoding, ignore_columns=ignore_column or ()).table.images)
        files = find_files(images, ids)
    if out.suffix.lower() in _NOT_WRITTEN:
        raise ConfigError(
            f"cannot be written as '{out.suffix}'",
            where=Argument("out", out),
            remedy="give the name of a folder, or end it in .parquet",
        )
    chosen = Embedding(
        backbone, weights, size, pool.value, views, stride_in_1x1=stride_in_1x1, bfloat16=bfloat16
    )
    one_file = out.suffix == ".parquet"
    write = embed_to_parquet if one_file else embed_pictures
    try:
        with loading("Embedding", quiet) as progress:
            result = write(
                chosen,
                ids,
                files,
                out,
                batch_size=batch_size,
                part_rows=part_size,
                force=force,
                embed_parts=None if ray is None else embed_on_ray(ray),
                progress=progress,
            )
    except KeyboardInterrupt:
        raise Stopped(
            "stopped, what is done is kept", remedy="run the same command again to resume"
        ) from None
    if result.found == len(ids) and not one_file:
        typer.echo(f"{out} holds the features of all {result.rows:,} pictures already; nothing was done.")
        return
    several = f", {views} views each" if views > 1 else ""
    before = f", {result.found:,} of them earlier" if result.found else ""
    typer.echo(f"{out} has {result.rows:,} pictures x {result.dim} numbers{several}{before}.")
    if result.broken:
        where = "" if one_file else f" ({out / BROKEN} says why)"
        typer.echo(
            f"{len(result.broken):,} of {len(ids):,} pictures cannot be read and are left out{where}, such as "
            f"{result.broken[0][0]}.",
            err=True,
        )
