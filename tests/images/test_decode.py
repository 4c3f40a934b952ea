from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from PIL import Image

from satl.errors import ImageError
from satl.images import decode_image
from satl.labels.cells import IMAGE_EXTENSIONS

PILLOW = tuple(map(int, PIL.__version__.split(".")[:2]))


def gradient(width: int = 60, height: int = 40) -> np.ndarray:
    """A smooth picture whose four corners all differ, uint8 (height, width, 3)."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [255 * x / (width - 1), 255 * y / (height - 1), 255 * (x + y) / (width + height - 2)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def test_rgb_without_resize_is_exact(tmp_path: Path) -> None:
    Image.fromarray(gradient()).save(tmp_path / "a.png")
    result = decode_image(tmp_path / "a.png", None)
    assert result.dtype == np.uint8
    assert result.flags.c_contiguous
    assert result.flags.writeable
    np.testing.assert_array_equal(result, gradient())


def test_resize_is_bicubic_without_aspect_ratio(tmp_path: Path) -> None:
    image = Image.fromarray(gradient())
    image.save(tmp_path / "a.png")
    expected = np.asarray(image.resize((24, 24), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(decode_image(str(tmp_path / "a.png"), 24), expected)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "YCbCr", "CMYK"])
def test_opaque_modes_become_rgb(tmp_path: Path, mode: str) -> None:
    image = Image.fromarray(gradient()).convert(mode)
    image.save(tmp_path / "a.tif")
    expected = image.convert("RGB")
    if mode == "YCbCr" and PILLOW < (13, 0):
        pytest.skip("this Pillow cannot read what it wrote")
    np.testing.assert_array_equal(decode_image(tmp_path / "a.tif", None), np.asarray(expected))
    resized = np.asarray(expected.resize((16, 16), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(decode_image(tmp_path / "a.tif", 16), resized)


def test_cmyk_jpeg(tmp_path: Path) -> None:
    Image.new("CMYK", (32, 32), (255, 0, 0, 0)).save(tmp_path / "a.jpg")
    red, green, blue = decode_image(tmp_path / "a.jpg", 8).reshape(-1, 3).mean(axis=0)
    assert red < 10
    assert green > 245
    assert blue > 245


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_becomes_white(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGBA", (8, 8), (10, 10, 10, 0))
    image.paste((10, 10, 10, 255), (0, 0, 4, 8))
    image.convert(mode).save(tmp_path / "a.png")
    result = decode_image(tmp_path / "a.png", None)
    assert (result[:, :4] == 10).all()
    assert (result[:, 4:] == 255).all()


def test_half_transparency_is_blended_with_white(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (0, 100, 200, 128)).save(tmp_path / "a.png")
    result = decode_image(tmp_path / "a.png", 4)[0, 0].astype(int)
    assert np.abs(result - [127, 177, 227]).max() <= 1


def test_palette_with_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (8, 8), 0)
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.paste(1, (0, 0, 4, 8))
    image.save(tmp_path / "index.png", transparency=0)
    image.save(tmp_path / "bytes.png", transparency=bytes([0, 255]))
    for name in ("index.png", "bytes.png"):
        result = decode_image(tmp_path / name, None)
        assert (result[:, :4] == [0, 0, 255]).all()
        assert (result[:, 4:] == 255).all()


def test_transparent_colour_of_a_grey_or_rgb_file(tmp_path: Path) -> None:
    Image.new("L", (4, 4), 7).save(tmp_path / "grey.png", transparency=7)
    Image.new("RGB", (4, 4), (1, 2, 3)).save(tmp_path / "rgb.png", transparency=(1, 2, 3))
    assert (decode_image(tmp_path / "grey.png", None) == 255).all()
    assert (decode_image(tmp_path / "rgb.png", None) == 255).all()


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_sixteen_bits_keep_their_range(tmp_path: Path, name: str) -> None:
    values = np.array([[0, 128, 257], [32768, 65407, 65535]], dtype=np.uint16)
    if name == "a.pgm":  # which not every Pillow writes
        (tmp_path / name).write_bytes(b"P5 3 2 65535\n" + values.astype(">u2").tobytes())
    else:
        Image.fromarray(values).save(tmp_path / name)
    result = decode_image(tmp_path / name, None)
    np.testing.assert_array_equal(result[:, :, 0], [[0, 0, 1], [128, 255, 255]])
    assert (result == result[:, :, :1]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_pixels_of_unknown_range_are_refused(tmp_path: Path, dtype: type) -> None:
    Image.fromarray(np.ones((4, 4), dtype=dtype)).save(tmp_path / "a.tif")
    with pytest.raises(
        ImageError, match=r"a\.tif' has .* save it with 8 or 16 bits; replace it or leave it out"
    ):
        decode_image(tmp_path / "a.tif", 4)


def test_first_frame_of_an_animation(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == 2
    assert (decode_image(tmp_path / "a.gif", 8) == [255, 0, 0]).all()


@pytest.mark.parametrize("extension", ["jpg", "png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path: Path, orientation: int, extension: str) -> None:
    upright = gradient(48, 32)
    # Stored so that turning it as the tag says gives the upright picture; first axis is the row.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{extension}"
    options = {"quality": 100, "subsampling": 0} if extension == "jpg" else {}
    Image.fromarray(np.ascontiguousarray(stored)).save(path, exif=exif, **options)
    result = decode_image(path, None)
    assert result.shape == upright.shape
    assert np.abs(result.astype(int) - upright).max() <= 4
    small = np.asarray(Image.fromarray(upright).resize((16, 16), Image.Resampling.BICUBIC))
    assert np.abs(decode_image(path, 16).astype(int) - small).max() <= 4


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("orientation", range(5, 9))
def test_a_plain_tiff_that_lies_on_its_side_is_turned(tmp_path: Path, orientation: int, mode: str) -> None:
    grey = gradient(48, 32)[:, :, 0]
    turns = {5: 0, 6: 1, 7: 2, 8: -1}  # quarter turns, of the transpose where the picture is mirrored
    stored = np.rot90(grey, turns[orientation])
    stored = np.ascontiguousarray(stored.T if orientation in (5, 7) else stored)
    exif = Image.Exif()
    exif[0x0112] = orientation
    if mode == "I;16":
        picture = Image.fromarray(stored.astype(np.uint16) * 257)
    else:
        picture = Image.fromarray(stored).convert("RGB").convert(mode)
    picture.save(tmp_path / "a.tif", exif=exif)
    result = decode_image(tmp_path / "a.tif", None)
    np.testing.assert_array_equal(result, np.repeat(grey[:, :, None], 3, axis=2))


@pytest.mark.parametrize("orientation", [0, 9, 77])
def test_impossible_orientation_is_ignored(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(gradient()).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(decode_image(tmp_path / "a.png", None), gradient())


def test_large_jpeg_is_decoded_small_and_stays_close(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    image = Image.fromarray(gradient(900, 700))
    image.save(path, quality=95)
    with Image.open(path) as full:
        expected = np.asarray(full.resize((64, 64), Image.Resampling.BICUBIC)).astype(int)
    assert np.abs(decode_image(path, 64).astype(int) - expected).max() <= 3


def test_jpeg_below_four_times_the_size_is_decoded_in_full(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (190, 190, 3), dtype=np.uint8)).save(tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as full:
        expected = np.asarray(full.resize((48, 48), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(decode_image(tmp_path / "a.jpg", 48), expected)


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.tif", "a.webp", "a.bmp"])
@pytest.mark.parametrize("kept", [0.2, 0.6])
def test_truncated_file(tmp_path: Path, name: str, kept: float) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / name
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(ImageError) as caught:
        decode_image(path, 32, row=17)
    message = str(caught.value)
    assert message.startswith(f"image file '{path}' of row 17 is ")
    assert "inspect('TABLE', images='DIR', all=True)" in message
    assert "\n" not in message


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"gone\.jpg' is missing; replace it or leave it out\.$"):
        decode_image(tmp_path / "gone.jpg", 32)
    with pytest.raises(ImageError, match=r"gone\.jpg' of row 3 is missing; .*inspect\("):
        decode_image(tmp_path / "gone.jpg", 32, row=3)


@pytest.mark.parametrize(
    "content", [b"", b"not an image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"]
)
def test_file_that_is_no_image(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(ImageError, match=r"a\.jpg' is not an image"):
        decode_image(tmp_path / "a.jpg", 32)


def test_folder_instead_of_file(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").mkdir()
    with pytest.raises(ImageError, match=r"a\.jpg' cannot be opened \("):
        decode_image(tmp_path / "a.jpg", 32)


def test_decompression_bomb(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(bomb)
    with pytest.raises(ImageError, match=r"bomb\.png' has too many pixels"):
        decode_image(tmp_path / "bomb.png", 32)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data:UserWarning")
def test_damaged_exif_does_not_hide_the_pixels(tmp_path: Path) -> None:
    Image.fromarray(gradient()).save(tmp_path / "a.png", exif=b"Exif\x00\x00MM\x00*garbage")
    np.testing.assert_array_equal(decode_image(tmp_path / "a.png", None), gradient())


def test_errors_survive_pickling(tmp_path: Path) -> None:
    import pickle

    with pytest.raises(ImageError) as caught:
        decode_image(tmp_path / "gone.jpg", 32)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_extensions_are_lower_case_with_a_dot() -> None:
    assert all(extension == f".{extension[1:].lower()}" for extension in IMAGE_EXTENSIONS)
    assert {".jpg", ".jpeg", ".png", ".webp"} <= set(IMAGE_EXTENSIONS)


def pictures_of_every_mode() -> dict[str, tuple[Image.Image, dict[str, object]]]:
    random = np.random.default_rng(3)
    colours = Image.fromarray(random.integers(0, 256, (61, 83, 3), dtype=np.uint8))
    wide = Image.fromarray(random.integers(0, 65536, (61, 83), dtype=np.uint16))
    alpha = colours.copy()
    alpha.putalpha(Image.fromarray(random.integers(0, 256, (61, 83), dtype=np.uint8)))
    palette = colours.quantize(64)
    return {
        "palette.png": (palette, {}),
        "clear_palette.png": (palette, {"transparency": 3}),
        "clear.png": (colours, {"transparency": colours.getpixel((5, 5))}),
        "alpha.png": (alpha, {}),
        "grey_alpha.png": (alpha.convert("LA"), {}),
        "bits.png": (colours.convert("1"), {}),
        "wide.png": (wide, {}),
        "ink.tiff": (colours.convert("CMYK"), {}),
    }


@pytest.mark.parametrize("name", list(pictures_of_every_mode()))
@pytest.mark.parametrize("size", [None, 24, 83, 120])
def test_a_large_image_is_converted_in_parts_to_the_same_bits(
    name: str, size: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture, options = pictures_of_every_mode()[name]
    picture.save(tmp_path / name, **options)
    whole = decode_image(tmp_path / name, size)
    for pixels in (1, 83, 1000, 83 * 60):
        monkeypatch.setattr("satl.images.decode._PIXELS_AT_ONCE", pixels)
        assert np.array_equal(decode_image(tmp_path / name, size), whole)


def test_a_large_palette_takes_little_more_memory_than_its_pixels(tmp_path: Path) -> None:
    file = tmp_path / "bomb.png"
    picture = Image.new("P", (13_300, 13_300))
    picture.putpalette([10, 200, 30] * 256)
    picture.save(file, transparency=0)
    assert file.stat().st_size < 200_000
    program = f"""
