from __future__ import annotations

import multiprocessing
import os
import random
import signal
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from satl.errors import ArrayError, ConfigError, ImageError
from satl.images import ArrayImages, Batches, FolderImages, epoch_order
from satl.images.batches import _new_images


def numbered(num: int, size: int = 2) -> ArrayImages:
    """Images whose pixels tell their position."""
    array = np.zeros((num, size, size, 3), dtype=np.uint8)
    array[:] = np.arange(num, dtype=np.uint8)[:, None, None, None]
    return ArrayImages(array)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(23):
        pixels = np.random.default_rng(i).integers(0, 256, (9, 7, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i:02}.png")
    return tmp_path


def folder_source(folder: Path) -> FolderImages:
    return FolderImages(folder, [f"{i:02}.png" for i in range(23)], size=8)


def rows_of(batches: Batches, epoch: int = 0) -> list[list[int]]:
    return [batch.indices.tolist() for batch in batches.epoch(epoch)]


def test_order_is_a_permutation_fixed_by_seed_and_epoch() -> None:
    order = epoch_order(1000, seed=3, epoch=5)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(1000))
    np.testing.assert_array_equal(order, epoch_order(1000, seed=3, epoch=5))
    for other in (epoch_order(1000, 3, 6), epoch_order(1000, 4, 5), epoch_order(1000, 5, 3)):
        assert (other == order).mean() < 0.02
    assert len(epoch_order(0, 0, 0)) == 0


def test_order_never_changes_between_versions() -> None:
    assert epoch_order(10, seed=0, epoch=0).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


def test_order_is_uniform() -> None:
    counts = np.zeros((6, 6))
    for epoch in range(3000):
        counts[np.arange(6), epoch_order(6, seed=0, epoch=epoch)] += 1
    # Every cell is binomial(3000, 1/6): mean 500, standard deviation 20.4.
    assert np.abs(counts - 500).max() < 100


def test_batch_is_channels_first_uint8_with_positions_in_the_source() -> None:
    batches = Batches(numbered(20), [4, 11, 7], batch_size=2)
    first, second = batches.epoch(0)
    assert first.images.dtype == torch.uint8
    assert first.images.shape == (2, 3, 2, 2)
    assert first.images.is_contiguous(memory_format=torch.channels_last)
    assert first.indices.dtype == torch.int64
    assert first.indices.tolist() == [4, 11]
    assert second.indices.tolist() == [7]
    assert (first.images == first.indices[:, None, None, None]).all()


def test_shuffle_visits_everything_once_in_a_new_order_every_epoch() -> None:
    batches = Batches(numbered(23), batch_size=5, seed=1, shuffle=True)
    epochs = [rows_of(batches, epoch) for epoch in range(3)]
    for epoch in epochs:
        assert [len(rows) for rows in epoch] == [5, 5, 5, 5, 3]
        assert sorted(chain.from_iterable(epoch)) == list(range(23))
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[1] == rows_of(Batches(numbered(23), batch_size=5, seed=1, shuffle=True), 1)
    assert epochs[1] != rows_of(Batches(numbered(23), batch_size=5, seed=2, shuffle=True), 1)


@settings(max_examples=60, deadline=None)
@given(
    num=st.integers(0, 40),
    batch_size=st.integers(1, 12),
    world_size=st.integers(1, 5),
    shuffle=st.booleans(),
)
def test_processes_share_every_global_batch_exactly(
    num: int, batch_size: int, world_size: int, shuffle: bool
) -> None:
    options = {"batch_size": batch_size, "seed": 4, "shuffle": shuffle}
    source = numbered(num) if num else ArrayImages(np.zeros((0, 2, 2, 3), dtype=np.uint8))
    alone = rows_of(Batches(source, **options), 2)
    ranks = [Batches(source, **options, rank=r, world_size=world_size) for r in range(world_size)]
    shares = [rows_of(batches, 2) for batches in ranks]
    assert {len(steps) for steps in shares} == {len(alone)} == {len(ranks[0])}
    for step, rows in enumerate(alone):
        assert list(chain.from_iterable(steps[step] for steps in shares)) == rows
        sizes = [len(steps[step]) for steps in shares]
        assert max(sizes) - min(sizes) <= 1
        for batches, steps in zip(ranks, shares, strict=True):
            first, own, total = batches.share(step)
            assert rows[first : first + own] == steps[step]
            assert total == len(rows)
    assert sorted(chain.from_iterable(alone)) == list(range(num))


