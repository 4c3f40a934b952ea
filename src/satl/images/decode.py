"""Decode one image file to a uint8 array, or say in one sentence why it cannot be decoded."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError

from satl.errors import ImageError, Sentence, Task
from satl.images.input_format import Interpolation

_FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF", "TGA")
_ORIENTATION_TAG = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_KERNELS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
_MOST_PIXELS = 178_956_970
"""Pixels of the largest image that is decoded: what Pillow takes for an attack. At four bytes each, 0.7 GB."""
_MOST_MEMORY = 900_000_000
_BYTES_PER_PIXEL = {"JPEG2000": 20, "WEBP": 17, "AVIF": 10}
"""What the libraries behind these formats take at most, in copies of their own; others take less than five bytes."""
_BYTES_PER_ANIMATED_PIXEL = 10
"""Of a PNG with several pictures, of which Pillow keeps two."""
_BYTES_IN_MEMORY = 64 << 20
"""Bytes of the largest file that is read as a whole before it is decoded."""
_FEW_PIXELS = 1 << 22
"""An image of no more pixels takes less than 100 MB in any format."""
_PIXELS_AT_ONCE = 1 << 22
"""Pixels that are converted at a time: a conversion needs several times their memory."""
_REMEDY = "replace it or leave it out"
_REMEDY_IN_A_TABLE = Sentence(
    "replace it or take its row out of the table ({inspect} lists all of them)",
    inspect=Task("inspect", "TABLE", images="DIR", all=True),
)


def decode_image(
    path: str | Path, size: int | None, *, row: int | None = None, interpolation: Interpolation = "bicubic"
) -> NDArray[np.uint8]:
    """Read an image file as RGB, upright, resized to a square.

    Grey, palette, CMYK and 16-bit images become 8-bit RGB; transparent parts become white; of an animation
    the first frame is taken; the EXIF orientation is applied. The aspect ratio is not kept (resize to
    ``size`` x ``size``, as in the published pipelines). A JPEG at least four times too large is decoded at a
    half, a quarter or an eighth of its resolution, never below twice ``size``.

    Args:
        path: the file.
        size: side of the square in pixels; ``None`` keeps the size of the file.
        row: 1-based row of the table that names the file, for the message of an error; None: no table does.
        interpolation: how it is resized; bicubic in the published pipelines.

    Returns:
        uint8 array (size, size, 3), or (H, W, 3) where ``size`` is ``None``.

    Raises:
        ImageError: the file is missing, truncated, no image, or too large to be opened safely.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (40, 30), 128).save(Path(folder) / "grey.png")
    ...     decode_image(Path(folder) / "grey.png", 16).shape
    (16, 16, 3)
    """
    name = f"image file '{path}'" + (f" of row {row}" if row is not None else "")
    remedy = _REMEDY if row is None else _REMEDY_IN_A_TABLE
    try:
        # Not by its name: Pillow would map some files into memory, and it maps a TIFF that lies on its side (EXIF) with
        # the height for the width.
        with Path(path).open("rb") as file, Image.open(_stream(file), formats=_readable_formats()) as image:
            return _to_array(image, size, interpolation)
    except ImageError as error:
        raise ImageError(f"{name} {error}", remedy=remedy) from None
    except FileNotFoundError:
        raise ImageError(f"{name} is missing", remedy=remedy) from None
    except (IsADirectoryError, PermissionError) as error:
        raise ImageError(f"{name} cannot be opened ({error.strerror})", remedy=remedy) from None
    except UnidentifiedImageError:
        raise ImageError(f"{name} is not an image in a format that can be read", remedy=remedy) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageError(
            f"{name} has too many pixels to be opened safely, save a smaller copy of it", remedy=remedy
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # the parsers behind Pillow answer damaged bytes with errors of every kind
        raise ImageError(f"{name} is truncated or damaged ({_one_line(error)})", remedy=remedy) from None


def _stream(file: BufferedReader) -> BinaryIO:
    """Return what Pillow reads a file from: its bytes, unless they are many.

    Some parsers ask for as many bytes as a damaged header claims. A file makes room for all of them first, bytes in
    memory give what there is.
    """
    size = os.fstat(file.fileno()).st_size
    return io.BytesIO(file.read(size)) if 0 < size <= _BYTES_IN_MEMORY else file


def unsupported_reason(data: bytes) -> str | None:
    """Return why :func:`decode_image` refuses files of this kind, from the header alone, or None if it does not.

    >>> stream = io.BytesIO()
    >>> Image.new("F", (4, 4)).save(stream, "TIFF")
    >>> unsupported_reason(stream.getvalue())
    'has floating-point pixels, whose white is not stated, save it with 8 or 16 bits'
    """
    try:
        with Image.open(io.BytesIO(data), formats=_readable_formats()) as image:
            _require_white(image)
    except UnidentifiedImageError:
        return "not an image in a format that can be read"
    except ImageError as error:
        return str(error)
    except Exception:  # damage, which is reported where the file is decoded
        return None
    return None


def grey_thumbnail(image: ImageFile.ImageFile, side: int) -> NDArray[np.uint8]:
    """Return an opened image upright and shrunk to a square of grey pixels, uint8 (side, side)."""
    pixels = _to_array(image, side, "bicubic").astype(np.uint32)
    return ((299 * pixels[..., 0] + 587 * pixels[..., 1] + 114 * pixels[..., 2] + 500) // 1000).astype(
        np.uint8
    )


@cache
def jpeg_decoder() -> Callable[[NDArray[np.uint8]], NDArray[np.uint8]]:
    """Return the fastest decoder of JPEG bytes: uint8 (n,) to RGB, uint8 (H, W, 3).

    It is torchcodec where it is installed (0.16 or newer), else torchvision, else Pillow. Where the colours are
    stored at full resolution, as in a packed store, all three give the same bits: they are libjpeg-turbo with
    its exact integer transform.
    """
    trial = io.BytesIO()
    Image.new("RGB", (16, 16)).save(trial, "JPEG")
    sample = np.frombuffer(trial.getvalue(), dtype=np.uint8).copy()
    for make in (_torchcodec, _torchvision):
        # Either can be missing, of another version, or built for a library that is not there.
        with contextlib.suppress(ImportError, AttributeError, RuntimeError, OSError):
            decoder = make()
            decoder(sample)
            return decoder
    return _pillow


def _torchcodec() -> Callable[[NDArray[np.uint8]], NDArray[np.uint8]]:
    import torch

    decode = import_module("torchcodec.decoders").decode_jpeg
    return lambda data: decode(torch.from_numpy(data), mode="RGB").permute(1, 2, 0).numpy()


def _torchvision() -> Callable[[NDArray[np.uint8]], NDArray[np.uint8]]:
    import torch

    # The operation under `decode_jpeg`, which says in every call that torchcodec will replace it.
    rgb = import_module("torchvision.io").ImageReadMode.RGB.value
    decode = torch.ops.image.decode_jpeg
    return lambda data: decode(torch.from_numpy(data), rgb, False).permute(1, 2, 0).numpy()


def _pillow(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(data.data), formats=("JPEG",)) as image:
        return np.asarray(image.convert("RGB"))


@cache
def _readable_formats() -> tuple[str, ...]:
    """The formats of this Pillow that need no other program (EPS would start one) and hold pixels."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _to_array(
    image: ImageFile.ImageFile, size: int | None, interpolation: Interpolation
) -> NDArray[np.uint8]:
    if size is not None and image.format in ("JPEG", "MPO"):
        image.draft(None, (2 * size, 2 * size))  # None keeps the mode
    _require_size(image, size)
    try:
        image.load()
    except MemoryError:
        if image.width * image.height > _FEW_PIXELS:
            raise  # the machine has too little memory, which says nothing about the file
        raise ImageError("is damaged (it asks for more memory than its pixels take)") from None
    orientation = None
    with contextlib.suppress(Exception):  # a damaged EXIF block does not make the pixels unusable
        # After load(): some plugins turn the image themselves while loading, and then drop the tag.
        orientation = image.getexif().get(_ORIENTATION_TAG)
    plain = _to_eight_bits(image, size, _KERNELS[interpolation])
    if size is not None and plain.size != (size, size):
        plain = plain.resize((size, size), _KERNELS[interpolation])
    if orientation in _UPRIGHT:
        # After the resize, because turning a small square is cheaper than turning the photograph.
        plain = plain.transpose(_UPRIGHT[orientation])
    return np.array(plain if plain.mode == "RGB" else plain.convert("RGB"))


