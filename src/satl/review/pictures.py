"""Find and check the file of an image: inside its folder, an image by name and by content, or not at all."""

from __future__ import annotations

import io
from pathlib import Path

from satl.errors import ImageError
from satl.images import IMAGE_EXTENSIONS, decode_image

_HEAD = 32


def media_type(head: bytes) -> str | None:
    """Return what a browser calls the image format that a file begins with, or None if it shows no such thing.

    >>> media_type(b"\\x89PNG\\r\\n\\x1a\\n"), media_type(b"<svg onload='...'>")
    ('image/png', None)
    """
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    if head[4:8] == b"ftyp" and b"avif" in head[8:]:
        return "image/avif"
    return "image/bmp" if head.startswith(b"BM") else None


class Pictures:
    """The image files that the page may show: those under one folder, symbolic links followed first.

    An id without an extension finds its file if exactly one file of that name has an image extension.

    Args:
        folder: None where there is none; every question is then answered with ``message``.
    """

    def __init__(self, folder: Path | None, message: str = "") -> None:
        self.folder = None if folder is None else folder.resolve()
        self.message = message

    def find(self, name: str) -> Path:
        """Return the real path of an image.

        Raises:
            ImageError: there is none, it lies outside the folder, or it is no image.
        """
        if self.folder is None:
            raise ImageError(self.message)
        if "\0" in name:
            raise ImageError(f"'{name!r}' is no name of a file.")
        found = [path for path in self._candidates(name) if path.is_file()]
        if len(found) > 1:
            raise ImageError(f"'{name}' matches several files: write the image id with its extension.")
        # Outside is told before missing, so that nobody learns from the answer what exists elsewhere.
        real = (found[0] if found else self.folder / name).resolve()
        if not real.is_relative_to(self.folder):
            raise ImageError(
                f"'{name}' lies outside the image folder: start satl review with --images and a folder that "
                "holds all images."
            )
        if not found:
            raise ImageError(f"'{name}' is not in the image folder '{self.folder}'.")
        if real.suffix.lower() not in IMAGE_EXTENSIONS:
            raise ImageError(f"'{name}' is not an image file.")
        return real

    def _candidates(self, name: str) -> list[Path]:
        assert self.folder is not None
        path = self.folder / name
        if path.suffix.lower() in IMAGE_EXTENSIONS or path.is_file():
            return [path]
        extensions = (*IMAGE_EXTENSIONS, *(extension.upper() for extension in IMAGE_EXTENSIONS))
        return [path.with_name(path.name + extension) for extension in extensions]


def browser_type(path: Path) -> str | None:
    """Return the media type of a file that a browser can show as it is, or None."""
    with path.open("rb") as stream:
        return media_type(stream.read(_HEAD))


def converted(path: Path) -> bytes:
    """Return an image of another format (TIFF, JPEG 2000, ...) as PNG, or raise ImageError if it is none."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(decode_image(path, None)).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()