def test_drop_last_gives_equal_full_batches() -> None:
    ranks = [
        Batches(numbered(23), batch_size=4, drop_last=True, shuffle=True, rank=r, world_size=2)
        for r in (0, 1)
    ]
    for batches in ranks:
        assert len(batches) == 5
        assert [len(rows) for rows in rows_of(batches)] == [2] * 5


def test_empty_share_keeps_the_shape() -> None:
    (batch,) = Batches(numbered(1), batch_size=4, rank=0, world_size=3).epoch(0)
    assert batch.images.shape == (0, 3, 2, 2)
    assert batch.indices.shape == (0,)


@pytest.mark.parametrize("workers", [0, 2])
def test_folder_batches_equal_those_in_memory(folder: Path, workers: int) -> None:
    source = folder_source(folder)
    memory = ArrayImages(np.stack([source.image(i) for i in range(len(source))]))
    options = {"batch_size": 5, "seed": 9, "shuffle": True}
    decoded = list(Batches(source, **options, workers=workers).epoch(3))
    gathered = list(Batches(memory, **options).epoch(3))
    assert len(decoded) == len(gathered) == 5
    for ours, theirs in zip(decoded, gathered, strict=True):
        assert ours.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(ours.images, theirs.images)
        assert torch.equal(ours.indices, theirs.indices)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("start_step", [0, 1, 4, 5])
def test_start_step_equals_skipping(folder: Path, workers: int, start_step: int) -> None:
    batches = Batches(folder_source(folder), batch_size=5, seed=2, shuffle=True, workers=workers)
    full = list(batches.epoch(1))[start_step:]
    resumed = list(batches.epoch(1, start_step))
    assert len(full) == len(resumed) == 5 - start_step
    for ours, theirs in zip(resumed, full, strict=True):
        assert torch.equal(ours.images, theirs.images)
        assert torch.equal(ours.indices, theirs.indices)


def test_skipped_steps_are_not_decoded() -> None:
    class Counting:
        size = 2

        def __init__(self) -> None:
            self.asked: list[int] = []

        def __len__(self) -> int:
            return 10

        def image(self, i: int) -> np.ndarray:
            self.asked.append(i)
            return np.zeros((2, 2, 3), dtype=np.uint8)

    source = Counting()
    list(Batches(source, batch_size=4).epoch(0, start_step=2))
    assert source.asked == [8, 9]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_unreadable_image_arrives_as_the_same_error(folder: Path, workers: int) -> None:
    (folder / "12.png").write_bytes(b"junk")
    source = folder_source(folder)
    with pytest.raises(ImageError) as expected:
        source.image(12)
    steps = Batches(source, batch_size=5, workers=workers).epoch(0)
    assert next(steps).indices.tolist() == [0, 1, 2, 3, 4]
    assert next(steps).indices.tolist() == [5, 6, 7, 8, 9]
    with pytest.raises(ImageError) as caught:
        next(steps)
    assert str(caught.value) == str(expected.value)
    assert "12.png' of row 13" in str(caught.value)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_global_random_states_are_neither_read_nor_changed(folder: Path, workers: int) -> None:
    batches = Batches(folder_source(folder), batch_size=5, seed=2, shuffle=True, workers=workers)
    orders = []
    for seed in (0, 1):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
        orders.append(rows_of(batches))
        after = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
        assert before == after
    assert orders[0] == orders[1]


def test_leaving_an_epoch_early_leaves_no_worker(folder: Path) -> None:
    steps = Batches(folder_source(folder), batch_size=2, workers=2).epoch(0)
    next(steps)
    assert len(multiprocessing.active_children()) == 2
    steps.close()
    assert multiprocessing.active_children() == []


def test_a_worker_that_is_killed_is_told_in_a_sentence() -> None:
    class Fatal:
        size = 8

        def __len__(self) -> int:
            return 4

        def image(self, i: int) -> np.ndarray:
            if multiprocessing.parent_process() is not None:
                os.kill(os.getpid(), signal.SIGKILL)
            return np.zeros((8, 8, 3), dtype=np.uint8)

    with pytest.raises(ImageError, match=r"process that decodes images was killed .* set images\.workers to"):
        next(iter(Batches(Fatal(), batch_size=2, workers=1).epoch(0)))
    assert multiprocessing.active_children() == []


