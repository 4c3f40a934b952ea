from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from satl.errors import ImageError
from satl.images import ArrayImages, BulkSource, FolderImages, ImageSource, cached


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(20):
        Image.new("RGB", (10, 12), (i, 2 * i, 3 * i)).save(tmp_path / f"{i:02}.png")
    return tmp_path


def names(num: int = 20) -> list[str]:
    return [f"{i:02}.png" for i in range(num)]


def test_folder_hands_out_decoded_images(folder: Path) -> None:
    source = FolderImages(folder, names(), size=8)
    assert isinstance(source, ImageSource)
    assert not isinstance(source, BulkSource)
    assert len(source) == 20
    assert source.size == 8
    assert source.image(7).shape == (8, 8, 3)
    assert (source.image(7) == [7, 14, 21]).all()


def test_missing_files_are_counted_and_the_first_is_named(folder: Path) -> None:
    ids = [*names(3), "gone.jpg", "04.png", "lost/gone.jpg"]
    with pytest.raises(ImageError) as caught:
        FolderImages(folder, ids, size=8)
    message = str(caught.value)
    assert "gone.jpg' of row 4 is missing (2 of 6 files are missing" in message
    assert f"inspect('TABLE', images='{folder}', all=True)" in message
    with pytest.raises(ImageError, match="of row 400 is missing"):
        FolderImages(folder, ids, size=8, rows=[100, 200, 300, 400, 500, 600])


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"image folder '.*nowhere' does not exist; pass"):
        FolderImages(tmp_path / "nowhere", ["a.jpg"], size=8)


def test_a_folder_is_no_file(folder: Path) -> None:
    (folder / "sub.jpg").mkdir()
    for image_id in ("sub.jpg", "sub", ""):
        with pytest.raises(ImageError, match="of row 1 is missing"):
            FolderImages(folder, [image_id], size=8)


def test_a_name_that_is_too_long_is_missing(folder: Path) -> None:
    with pytest.raises(ImageError, match=r"long\.png' of row 1 is missing \(1 of 1 files"):
        FolderImages(folder, ["long" * 100 + ".png"], 8)
    for attempt in ((folder, ["long" * 100 + "/a.png"]), (folder / ("long" * 100), ["a.png"])):
        with pytest.raises(ImageError, match=r"image folder '.*' cannot be read \(File name too long\)"):
            FolderImages(*attempt, 8)


def test_a_folder_that_may_not_be_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (4, 4)).save(folder / "here.png")

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    assert len(FolderImages(folder, ["here.png"], 4)) == 1
    with pytest.raises(ImageError, match=r"image folder '.*' cannot be read \(Permission denied\); make it"):
        FolderImages(folder, ["here"], 4)


def test_id_without_extension(folder: Path) -> None:
    (folder / "deep").mkdir()
    Image.new("RGB", (4, 4), (9, 9, 9)).save(folder / "deep" / "scan.v2.JPG", format="JPEG")
    (folder / "deep" / "scan.v2.txt").write_text("notes")
    source = FolderImages(folder, ["03", "deep/scan.v2"], size=4)
    assert [Path(file).name for file in source.files] == ["03.png", "scan.v2.JPG"]
    assert (source.image(0) == [3, 6, 9]).all()


def test_file_without_extension_wins_over_one_with(folder: Path) -> None:
    Image.new("RGB", (4, 4), (200, 0, 0)).save(folder / "03", format="PNG")
    assert (FolderImages(folder, ["03"], size=4).image(0) == [200, 0, 0]).all()


def test_ambiguous_id_without_extension(folder: Path) -> None:
    Image.new("RGB", (4, 4)).save(folder / "03.jpg")
    with pytest.raises(ImageError, match=r"image id '03' of row 2 matches 2 files .*\(03\.jpg, 03\.png\)"):
        FolderImages(folder, ["02", "03"], size=4)


def test_absolute_and_parent_paths(folder: Path) -> None:
    (folder / "inner").mkdir()
    source = FolderImages(folder / "inner", ["../05.png", str(folder / "06.png")], size=4)
    assert (source.image(0) == [5, 10, 15]).all()
    assert (source.image(1) == [6, 12, 18]).all()