import resource, warnings
warnings.simplefilter("ignore")
from satl.images.decode import decode_image
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert decode_image({str(file)!r}, 224).tolist() == [[[255, 255, 255]] * 224] * 224
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(finished.stdout) < 400_000  # kB; the pixels are 173,000


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("WEBP", {}),
        ("JPEG2000", {}),
        ("PNG", {"save_all": True, "append_images": [Image.new("RGB", (40, 30), 9)]}),
    ],
)
def test_formats_that_take_more_memory_have_fewer_pixels(
    format: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "a", format, **options)
    assert decode_image(tmp_path / "a", 16).shape == (16, 16, 3)
    monkeypatch.setattr("satl.images.decode._MOST_MEMORY", 40 * 30 * 9)
    with pytest.raises(ImageError, match=rf"has 40 x 30 pixels, more than the 0 million of {format}"):
        decode_image(tmp_path / "a", 16)
    Image.new("RGB", (40, 30)).save(tmp_path / "b", "PNG")
    assert decode_image(tmp_path / "b", 16).shape == (16, 16, 3)


@pytest.mark.parametrize("side", [8, 3000])
def test_a_small_image_that_asks_for_much_memory_is_damaged(
    side: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("1", (side, side)).save(tmp_path / "a.png")

    def out_of_memory(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", out_of_memory)
    # Of a large one the machine may have too little memory, and the file is no worse for it.
    with pytest.raises(ImageError if side == 8 else MemoryError):
        decode_image(tmp_path / "a.png", 16)


def test_a_claimed_length_takes_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    Image.new("L", (10, 12)).save(file)
    data = file.read_bytes()
    place = data.index(b"IDAT") - 4
    file.write_bytes(data[:place] + (0x7FFFFFFF).to_bytes(4, "big") + data[place + 4 :])
    tracemalloc.start()
    try:
        with contextlib.suppress(ImageError):
            decode_image(file, 16)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_what_would_take_gigabytes_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Our own limit, also where a program has lifted that of Pillow.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda _: pytest.fail("it was decoded"))
    Image.new("1", (20_000, 10_000)).save(tmp_path / "wide.png")
    with pytest.raises(ImageError, match="has 20000 x 10000 pixels, more than the 178 million of PNG"):
        decode_image(tmp_path / "wide.png", 16)
    Image.new("1", (2, 500_000)).save(tmp_path / "high.png")
    with pytest.raises(ImageError, match="has 2 x 500000 pixels, a shape that cannot be resized safely"):
        decode_image(tmp_path / "high.png", 448)