def test_kept_workers_give_the_same_batches_in_every_order_of_asking(folder: Path) -> None:
    source = folder_source(folder)
    options = {"batch_size": 5, "seed": 2, "shuffle": True}
    kept, alone = Batches(source, **options, workers=2, epochs=4), Batches(source, **options)
    # Epoch by epoch, then resumed in the middle, then once more from an earlier place, then beyond the end.
    for epoch, start_step in ((0, 0), (1, 0), (2, 3), (3, 0), (1, 0), (2, 5), (2, 0), (7, 1)):
        ours, theirs = list(kept.epoch(epoch, start_step)), list(alone.epoch(epoch, start_step))
        assert len(ours) == len(theirs) == 5 - start_step
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one.images, other.images)
            assert torch.equal(one.indices, other.indices)


def test_kept_workers_live_from_epoch_to_epoch_and_end_with_the_last(folder: Path) -> None:
    def workers() -> set[int | None]:
        return {process.pid for process in multiprocessing.active_children()}

    batches = Batches(folder_source(folder), batch_size=5, workers=2, epochs=3)
    list(batches.epoch(0))
    first = workers()
    assert len(first) == 2
    list(batches.epoch(1))
    assert workers() == first
    list(batches.epoch(2))
    assert workers() == set()
    list(batches.epoch(0))
    assert len(workers()) == 2
    batches.close()
    assert workers() == set()
    steps = batches.epoch(0)
    next(steps)
    steps.close()
    assert workers() == set()


def test_a_worker_writes_straight_into_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _new_images(2, 4).is_shared()
    monkeypatch.setattr("satl.images.batches.get_worker_info", object)
    images = _new_images(2, 4)
    assert images.is_shared()
    assert (images.shape, images.dtype, images.is_contiguous()) == ((2, 4, 4, 3), torch.uint8, True)
    assert _new_images(0, 4).shape == (0, 4, 4, 3)


def test_batches_of_workers_can_be_kept_without_keeping_files_open(folder: Path) -> None:
    open_files = Path("/proc/self/fd")
    batches = Batches(folder_source(folder), batch_size=1, workers=1)
    indices, numbers = [], []
    for batch in batches.epoch(0):
        indices.append(batch.indices)
        numbers.append(len(list(open_files.iterdir())) if open_files.exists() else 0)
    assert torch.cat(indices).tolist() == list(range(23))
    assert numbers[-2] <= numbers[2] + 2


def test_wrong_arguments() -> None:
    source = numbered(10)
    with pytest.raises(ConfigError, match=r"batch_size 11 is larger than the 10 images .* at most 10"):
        Batches(source, batch_size=11, drop_last=True)
    with pytest.raises(ConfigError, match="batch_size 5 cannot be shared equally by 2 processes"):
        Batches(source, batch_size=5, drop_last=True, world_size=2)
    with pytest.raises(ConfigError, match="batch_size is 0"):
        Batches(source, batch_size=0)
    with pytest.raises(ValueError, match="rank"):
        Batches(source, batch_size=5, rank=2, world_size=2)
    for indices in ([0, 10], [-1]):
        with pytest.raises(ValueError, match=r"indices must lie in 0\.\.9"):
            Batches(source, indices, batch_size=5)
    mask = np.arange(10) > 6
    for booleans in (mask, mask.tolist(), torch.from_numpy(mask)):
        with pytest.raises(ArrayError, match=r"not booleans; pass np\.flatnonzero\(mask\)"):
            Batches(source, booleans, batch_size=5)
    assert Batches(source, [], batch_size=5).indices.dtype == np.int64
    batches = Batches(source, batch_size=5)
    with pytest.raises(ValueError, match="start_step"):
        batches.epoch(0, 3)
    with pytest.raises(ValueError, match="step"):
        batches.share(2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are started anew on this system")
def test_workers_are_forked_whatever_python_does_by_default(folder: Path) -> None:
    """A worker of Python 3.14's default would need a source that can be sent to it, and seconds to start."""
    source = folder_source(folder)
    source.note = lambda: None  # cannot be pickled
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("forkserver", force=True)
    try:
        seen = rows_of(Batches(source, batch_size=5, workers=1))
    finally:
        multiprocessing.set_start_method(before, force=True)
    assert list(chain(*seen)) == list(range(23))
