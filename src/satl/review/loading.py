"""Bring a completed folder into the store: once, and again when its files change; decisions stay."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import RunError, TableError
from satl.labels import LabelTable, read_table
from satl.review.folder import BANDS, CHANGES, LABELS, REPORT, Change, read_changes, read_report
from satl.review.schema import DROP_IMPORTED, IMPORTED, INDEXES, OPEN, TALLIES

_AGAIN = "write the folder again with `satl complete`"
_IMPORT = 1
"""Raised when the imported tables change, so that an older store is imported again."""


def fingerprint(folder: Path) -> str:
    """Return a text that changes when one of the files under review is written again."""
    stats = ((name, (folder / name).stat()) for name in (CHANGES, REPORT, LABELS))
    return json.dumps([_IMPORT, [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]])


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one: ``executescript`` would end the transaction around them.

    >>> [part.split()[0] for part in statements("CREATE TABLE a (b);\\nDROP TABLE a;\\n")]
    ['CREATE', 'DROP']
    """
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            yield part.strip()
            part = ""


def import_folder(connection: sqlite3.Connection, folder: Path) -> int:
    """Replace the imported tables by the content of ``folder``, inside the caller's transaction.

    Rows are streamed, so memory grows with the number of images and not of suggestions. Decisions that
    stand are found again by the names of image and class.

    Returns:
        The number of suggestions.
    """
    report = read_report(folder / REPORT)
    try:
        table = read_table(folder / LABELS)
    except TableError as error:
        raise RunError(f"{error}") from None
    for statement in (*statements(DROP_IMPORTED), *statements(IMPORTED)):
        connection.execute(statement)
    used = np.zeros(table.num_images, dtype=np.bool_)
    sources: set[str] = set()
    rows = _suggestions(folder / CHANGES, table, used, sources)
    connection.executemany("INSERT INTO suggestion VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)", rows)
    by_name = {str(entry["name"]): entry for entry in report["classes"]}
    connection.executemany(
        "INSERT INTO class VALUES (?, ?, ?)",
        ((c, name, json.dumps(by_name.get(name, {}))) for c, name in enumerate(table.classes, start=1)),
    )
    connection.executemany("INSERT INTO image VALUES (?, ?, ?)", _images(table, used))
    try:
        for statement in statements(INDEXES):
            connection.execute(statement)
    except sqlite3.IntegrityError:
        raise _twice(connection, folder / CHANGES) from None
    connection.execute(
        "UPDATE suggestion SET (state, number) = (found.value, found.number) FROM ("
        "SELECT image.id AS image, class.id AS class, standing.value, standing.number FROM standing "
        "JOIN image ON image.name = standing.image JOIN class ON class.name = standing.label) AS found "
        "WHERE suggestion.image = found.image AND suggestion.class = found.class"
    )
    for statement in statements(TALLIES):
        connection.execute(statement)
    connection.execute("ANALYZE")
    stated = {key: report.get(key) for key in ("statement", "target_precision", "confidence", "images")}
    stated["sources"] = sorted(sources)
    generation = connection.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
    values = {
        "report": json.dumps(stated),
        "generation": str(int(generation[0]) + 1 if generation else 1),
        "fingerprint": fingerprint(folder),
    }
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
    return int(connection.execute("SELECT COALESCE(SUM(count), 0) FROM tally").fetchone()[0])


def _suggestions(
    path: Path, table: LabelTable, used: npt.NDArray[np.bool_], sources: set[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield rows of ``suggestion``; ``used`` (N,) is set for every image that has one, sources are collected."""
    image_at = {name: row for row, name in enumerate(table.images)}
    class_at = {name: column for column, name in enumerate(table.classes)}
    bands = {name: i for i, name in enumerate(BANDS)}
    for number, change in enumerate(read_changes(path), start=1):
        row, column = image_at.get(change.image), class_at.get(change.label)
        if row is None or column is None:
            what = f"image {change.image!r}" if row is None else f"class {change.label!r}"
            raise RunError(f"{path}: row {number}: {LABELS} beside it has no {what}: {_AGAIN}.")
        used[row] = True
        sources.add(change.source)
        yield _row(number, row, column, change, bands[change.band])


def _row(number: int, row: int, column: int, change: Change, band: int) -> tuple[Any, ...]:
    return (
        *(number, row + 1, column + 1, change.value, change.score, change.threshold, change.bound),
        *(band, change.source, OPEN),
    )


def _images(table: LabelTable, used: npt.NDArray[np.bool_]) -> Iterator[tuple[int, str, bytes]]:
    """Yield rows of ``image``: id, name, and what is known as signed class ids, int32."""
    rows, columns = np.nonzero(table.cells)
    signed = (table.cells[rows, columns].astype(np.int32) * (columns + 1)).astype("<i4")
    starts = np.searchsorted(rows, np.arange(table.num_images + 1))
    for row in np.flatnonzero(used).tolist():
        yield row + 1, table.images[row], signed[starts[row] : starts[row + 1]].tobytes()


def _twice(connection: sqlite3.Connection, path: Path) -> RunError:
    first, again, image, label = connection.execute(
        "SELECT MIN(s.id), MAX(s.id), i.name, c.name FROM suggestion s JOIN image i ON i.id = s.image "
        "JOIN class c ON c.id = s.class GROUP BY s.image, s.class HAVING COUNT(*) > 1 LIMIT 1"
    ).fetchone()
    return RunError(
        f"{path}: rows {first} and {again} are both about image {image!r} and class {label!r}: {_AGAIN}."
    )
