"""Width and height of images, for tools that like to know them before they open a file."""

from __future__ import annotations

from satl.errors import Argument, ImageError, Sentence
from satl.export.content import Source


def image_size(source: Source, row: int) -> tuple[int, int] | None:
    """Return width and height in pixels of one image, from the head of its file; None without an image folder."""
    if source.folder is None:
        return None
    from PIL import Image, UnidentifiedImageError

    file = source.folder / source.files[row]
    try:
        with Image.open(file) as image:
            return image.size
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        reason = str(error).splitlines()[0]
        raise ImageError(
            f"image '{file}' of row {row + 1} cannot be read ({reason})",
            remedy=Sentence("replace it, or leave out {images}", images=Argument("images")),
        ) from None
