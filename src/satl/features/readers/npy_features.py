"""NumPy ``.npy``, mapped into memory, with the ids in a file beside it: ``NAME.txt``, ``NAME.csv``, ``ids.txt``."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from satl.errors import TableError, first_line
from satl.features.feature_reader import FeatureFile, FeatureReader, register_feature_reader
from satl.features.half_arrays import map_array
from satl.labels.io.wide import image_position
from satl.scores.score_reader import has_extension


@contextmanager
def open_npy(path: Path) -> Iterator[FeatureFile]:
    """Open an ``.npy`` file and its ids."""
    array = map_array(path)
    if array.ndim not in (2, 3):
        raise TableError(
            f"the features have the shape {array.shape}",
            where=path,
            remedy="give (rows, numbers), or (rows, views, numbers)",
        )
    yield FeatureFile(read_ids(find_ids(path)), [array], mapped=True)


def find_ids(path: Path) -> Path:
    """Return the file of ids beside an array.

    Raises:
        TableError: there is none.
    """
    beside = [path.with_suffix(ending) for ending in (".txt", ".csv")]
    beside += [path.with_name(name) for name in ("ids.txt", "ids.csv")]
    found = next((file for file in beside if file.is_file()), None)
    if found is None:
        raise TableError(
            "does not say which image each row is of",
            where=path,
            remedy=f"write their ids, one a line, to {beside[0].name} beside it",
        )
    return found


def read_ids(file: Path) -> list[str]:
    """Read ids: the lines of a text file, or the column ``image`` of a CSV file."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix == ".txt":
            return [line.strip() for line in text.splitlines()]
        header, *rows = list(csv.reader(text.splitlines(), strict=True)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TableError(
            f"cannot be read ({first_line(error)})", where=file, remedy="save it again"
        ) from None
    at = image_position(header)
    if at is None:
        raise TableError("no column names the image", where=file, remedy="call that column 'image'")
    return [row[at].strip() for row in rows if len(row) > at]


register_feature_reader(FeatureReader(".npy", has_extension(".npy"), open_npy))
