"""``broken.csv``: the list of pictures that cannot be read, in a run, a packed store or a folder of features."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from satl.checks.formulas import warn_of_formulas
from satl.errors import ImageError
from satl.files import atomic_path

BROKEN = "broken.csv"
COLUMNS = ("image", "reason")


def write_broken(listing: Path, broken: Iterable[Sequence[str]], columns: Sequence[str] = COLUMNS) -> None:
    """Write the list of broken pictures, or remove it where there are none.

    Args:
        listing: the file.
        broken: a row for each picture.
        columns: names of the columns, ``image`` and ``reason`` first.
    """
    rows = list(broken)
    if not rows:
        listing.unlink(missing_ok=True)
        return
    warn_of_formulas(listing, (row[0] for row in rows))
    with atomic_path(listing) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def read_broken(listing: Path) -> list[dict[str, str]]:
    """Return the rows of a list of broken pictures by column; none where there is no list.

    Raises:
        ImageError: it cannot be read, or is no such list.
    """
    try:
        with listing.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, restval=""))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, csv.Error) as error:
        raise ImageError("cannot be read", where=listing, remedy="restore it from a copy") from error
    if any(row.get(column) is None for row in rows for column in COLUMNS):
        raise ImageError("is no list of broken images", where=listing, remedy="restore it from a copy")
    return rows
