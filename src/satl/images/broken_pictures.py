"""Pictures that cannot be read: found before they are needed, counted, listed, and left out where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from satl.errors import Argument, ImageError, Sentence, Task
from satl.images.source import (
    ArrayImages,
    BulkSource,
    ChosenImages,
    FolderImages,
    ImageSource,
    each_image,
    read_images,
)
from satl.images.store import PackedImages

Progress = Callable[[int, int], Any]


class BrokenPicture(NamedTuple):
    """A picture that cannot be read.

    Attributes:
        image: its id.
        reason: why.
        split: of its row, where there are splits.
    """

    image: str
    reason: str
    split: str = ""


def readable_images(
    source: ImageSource, *, limit_bytes: int, progress: Progress | None = None
) -> tuple[ImageSource, dict[int, str]]:
    """Read every image once and leave out those that cannot be read.

    Args:
        source: where to read from. Images in memory and plain bytes of a store are taken as they are.
        limit_bytes: images that take no more are kept in memory, as :func:`satl.images.cached` does.
        progress: called as ``progress(done, total)``.

    Returns:
        The images that can be read, in their order, and the others: position in ``source`` -> reason.
    """
    broken: dict[int, str] = {}
    if isinstance(source, BulkSource):
        return source, broken
    total, size = len(source), source.size
    if total * size * size * 3 > limit_bytes:
        # What has the checksum of its packing can be decoded: it was encoded by the packing itself.
        check = source.require_sound if isinstance(source, PackedImages) else source.image
        each_image(check, total, broken=broken, progress=progress)
        kept = _kept(total, broken)
        return (source if len(kept) == total else chosen_images(source, kept)), dict(sorted(broken.items()))
    pixels = np.empty((total, size, size, 3), dtype=np.uint8)
    read_images(source, pixels, broken=broken, progress=progress)
    kept = _kept(total, broken)
    for place, row in enumerate(kept.tolist()):  # in place: a copy of the rest could be gigabytes
        if place != row:
            pixels[place] = pixels[row]
    memory = ArrayImages.from_channels_first(pixels[: len(kept)].transpose(0, 3, 1, 2))
    return memory, dict(sorted(broken.items()))


def chosen_images(source: ImageSource, rows: np.ndarray[Any, np.dtype[np.int64]]) -> ImageSource:
    """Return some images of a source; files and stores stay what they are."""
    if isinstance(source, FolderImages | PackedImages):
        return source.select(rows)
    return ChosenImages(source, rows)


def _kept(total: int, broken: Mapping[int, str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.delete(np.arange(total), sorted(broken))


def require_few(
    broken: Sequence[BrokenPicture], total: int, share: float, setting: Argument | str = "images.broken_share"
) -> None:
    """Refuse to leave out more than a share of the pictures: something is then wrong with all of them.

    Args:
        broken: those that cannot be read.
        total: number of pictures, these included.
        share: the largest part of them that may be left out.
        setting: what sets the share.

    Raises:
        ImageError: there are more; it says how many, and what the first ones are.
    """
    if len(broken) <= share * total:
        return
    first = ", ".join(f"{one.image!r} ({one.reason})" for one in broken[:3])
    raise ImageError(
        Sentence(
            f"{len(broken):,} of {total:,} images cannot be read, more than {{setting}} allows: {{first}}",
            setting=setting if isinstance(setting, Argument) else f"{setting} ({share:g})",
            first=first + (" and others" if len(broken) > 3 else ""),
        ),
        remedy=Sentence(
            "replace them, take their rows out of the table ({inspect} lists all of them), or allow more",
            inspect=Task("inspect", "TABLE", images="DIR", all=True),
        ),
    )


def left_out_words(broken: Sequence[str], total: int, listing: Path) -> str:
    """Say how many pictures were left out, and where they are listed.

    >>> left_out_words(["a.jpg"], 400, Path("run/broken.csv"))
    '1 of 400 images cannot be read and is left out (run/broken.csv says why), such as a.jpg'
    """
    verb = "is" if len(broken) == 1 else "are"
    return (
        f"{len(broken):,} of {total:,} images cannot be read and {verb} left out ({listing} says why), such as "
        f"{broken[0]}"
    )
