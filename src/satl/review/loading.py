"""Bring a completed folder into the store: once, and again when its files change; decisions stay."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from itertools import repeat
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.completion.outputs.changes import COMPLETE_AGAIN
from satl.completion.outputs.completed_folder import CompletedFolder
from satl.errors import RunError
from satl.labels import LabelTable
from satl.review.schema import DROP_LOADED, INDEXES, LOADED, OPEN, TALLIES, TOGETHER

_LOADING = 2
"""Raised when the loaded tables change, so that an older store is loaded again."""


def fingerprint(folder: CompletedFolder) -> str:
    """Return a text that changes when one of the files under review is written again."""
    stats = ((file.name, file.stat()) for file in folder.required)
    return json.dumps([_LOADING, [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]])


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


def load_folder(connection: sqlite3.Connection, folder: CompletedFolder) -> int:
    """Replace the loaded tables by the content of ``folder``, inside the caller's transaction.

    Rows are streamed, so memory grows with the number of images and not of suggestions. Decisions that
    stand are found again by the names of image and class.

    Returns:
        The number of suggestions.
    """
    report, table = folder.read_report(), folder.read_labels()
    for statement in (*statements(DROP_LOADED), *statements(LOADED)):
        connection.execute(statement)
    used = np.zeros(table.num_images, dtype=np.bool_)
    sources: set[str] = set()
    rows = _suggestions(folder, table, used, sources)
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
        raise _repeated_cell(connection, folder.changes) from None
    _take_up_decisions(connection)
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


def _take_up_decisions(connection: sqlite3.Connection) -> None:
    """Bring what stands to the suggestions: the vote of every annotator, then what settles disagreements."""
    found = (
        "SELECT suggestion.id, suggestion.class, suggestion.band, decided.* FROM {} AS decided "
        "JOIN image ON image.name = decided.image JOIN class ON class.name = decided.label "
        "JOIN suggestion ON suggestion.image = image.id AND suggestion.class = class.id"
    )
    connection.execute(
        f"INSERT INTO vote SELECT annotator, id, class, band, value, number FROM ({found.format('standing')})"
    )
    connection.execute(
        f"UPDATE suggestion SET state = found.state FROM (SELECT suggestion AS id, {TOGETHER} AS state "
        "FROM vote GROUP BY suggestion) AS found WHERE suggestion.id = found.id"
    )
    connection.execute(
        "UPDATE suggestion SET (state, final) = (found.value, found.number) FROM "
        f"({found.format('resolution')}) AS found WHERE suggestion.id = found.id"
    )


def _suggestions(
    folder: CompletedFolder, table: LabelTable, used: npt.NDArray[np.bool_], sources: set[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield rows of ``suggestion``; ``used`` (N,) is set for every image that has one, sources are collected."""
    for block in folder.read_changes(table):
        used[block.row] = True
        sources.update(block.source.tolist())
        yield from zip(
            range(block.start + 1, block.start + 1 + len(block.row)),
            (block.row + 1).tolist(),
            (block.column + 1).tolist(),
            block.value.tolist(),
            block.score.tolist(),
            _or_null(block.threshold),
            _or_null(block.bound),
            block.band.tolist(),
            block.source.tolist(),
            repeat(OPEN),
        )


def _or_null(numbers: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if isnan(number) else number for number in numbers.tolist()]


def _images(table: LabelTable, used: npt.NDArray[np.bool_]) -> Iterator[tuple[int, str, bytes]]:
    """Yield rows of ``image``: id, name, and what is known as signed class ids, int32."""
    rows, columns = np.nonzero(table.cells)
    signed = (table.cells[rows, columns].astype(np.int32) * (columns + 1)).astype("<i4")
    starts = np.searchsorted(rows, np.arange(table.num_images + 1))
    for row in np.flatnonzero(used).tolist():
        yield row + 1, table.images[row], signed[starts[row] : starts[row + 1]].tobytes()


def _repeated_cell(connection: sqlite3.Connection, path: Path) -> RunError:
    first, again, image, label = connection.execute(
        "SELECT MIN(s.id), MAX(s.id), i.name, c.name FROM suggestion s JOIN image i ON i.id = s.image "
        "JOIN class c ON c.id = s.class GROUP BY s.image, s.class HAVING COUNT(*) > 1 LIMIT 1"
    ).fetchone()
    return RunError(
        f"rows {first} and {again} are both about image {image!r} and class {label!r}",
        where=path,
        remedy=COMPLETE_AGAIN,
    )
