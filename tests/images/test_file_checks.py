"""What is found of image files before training, in a folder and in a packed store."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from satl.errors import ImageError
from satl.images import FolderImages, pack_images
from satl.images.file_checks import inspect_images
from satl.images.store import HEADER, JOURNAL, PIXELS, Kind, open_store
from satl.labels import LabelTable, inspect_table

PACKED = ("good.jpg", "sub/copy.jpg", "broken.jpg", "beyond the table.jpg")
TABLE = ("good.jpg", "sub/copy.jpg", "broken.jpg", "gone.jpg", "sub/gone.jpg")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "sub").mkdir(parents=True)
    for seed, name in enumerate(PACKED):
        pixels = np.random.default_rng(seed).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / "sub" / "copy.jpg").write_bytes((folder / "good.jpg").read_bytes())
    return folder


@pytest.fixture(params=["jpeg", "raw"])
def store(request: pytest.FixtureRequest, files: Path, tmp_path: Path) -> Path:
    kind: Kind = request.param
    pack_images(FolderImages(files, PACKED, 16), PACKED, tmp_path / "store", kind=kind)
    return tmp_path / "store"


def table_of(images: tuple[str, ...] = TABLE) -> LabelTable:
    cells = np.zeros((len(images), 1), dtype=int)
    cells[0], cells[1:2] = 1, -1
    split = np.array(["train", *["test"] * (len(images) - 1)])
    return LabelTable(images, ("cat",), cells, split, encoding="signed")


def damage(store: Path, name: str) -> None:
    opened, content = open_store(store), bytearray((store / PIXELS).read_bytes())
    content[opened.offsets[opened.ids.index(name)] + 30] ^= 1
    (store / PIXELS).write_bytes(content)


def test_a_store_is_reported_as_its_folder_is(files: Path, store: Path) -> None:
    damage(store, "broken.jpg")
    (files / "broken.jpg").write_bytes((files / "broken.jpg").read_bytes()[:200])
    table, steps = table_of(), []
    of_files = inspect_images(table, files)
    report = inspect_images(table, store, lambda done, total: steps.append((done, total)))
    assert steps == [(done, len(TABLE)) for done in range(1, len(TABLE) + 1)]
    assert (report.folder, report.checked) == (str(store), len(TABLE))
    assert report.missing == of_files.missing == ("gone.jpg", "sub/gone.jpg")
    assert report.unreadable == (("broken.jpg", "its checksum is wrong"),)
    assert report.duplicates == of_files.duplicates
    assert report.duplicates[0].images == ("good.jpg", "sub/copy.jpg")
    (reason,) = (reason for _, reason in of_files.unreadable)
    in_words = [
        note.replace(str(files), str(store)).replace(reason, "its checksum is wrong")
        for note in inspect_table(table, of_files).notes
    ]
    assert list(inspect_table(table, report).notes) == in_words
    assert f"2 of 5 image files are missing in {store}, such as 'gone.jpg'." in in_words


@pytest.mark.parametrize(
    "name",
    [
        *("GOOD.jpg", "train/good.jpg", "sub/good.jpg", "sub/copy.png", "photos\\sub\\copy.jpg"),
        *("photos/sub/copy.jpg", "nothing-like-it"),
    ],
)
def test_the_hint_on_missing_images_is_that_of_the_folder(files: Path, store: Path, name: str) -> None:
    in_folder, in_store = (inspect_images(table_of((name,)), place).hint for place in (files, store))
    assert in_store == (None if in_folder is None else in_folder.replace(str(files), str(store)))
    assert (in_folder is None) == (name == "nothing-like-it")


def test_pixels_that_vanish_meanwhile_are_unreadable(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_store(store)
    (store / PIXELS).unlink()
    monkeypatch.setattr("satl.images.file_checks.open_store", lambda path: opened)
    report = inspect_images(table_of(("good.jpg",)), store)
    assert report.unreadable == (("good.jpg", "No such file or directory"),)


def test_a_store_that_is_not_finished_is_refused(store: Path) -> None:
    (store / HEADER).rename(store / JOURNAL)
    with pytest.raises(ImageError, match="is not finished; pack the same table again to resume"):
        inspect_images(table_of(), store)


def test_where_files_are_needed_a_store_is_refused_by_name(store: Path) -> None:
    with pytest.raises(ImageError, match="is a packed store, and the image files themselves are needed here"):
        FolderImages(store, ["good.jpg"], 16)


def test_an_id_without_an_extension_finds_the_file_that_training_finds(files: Path) -> None:
    (files / "broken.jpg").write_bytes((files / "broken.jpg").read_bytes()[:200])
    (files / "sub" / "two.png").write_bytes((files / "good.jpg").read_bytes())
    (files / "sub" / "two.jpg").write_bytes((files / "beyond the table.jpg").read_bytes())
    report = inspect_images(table_of(("good", "sub/copy", "good.jpg", "broken", "sub/two", "gone")), files)
    assert report.missing == ("gone",)
    assert [image for image, _ in report.unreadable] == ["broken", "sub/two"]
    assert dict(report.unreadable)["sub/two"] == (
        "the id matches 2 files, two.jpg, two.png: write it with its extension"
    )
    assert [group.images for group in report.duplicates] == [("good", "sub/copy", "good.jpg")]


def test_kinds_of_files_that_training_refuses_are_told(files: Path) -> None:
    names = ("float.tif", "wide.tif", "program.eps", "sixteen.png")
    Image.new("F", (8, 8)).save(files / names[0])
    Image.new("I", (8, 8)).save(files / names[1])
    Image.new("RGB", (8, 8)).save(files / names[2])
    Image.fromarray(np.full((8, 8), 40_000, dtype=np.uint16)).save(files / names[3])
    report = inspect_images(table_of(names), files)
    assert [image for image, _ in report.unreadable] == list(names[:3])
    source = FolderImages(files, names, 8)
    for position, (_, reason) in enumerate(report.unreadable):
        with pytest.raises(ImageError, match=reason):
            source.image(position)
    assert source.image(3).max() == 156


def picture(seed: int, kind: str = "JPEG") -> bytes:
    pixels = np.random.RandomState(seed).randint(0, 256, (48, 64, 3)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "sub").mkdir(parents=True)
    (folder / "good.jpg").write_bytes(picture(0))
    (folder / "good.png").write_bytes(picture(1, "PNG"))
    (folder / "sub" / "copy.jpg").write_bytes(picture(0))
    (folder / "cut.jpg").write_bytes(picture(2)[:-400])
    (folder / "cut.png").write_bytes(picture(3, "PNG")[:-400])
    flipped = bytearray(picture(4, "PNG"))
    flipped[len(flipped) // 2] ^= 0xFF
    (folder / "flipped.png").write_bytes(bytes(flipped))
    (folder / "text.jpg").write_text("not a picture")
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "folder.jpg").mkdir()
    return folder


NAMES = (
    "good.jpg", "good.png", "sub/copy.jpg", "cut.jpg", "cut.png", "flipped.png", "text.jpg", "empty.jpg",
    "folder.jpg", "gone.jpg", "good.jpg/inside.jpg",
)  # fmt: skip


def test_files(gallery: Path) -> None:
    cells = np.zeros((len(NAMES), 1), dtype=int)
    cells[0], cells[2] = 1, -1
    split = ["train"] * len(NAMES)
    split[2] = "test"
    table = LabelTable(NAMES, ("cat",), cells, np.array(split), encoding="signed")
    steps: list[tuple[int, int]] = []
    report = inspect_images(table, gallery, progress=lambda done, total: steps.append((done, total)))
    assert report.checked == len(NAMES)
    assert steps[-1] == (len(NAMES), len(NAMES))
    assert report.missing == ("gone.jpg", "good.jpg/inside.jpg")
    reasons = dict(report.unreadable)
    assert set(reasons) == {"cut.jpg", "cut.png", "flipped.png", "text.jpg", "empty.jpg", "folder.jpg"}
    assert "truncated" in reasons["cut.jpg"]
    assert reasons["text.jpg"] == "not an image in a format that can be read"
    assert reasons["empty.jpg"] == "empty file"
    (group,) = report.duplicates
    assert group.images == ("good.jpg", "sub/copy.jpg")
    assert group.contradictory
    assert group.splits == ("test", "train")
    whole = inspect_table(table, report)
    assert whole.files == report
    text = " ".join(whole.notes)
    for part in (
        f"2 of 11 image files are missing in {gallery}, such as 'gone.jpg'",
        "6 image files cannot be decoded, such as 'cut.jpg'",
        "1 group of images has the same content, such as 'good.jpg' and 'sub/copy.jpg'",
        "over several splits (such as test and train)",
        "contradict each other",
    ):
        assert part in text
    assert json.loads(json.dumps(whole.as_dict()))["files"]["missing"] == list(report.missing)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sub/copy.png", "'copy.jpg' exists: write the full file name as id"),
        ("GOOD.jpg", "'good.jpg' exists"),
        ("train/good.png", "'good.png' exists: write ids relative to"),
        ("photos/sub/copy.jpg", "'sub/copy.jpg' exists: write ids relative to"),
        ("photos\\good.png", "'good.png' exists: write ids relative to"),
        ("sub\\copy.jpg", "'sub/copy.jpg' exists: write ids relative to"),
        ("C:\\Users\\anna\\photos\\sub\\copy.jpg", ", with / between folders"),
        ("42", "'0042.jpg' exists: write the full file name as id; a spreadsheet drops zeros in front"),
        ("43", None),
        ("nothing-like-it", None),
    ],
)
def test_a_hint_on_missing_files(gallery: Path, name: str, hint: str | None) -> None:
    shutil.copy(gallery / "good.png", gallery / "0042.jpg")
    report = inspect_images(LabelTable((name,), ("cat",), np.array([[1]]), encoding="signed"), gallery)
    assert report.missing == (name,)
    assert (report.hint is None) if hint is None else (hint in str(report.hint))


def test_the_folder_must_exist(tmp_path: Path) -> None:
    table = LabelTable(("a",), ("cat",), np.array([[1]]), encoding="signed")
    with pytest.raises(ImageError, match=r"nowhere': is not a folder; give the folder of the image files"):
        inspect_images(table, tmp_path / "nowhere")
