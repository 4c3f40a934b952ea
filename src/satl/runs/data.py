"""From a configuration to what a run trains, validates and tests on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from satl.errors import Argument, ConfigError, ImageError, Sentence, TableError
from satl.features import FeatureFolder, FeatureTable, read_features
from satl.images import ArrayImages, FolderImages, ImageSource, cached, is_store, packed_images
from satl.images.broken_pictures import BrokenPicture, chosen_images, readable_images, require_few
from satl.images.input_format import Interpolation
from satl.images.store import absent_images
from satl.labels import (
    LabelTable,
    aligned_cells,
    mask_table,
    read_dataset,
    read_other_table,
    read_table,
    split_table,
)
from satl.labels.cells import ImageIndex
from satl.labels.table import Cells, split_role
from satl.remote.addresses import RemotePath
from satl.remote.copies import local_copy, picture_folder, require_trust
from satl.runs.config import DataConfig, RunConfig, ScenesConfig
from satl.runs.settling import settled

if TYPE_CHECKING:
    from satl.labels.holdout import HeldOut

SPLITS = ("train", "val", "test")
_KEYS = {"encoding": "data.encoding", "ignore_columns": "data.ignore_columns"}
"""Arguments of :func:`satl.labels.read_table` and the keys of a configuration that set them."""


@dataclass(frozen=True)
class RunData:
    """One table with its images or features; rows of the table and positions of the source are the same.

    Attributes:
        table: what training may see: cells that are held out are unknown in it.
        source: the images, or the features instead of them.
        held_out: which known cells are kept from training, or None.
        held_out_cells: int8 (N, C), their labels, 0 elsewhere, or None.
        left_out: images of the table that are not in it because they cannot be read (``images.broken: skip``), or could
            not be when the features were made.
        files: the images where they were read from, in the same order; None where there are no files.
    """

    table: LabelTable
    source: ImageSource | FeatureTable
    held_out: HeldOut | None = None
    held_out_cells: Cells | None = None
    left_out: tuple[BrokenPicture, ...] = ()
    files: ImageSource | None = None

    @property
    def images(self) -> ImageSource:
        """The images of a run that is trained on images."""
        assert not isinstance(self.source, FeatureTable)
        return self.source

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

    def label_counts(self) -> dict[str, Any]:
        """Return how many images each split has, and how many training cells of each class are known to be what."""
        cells = self.table.cells[self.rows("train")]
        return {
            "images": {split: len(self.rows(split)) for split in SPLITS},
            "positives": (cells > 0).sum(axis=0).tolist(),
            "negatives": (cells < 0).sum(axis=0).tolist(),
        }

    def feature_facts(self) -> dict[str, Any] | None:
        """Return what a run keeps about its features as plain data, or None for a run on images."""
        source = self.source
        if not isinstance(source, FeatureTable):
            return None
        return {
            "dim": source.dim,
            "views": source.views,
            "digest": source.digest,
            "made_by": source.made_by,
        }

    def fingerprint(self) -> str:
        """Return a digest of the labels as training sees them, the names, the split, and the features if there are."""
        table = self.table
        assert table.split is not None
        digest = hashlib.sha256(np.ascontiguousarray(table.cells).tobytes())
        digest.update("\0".join((*table.images, *table.classes, *map(str, table.split))).encode())
        if isinstance(self.source, FeatureTable):
            digest.update(self.source.digest.encode())
        return digest.hexdigest()


def load_data(
    config: RunConfig,
    progress: Callable[[int, int], Any] | None = None,
    recorded: Mapping[str, str] | None = None,
) -> RunData:
    """Read or render the images and labels of a run; mask and split them as the configuration says.

    Images come from the folder that the configuration names, or from a packed store in its place. With
    ``data.features`` no image is read: features are, in memory up to ``images.cache_gb`` and from their file beyond.

    The table that comes back always has the split ``train``, ``val`` unless ``data.validation`` is 0 and the user gave
    none, and ``test`` where the user gave one and ``data.use_test`` does not leave it out. Rows of other splits are
    dropped.

    Where no split says which images to validate on, a share of the ``train`` images is taken. It does not
    depend on ``data.proportion``: it is chosen by the labels as they were read. The mask is one draw over all ``train``
    images as they were read, those to validate on included, in their order: so it is the published mask to the bit,
    whatever share is set aside. With ``data.validation_labels`` "complete" images to validate on keep their labels.

    With ``data.holdout`` some known cells of the ``train`` images are hidden after all that: the table that comes
    back does not know them, so no loss, threshold or graph can.

    With ``images.broken`` "skip" every image is read once, and those that cannot be read are left out of the table
    after all that: the others keep their mask and their split.

    Args:
        config: of the run.
        progress: called with (images read, images in all).
        recorded: images that a run left out when it was started, with the reason. They are left out again, whether they
            can be read by now or not, and no other is: the run must see the same rows.

    Raises:
        ImageError: an image cannot be read, or more than ``images.broken_share`` of them.
    """
    data = local_data(config.data)
    if data.scenes is not None:
        pixels, original = _scenes(data.scenes)
        table = _prepare(config, original, "scenes")
        # The test scenes are the last ones, and all that can be left out.
        source: ImageSource = ArrayImages(pixels[: table.num_images])
        return _held_out(data, table, source)
    if data.dataset is not None:
        assert data.root is not None
        original, origin = read_dataset(data.dataset, data.root, **data.options), data.root
        images: Path | None = data.root if data.images is None else data.images
    else:
        assert data.table is not None
        original = _read_table(data, data.table)
        images, origin = data.images, data.table
    table = _prepare(config, original, str(origin))
    limit = int(config.images.cache_gb * 2**30)
    if data.features is not None:
        table, left_out = _without(table, FeatureFolder.read_broken(data.features))
        features = read_features(data.features, table.images, limit_bytes=limit)
        return replace(_held_out(data, table, features), left_out=left_out)
    assert images is not None
    section, total = config.images, table.num_images
    skip = section.broken == "skip"
    left_out = ()
    if recorded or (skip and recorded is None and is_store(images)):
        table, left_out = _without(table, recorded or absent_images(images, table.images))
    rows = original.index.images.find(table.images) + 1
    interpolation = settled(config).images.input.interpolation
    files = open_images(
        images, table.images, section.store_size, rows.tolist(), interpolation, allow_missing=skip
    )
    if not skip:
        source = cached(files, limit_bytes=limit, progress=progress)
    elif recorded is None:
        source, unreadable = readable_images(files, limit_bytes=limit, progress=progress)
        found = {table.images[row]: reason for row, reason in unreadable.items()}
        if found:
            files = chosen_images(files, np.delete(np.arange(table.num_images), list(unreadable)))
            table, more = _without(table, found)
            left_out += more
        require_few(left_out, total, section.broken_share)
    else:
        source = files
        with suppress(
            ImageError
        ):  # of one that broke since the start and keeps its place: none is read ahead then
            source = cached(files, limit_bytes=limit, progress=progress)
    return replace(_held_out(data, table, source), left_out=left_out, files=files)


def can_hold_out(config: RunConfig) -> bool:
    """Tell whether a run on a table can hold out any cell; no image and no feature is read for it.

    :func:`load_data` refuses a run that cannot, but its images may take hours to get that far.
    """
    data = local_data(config.data)
    assert data.table is not None
    table = _prepare(config, _read_table(data, data.table), str(data.table))
    return bool(_choose_held_out(data, table).mask.any())


def local_data(data: DataConfig) -> DataConfig:
    """Return where data comes from with local copies of what lies behind addresses; pictures are fetched later.

    Raises:
        RemoteError: an address cannot be read, or came with a run folder from elsewhere.
    """
    copies: dict[str, Path] = {}
    for key, place in data.remote.items():
        if key == "images" and data.features is not None:
            continue  # only shown to people
        require_trust(str(place))
        copies[key] = (picture_folder if key == "images" else local_copy)(place)
    return data.model_copy(update=copies) if copies else data


def _without(table: LabelTable, broken: Mapping[str, str]) -> tuple[LabelTable, tuple[BrokenPicture, ...]]:
    """Return the table without the images that cannot be read, and these."""
    if not broken:
        return table, ()
    index = ImageIndex(tuple(broken))
    found = index.find(table.images)
    reasons = tuple(broken.values())
    left_out = tuple(
        BrokenPicture(
            table.images[row], reasons[found[row]], "" if table.split is None else str(table.split[row])
        )
        for row in np.flatnonzero(found >= 0).tolist()
    )
    return (table.select(found < 0), left_out) if left_out else (table, ())


def open_images(
    images: Path,
    image_ids: Sequence[str],
    size: int,
    rows: Sequence[int],
    interpolation: Interpolation = "bicubic",
    *,
    allow_missing: bool = False,
) -> ImageSource:
    """Open the images of a table, in an image folder or in a packed store, as squares of side ``size``.

    ``rows`` are the 1-based rows of the ids in the table of the user, for messages. The images of a store keep the
    interpolation that they were packed with. With ``allow_missing`` a missing file is an image that cannot be read.
    """
    if isinstance(images, RemotePath):
        require_trust(str(images))
        images = picture_folder(images)
    if not is_store(images):
        return FolderImages(
            images, image_ids, size, rows=rows, interpolation=interpolation, allow_missing=allow_missing
        )
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


def _read_table(data: DataConfig, path: Path) -> LabelTable:
    try:
        return read_table(path, encoding=data.encoding, truth=data.truth, ignore_columns=data.ignore_columns)
    except TableError as error:
        raise error.with_arguments(_KEYS) from None


def _choose_held_out(data: DataConfig, table: LabelTable) -> HeldOut:
    from satl.labels.holdout import hold_out

    assert table.split is not None
    candidates = np.where((table.split == "train")[:, None], table.cells, np.int8(0))
    if data.holdout_from is not None:
        earlier = read_other_table(data.holdout_from, data.encoding, data.ignore_columns)
        # A cell that says something else by now was corrected because of its score, and is no random one either.
        same = aligned_cells(earlier, table, data.holdout_from) == candidates
        candidates = np.where(same, candidates, np.int8(0))
    return hold_out(candidates, data.holdout_seed, fraction=data.holdout_fraction, encoding="signed")


def _held_out(data: DataConfig, table: LabelTable, source: ImageSource | FeatureTable) -> RunData:
    if not data.holdout:
        return RunData(table, source)
    held_out = _choose_held_out(data, table)
    if not held_out.mask.any():
        raise TableError(
            "no class has enough known cells to certify a precision of 0.95 on three tenths of them",
            where="data.holdout",
            remedy=Sentence(
                "label more, set data.holdout_fraction, or hold none out with {holdout}",
                holdout=Argument("data.holdout", False),
            ),
        )
    cells = np.where(held_out.mask, table.cells, np.int8(0))
    return RunData(table.with_cells(table.cells - cells, "signed"), source, held_out, cells)


@lru_cache(maxsize=2)
def _scenes(scenes: ScenesConfig) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], LabelTable]:
    from satl.scenes import make_scenes

    counts = [scenes.train, scenes.val, scenes.test]
    pixels, table = make_scenes(sum(counts), size=scenes.size, seed=scenes.seed, objects=scenes.objects)
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
        # Images that the user set aside to validate on are masked after those to train on, which keep their mask.
        as_well = [name for name in ("val",) if name in table.splits and data.validation_labels == "known"]
        table = mask_table(table, data.proportion, seed=mask_seed, further_splits=as_well)
    if "val" not in complete.splits and data.validation > 0:
        complete = split_table(complete, data.validation, seed=seed, name="val")
        assert complete.split is not None
        table = table.with_split(complete.split.tolist())
        if data.validation_labels == "complete":
            validated = complete.split == "val"
            table = table.with_cells(np.where(validated[:, None], complete.cells, table.cells), "signed")
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
