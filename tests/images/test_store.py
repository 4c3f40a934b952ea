from __future__ import annotations

import errno
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import zlib
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import satl.images.pack as pack_module
from satl.cli.wording import shell_words
from satl.errors import ImageError
from satl.images import (
    ArrayImages,
    Batches,
    BulkSource,
    FolderImages,
    ImageSource,
    PackedImages,
    cached,
    check_store,
    decode_image,
    is_store,
    pack_images,
    packed_images,
)
from satl.images.decode import _pillow, _torchcodec, _torchvision, jpeg_decoder
from satl.images.store import HEADER, INDEX, JOURNAL, PIXELS, open_store

IDS = (
    "00.png",
    "deep/é ü.jpg",
    "日本/写真.png",
    "grey.png",
    "cmyk.jpg",
    "turned.jpg",
    "06",
    "07.png",
    "08.png",
)
KINDS = ("jpeg", "raw")


def picture(seed: int, width: int = 60, height: int = 40) -> Image.Image:
    """Smooth noise, which a JPEG can keep."""
    noise = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Image files of many kinds, named as in ``IDS``."""
    path = tmp_path / "images"
    for i, name in enumerate(IDS):
        file = path / name if Path(name).suffix else path / f"{name}.webp"
        file.parent.mkdir(parents=True, exist_ok=True)
        image = picture(i)
        if name == "turned.jpg":
            exif = Image.Exif()
            exif[0x0112] = 6
            image.save(file, exif=exif)
        else:
            image.convert({"grey.png": "L", "cmyk.jpg": "CMYK"}.get(name, "RGB")).save(file)
    return path


def files_of(folder: Path, size: int = 24) -> FolderImages:
    return FolderImages(folder, IDS, size)


def pack(folder: Path, store: Path, kind: Any = "jpeg", size: int = 24, **options: Any) -> PackedImages:
    pack_images(files_of(folder, size), IDS, store, kind=kind, **options)
    return packed_images(store)


def content(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(store.iterdir())}


def flip_bit(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 16
    file.write_bytes(data)


# --------------------------------------------------------------------------------------------------- what is read


def test_raw_equals_the_folder_to_the_bit(folder: Path, tmp_path: Path) -> None:
    source, packed = files_of(folder), pack(folder, tmp_path / "store", "raw")
    assert isinstance(packed, BulkSource)
    assert (packed.kind, packed.size, packed.ids) == ("raw", 24, IDS)
    for i in range(len(IDS)):
        np.testing.assert_array_equal(packed.image(i), source.image(i))
    rows = torch.tensor([5, 0, 5])
    batch = packed.gather(rows)
    assert batch.shape == (3, 3, 24, 24)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    expected = np.stack([source.image(i) for i in rows]).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(batch.numpy(), expected)
    out = torch.empty((3, 24, 24, 3), dtype=torch.uint8)
    assert packed.gather(rows, out).data_ptr() == out.data_ptr()
    np.testing.assert_array_equal(out.numpy(), expected.transpose(0, 2, 3, 1))


def test_nothing_that_is_handed_out_can_change_the_store(folder: Path, tmp_path: Path) -> None:
    packed = pack(folder, tmp_path / "store", "raw")
    before, original = content(tmp_path / "store"), packed.image(0)
    assert isinstance(packed, BulkSource)
    packed.gather(torch.tensor([0])).zero_()
    packed.image(0)[:] = 0
    np.testing.assert_array_equal(packed.image(0), original)
    assert content(tmp_path / "store") == before


def test_jpeg_stays_within_its_error(folder: Path, tmp_path: Path) -> None:
    source, packed = files_of(folder, 64), pack(folder, tmp_path / "store", size=64)
    assert isinstance(packed, ImageSource)
    assert not isinstance(packed, BulkSource)
    for i in range(len(IDS)):
        image = packed.image(i)
        assert image.dtype == np.uint8
        assert image.flags.c_contiguous
        difference = image.astype(float) - source.image(i)
        assert np.sqrt(np.square(difference).mean()) < 2
        assert np.abs(difference).max() < 12
    rough = pack(folder, tmp_path / "rough", size=64, quality=20)
    assert rough._store.num_bytes < packed._store.num_bytes / 2
    assert np.abs(rough.image(0).astype(float) - source.image(0)).mean() > np.abs(difference).mean()


def test_colours_are_kept_at_full_resolution(tmp_path: Path) -> None:
    stripes = np.zeros((32, 32, 3), dtype=np.uint8)
    stripes[:, ::2] = (255, 0, 0)
    stripes[:, 1::2] = (0, 0, 255)
    pack_images(ArrayImages(stripes[None]), ["stripes"], tmp_path / "store")
    assert np.abs(packed_images(tmp_path / "store").image(0).astype(int) - stripes).max() < 16


def test_all_decoders_agree_to_the_bit() -> None:
    decoders = [_pillow, _torchvision(), jpeg_decoder()]
    try:
        decoders.append(_torchcodec())
    except ImportError:
        assert "torchcodec" not in sys.modules
    for seed, quality in ((0, 95), (1, 75), (2, 100)):
        buffer = io.BytesIO()
        pixels = np.random.default_rng(seed).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, subsampling="4:4:4")
        data = np.frombuffer(buffer.getvalue(), dtype=np.uint8).copy()
        results = [decode(data) for decode in decoders]
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


def test_without_its_helpers_a_jpeg_is_decoded_by_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError

    def broken() -> Any:
        def decode(data: np.ndarray) -> np.ndarray:
            raise RuntimeError("built for another libjpeg")

        return decode

    monkeypatch.setattr("satl.images.decode._torchcodec", missing)
    monkeypatch.setattr("satl.images.decode._torchvision", broken)
    jpeg_decoder.cache_clear()
    try:
        assert jpeg_decoder() is _pillow
    finally:
        jpeg_decoder.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_may_use_some_images_in_its_own_order(folder: Path, tmp_path: Path, kind: str) -> None:
    everything = pack(folder, tmp_path / "store", kind)
    ids = ["07.png", "日本/写真.png", "deep/é ü.jpg"]
    some = packed_images(tmp_path / "store", ids)
    assert some.ids == tuple(ids)
    for i, image_id in enumerate(ids):
        np.testing.assert_array_equal(some.image(i), everything.image(IDS.index(image_id)))
    if isinstance(some, BulkSource):
        batch = some.gather(torch.tensor([2, 0])).permute(0, 2, 3, 1)
        np.testing.assert_array_equal(batch[0], everything.image(1))
        np.testing.assert_array_equal(batch[1], everything.image(7))
    assert len(packed_images(tmp_path / "store", [])) == 0


def test_an_image_that_is_not_in_the_store_is_named(folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "store")
    with pytest.raises(ImageError) as caught:
        packed_images(tmp_path / "store", ["00.png", "gone.png", "lost.png"], rows=[10, 20, 30])
    message = str(caught.value)
    assert "image 'gone.png' of row 20 is not in packed store" in message
    assert "(2 of 3 images are missing)" in message
    assert "pack('TABLE', images='DIR', size=24, out='STORE')" in message


@pytest.mark.parametrize("kind", KINDS)
def test_it_travels_to_another_process_without_its_pixels(folder: Path, tmp_path: Path, kind: str) -> None:
    packed = pack(folder, tmp_path / "store", kind, size=128)
    data = pickle.dumps(packed)
    assert len(data) < 8000
    again = pickle.loads(data)
    np.testing.assert_array_equal(again.image(3), packed.image(3))
    assert isinstance(again, BulkSource) == isinstance(packed, BulkSource)


def test_a_jpeg_store_that_fits_is_decoded_into_memory(folder: Path, tmp_path: Path) -> None:
    packed = pack(folder, tmp_path / "store")
    memory = cached(packed, 2)
    assert isinstance(memory, ArrayImages)
    for i in range(len(IDS)):
        np.testing.assert_array_equal(memory.image(i), packed.image(i))
    raw = pack(folder, tmp_path / "raw", "raw")
    assert cached(raw) is raw


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_see_each_image_once(folder: Path, tmp_path: Path, kind: str, workers: int) -> None:
    packed = pack(folder, tmp_path / "store", kind)
    options = {"batch_size": 4, "shuffle": True, "seed": 3, "workers": workers, "world_size": 2}
    shares = [list(Batches(packed, **options, rank=rank).epoch(1)) for rank in (0, 1)]
    seen = list(chain.from_iterable(batch.indices.tolist() for batch in chain(*shares)))
    assert sorted(seen) == list(range(len(IDS)))
    for batch in chain(*shares):
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        for image, row in zip(batch.images, batch.indices.tolist(), strict=True):
            np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), packed.image(row))


def test_leaving_a_raw_epoch_early_leaves_no_thread(folder: Path, tmp_path: Path) -> None:
    packed = pack(folder, tmp_path / "store", "raw")
    before = threading.active_count()
    steps = Batches(packed, batch_size=2, workers=1).epoch(0)
    assert next(steps).indices.tolist() == [0, 1]
    assert threading.active_count() == before + 1
    steps.close()
    assert threading.active_count() == before


# ------------------------------------------------------------------------------------------------ what is written


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_store_does_not_depend_on_who_packs_it(
    folder: Path, tmp_path: Path, kind: Any, workers: int
) -> None:
    pack(folder, tmp_path / "one", kind, workers=1)
    pack(folder, tmp_path / "other", kind, workers=workers)
    assert content(tmp_path / "one") == content(tmp_path / "other")
    assert list(content(tmp_path / "one")) == [INDEX, PIXELS, HEADER]


def test_the_files_are_as_documented(folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "store", "raw")
    header = json.loads((tmp_path / "store" / HEADER).read_text())
    assert header.pop("index_sha256")
    assert header == {
        "format": "satl packed images",
        "version": 1,
        "kind": "raw",
        "size": 24,
        "quality": None,
        "count": 9,
        "bytes": 9 * 24 * 24 * 3,
        "resize": "bicubic to size x size, aspect ratio not kept",
    }
    pixels = np.fromfile(tmp_path / "store" / PIXELS, dtype=np.uint8).reshape(9, 24, 24, 3)
    np.testing.assert_array_equal(pixels[1], decode_image(folder / IDS[1], 24))
    with np.load(tmp_path / "store" / INDEX) as index:
        assert index["lengths"].tolist() == [24 * 24 * 3] * 9
        assert index["crc32"].tolist() == [zlib.crc32(image.tobytes()) for image in pixels]
        assert index["ids"].tobytes().decode() == "".join(IDS)
        assert index["id_ends"].tolist() == np.cumsum([len(name.encode()) for name in IDS]).tolist()


def test_progress_counts_to_the_end(folder: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    pack(folder, tmp_path / "store", progress=lambda done, total: calls.append((done, total)))
    assert calls == [(done, 9) for done in range(10)]


class Ending:
    """A source that does something instead of handing out image ``at``."""

    size = 24

    def __init__(self, source: ImageSource, at: int, act: Any) -> None:
        self.source, self.at, self.act, self.asked = source, at, act, set[int]()

    def __len__(self) -> int:
        return len(self.source)

    def image(self, i: int) -> np.ndarray:
        self.asked.add(i)
        if i == self.at:
            self.act()
        return self.source.image(i)


KILL = """
import os, signal, sys
import satl.images.pack as pack_module
from satl.images import FolderImages, pack_images
folder, store, kind, at, *ids = sys.argv[1:]
pack_module._SECONDS_BETWEEN_COMMITS = 0.0
source = FolderImages(folder, ids, 24)
def kill(done, total):
    if done == int(at):
        if kind == "jpeg":  # in the middle of a write: half an image, half a line
            with open(os.path.join(store, "pixels.bin"), "ab") as file: file.write(b"half an image")
            with open(os.path.join(store, "journal.jsonl"), "ab") as file: file.write(b'{"id": "de')
        os.kill(os.getpid(), signal.SIGKILL)
