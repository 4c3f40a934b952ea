"""Pictures that look the same are found, and different ones are not taken for copies."""

from __future__ import annotations

import io
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from satl.images import FolderImages, pack_images
from satl.images.file_checks import inspect_images
from satl.images.near_duplicates import MOST_BITS, difference_hashes, near_duplicates
from satl.images.store import Kind
from satl.labels import LabelTable, inspect_table
from satl.scenes import render_scene

COPIES = ("again.jpg", "small.jpg", "bright.jpg", "other.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve different scenes as JPEG files, and four copies of the first one that were changed a little."""
    place = tmp_path_factory.mktemp("scenes")
    for number in range(12):
        Image.fromarray(render_scene(number, size=128, seed=3)[0]).save(place / f"{number}.jpg", quality=90)
    with Image.open(place / "0.jpg") as file:
        first = file.convert("RGB")
    first.save(place / "again.jpg", quality=40)
    first.resize((70, 61)).save(place / "small.jpg", quality=85)
    ImageEnhance.Brightness(first).enhance(1.1).save(place / "bright.jpg", quality=85)
    first.save(place / "other.png")
    Image.new("RGB", (64, 64), (200, 10, 10)).save(place / "red.png")
    Image.new("RGB", (64, 64), (10, 10, 200)).save(place / "blue.png")
    return place


def table_of(folder: Path) -> LabelTable:
    images = [f"{number}.jpg" for number in range(12)] + [*COPIES, "red.png", "blue.png"]
    cells = np.ones((len(images), 1), dtype=int)
    cells[images.index("small.jpg")] = -1
    split = np.array(["test" if name == "bright.jpg" else "train" for name in images])
    return LabelTable(tuple(images), ("cat",), cells, split)


@pytest.mark.parametrize("packed", [None, "jpeg", "raw"])
def test_changed_copies_are_found_and_nothing_else(folder: Path, tmp_path: Path, packed: Kind | None) -> None:
    table, place = table_of(folder), folder
    if packed is not None:
        place = tmp_path / "store"
        pack_images(FolderImages(folder, table.images, 96), table.images, place, kind=packed)
    report = inspect_images(table, place)
    assert not any(set(group.images) - {"0.jpg", "other.png"} for group in report.duplicates)
    (group,) = report.near_duplicates
    assert group.images == ("0.jpg", *COPIES)
    assert group.splits == ("test", "train")
    assert group.contradictory
    notes = " ".join(inspect_table(table, report).notes)
    assert (
        "1 group of images has the same looks (saved again, resized or brightened), such as '0.jpg'" in notes
    )
    assert "spread over several splits (such as test and train)" in notes


def test_a_photograph_on_its_side_is_the_upright_one(tmp_path: Path) -> None:
    upright = Image.fromarray(render_scene(5, size=96, seed=3)[0])
    upright.save(tmp_path / "a.jpg", quality=90)
    exif = Image.Exif()
    exif[0x0112] = 6
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "b.jpg", quality=90, exif=exif)
    table = LabelTable(("a.jpg", "b.jpg"), ("cat",), np.zeros((2, 1), dtype=int), encoding="signed")
    assert [group.images for group in inspect_images(table, tmp_path).near_duplicates] == [("a.jpg", "b.jpg")]


def test_the_groups_are_those_of_all_pairs() -> None:
    draw = np.random.default_rng(1)
    scenes = np.kron(draw.integers(0, 256, (60, 6, 6)), np.ones((3, 3)))
    noisy = scenes[draw.integers(0, 60, 150)] + draw.normal(0, 6, (150, 18, 18))
    thumbnails = noisy.clip(0, 255).astype(np.uint8)
    bits = difference_hashes(thumbnails)
    pixels = thumbnails.reshape(150, -1).astype(np.float64)
    parent = list(range(150))

    def root(row: int) -> int:
        while parent[row] != row:
            row = parent[row]
        return row

    for one, other in combinations(range(150), 2):
        close = (bits[one] != bits[other]).sum() <= MOST_BITS
        if close and np.corrcoef(pixels[one], pixels[other])[0, 1] >= 0.97:
            parent[root(other)] = root(one)
    groups: dict[int, list[int]] = {}
    for row in range(150):
        groups.setdefault(root(row), []).append(row)
    expected = sorted(group for group in groups.values() if len(group) > 1)
    assert len(expected) > 10
    assert near_duplicates(thumbnails) == expected


def test_pictures_without_contrast_and_no_pictures_at_all() -> None:
    assert near_duplicates(np.full((4, 18, 18), 7, dtype=np.uint8)) == []
    assert near_duplicates(np.empty((0, 18, 18), dtype=np.uint8)) == []


def test_many_copies_of_one_picture_are_one_group() -> None:
    picture = np.kron(np.random.default_rng(0).integers(0, 230, (6, 6)), np.ones((3, 3)))
    noise = np.random.default_rng(1).normal(0, 2, (700, 18, 18))
    assert near_duplicates((picture + noise).clip(0, 255).astype(np.uint8)) == [list(range(700))]


def test_the_thumbnail_of_a_file_does_not_depend_on_its_size(folder: Path) -> None:
    from satl.images.decode import grey_thumbnail

    found = []
    for side in (600, 90):
        buffer = io.BytesIO()
        Image.fromarray(render_scene(2, size=600, seed=3)[0]).resize((side, side)).save(
            buffer, "JPEG", quality=90
        )
        with Image.open(buffer) as image:
            found.append(grey_thumbnail(image, 18).astype(int))
    assert np.abs(found[0] - found[1]).mean() < 2
