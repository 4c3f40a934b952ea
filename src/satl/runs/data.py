"""From a configuration to what a run trains, validates and tests on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from satl.errors import Argument, ConfigError, Sentence, TableError
from satl.images import ArrayImages, FolderImages, ImageSource, cached, is_store, packed_images
from satl.labels import (
    LabelTable,
    aligned_cells,
    mask_table,
    read_dataset,
    read_other_table,
    read_table,
    split_table,
)
from satl.labels.table import Cells, split_role
from satl.runs.config import DataConfig, RunConfig, ScenesConfig

if TYPE_CHECKING:
    from satl.labels.holdout import HeldOut

SPLITS = ("train", "val", "test")
_KEYS = {"encoding": "data.encoding", "ignore_columns": "data.ignore_columns"}
"""Arguments of :func:`satl.labels.read_table` and the keys of a configuration that set them."""


@dataclass(frozen=True)
class RunData:
    """One table with its images; rows of the table and positions of the source are the same.

    Attributes:
        table: what training may see: cells that are held out are unknown in it.
        source: the images.
        held_out: which known cells are kept from training, or None.
        held_out_cells: int8 (N, C), their labels, 0 elsewhere, or None.
    """

    table: LabelTable
    source: ImageSource
    held_out: HeldOut | None = None
    held_out_cells: Cells | None = None

    def rows(self, split: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the rows of a split, in the order of the table."""
        assert self.table.split is not None
        return np.flatnonzero(self.table.split == split)

    @property
    def known_cells(self) -> Cells:
        """Int8 (N, C): everything that is known, held-out cells included; not for training."""
        return self.table.cells if self.held_out_cells is None else self.table.cells + self.held_out_cells

    @property
    def proportion(self) -> float:
        """Return the share of known cells among the training rows."""
        return float(self.table.known[self.rows("train")].mean())

    def fingerprint(self) -> str:
        """Return a digest of the labels as training sees them, the names and the split."""
        table = self.table
        assert table.split is not None
        digest = hashlib.sha256(np.ascontiguousarray(table.cells).tobytes())
        digest.update("\0".join((*table.images, *table.classes, *map(str, table.split))).encode())
        return digest.hexdigest()


def load_data(config: RunConfig, progress: Callable[[int, int], Any] | None = None) -> RunData:
    """Read or render the images and labels of a run; mask and split them as the configuration says.

    Images come from the folder that the configuration names, or from a packed store in its place.

    The table that comes back always has the splits ``train`` and ``val``, and ``test`` where the user gave
    one and ``data.use_test`` does not leave it out. Rows of other splits are dropped.

    Where no split says which images to validate on, a share of the ``train`` images is taken. It does not
    depend on ``data.proportion``: it is chosen by the labels as they were read, and keeps them. The mask is
    one draw over all ``train`` images as they were read, those to validate on included, in their order: so it
    is the published mask to the bit, whatever share is set aside.

    With ``data.holdout`` some known cells of the ``train`` images are hidden after all that: the table that comes
    back does not know them, so no loss, threshold or graph can.
    """
    data = config.data
    if data.scenes is not None:
        pixels, original = _scenes(data.scenes)
        table = _prepare(config, original, "scenes")
        # The test scenes are the last ones, and all that can be left out.
        source: ImageSource = ArrayImages(pixels[: table.num_images])
        return _held_out(data, table, source)
    if data.dataset is not None:
        assert data.root is not None
        original, origin = read_dataset(data.dataset, data.root, **data.options), data.root
        images = data.root if data.images is None else data.images
    else:
        assert data.table is not None
        assert data.images is not None
        try:
            original = read_table(
                data.table, encoding=data.encoding, truth=data.truth, ignore_columns=data.ignore_columns
            )
        except TableError as error:
            raise error.with_arguments(_KEYS) from None
        images, origin = data.images, data.table
    table = _prepare(config, original, str(origin))
    rows = original.index.images.find(table.images) + 1
    source = open_images(images, table.images, config.images.store_size, rows.tolist())
    limit = int(config.images.cache_gb * 2**30)
    return _held_out(data, table, cached(source, limit_bytes=limit, progress=progress))


def open_images(images: Path, image_ids: Sequence[str], size: int, rows: Sequence[int]) -> ImageSource:
    """Open the images of a table, in an image folder or in a packed store, as squares of side ``size``.

    ``rows`` are the 1-based rows of the ids in the table of the user, for messages.
    """
    if not is_store(images):
        return FolderImages(images, image_ids, size, rows=rows)
    packed = packed_images(images, image_ids, rows=rows)
    if packed.size != size:
        raise ConfigError(
            f"is {size}, but packed store '{images}' holds images of {packed.size} pixels",
            where="images.store_size",
            remedy=Sentence(
                f"set images.store_size to {packed.size}, or pack the images again with {{size}}",
                size=Argument("size", size),
            ),
        )
    return packed


def _held_out(data: DataConfig, table: LabelTable, source: ImageSource) -> RunData:
    if not data.holdout:
        return RunData(table, source)
    from satl.labels.holdout import hold_out

    assert table.split is not None
    candidates = np.where((table.split == "train")[:, None], table.cells, np.int8(0))
    if data.holdout_from is not None:
        earlier = read_other_table(data.holdout_from, data.encoding, data.ignore_columns)
        # A cell that says something else by now was corrected because of its score, and is no random one either.
        same = aligned_cells(earlier, table, data.holdout_from) == candidates
        candidates = np.where(same, candidates, np.int8(0))
    held_out = hold_out(candidates, data.holdout_seed, fraction=data.holdout_fraction)
    if not held_out.mask.any():
        raise TableError(
            "data.holdout: no class has enough known cells to certify a precision of 0.95 on three tenths of them; "
            "label more, set data.holdout_fraction, or leave data.holdout out."
        )
    cells = np.where(held_out.mask, table.cells, np.int8(0))
    return RunData(table.with_cells(table.cells - cells), source, held_out, cells)


@lru_cache(maxsize=2)
def _scenes(scenes: ScenesConfig) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], LabelTable]:
    from satl.scenes import make_scenes

    counts = [scenes.train, scenes.val, scenes.test]
    pixels, table = make_scenes(sum(counts), size=scenes.size, seed=scenes.seed)
    return pixels, table.with_split(np.repeat(np.array(SPLITS), counts))


def _prepare(config: RunConfig, table: LabelTable, origin: str) -> LabelTable:
    data, seed = config.data, config.training.seed
    if table.split is None:
        table = table.with_split(np.full(table.num_images, "train"))
    else:
        named = np.array([split_role(name) for name in table.split])
        table = table.with_split(named).select(np.isin(named, SPLITS if data.use_test else SPLITS[:2]))
    assert table.split is not None
    if not (table.split == "train").any():
        raise TableError(
            f"{origin}: no row has the split 'train'; name the splits train, val and test, or drop the column."
        )
    complete = table
    if data.proportion is not None:
        mask_seed = seed if data.mask_seed is None else data.mask_seed
        table = mask_table(table, data.proportion, seed=mask_seed)
    if "val" not in complete.splits:
        complete = split_table(complete, data.validation, seed=seed, name="val")
        assert complete.split is not None
        validated = complete.split == "val"
        table = table.with_split(complete.split.tolist()).with_cells(
            np.where(validated[:, None], complete.cells, table.cells)
        )
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
