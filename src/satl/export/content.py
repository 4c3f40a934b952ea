"""What is exported: the known cells of a table, and the suggestions of a completion."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from satl.errors import Argument, ImageError, RunError, Sentence, TableError, first_line, nearest
from satl.export.suggestions import Suggestions
from satl.labels import ABSENT, PRESENT, UNKNOWN, LabelTable, read_table
from satl.labels.bands import ACCEPTED, BANDS, SUGGESTED_BANDS

if TYPE_CHECKING:
    from satl.completion.outputs.completed_folder import CompletedFolder

_ROWS_AT_ONCE = 4096


class ImageRow(NamedTuple):
    """One image of a source; lists of columns, and (column, value, score, band) of every suggestion."""

    row: int
    image: str
    file: str
    split: str | None
    present: list[int]
    absent: list[int]
    suggested: list[tuple[int, int, float, int]]


@dataclass(frozen=True)
class Source:
    """What is exported.

    Attributes:
        table: the known cells, confirmed by a person; never any other.
        suggestions: what a model proposes, or None where the source is a plain table.
        model: what made the suggestions, such as ``satl 0.1.0``.
        folder: of the image files, or None where it was not named.
        files: name of every image file below ``folder``; the ids of the table where there is no folder.
        address: what stands before every file name where the tool asks for an address, or None.
        name: of the folder or the table.
    """

    table: LabelTable
    suggestions: Suggestions | None = None
    model: str = "satl"
    folder: Path | None = None
    files: tuple[str, ...] = ()
    address: str | None = None
    name: str = "labels"

    def __post_init__(self) -> None:
        if not self.files:
            object.__setattr__(self, "files", self.table.images)

    def images(self) -> Iterator[ImageRow]:
        """Yield the images in the order of the table; little more than one block of rows is held as lists.

        >>> table = LabelTable(("a.jpg",), ("cat", "dog", "owl"), np.array([[1, -1, 0]]))
        >>> image = next(Source(table, Suggestions.of([(0, 2, 1, 0.7, 1)])).images())
        >>> image.present, image.absent, image.suggested
        ([0], [1], [(2, 1, 0.7, 1)])
        """
        table, proposed = self.table, self.suggestions
        splits = None if table.split is None else table.split.tolist()
        for first in range(0, table.num_images, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, table.num_images)
            cells = table.cells[first:last]
            present, absent = _columns(cells == PRESENT), _columns(cells == ABSENT)
            suggested = [[]] * (last - first) if proposed is None else _suggested(proposed, first, last)
            for at in range(last - first):
                row = first + at
                split = None if splits is None else splits[row]
                yield ImageRow(
                    row, table.images[row], self.files[row], split, present[at], absent[at], suggested[at]
                )

    def has(self, value: int) -> bool:
        """Whether any suggestion has this value."""
        return self.suggestions is not None and bool((self.suggestions.values == value).any())

    def size(self, row: int) -> tuple[int, int] | None:
        """Return width and height in pixels of one image, from the head of its file; None without an image folder."""
        if self.folder is None:
            return None
        from PIL import Image, UnidentifiedImageError

        file = self.folder / self.files[row]
        try:
            with Image.open(file) as image:
                return image.size
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise ImageError(
                f"image '{file}' of row {row + 1} cannot be read ({first_line(error)})",
                remedy=Sentence("replace it, or leave out {images}", images=Argument("images")),
            ) from None


def _columns(mask: npt.NDArray[np.bool_]) -> list[list[int]]:
    rows, columns = np.nonzero(mask)
    ends = np.searchsorted(rows, np.arange(len(mask) + 1)).tolist()
    flat = columns.tolist()
    return [flat[start:end] for start, end in pairwise(ends)]


def _suggested(proposed: Suggestions, first: int, last: int) -> list[list[tuple[int, int, float, int]]]:
    ends = np.searchsorted(proposed.rows, np.arange(first, last + 1))
    part = slice(int(ends[0]), int(ends[-1]))
    flat = list(zip(*(array[part].tolist() for array in proposed.arrays[1:]), strict=True))
    within = (ends - ends[0]).tolist()
    return [flat[start:end] for start, end in pairwise(within)]


def read_source(
    path: str | Path,
    *,
    encoding: str | None = None,
    ignore_columns: Collection[str] = (),
    labels: str | Path | None = None,
    bands: Collection[str] = SUGGESTED_BANDS,
    suggestions_only: bool = False,
    images: str | Path | None = None,
    address: str | None = None,
) -> Source:
    """Read a folder of ``satl complete``, or a label table, for export.

    Args:
        path: the folder or the table.
        encoding, ignore_columns: how to read a table, as in :func:`satl.labels.read_table`.
        labels: for a folder, the table that its known cells are taken from instead; suggestions that a person has
            decided there (known in ``labels`` and unknown when the folder was written, or a suspected error that was
            corrected) are left out.
        bands: of the suggestions, ``accepted``, ``review`` or both.
        suggestions_only: leave out the known cells, and every image without a suggestion.
        images: folder of the image files: each is looked for, ids without extension get their file's.
        address: put before every file name where a tool asks for an address.

    The hidden truth of a table is never exported.
    """
    for band in bands:
        if band not in SUGGESTED_BANDS:
            raise TableError(
                f"is neither {' nor '.join(SUGGESTED_BANDS)}{nearest(band, SUGGESTED_BANDS)}",
                where=Argument("bands", band),
                remedy="say one of them",
            )
    place = Path(path)
    if place.is_dir():
        source = _read_folder(place, labels, encoding, bands)
    elif labels is not None:
        raise TableError(
            f"belongs to the folder of a completion, which {place} is not",
            where=Argument("labels", labels),
            remedy="leave it out",
        )
    else:
        table = read_table(place, encoding, ignore_columns=tuple(ignore_columns))
        source = Source(table.with_truth(None))
    if suggestions_only:
        source = _suggestions_only(source, place)
    if images is not None:
        source = replace(source, folder=Path(images), files=_files(Path(images), source.table.images))
    return replace(source, address=address, name=place.resolve().name)


def _read_folder(
    place: Path, labels: str | Path | None, encoding: str | None, bands: Collection[str]
) -> Source:
    from satl.completion.outputs.completed_folder import CompletedFolder

    folder = CompletedFolder.open(place)
    before = folder.read_labels().with_truth(None)
    if ACCEPTED in bands:
        folder.require_all_listed()
    proposed = _read_suggestions(folder, before, bands)
    table = before
    if labels is not None:
        table = read_table(labels, encoding).with_truth(None)
        proposed = _undecided(proposed, before, table, Path(labels), place)
    return Source(table, proposed, f"satl {folder.read_report().get('satl', '')}".strip())


def _read_suggestions(folder: CompletedFolder, table: LabelTable, bands: Collection[str]) -> Suggestions:
    wanted = np.array([band in bands and band in SUGGESTED_BANDS for band in BANDS])
    parts = [Suggestions.of(())]
    for block in folder.read_changes(table):
        kept = wanted[block.band]
        codes = block.band[kept].astype(np.uint8)
        parts.append(
            Suggestions(block.row[kept], block.column[kept], block.value[kept], block.score[kept], codes)
        )
    columns = zip(*(part.arrays for part in parts), strict=True)
    proposed = Suggestions(*map(np.concatenate, columns)).ordered()
    twice = proposed.repeated()
    if twice is not None:
        from satl.completion.outputs.changes import COMPLETE_AGAIN

        raise RunError(
            f"image {table.images[twice[0]]!r} and class {table.classes[twice[1]]!r} come twice",
            where=folder.changes,
            remedy=COMPLETE_AGAIN,
        )
    return proposed


def _undecided(
    proposed: Suggestions, before: LabelTable, table: LabelTable, path: Path, place: Path
) -> Suggestions:
    """Return the suggestions about cells of ``table`` that nobody has decided since ``before``."""
    rows = table.index.images.find_distinct(before.images)[proposed.rows]
    columns = table.index.classes.find(before.classes)[proposed.columns]
    lost = (rows < 0) | (columns < 0)
    if lost.any():
        at = int(np.argmax(lost))
        image, label = before.images[proposed.rows[at]], before.classes[proposed.columns[at]]
        raise TableError(
            f"has no cell of image {image!r}, class {label!r}, about which {place} holds a suggestion",
            where=Argument("labels", path),
            remedy=f"give the table that {place} was completed from, with or without later decisions",
        )
    now, then = table.cells[rows, columns], before.cells[proposed.rows, proposed.columns]
    # A suspected error that was corrected says what was proposed; one that was confirmed looks like a new one.
    decided = (now != UNKNOWN) & ((then == UNKNOWN) | (now == proposed.values))
    moved = Suggestions(rows, columns, proposed.values, proposed.scores, proposed.bands)
    return moved.select(~decided).ordered()


def _suggestions_only(source: Source, place: Path) -> Source:
    proposed = source.suggestions
    if proposed is None or not len(proposed):
        what = "holds no suggestion" if proposed is not None else "is not the folder of a completion"
        raise TableError(
            f"{place} {what}, so nothing is left",
            where=Argument("suggestions_only", True),
            remedy="leave the option out",
        )
    rows, place_of = np.unique(proposed.rows, return_inverse=True)
    table = source.table.select(rows)
    return replace(
        source,
        table=table.with_cells(np.zeros_like(table.cells), "signed"),
        suggestions=replace(proposed, rows=place_of.astype(np.int64).reshape(-1)),
        files=(),
    )


def _files(folder: Path, images: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids, with the extension of the file where an id has none."""
    from satl.images import FolderImages

    found = FolderImages(folder, images, 1).files
    return tuple(name + file[len(str(folder / name)) :] for name, file in zip(images, found, strict=True))
