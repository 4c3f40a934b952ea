"""From a configuration to what a run trains, validates and tests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from satl.errors import ConfigError, TableError
from satl.images import ArrayImages, FolderImages, ImageSource, cached
from satl.labels import LabelTable, mask_table, read_table, split_table
from satl.training.config import RunConfig, ScenesConfig

SPLITS = ("train", "val", "test")
_OTHER_NAMES = {"training": "train", "validation": "val", "valid": "val", "dev": "val", "testing": "test"}


@dataclass(frozen=True)
class RunData:
    """One table with its images; rows of the table and positions of the source are the same."""

    table: LabelTable
    source: ImageSource

    def rows(self, split: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the rows of a split, in the order of the table."""
        assert self.table.split is not None
        return np.flatnonzero(self.table.split == split)

    @property
    def proportion(self) -> float:
        """Return the share of known cells among the training rows."""
        return float(self.table.known[self.rows("train")].mean())


def load_data(config: RunConfig, progress: Callable[[int, int], Any] | None = None) -> RunData:
    """Read or render the images and labels of a run; mask and split them as the configuration says.

    The table that comes back always has the splits ``train`` and ``val``, and ``test`` where the user gave
    one. Rows of other splits are dropped.
    """
    data = config.data
    if data.scenes is not None:
        pixels, table = _scenes(data.scenes)
        source: ImageSource = ArrayImages(pixels)
        table = _prepare(config, table, "scenes")
        return RunData(table, source)
    assert data.table is not None
    assert data.images is not None
    original = read_table(data.table, encoding=data.encoding, truth=data.truth)
    row_of = {image: row for row, image in enumerate(original.images, start=1)}
    table = _prepare(config, original, str(data.table))
    folder = FolderImages(
        data.images, table.images, config.images.store_size, rows=[row_of[image] for image in table.images]
    )
    limit = int(config.images.cache_gb * 2**30)
    return RunData(table, cached(folder, limit_bytes=limit, progress=progress))


@lru_cache(maxsize=2)
def _scenes(scenes: ScenesConfig) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], LabelTable]:
    from satl.demo.scenes import make_scenes

    counts = [scenes.train, scenes.val, scenes.test]
    pixels, table = make_scenes(sum(counts), size=scenes.size, seed=scenes.seed)
    return pixels, table.with_split(np.repeat(np.array(SPLITS), counts))


def _prepare(config: RunConfig, table: LabelTable, origin: str) -> LabelTable:
    data, seed = config.data, config.training.seed
    if table.split is None:
        table = table.with_split(np.full(table.num_images, "train"))
    else:
        lowered = [str(name).strip().lower() for name in table.split]
        named = np.array([_OTHER_NAMES.get(name, name) for name in lowered])
        table = table.with_split(named).select(np.isin(named, SPLITS))
    assert table.split is not None
    if not (table.split == "train").any():
        raise TableError(
            f"{origin}: no row has the split 'train'; name the splits train, val and test, or drop the column."
        )
    if data.proportion is not None:
        mask_seed = seed if data.mask_seed is None else data.mask_seed
        table = mask_table(table, data.proportion, seed=mask_seed)
    assert table.split is not None
    if not (table.split == "val").any():
        table = split_table(table, data.validation, seed=seed, name="val")
    assert table.split is not None
    train = table.cells[table.split == "train"]
    if not (train != 0).any():
        raise TableError(f"{origin}: no training cell is known; label some cells first.")
    if len(train) < config.training.batch_size:
        raise ConfigError(
            f"training.batch_size: {config.training.batch_size} is more than the {len(train)} training images; "
            f"use at most {len(train)}."
        )
    return table