def _require_size(image: Image.Image, size: int | None) -> None:
    """Refuse, before anything is decoded, what would take gigabytes of memory."""
    each = _BYTES_PER_PIXEL.get(image.format or "", 1)
    if image.format == "PNG" and getattr(image, "is_animated", False):
        each = _BYTES_PER_ANIMATED_PIXEL
    most = min(_MOST_PIXELS, _MOST_MEMORY // each)
    if image.width * image.height > most:
        raise ImageError(
            f"has {image.width} x {image.height} pixels, more than the {most // 1_000_000} million of {image.format} "
            "that are opened safely, save a smaller copy of it"
        )
    if size is not None and size * image.height > _MOST_PIXELS:  # Pillow resizes rows first, then columns
        raise ImageError(
            f"has {image.width} x {image.height} pixels, a shape that cannot be resized safely, cut it into pieces"
        )


def _to_eight_bits(image: Image.Image, size: int | None, kernel: Image.Resampling) -> Image.Image:
    """Bring any mode to "RGB", or to "L" where red, green and blue are equal; a large one is as wide as ``size`` then.

    Rows are resized apart from columns anyway, so a large image is converted and made narrow a few rows at a time.
    """
    if image.mode in ("RGB", "L") and "transparency" not in image.info:
        return image
    _require_white(image)
    width, height = image.size
    if width * height <= _PIXELS_AT_ONCE:
        return _convert(image)
    rows = max(1, _PIXELS_AT_ONCE // width)
    narrow: Image.Image | None = None
    for top in range(0, height, rows):
        part = _convert(image.crop((0, top, width, min(top + rows, height))))
        if size is not None:
            part = part.resize((size, part.height), kernel)
        if narrow is None:
            narrow = Image.new(part.mode, (part.width, height))
        narrow.paste(part, (0, top))
    assert narrow is not None
    return narrow


def _convert(image: Image.Image) -> Image.Image:
    """Bring the pixels of a mode whose white is known to "RGB" or "L", each by itself."""
    if image.mode.startswith("I"):
        return _from_sixteen_bits(image)
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        if image.mode in ("RGBa", "La"):
            image = image.convert(image.mode.upper())
        coloured = image.convert("RGBA")
        white = Image.new("RGBA", coloured.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, coloured).convert("RGB")
    return image.convert("RGB")


def _require_white(image: Image.Image) -> None:
    """Refuse pixels whose value for white is not known."""
    if image.mode == "F":
        raise ImageError("has floating-point pixels, whose white is not stated, save it with 8 or 16 bits")
    # Mode "I" is what 16-bit PNG and PGM files become in some versions; elsewhere it is truly 32 bits wide.
    if image.mode == "I" and image.format not in ("PNG", "PPM"):
        raise ImageError("has 32-bit pixels, whose white is not stated, save it with 8 or 16 bits")


def _from_sixteen_bits(image: Image.Image) -> Image.Image:
    values: NDArray[Any] = np.asarray(image).astype(np.int64)
    return Image.fromarray(((values.clip(0, 65535) * 255 + 32767) // 65535).astype(np.uint8))


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:120] if text else type(error).__name__
