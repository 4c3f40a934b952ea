"""Pictures in memory: Pillow images, arrays and tensors take the way of files, so that they give the same numbers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from satl.checks.array_checks import as_array
from satl.errors import ArrayError, ImageError

_IN_PNG = ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA")
"""Modes that a PNG file holds as they are."""


def is_picture(value: Any) -> bool:
    """Whether a value is a picture in memory, and not the name of one."""
    return isinstance(value, Image.Image | np.ndarray) or _is_tensor(value)


def is_one_picture(value: Any) -> bool:
    """Whether a value is one picture, in memory or by its path, and not several.

    >>> is_one_picture("a.jpg"), is_one_picture(["a.jpg"]), is_one_picture(np.zeros((2, 8, 8, 3)))
    (True, False, False)
    """
    if isinstance(value, str | os.PathLike | Image.Image):
        return True
    return is_picture(value) and value.ndim < 4


def as_picture(value: Any) -> Image.Image:
    """Return a picture as a Pillow image.

    Args:
        value: a Pillow image; an array (H, W) or (H, W, 3 or 4); a tensor (3, H, W). Numbers are uint8, or floating
            in [0, 1].

    Raises:
        ArrayError: the numbers are no pixels.

    >>> as_picture(np.zeros((4, 5, 3), dtype=np.uint8)).size
    (5, 4)
    >>> as_picture(np.full((4, 5, 3), -1.5))
    Traceback (most recent call last):
    satl.errors.ArrayError: a picture has numbers from -1.5 to -1.5; give uint8, or floating numbers from 0 to 1 ...
    """
    if isinstance(value, Image.Image):
        return value
    if _is_tensor(value):
        array = as_array(value)
        array = array.transpose(1, 2, 0) if array.ndim == 3 else array
    else:
        array = np.asarray(value)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.size == 0 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise ArrayError(
            f"a picture cannot have the shape {tuple(np.shape(value))}",
            remedy="give arrays (height, width, 3), or tensors (3, height, width)",
        )
    if array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not 0 <= low <= high <= 1:
            raise ArrayError(
                f"a picture has numbers from {low:g} to {high:g}",
                remedy="give uint8, or floating numbers from 0 to 1 that are not normalised: satl does that itself",
            )
        array = np.rint(array * 255)
    elif array.dtype != np.uint8:
        raise ArrayError(f"a picture has {array.dtype} numbers", remedy="give uint8")
    return Image.fromarray(np.ascontiguousarray(array.astype(np.uint8)))


def save_picture(value: Any, path: Path) -> None:
    """Write a picture to a file without loss, upright, as PNG whatever its name ends in.

    Raises:
        ImageError: it cannot be decoded or written as PNG.
    """
    image = as_picture(value)
    try:
        upright = ImageOps.exif_transpose(image)
        if upright.mode == "F":
            raise ImageError(
                "a picture has floating-point pixels, whose white is not stated",
                remedy="convert it to 8 bits",
            )
        plain = upright if upright.mode in _IN_PNG else upright.convert("RGB")
        path.parent.mkdir(parents=True, exist_ok=True)
        plain.save(path, "PNG", compress_level=1)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ImageError(
            f"a picture cannot be decoded or kept ({error})",
            where=path.name,
            remedy="replace it or leave it out",
        ) from None


@contextmanager
def picture_files(values: Iterable[Any]) -> Iterator[list[Path]]:
    """Yield a file for each picture: the one that is named, or one that is kept until the end of the block.

    Args:
        values: paths, pictures as :func:`as_picture` takes them, or ``{"bytes": ..., "path": ...}``.
    """
    with tempfile.TemporaryDirectory(prefix="satl-pictures-") as folder:
        files = []
        for number, value in enumerate(values):
            if is_picture(value):
                file = Path(folder) / f"{number:08d}.png"
                save_picture(value, file)
            elif isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
                file = Path(folder) / f"{number:08d}"
                file.write_bytes(value["bytes"])  # a file as Hugging Face keeps it
            elif isinstance(value, dict) and isinstance(value.get("path"), str):
                file = Path(value["path"])
            elif isinstance(value, str | os.PathLike):
                file = Path(value)
            else:
                raise ImageError(
                    f"a {type(value).__qualname__} is no picture",
                    where=f"number {number + 1}",
                    remedy="give paths, Pillow images or arrays",
                )
            files.append(file)
        yield files


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")
