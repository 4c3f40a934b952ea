"""Pictures that cannot be read: counted, listed, left out, and never more of them than is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from satl.errors import ImageError
from satl.images import ArrayImages, Batches, FolderImages, pack_images, packed_images
from satl.images.broken_list import BROKEN, read_broken, write_broken
from satl.images.broken_pictures import BrokenPicture, readable_images, require_few
from satl.images.store import JOURNAL, PIXELS, absent_images, open_store

IDS = tuple(f"{row}.png" for row in range(10))
BAD = (3, 7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten images, of which one is cut off and one is missing."""
    place = tmp_path / "images"
    place.mkdir()
    for row, name in enumerate(IDS):
        pixels = np.random.default_rng(row).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / name)
    (place / IDS[3]).write_bytes((place / IDS[3]).read_bytes()[:100])
    (place / IDS[7]).unlink()
    return place


def images_in(folder: Path) -> FolderImages:
    return FolderImages(folder, IDS, 16, allow_missing=True)


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_those_that_can_be_read_stay_in_their_order(folder: Path, limit: int) -> None:
    source = images_in(folder)
    kept, broken = readable_images(source, limit_bytes=limit)
    assert list(broken) == list(BAD)
    assert "damaged" in broken[3]
    assert "missing" in broken[7]
    assert isinstance(kept, ArrayImages) == (limit > 0)
    rows = [row for row in range(10) if row not in BAD]
    assert len(kept) == 8
    for place, row in enumerate(rows):
        np.testing.assert_array_equal(kept.image(place), source.image(row))


def test_no_more_than_the_share() -> None:
    broken = [BrokenPicture(f"{row} {{}}.png", "is damaged") for row in range(4)]
    require_few(broken, 80, 0.05)
    with pytest.raises(ImageError) as caught:
        require_few(broken, 79, 0.05)
    text = str(caught.value)
    assert "4 of 79 images cannot be read, more than images.broken_share (0.05) allows" in text
    assert "'0 {}.png' (is damaged)" in text
    assert "and others" in text


def test_the_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / BROKEN
    assert read_broken(file) == []
    write_broken(file, [("a,b.png", 'says "no"')])
    assert read_broken(file) == [{"image": "a,b.png", "reason": 'says "no"'}]
    write_broken(file, [])
    assert not file.exists()
    file.write_text("something\nelse\n")
    with pytest.raises(ImageError, match="is no list of broken images"):
        read_broken(file)


def test_another_image_of_the_batch_stands_in_and_the_order_stays(folder: Path) -> None:
    for workers in (0, 2):
        batches = Batches(
            images_in(folder), batch_size=5, seed=0, shuffle=True, epochs=2, workers=workers, stand_in=True
        )
        wanted = [row for rows in batches.rows(0) for row in rows.tolist()]
        seen = [row for batch in batches.epoch(0) for row in batch.indices.tolist()]
        assert [one for one, other in zip(wanted, seen, strict=True) if one != other] == [
            row for row in wanted if row in BAD
        ]
        assert not set(seen) & set(BAD)
        assert sorted(batches.broken) == list(BAD)
        source = images_in(folder)
        for batch in batches.epoch(1):
            for image, row in zip(batch.images, batch.indices.tolist(), strict=True):
                np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), source.image(row))
        batches.close()


def test_without_that_it_is_an_error_and_so_is_a_batch_of_broken_ones(folder: Path) -> None:
    with pytest.raises(ImageError, match=r"3\.png"):
        list(Batches(images_in(folder), batch_size=5).epoch(0))
    with pytest.raises(ImageError, match=r"7\.png"):
        list(Batches(images_in(folder), BAD, batch_size=2, stand_in=True).epoch(0))


def test_a_store_is_packed_without_them(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"2 of 10 images cannot be read, more than broken_share=0.1 allows"):
        pack_images(images_in(folder), IDS, tmp_path / "few", broken_share=0.1)
    result = pack_images(images_in(folder), IDS, tmp_path / "store", broken_share=0.2)
    assert (result.total, result.broken) == (10, ("3.png", "7.png"))
    store = open_store(tmp_path / "store")
    assert store.ids == tuple(name for row, name in enumerate(IDS) if row not in BAD)
    assert [row["image"] for row in read_broken(store.path / BROKEN)] == ["3.png", "7.png"]
    assert list(absent_images(store.path, (*IDS, "new.png"))) == ["3.png", "7.png", "new.png"]
    again = pack_images(images_in(folder), IDS, tmp_path / "store", broken_share=0.2)
    assert (again.found, again.broken) == (10, ("3.png", "7.png"))
    with pytest.raises(ImageError, match="lacks 2 of the 10"):
        pack_images(images_in(folder), IDS, tmp_path / "store")
    whole = packed_images(store.path)
    assert len(whole) == 8


@pytest.mark.parametrize("mended", [False, True])
def test_packing_that_was_cut_off_ends_with_the_same_bytes(
    folder: Path, tmp_path: Path, mended: bool
) -> None:
    class Cut(Exception):
        pass

    def cut(done: int, total: int) -> None:
        if done == 9:
            raise Cut

    with pytest.raises(Cut):
        pack_images(images_in(folder), IDS, tmp_path / "cut", broken_share=0.2, progress=cut)
    assert (tmp_path / "cut" / JOURNAL).is_file()
    if mended:
        Image.new("RGB", (16, 16)).save(folder / IDS[3])
    pack_images(images_in(folder), IDS, tmp_path / "cut", broken_share=0.2)
    pack_images(images_in(folder), IDS, tmp_path / "whole", broken_share=0.2)
    for name in (PIXELS, "index.npz", "store.json", BROKEN):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert ("3.png" in open_store(tmp_path / "cut").ids) == mended


def test_a_cut_store_is_not_finished_with_broken_ones_where_these_are_errors(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ImageError, match="more than"):
        pack_images(images_in(folder), IDS, tmp_path / "store", broken_share=0.1)
    with pytest.raises(ImageError, match=r"3\.png"):
        pack_images(images_in(folder), IDS, tmp_path / "store")
    for row in BAD:
        Image.new("RGB", (16, 16)).save(folder / IDS[row])
    assert pack_images(images_in(folder), IDS, tmp_path / "store").broken == ()
    assert open_store(tmp_path / "store").ids == IDS