def test_undecodable_file_is_named_with_its_row(folder: Path) -> None:
    (folder / "05.png").write_bytes(b"junk")
    with pytest.raises(ImageError, match=r"05\.png' of row 6 is not an image"):
        FolderImages(folder, names(), size=8).image(5)
    with pytest.raises(ImageError, match=r"05\.png' of row 99 is not an image"):
        FolderImages(folder, ["05.png"], size=8, rows=[99]).image(0)


def test_wrong_arguments(folder: Path) -> None:
    with pytest.raises(ValueError, match="at least 1 pixel"):
        FolderImages(folder, names(), size=0)
    with pytest.raises(ValueError, match="2 rows for 20 image ids"):
        FolderImages(folder, names(), size=8, rows=[1, 2])


def test_array_images() -> None:
    array = np.random.default_rng(0).integers(0, 256, (6, 5, 5, 3), dtype=np.uint8)
    source = ArrayImages(array)
    kept = array.copy()
    array[:] = 0
    assert isinstance(source, BulkSource)
    assert (len(source), source.size) == (6, 5)
    np.testing.assert_array_equal(source.image(4), kept[4])
    batch = source.gather(torch.tensor([5, 0, 5]))
    assert batch.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_array_equal(batch.numpy(), kept[[5, 0, 5]].transpose(0, 3, 1, 2))
    batch.zero_()
    np.testing.assert_array_equal(source.image(5), kept[5])


@pytest.mark.parametrize("shape", [(4, 5, 6, 3), (4, 5, 5), (4, 3, 5, 5)])
def test_array_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"uint8 \(N, S, S, 3\)"):
        ArrayImages(np.zeros(shape, dtype=np.uint8))


def test_array_of_another_type() -> None:
    with pytest.raises(ValueError, match="uint8"):
        ArrayImages(np.zeros((4, 5, 5, 3), dtype=np.float32))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="uint8"):
        ArrayImages.from_channels_first(np.zeros((4, 5, 5, 3), dtype=np.uint8))


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_cached_equals_the_source(folder: Path, workers: int) -> None:
    source = FolderImages(folder, names(), size=8)
    calls: list[tuple[int, int]] = []
    memory = cached(source, workers, progress=lambda done, total: calls.append((done, total)))
    assert isinstance(memory, ArrayImages)
    assert len(memory) == len(source)
    for i in range(len(source)):
        np.testing.assert_array_equal(memory.image(i), source.image(i))
    assert calls[0] == (0, 20)
    assert calls[-1] == (20, 20)
    assert calls == sorted(calls)
    assert cached(memory) is memory


def test_cached_leaves_a_large_source_alone(folder: Path) -> None:
    source = FolderImages(folder, names(), size=8)
    assert cached(source, limit_bytes=20 * 8 * 8 * 3 - 1) is source
    assert cached(source, limit_bytes=20 * 8 * 8 * 3) is not source


def test_cached_reports_the_first_bad_image_and_leaves_no_thread(folder: Path) -> None:
    for i in (13, 4, 17):
        (folder / f"{i:02}.png").write_bytes(b"junk")
    before = threading.active_count()
    with pytest.raises(ImageError, match="of row 5 is not an image"):
        cached(FolderImages(folder, names(), size=8), 4)
    assert threading.active_count() == before


def test_reading_does_not_need_torch(folder: Path) -> None:
    program = (
        "import sys; from satl.images import FolderImages, decode_image;"
        f"FolderImages({str(folder)!r}, ['01.png'], 8).image(0); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_public_names_resolve() -> None:
    import satl.images

    for name in satl.images.__all__:
        assert getattr(satl.images, name) is not None
    with pytest.raises(AttributeError, match=r"No satl\.images attribute nothing"):
        satl.images.nothing  # noqa: B018


def test_a_link_in_a_loop_does_not_make_the_folder_unreadable(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "gone.png").symlink_to("nowhere.png")
    assert FolderImages(tmp_path, ["a"], 4).files == (str(tmp_path / "a.png"),)
    for name in ("loop.png", "gone.png"):
        with pytest.raises(ImageError, match=f"{name}' of row 1 is missing"):
            FolderImages(tmp_path, [name], 4)
