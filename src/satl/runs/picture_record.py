"""Which picture each id of a run stood for, and in which split: ``pictures.npz``.

A run is measured on pictures by their ids. If an id stands for another picture later, or a picture that was trained on
is called test now, every number would be about something else; so a run remembers, and whoever uses it compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from satl.errors import ImageError, RunError, TableError, first_of
from satl.files import atomic_path
from satl.images.picture_digests import Digests, picture_digests
from satl.labels.cells import NameIndex
from satl.labels.io.arrays import ArrayFile, write_arrays
from satl.runs.data import RunData

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PictureRecord:
    """The pictures of a run as they were when it was started.

    Attributes:
        images: ids.
        split: of each, (N,).
        digests: of each, uint64 (N,); 0 where nothing is known of its file.
        origin: what the digests are made of; see :func:`satl.images.picture_digests.picture_digests`.
    """

    images: tuple[str, ...]
    split: NDArray[np.str_]
    digests: Digests
    origin: str

    @classmethod
    def of(cls, data: RunData) -> PictureRecord:
        """Return the record of data as it is now."""
        origin, digests = picture_digests(data.files)
        assert data.table.split is not None
        if not origin:
            digests = np.zeros(data.table.num_images, dtype=np.uint64)
        return cls(data.table.images, data.table.split.astype(np.str_), digests, origin)

    def save(self, path: Path) -> None:
        """Write it as an ``.npz`` file."""
        arrays = {
            "images": np.array(self.images, dtype=np.str_),
            "split": self.split,
            "digests": self.digests,
        }
        with atomic_path(path) as temporary:
            write_arrays(temporary, {**arrays, "origin": np.array(self.origin)})

    @classmethod
    def load(cls, path: Path) -> PictureRecord | None:
        """Read it; None where a run of an earlier version has none.

        Raises:
            RunError: it cannot be read.
        """
        if not path.is_file():
            return None
        try:
            with ArrayFile(path) as stored:
                images, split, digests, origin = (
                    stored.read(name) for name in ("images", "split", "digests", "origin")
                )
            if not len(images) == len(split) == len(digests) or digests.dtype != np.uint64:
                raise ValueError
            return cls(tuple(map(str, images)), split.astype(np.str_), digests, str(origin))
        except (KeyError, ValueError, TypeError, TableError):
            raise RunError("cannot be read", where=path, remedy="restore it from a copy of the run") from None

    def changed(self, data: RunData, rows: IntArray | None = None) -> list[str]:
        """Return the ids of pictures that are not those of this record any more; one that cannot be read is none.

        Args:
            data: as it is now.
            rows: of its table that matter; None: all.
        """
        rows = np.arange(data.table.num_images) if rows is None else rows
        if data.files is None or not self.origin or not len(rows):
            return []
        from satl.images.broken_pictures import chosen_images

        origin, digests = picture_digests(chosen_images(data.files, rows))
        if origin != self.origin:
            return []  # packed since, or unpacked: nothing can be compared
        names = [data.table.images[row] for row in rows.tolist()]
        found = self._index.find(names)
        differs = (
            (found >= 0) & (digests != self.digests[found]) & (digests != 0) & (self.digests[found] != 0)
        )
        return [
            names[place] for place in np.flatnonzero(differs).tolist() if _readable(data, int(rows[place]))
        ]

    def trained_on(self, images: tuple[str, ...] | list[str]) -> list[str]:
        """Return those of some ids that the run trained on or was chosen by: its splits train and val."""
        found = self._index.find(images)
        return [
            images[place] for place in np.flatnonzero((found >= 0) & (self.split[found] != "test")).tolist()
        ]

    def copies_of_training(self, split: str) -> list[tuple[str, str]]:
        """Return the pictures of a split with the content of one of the split train: both ids."""
        train = np.flatnonzero((self.split == "train") & (self.digests != 0))
        others = np.flatnonzero((self.split == split) & (self.digests != 0))
        values, first = np.unique(self.digests[train], return_index=True)
        if not len(values):
            return []
        place = np.searchsorted(values, self.digests[others]).clip(max=len(values) - 1)
        same = values[place] == self.digests[others]
        return [
            (self.images[one], self.images[other])
            for one, other in zip(others[same].tolist(), train[first[place[same]]].tolist(), strict=True)
        ]

    @cached_property
    def _index(self) -> NameIndex:
        return NameIndex(self.images)


def _readable(data: RunData, row: int) -> bool:
    """Whether a picture can be decoded: one that cannot is broken, which is told elsewhere, and no other picture."""
    assert data.files is not None
    try:
        data.files.image(row)
    except ImageError:
        return False
    return True


def copies_words(record: PictureRecord, split: str) -> str | None:
    """Say that pictures of a split are copies of training pictures, or nothing."""
    copies = record.copies_of_training(split)
    if not copies or split == "train":
        return None
    (one, other), total = copies[0], int((record.split == split).sum())
    return (
        f"{len(copies):,} of the {total:,} images of the split {split} have the content of an image of the split train,"
        f" such as {one!r} and {other!r}: measured there, a model is too good"
    )


def changed_words(changed: list[str], total: int) -> str:
    """Say that ids stand for other pictures than when a run was started.

    >>> changed_words(["a.jpg"], 30)
    '1 of 30 images is not the picture that it was when the run was started: a.jpg'
    """
    words = "is not the picture that it was" if len(changed) == 1 else "are not the pictures that they were"
    return f"{len(changed):,} of {total:,} images {words} when the run was started: {first_of(changed)}"


def require_same_pictures(path: Path, data: RunData, run: Path) -> None:
    """Refuse to go on with other pictures: the run would end as no run from its start does.

    Args:
        path: of the record.
        data: as it is now.
        run: its folder, for the message.

    Raises:
        RunError: a picture was replaced.
    """
    record = PictureRecord.load(path)
    changed = [] if record is None else record.changed(data)
    if changed:
        raise RunError(
            changed_words(changed, data.table.num_images),
            where=run,
            remedy=f"restore them, start a new run, or remove {path.name} from the run if they may have changed",
        )
