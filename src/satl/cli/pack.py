"""``satl pack``: write the images of a table into a packed store, or check one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from satl.cli.labels import DatasetOption, EncodingOption, IgnoreOption, OptionsOption
from satl.errors import ConfigError, ImageError, Stopped


class StoreKind(StrEnum):
    """How a store keeps its images."""

    jpeg = "jpeg"
    raw = "raw"


class BrokenPolicy(StrEnum):
    """What to do about images that cannot be read."""

    error = "error"
    skip = "skip"


def pack(
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="TABLE",
            help="Label table, or the folder of a data set with --dataset.",
            show_default=False,
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option("--images", help="Folder that the image ids of TABLE are relative to.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the store.")] = None,
    size: Annotated[
        int, typer.Option("--size", min=8, help="Side of the stored images: images.store_size of a run.")
    ] = 512,
    kind: Annotated[
        StoreKind, typer.Option("--kind", help="jpeg, or raw: plain bytes, ten times larger and exact.")
    ] = StoreKind.jpeg,
    quality: Annotated[int, typer.Option("--quality", min=1, max=100, help="Quality of the JPEGs.")] = 95,
    workers: Annotated[
        int, typer.Option("--workers", min=0, help="Threads that decode; 0: one for every core.")
    ] = 0,
    broken: Annotated[
        BrokenPolicy,
        typer.Option("--broken", help="Images that cannot be read: stop, or leave them out and list them."),
    ] = BrokenPolicy.error,
    broken_share: Annotated[
        float,
        typer.Option(
            "--broken-share", min=0.0, max=1.0, help="With --broken skip: the largest share that is left out."
        ),
    ] = 0.05,
    encoding: EncodingOption = None,
    ignore_column: IgnoreOption = None,
    dataset: DatasetOption = None,
    option: OptionsOption = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="STORE", help="Only verify every checksum of a store.")
    ] = None,
) -> None:
    """Resize all images of a table once, into one file that trains quickly; run again to resume."""
    if check is not None:
        if table is not None or images is not None or out is not None:
            raise ConfigError("satl pack --check STORE stands alone: leave TABLE, --images and -o out.")
        _check(check)
        return
    if table is None or out is None or (images is None and dataset is None):
        raise ConfigError("satl pack needs TABLE, --images DIR and -o STORE; or --check STORE alone.")
    from satl.cli.labels import _open
    from satl.cli.progress import loading
    from satl.images import FolderImages, pack_images

    labels = _open(table, encoding, None, ignore_column, dataset, option).table
    skip = broken is BrokenPolicy.skip
    source = FolderImages(table if images is None else images, labels.images, size, allow_missing=skip)
    done = 0

    def remember(number: int, total: int) -> None:
        nonlocal done
        done = number
        if progress is not None:
            progress(number, total)

    try:
        with loading("Packing images") as progress:
            packed = pack_images(
                source,
                labels.images,
                out,
                kind=kind.value,
                quality=quality,
                workers=workers,
                broken_share=broken_share if skip else None,
                progress=remember,
            )
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped after {done} of {len(source)} images", remedy="run the same command again to resume"
        ) from None
    if packed.broken:
        from satl.images.broken_list import BROKEN
        from satl.images.broken_pictures import left_out_words

        typer.echo(
            f"{left_out_words(packed.broken, packed.total, out / BROKEN)}. Train with images.broken=skip.",
            err=True,
        )
    stored = packed.total - len(packed.broken)
    if packed.found == packed.total:
        typer.echo(f"The store {out} holds all {stored:,} images already; nothing was done.")
        return
    before = f", {packed.found:,} of them earlier" if packed.found else ""
    typer.echo(
        f"Packed {stored:,} images of {size} x {size} pixels{before}: {out} ({kind.value}, "
        f"{packed.num_bytes / 1e6:.1f} MB). Train on it: data.images={out} images.store_size={size}"
    )


def _check(path: Path) -> None:
    from satl.cli.progress import loading
    from satl.images import check_store
    from satl.images.store import PIXELS

    count = 0

    def remember(number: int, total: int) -> None:
        nonlocal count
        count = total
        if progress is not None:
            progress(number, total)

    with loading("Checking images") as progress:
        damaged = check_store(path, remember)
    if damaged:
        names = ", ".join(f"'{name}'" for name in damaged[:20])
        others = f" and {len(damaged) - 20} others" if len(damaged) > 20 else ""
        raise ImageError(
            f"{path / PIXELS}: {len(damaged)} of {count} images are damaged: {names}{others}; copy the store again, "
            "or delete the folder and run `satl pack` again."
        )
    typer.echo(f"The store {path} is sound: {count} images, every checksum is right.")
