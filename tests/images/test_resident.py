from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import satl.images.resident as resident_module
from harness.host_synchronisation import forbid_host_synchronisation
from satl.errors import ImageError
from satl.images import (
    ArrayImages,
    Batches,
    BulkSource,
    FolderImages,
    ImageSource,
    ResidentImages,
    pack_images,
    packed_images,
)
from satl.images.resident import cached_on_device, default_limit

NUM, SIZE = 23, 12


@pytest.fixture
def memory() -> ArrayImages:
    return ArrayImages(np.random.default_rng(0).integers(0, 256, (NUM, SIZE, SIZE, 3), dtype=np.uint8))


@pytest.fixture
def folder(tmp_path: Path, memory: ArrayImages) -> FolderImages:
    names = [f"{i:02}.png" for i in range(NUM)]
    for i, name in enumerate(names):
        Image.fromarray(memory.image(i)).save(tmp_path / name)
    return FolderImages(tmp_path, names, SIZE)


@pytest.fixture(params=["memory", "folder", "jpeg", "raw"])
def source(
    request: pytest.FixtureRequest, tmp_path: Path, memory: ArrayImages, folder: FolderImages
) -> ImageSource:
    if request.param == "memory":
        return memory
    if request.param == "folder":
        return folder
    pack_images(folder, [str(i) for i in range(NUM)], tmp_path / "store", kind=request.param)
    return packed_images(tmp_path / "store")


def test_it_equals_its_source(source: ImageSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        resident_module, "_CHUNK_BYTES", 5 * SIZE * SIZE * 3
    )  # several chunks, the last smaller
    calls: list[tuple[int, int]] = []
    kept = cached_on_device(source, "cpu", progress=lambda done, total: calls.append((done, total)))
    assert isinstance(kept, ResidentImages)
    assert isinstance(kept, BulkSource)
    assert (len(kept), kept.size, kept.device.type) == (NUM, SIZE, "cpu")
    for i in range(NUM):
        np.testing.assert_array_equal(kept.image(i), source.image(i))
    assert calls == [(done, NUM) for done in (0, 5, 10, 15, 20, 23)]
    assert cached_on_device(kept, "cpu") is kept


def test_batches_equal_those_of_its_source(source: ImageSource) -> None:
    options = {"batch_size": 5, "seed": 1, "shuffle": True}
    kept = Batches(cached_on_device(source, "cpu"), **options, workers=2)
    ours, theirs = list(kept.epoch(2, 1)), list(Batches(source, **options).epoch(2, 1))
    assert len(ours) == len(theirs) == 4
    for one, other in zip(ours, theirs, strict=True):
        assert one.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.indices, other.indices)


def test_what_is_handed_out_is_a_copy(memory: ArrayImages) -> None:
    kept = cached_on_device(memory, "cpu")
    assert isinstance(kept, ResidentImages)
    kept.gather(torch.tensor([3])).zero_()
    kept.image(3)[:] = 0
    np.testing.assert_array_equal(kept.image(3), memory.image(3))
    out = torch.empty((2, SIZE, SIZE, 3), dtype=torch.uint8)
    assert kept.gather(torch.tensor([3, 0]), out).data_ptr() == out.data_ptr()
    np.testing.assert_array_equal(out[0], memory.image(3))


def test_what_does_not_fit_is_left_where_it_is(memory: ArrayImages) -> None:
    needed = NUM * SIZE * SIZE * 3
    assert cached_on_device(memory, "cpu", needed - 1) is memory
    assert cached_on_device(memory, "cpu", needed) is not memory


def test_the_default_is_a_quarter_of_the_free_memory_of_a_gpu(
    memory: ArrayImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_limit("cpu") == 4 << 30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4003, 10_000))
    assert default_limit("cuda") == 1000
    monkeypatch.setattr(resident_module, "default_limit", lambda device: 0)
    assert cached_on_device(memory, "cpu") is memory


def test_gathering_does_not_wait_for_the_device(memory: ArrayImages) -> None:
    kept = cached_on_device(memory, "cpu")
    assert isinstance(kept, ResidentImages)
    with forbid_host_synchronisation():
        kept.gather(torch.tensor([3, 0]))


def test_pages_are_locked_for_the_way_to_a_gpu(memory: ArrayImages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: which memory would be asked for, and what happens to the batches."""
    asked: list[bool] = []
    empty = torch.empty

    def watch(*shape: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        asked.append(pin_memory)
        return empty(*shape, **options)

    kept = cached_on_device(memory, "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch, "empty", watch)
    for images, expected in ((memory, [True] * 5), (kept, [])):
        asked.clear()
        batches = list(Batches(images, batch_size=5, pin_memory=True, workers=1).epoch(0))
        assert asked == expected
        np.testing.assert_array_equal(batches[1].images[0].permute(1, 2, 0), memory.image(5))


def test_a_broken_image_is_named(folder: FolderImages, tmp_path: Path) -> None:
    (tmp_path / "04.png").write_bytes(b"junk")
    with pytest.raises(ImageError, match=r"04\.png' of row 5 is not an image"):
        cached_on_device(folder, "cpu")


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"images must be uint8 \(N, S, S, 3\)"):
        ResidentImages(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
    with pytest.raises(ValueError, match="uint8"):
        ResidentImages(torch.zeros(2, 4, 4, 3))
