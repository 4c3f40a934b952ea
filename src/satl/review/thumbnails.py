"""Small JPEG copies of images for the gallery: made when they are asked for, kept in memory up to a bound."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from satl.errors import ImageError
from satl.images import decode_image
from satl.review.served_images import ServedImage

LONGEST_SIDE = 256
"""Pixels: a tile is about 150 wide, on some screens two for one."""
KEPT_BYTES = 32 << 20
"""Of thumbnails in memory, about 10 kB each."""
_AT_ONCE = 2
"""Images decoded at the same time: one may take hundreds of megabytes, and a page asks for dozens."""
_TURNED = (5, 6, 7, 8)
_ORIENTATION_TAG = 0x0112


class Thumbnails:
    """Makes thumbnails and keeps the latest.

    Args:
        kept_bytes: bound of what is kept.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._bound = kept_bytes
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        self._decoding = threading.Semaphore(_AT_ONCE)

    @property
    def size(self) -> int:
        """Bytes kept at present."""
        return self._size

    def make(self, name: str, image: ServedImage) -> bytes:
        """Return the thumbnail of an image as JPEG.

        Raises:
            ImageError: it cannot be decoded.
            OSError: it cannot be read.
        """
        key = (name, _version(image))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        with self._decoding:
            small = _from_file(image.file) if image.file is not None else _from_bytes(name, image)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = small
                self._size += len(small)
            while self._size > self._bound:
                _, dropped = self._kept.popitem(last=False)
                self._size -= len(dropped)
        return small


def _version(image: ServedImage) -> str:
    """Return a text that changes when the content of an image does."""
    if image.file is None:
        return image.tag or ""
    stat = image.file.stat()
    return f"{stat.st_mtime_ns}-{stat.st_size}"


def _from_file(path: Path) -> bytes:
    small = _quickly(path)
    if small is not None:
        return small
    # As for training, which refuses what is too large or no image: a square, brought back to its shape here.
    square = Image.fromarray(decode_image(path, LONGEST_SIDE))
    with path.open("rb") as file, Image.open(file) as header:
        width, height = header.size
        if header.getexif().get(_ORIENTATION_TAG) in _TURNED:
            width, height = height, width
    return _jpeg(square, width, height)


def _quickly(path: Path) -> bytes | None:
    """Return the thumbnail of a plain JPEG, decoded at a half to an eighth of its size; None for anything else."""
    with path.open("rb") as file:
        if file.read(3) != b"\xff\xd8\xff":
            return None
        file.seek(0)
        try:
            with Image.open(file, formats=("JPEG",)) as image:
                if image.mode not in ("RGB", "L") or image.getexif().get(_ORIENTATION_TAG, 1) != 1:
                    return None
                shape = image.size
                image.draft(None, _small(*shape))
                return _jpeg(image.convert("RGB"), *shape)
        except (Image.DecompressionBombError, OSError, ValueError, SyntaxError):
            return None  # the careful way says what is wrong


def _from_bytes(name: str, image: ServedImage) -> bytes:
    content, _ = image.read()
    assert isinstance(content, bytes)
    try:
        with Image.open(io.BytesIO(content)) as stored:
            shape = stored.size
            stored.draft("RGB", _small(*shape))
            return _jpeg(stored.convert("RGB"), *shape)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError):
        raise ImageError(f"'{name}' cannot be decoded.") from None


def _jpeg(image: Image.Image, width: int, height: int) -> bytes:
    """Return an image in the shape of ``width`` to ``height`` as JPEG, its longer side :data:`LONGEST_SIDE` at most."""
    shape = _small(width, height)
    buffer = io.BytesIO()
    small = image if image.size == shape else image.resize(shape, Image.Resampling.BILINEAR)
    small.save(buffer, format="JPEG", quality=82)
    return buffer.getvalue()


def _small(width: int, height: int) -> tuple[int, int]:
    """Return the shape of the thumbnail of an image; what it is decoded to need not be larger on either side.

    >>> _small(640, 480), _small(100, 50)
    ((256, 192), (100, 50))
    """
    scale = min(1.0, LONGEST_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))
