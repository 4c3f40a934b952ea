"""Find and check an image that is to be shown: in a folder, an image by name and by content, or in a packed store."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from satl.errors import Argument, ImageError, RunError, Wording
from satl.images import decode_image
from satl.images.source import FileFinder
from satl.images.store import is_store, open_store, read_stored
from satl.labels.cells import IMAGE_EXTENSIONS, NameIndex

_HEAD = 32


class ServedImage(NamedTuple):
    """An image that may be shown.

    Attributes:
        read: returns its file or its bytes, and what a browser calls the format; raises ImageError.
        tag: changes when the content does; None where the file's own time of change is enough.
        file: its file, None where it has none of its own.
    """

    read: Callable[[], tuple[Path | bytes, str]]
    tag: str | None = None
    file: Path | None = None


class ReviewImages(Protocol):
    """Where the images of a review come from."""

    @property
    def shown(self) -> bool:
        """Whether there are images at all."""

    @property
    def message(self) -> str:
        """What to say where there are none."""

    def image(self, name: str) -> ServedImage:
        """Find an image by its id; raise ImageError if there is none."""


def open_review_images(out: Path, stated: object, given: Path | None, words: Wording = str) -> ReviewImages:
    """Open the images of a review, in a folder or in a packed store; :func:`find_images` says where they are.

    Args:
        out, stated, given: see :func:`find_images`.
        words: how the message words arguments and tasks where the images cannot be shown.

    Raises:
        SatlError: what the user gave is not a folder, or a store that cannot be opened.
    """
    place, message = find_images(out, stated, given)
    if place is None or not is_store(place):
        return ReviewImageFiles(place, message)
    try:
        return ReviewImageStore(place)
    except ImageError as error:
        if given is not None:
            raise
        # The store of the run is damaged or not finished: everything but the images can still be reviewed.
        return ReviewImageFiles(None, f"The images cannot be shown: {error.worded(words)}")


def find_images(out: Path, stated: object, given: Path | None) -> tuple[Path | None, str]:
    """Return the folder or packed store of the images, or None, and a sentence for the person who misses them.

    Args:
        out: the folder under review.
        stated: ``images`` of the report; a relative path counts from here, else from beside ``out``.
        given: the folder or store passed by the user, which must exist.
    """
    if given is not None:
        if not given.is_dir():
            raise RunError(
                "does not exist",
                where=Argument("images", given),
                remedy="give the folder that the image ids are relative to",
            )
        return given, ""
    if not isinstance(stated, str) or not stated:
        return None, "No image folder is known."
    for base in (Path(), out, out.parent):
        if (base / stated).is_dir():
            return base / stated, ""
    return None, f"The image folder '{stated}' is not here."


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


class ReviewImageFiles:
    """The image files that the page may show: those under one folder, symbolic links followed first.

    An id without an extension finds its file if exactly one file of that name has an image extension.

    Args:
        folder: None where there is none; every question is then answered with ``message``.
    """

    def __init__(self, folder: Path | None, message: str = "") -> None:
        self.folder = None if folder is None else folder.resolve()
        self.message = message

    @property
    def shown(self) -> bool:
        """Whether there is a folder."""
        return self.folder is not None

    def image(self, name: str) -> ServedImage:
        """Find an image by its id."""
        path = self.find(name)
        return ServedImage(partial(_from_file, path), file=path)

    def find(self, name: str) -> Path:
        """Return the real path of an image.

        Raises:
            ImageError: there is none, it lies outside the folder, or it is not an image.
        """
        if self.folder is None:
            raise ImageError(self.message)
        if "\0" in name:
            raise ImageError(f"'{name!r}' is not a file name.")
        found = self._files(name)
        if len(found) > 1:
            raise ImageError(
                f"'{name}' matches several files", remedy="write the image id with its extension"
            )
        # Checked before it is missing, so that the answer does not say what exists elsewhere.
        real = (found[0] if found else self.folder / name).resolve()
        if not real.is_relative_to(self.folder):
            raise ImageError(
                f"'{name}' lies outside the image folder",
                remedy="start the review with a folder that holds all images",
            )
        if not found:
            raise ImageError(f"'{name}' is not in the image folder '{self.folder}'.")
        if real.suffix.lower() not in IMAGE_EXTENSIONS:
            raise ImageError(f"'{name}' is not an image file.")
        return real

    def _files(self, name: str) -> list[Path]:
        """Return the files that an id stands for, as training finds them; a folder is listed only where it must be."""
        assert self.folder is not None
        path = self.folder / name
        return [path] if path.is_file() else FileFinder(self.folder).find(name)


class ReviewImageStore:
    """The images of a packed store, found by their id alone: no request can name any other file.

    Args:
        path: the store.

    Raises:
        ImageError: it is damaged or not finished.
    """

    shown = True
    message = ""

    def __init__(self, path: Path) -> None:
        self._store = open_store(path.resolve())
        self._index = NameIndex(self._store.ids)

    def image(self, name: str) -> ServedImage:
        """Find an image by its id."""
        store, position = self._store, self._index.position(name)
        if position < 0:
            raise ImageError(f"'{name}' is not in the packed store '{store.path}'.")
        tag = f'"{store.crc32[position]:08x}-{store.lengths[position]:x}"'
        return ServedImage(partial(self._read, position), tag)

    def _read(self, position: int) -> tuple[bytes, str]:
        store = self._store
        data = read_stored(store, position)
        if store.kind == "raw":
            pixels = np.frombuffer(data, dtype=np.uint8).reshape(store.size, store.size, 3)
            return _png(pixels), "image/png"
        kind = media_type(data[:_HEAD])
        if kind is None:
            raise ImageError(f"'{store.ids[position]}' of packed store '{store.path}' is not an image.")
        return data, kind


def _from_file(path: Path) -> tuple[Path | bytes, str]:
    """Return a file that a browser can show as it is; of another format (TIFF, JPEG 2000, ...) a PNG."""
    with path.open("rb") as stream:
        kind = media_type(stream.read(_HEAD))
    return (path, kind) if kind is not None else (_png(decode_image(path, None)), "image/png")


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()