pack_images(source, ids, store, kind=kind, workers=2, progress=kill)
"""


@pytest.mark.parametrize(("kind", "at"), [("jpeg", 4), ("raw", 7), ("raw", 9)])
def test_after_a_kill_the_same_call_goes_on_to_the_same_bytes(
    folder: Path, tmp_path: Path, kind: Any, at: int
) -> None:
    store = tmp_path / "store"
    end = subprocess.run(
        [sys.executable, "-c", KILL, str(folder), str(store), kind, str(at), *IDS], check=False
    )
    assert end.returncode == -signal.SIGKILL
    if at < len(IDS):
        assert is_store(store)
        with pytest.raises(ImageError, match=r"is not finished; pack the same table again"):
            packed_images(store)
        source = Ending(files_of(folder), -1, None)
        packing = pack_images(source, IDS, store, kind=kind)
        assert packing[:2] == (9, at)
        assert source.asked == set(range(at, 9))
    else:
        assert pack_images(files_of(folder), IDS, store, kind=kind)[:2] == (9, 9)
    pack(folder, tmp_path / "whole", kind)
    assert content(store) == content(tmp_path / "whole")


def test_killed_between_index_and_header(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pack_module.json, "dumps", _fail_for_header(json.dumps))
        with pytest.raises(KeyboardInterrupt):
            pack(folder, tmp_path / "store")
    (tmp_path / "store" / ".store.0123.partial.json").write_text("{")
    assert not (tmp_path / "store" / HEADER).exists()
    assert pack_images(files_of(folder), IDS, tmp_path / "store")[:2] == (9, 9)
    pack(folder, tmp_path / "whole")
    assert content(tmp_path / "store") == content(tmp_path / "whole")


def _fail_for_header(dumps: Any) -> Any:
    def failing(entry: dict[str, Any], **options: Any) -> str:
        if "index_sha256" in entry:
            raise KeyboardInterrupt
        return str(dumps(entry, **options))

    return failing


def test_an_interrupt_loses_nothing_that_is_done(folder: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        pack(folder, tmp_path / "store", progress=interrupt)
    assert threading.active_count() == before
    assert len((tmp_path / "store" / JOURNAL).read_text().splitlines()) == 1 + 5
    assert pack_images(files_of(folder), IDS, tmp_path / "store")[:2] == (9, 5)


def test_a_broken_image_is_named_and_packing_goes_on_after_its_repair(folder: Path, tmp_path: Path) -> None:
    good = (folder / "grey.png").read_bytes()
    (folder / "grey.png").write_bytes(good[: len(good) // 2])
    with pytest.raises(ImageError, match=r"grey\.png' of row 4 is truncated or damaged"):
        pack(folder, tmp_path / "store", workers=2)
    assert len((tmp_path / "store" / JOURNAL).read_text().splitlines()) == 1 + 3
    # Its row can be taken out, because all that is done comes before it.
    shorter = [name for name in IDS if name != "grey.png"]
    others = FolderImages(folder, shorter, 24)
    (folder / "grey.png").write_bytes(good)
    assert pack_images(files_of(folder), IDS, tmp_path / "store")[:2] == (9, 3)
    pack(folder, tmp_path / "whole")
    assert content(tmp_path / "store") == content(tmp_path / "whole")
    assert pack_images(others, shorter, tmp_path / "store")[:2] == (8, 8)


def test_a_row_that_is_taken_out_does_not_cost_what_is_done(folder: Path, tmp_path: Path) -> None:
    (folder / "grey.png").write_bytes(b"junk")
    with pytest.raises(ImageError, match="of row 4"):
        pack(folder, tmp_path / "store")
    shorter = [name for name in IDS if name != "grey.png"]
    assert pack_images(FolderImages(folder, shorter, 24), shorter, tmp_path / "store")[:2] == (8, 3)
    assert packed_images(tmp_path / "store").ids == tuple(shorter)
    assert check_store(tmp_path / "store") == ()


@pytest.mark.parametrize("file", ["pixels", "journal"])
def test_a_full_disk_is_one_sentence_and_the_work_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    write = pack_module._write_all
    calls = []

    def fill_up(target: Any, data: bytes) -> None:
        calls.append(Path(target.name).stem)
        if calls.count(file) == 6:
            write(target, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write(target, data)

    with monkeypatch.context() as patch:
        patch.setattr(pack_module, "_write_all", fill_up)
        patch.setattr(pack_module, "_SECONDS_BETWEEN_COMMITS", 0.0)
        with pytest.raises(ImageError, match=r"the disk is full; make room and pack the same table again"):
            pack(folder, tmp_path / "store")
    packing = pack_images(files_of(folder), IDS, tmp_path / "store")
    assert packing.found == (5 if file == "pixels" else 4)
    pack(folder, tmp_path / "whole")
    assert content(tmp_path / "store") == content(tmp_path / "whole")


def test_other_errors_of_the_disk_are_not_called_full(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ImageError, match=r"cannot be written \(Input/output error\)") as caught:
        pack(folder, tmp_path / "store")
    assert "full" not in str(caught.value)


def test_a_finished_store_is_left_alone(folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "store")
    before = content(tmp_path / "store")
    source = Ending(files_of(folder), -1, None)
    assert pack_images(source, IDS, tmp_path / "store")[:2] == (9, 9)
    assert source.asked == set()
    assert content(tmp_path / "store") == before


def begin(folder: Path, store: Path, at: int = 3) -> None:
    """A store of which ``at`` images are done."""

    def stop(done: int, total: int) -> None:
        if done == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(folder, store, progress=stop)


def test_lines_that_a_power_failure_left_half_written_do_not_count(folder: Path, tmp_path: Path) -> None:
    begin(folder, tmp_path / "store", at=5)
    journal = tmp_path / "store" / JOURNAL
    lines = journal.read_bytes().split(b"\n")
    lines[4] = bytes(len(lines[4]))
    journal.write_bytes(b"\n".join(lines))
    assert pack_images(files_of(folder), IDS, tmp_path / "store")[:2] == (9, 3)
    pack(folder, tmp_path / "whole")
    assert content(tmp_path / "store") == content(tmp_path / "whole")


def test_pixels_that_are_lost_are_packed_again(folder: Path, tmp_path: Path) -> None:
    begin(folder, tmp_path / "store", at=5)
    pixels = tmp_path / "store" / PIXELS
    pixels.write_bytes(pixels.read_bytes()[:-1])
    assert pack_images(files_of(folder), IDS, tmp_path / "store")[:2] == (9, 4)
    pack(folder, tmp_path / "whole")
    assert content(tmp_path / "store") == content(tmp_path / "whole")


@pytest.mark.parametrize(("finished", "state"), [(True, "is finished"), (False, "was begun")])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 32}, "--size 24, not --size 32"),
        ({"kind": "raw"}, "--kind jpeg --quality 95, not --kind raw"),
        ({"quality": 80}, "--quality 95, not --quality 80"),
    ],
)
def test_other_settings_in_the_same_folder(
    folder: Path, tmp_path: Path, finished: bool, state: str, options: dict[str, Any], words: str
) -> None:
    store = tmp_path / "store"
    pack(folder, store) if finished else begin(folder, store)
    before = content(store)
    with pytest.raises(ImageError) as caught:
        pack(folder, store, **options)
    said = caught.value.worded(shell_words)
    assert f"{state} with {words}; pass another folder as --out, or the same settings." in said
    assert content(store) == before


def test_another_table_in_the_same_folder(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    begin(folder, store)
    turned = IDS[::-1]
    with pytest.raises(
        ImageError, match=r"was begun with another table, its image 1 is '00\.png'; pass another"
    ):
        pack_images(FolderImages(folder, turned, 24), turned, store)
    two = IDS[:2]
    with pytest.raises(ImageError, match=r"was begun with another table, its image 3 is '日本/写真\.png'"):
        pack_images(FolderImages(folder, two, 24), two, store)
    pack(folder, store)
    assert pack_images(FolderImages(folder, turned, 24), turned, store)[:2] == (9, 9)
    picture(77).save(folder / "new.png")
    more = (*IDS, "new.png")
    with pytest.raises(ImageError, match=r"is finished and lacks 1 of the 10 images .* 'new\.png' first"):
        pack_images(FolderImages(folder, more, 24), more, store)


def test_settings_can_change_as_long_as_nothing_is_done(folder: Path, tmp_path: Path) -> None:
    begin(folder, tmp_path / "store", at=0)
    assert pack(folder, tmp_path / "store", size=32).size == 32


def test_a_folder_of_other_things_is_not_touched(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"exists already and is not a packed store; pass another folder"):
        pack(folder, folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(ImageError, match="exists already and is not a packed store"):
        pack(folder, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert len(pack(folder, tmp_path / "empty")) == 9
    with pytest.raises(ImageError, match="no image to pack"):
        pack_images(ArrayImages(np.zeros((0, 4, 4, 3), dtype=np.uint8)), [], tmp_path / "none")
    with pytest.raises(ValueError, match="2 ids for 9 images"):
        pack_images(files_of(folder), IDS[:2], tmp_path / "none")


def test_two_at_once_are_kept_apart(folder: Path, tmp_path: Path) -> None:
    messages = []

    def second(done: int, total: int) -> None:
        if done == 2:
            with pytest.raises(ImageError) as caught:
                pack(folder, tmp_path / "store")
            messages.append(str(caught.value))

    pack(folder, tmp_path / "store", progress=second)
    assert "is being written by another process; wait until it ends" in messages[0]
    assert check_store(tmp_path / "store") == ()


def test_a_store_that_another_call_has_just_finished_is_left_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"

    def overtaken(place: Path) -> None:
        monkeypatch.undo()
        pack(folder, store, workers=1)

    monkeypatch.setattr(pack_module, "check_out_folder", overtaken)
    source = Ending(files_of(folder), -1, None)
    assert pack_images(source, IDS, store).found == len(IDS)
    assert source.asked == set()
    assert not (store / JOURNAL).exists()
    assert check_store(store) == ()


def test_a_finished_store_that_cannot_be_tidied_is_finished(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    pack(folder, store)
    (store / JOURNAL).touch()

    def refused(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refused)
    assert pack_images(files_of(folder), IDS, store).found == len(IDS)


# ---------------------------------------------------------------------------------------------- what is damaged


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_byte_is_found(folder: Path, tmp_path: Path, kind: str) -> None:
    store = tmp_path / "store"
    pack(folder, store, kind)
    calls: list[tuple[int, int]] = []
    assert check_store(store, lambda done, total: calls.append((done, total))) == ()
    assert calls[-1] == (9, 9)
    opened = open_store(store)
    flip_bit(store / PIXELS, int(opened.offsets[1]) + 200)
    flip_bit(store / PIXELS, opened.num_bytes - 1)
    assert check_store(store) == ("deep/é ü.jpg", "08.png")
    packed = packed_images(store)  # opening does not read pixels
    if kind == "jpeg":
        packed.image(0)
        with pytest.raises(ImageError) as caught:
            packed.image(1)
        message = str(caught.value)
        assert f"image 'deep/é ü.jpg' of packed store '{store}' is damaged, its checksum is wrong" in message
        assert f"pack(check='{store}')" in message
        with pytest.raises(ImageError, match=r"image '08\.png' of packed store"):
            list(Batches(packed, [0, 8], batch_size=1, workers=1).epoch(0))


def test_a_damaged_index_header_or_length_is_seen_at_once(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    pack(folder, store)
    good = content(store)

    def damaged(name: str, data: bytes | None, words: str) -> None:
        (store / name).write_bytes(data) if data is not None else (store / name).unlink()
        for attempt in (packed_images, check_store):
            with pytest.raises(ImageError, match=words) as caught:
                attempt(store)
            assert "\n" not in str(caught.value)
        (store / name).write_bytes(good[name])

    length = len(good[PIXELS])
    damaged(
        PIXELS, good[PIXELS][:-1], rf"pixels\.bin has {length - 1:,} bytes instead of {length:,}; copy it"
    )
    damaged(PIXELS, good[PIXELS] + b" ", "instead of")
    damaged(PIXELS, None, "has 0 bytes instead of")
    flipped = bytearray(good[INDEX])
    flipped[100] ^= 1
    damaged(INDEX, bytes(flipped), r"index\.npz is missing or not the one that store\.json describes")
    damaged(INDEX, None, "is missing or not the one")
    damaged(HEADER, b"{", r"store\.json is damaged; delete the folder and pack the images again")
    damaged(HEADER, b'{"format": "other"}', r"store\.json is damaged")
    damaged(HEADER, good[HEADER].replace(b"index_sha256", b"index"), r"store\.json is damaged")
    damaged(HEADER, b"[]", r"store\.json is damaged")
    damaged(
        HEADER, good[HEADER].replace(b'"version": 1', b'"version": 2'), "format version 2, and this program"
    )
    damaged(HEADER, None, "is not a packed store")
    assert packed_images(store).ids == IDS


@pytest.mark.parametrize("name", [HEADER, INDEX, PIXELS])
def test_a_file_of_a_store_that_may_not_be_read_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = tmp_path / "store"
    pack(folder, store)
    opened = io.open

    def refused(file: Any, *options: Any, **more: Any) -> Any:
        if str(file) == str(store / name):
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return opened(file, *options, **more)

    monkeypatch.setattr(io, "open", refused)  # of Path
    monkeypatch.setattr("builtins.open", refused)  # of NumPy
    for attempt in (packed_images, check_store):
        with pytest.raises(ImageError, match=rf"{name} cannot be read \(Permission denied\); make the files"):
            attempt(store)


def test_a_folder_is_no_store(folder: Path, tmp_path: Path) -> None:
    assert not is_store(folder)
    assert not is_store(tmp_path / "none")
    assert not is_store("long" * 100)
    with pytest.raises(ImageError, match=r"00\.png' is not a packed store"):
        open_store(folder / "00.png")
    with pytest.raises(ImageError, match=r"is not a packed store, it has no store\.json; make one with pack"):
        open_store(folder)


def test_pixels_that_are_no_jpeg_of_that_size(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pack_module, "_jpeg", lambda quality: lambda pixels: b"no picture at all")
        pack(folder, tmp_path / "store")
    with pytest.raises(ImageError, match=r"image '00\.png' of packed store .* cannot be decoded"):
        packed_images(tmp_path / "store").image(0)
    encode = pack_module._jpeg(95)
    with monkeypatch.context() as patch:
        patch.setattr(pack_module, "_jpeg", lambda quality: lambda pixels: encode(pixels[:8]))
        pack(folder, tmp_path / "small")
    with pytest.raises(ImageError, match=r"has another shape than its store, \(8, 24, 3\)"):
        packed_images(tmp_path / "small").image(0)


def test_packing_does_not_need_torch(folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from satl.images import FolderImages, pack_images, check_store;"
        f"pack_images(FolderImages({str(folder)!r}, ['00.png'], 8), ['00.png'], {str(tmp_path / 's')!r});"
        f"check_store({str(tmp_path / 's')!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_limit_of_the_size_of_files_is_told_and_packing_goes_on_without_it(tmp_path: Path) -> None:
    import resource

    source = ArrayImages(np.random.default_rng(0).integers(0, 256, (6, 64, 64, 3), dtype=np.uint8))
    ids = [f"{number}.png" for number in range(6)]
    pack_images(source, ids, tmp_path / "alone", kind="raw")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(
            ImageError, match=r"cannot be written \(File too large\); lift the limit or choose"
        ):
            pack_images(source, ids, tmp_path / "store", kind="raw")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "store" / HEADER).exists()
    pack_images(source, ids, tmp_path / "store", kind="raw")
    for name in (HEADER, INDEX, PIXELS):
        assert (tmp_path / "store" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
