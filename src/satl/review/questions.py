"""What the page asks of the store: plain SQL behind plain functions, all reading, none writing."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from satl.labels.bands import BANDS
from satl.review.schema import OPEN

STATES: dict[str, tuple[int, ...]] = {
    "open": (OPEN,),
    "decided": (1, -1),
    "skipped": (0,),
    "any": (OPEN, 1, -1, 0),
}
"""The states a filter names, as they are stored."""
SHOWN_NEGATIVES = 60
"""Known negatives listed for an image; a table of thousands of classes may have thousands."""
SHOWN_SUGGESTIONS = 100
"""Open suggestions of one image on a page, and as many decided ones; more come when these are decided."""
COUNTED = 10_000
"""A filter by score is counted up to here; beyond, the page says "more than"."""


@dataclass(frozen=True)
class Filter:
    """Which suggestions to show.

    Attributes:
        label, source: one class, one source; None for all.
        bands: some of :data:`~satl.labels.bands.BANDS`.
        state: a key of :data:`STATES`.
        value: +1 suggested present, -1 suggested absent; None for both.
        low, high: bounds of the score, both included.
    """

    label: str | None = None
    bands: tuple[str, ...] = ("review",)
    source: str | None = None
    state: str = "open"
    value: int | None = None
    low: float | None = None
    high: float | None = None

    def conditions(self) -> tuple[str, list[Any]]:
        """Return what is asked beyond state and band, as SQL and its values.

        >>> Filter(source="model", low=0.5).conditions()
        (' AND s.source = ? AND s.score >= ?', ['model', 0.5])
        """
        parts = {
            "s.class = (SELECT id FROM class WHERE name = ?)": self.label,
            "s.source = ?": self.source,
            "s.value = ?": self.value,
            "s.score >= ?": self.low,
            "s.score <= ?": self.high,
        }
        asked = {text: value for text, value in parts.items() if value is not None}
        return "".join(f" AND {text}" for text in asked), list(asked.values())


def next_keys(db: sqlite3.Connection, key: str, wanted: Filter, after: int, limit: int) -> list[int]:
    """Return the next values of ``key`` ("id" or "image") above ``after``, in order, at most ``limit``.

    One question for each state and band, because each of them runs along an index and stops early. A narrow
    range of scores is the exception: going along would pass over nearly everything, so the few that match are
    found by their scores and sorted (a plus keeps SQLite from using the order of an index).
    """
    clause, values = wanted.conditions()
    ranged = wanted.low is not None or wanted.high is not None
    plus = "+" if ranged and count(db, wanted)[1] else ""
    found: set[int] = set()
    for state in STATES[wanted.state]:
        for band in wanted.bands:
            rows = db.execute(
                f"SELECT DISTINCT s.{key} FROM suggestion s WHERE s.state = ? AND s.band = ? "
                f"AND {plus}s.{key} > ?{clause} ORDER BY {plus}s.{key} LIMIT ?",
                (state, BANDS.index(band), after, *values, limit),
            )
            found.update(row[0] for row in rows)
    return sorted(found)[:limit]


def count(db: sqlite3.Connection, wanted: Filter) -> tuple[int, bool]:
    """Return how many suggestions match, and whether that is exact or at least so many."""
    states, bands = STATES[wanted.state], [BANDS.index(band) for band in wanted.bands]
    chosen = f"s.state IN ({placeholders(states)}) AND s.band IN ({placeholders(bands)})"
    clause, values = wanted.conditions()
    if (wanted.source, wanted.value, wanted.low, wanted.high) == (None, None, None, None):
        question = f"SELECT COALESCE(SUM(s.count), 0) FROM tally s WHERE {chosen}{clause}"
        return int(db.execute(question, (*states, *bands, *values)).fetchone()[0]), True
    total = db.execute(
        f"SELECT COUNT(*) FROM (SELECT 1 FROM suggestion s WHERE {chosen}{clause} LIMIT ?)",
        (*states, *bands, *values, COUNTED + 1),
    ).fetchone()[0]
    return min(int(total), COUNTED), total <= COUNTED


def images_that_fit(db: sqlite3.Connection, images: Sequence[int]) -> list[int]:
    """Return as many of the first images as fit on a page with their suggestions, at least one."""
    counts = dict(
        db.execute(
            f"SELECT image, COUNT(*) FROM suggestion WHERE image IN ({placeholders(images)}) GROUP BY image",
            images,
        )
    )
    taken: list[int] = []
    total = 0
    for image in images:
        total += min(counts[image], SHOWN_SUGGESTIONS)
        if taken and total > 4 * SHOWN_SUGGESTIONS:
            break
        taken.append(image)
    return taken


def items(
    db: sqlite3.Connection, key: str, keys: Sequence[int], wanted: Filter | None = None
) -> list[dict[str, Any]]:
    """Return suggestions to review: per id, or per image, the image with its known labels and suggestions.

    ``wanted`` restricts the suggestions, all but by their state. Of an image with very many, the first open and the
    first decided ones are listed, and ``more`` says that others are open.
    """
    bands = BANDS if wanted is None else wanted.bands
    clause, values = ("", []) if wanted is None else wanted.conditions()
    rows = db.execute(
        f"SELECT s.{key}, i.name, i.known, c.name, s.value, s.score, s.threshold, s.bound, s.band, s.source, "
        "s.state, s.number, s.place FROM (SELECT s.*, ROW_NUMBER() OVER "
        f"(PARTITION BY s.{key}, s.state = {OPEN} ORDER BY s.id) AS place FROM suggestion s "
        f"WHERE s.{key} IN ({placeholders(keys)}) AND s.band IN ({placeholders(bands)}){clause}) s "
        f"JOIN image i ON i.id = s.image JOIN class c ON c.id = s.class "
        f"WHERE s.place <= ? ORDER BY s.{key}, s.id",
        (*keys, *(BANDS.index(band) for band in bands), *values, SHOWN_SUGGESTIONS + 1),
    )
    found: dict[int, dict[str, Any]] = {}
    for at, image, known, label, value, score, threshold, bound, band, source, state, number, place in rows:
        if at not in found:
            labels = known_labels(db, known)
            found[at] = {"key": at, "image": image, "known": labels, "more": False, "suggestions": []}
        if place > SHOWN_SUGGESTIONS:
            found[at]["more"] |= state == OPEN
            continue
        found[at]["suggestions"].append(
            {
                "label": label,
                "value": value,
                "score": score,
                "threshold": threshold,
                "bound": bound,
                "band": BANDS[band],
                "source": source,
                "decided": None if state == OPEN else state,
                "number": number,
            }
        )
    return list(found.values())


def known_labels(db: sqlite3.Connection, blob: bytes) -> dict[str, Any]:
    """Return the known labels of an image by name, from signed class ids; of the negatives a screenful."""
    signed = np.frombuffer(blob, dtype="<i4")
    absent = -signed[signed < 0]
    return {
        "present": _names(db, signed[signed > 0].tolist()),
        "absent": _names(db, absent[:SHOWN_NEGATIVES].tolist()),
        "absent_count": len(absent),
    }


def tallies(db: sqlite3.Connection, labels: Collection[str] | None = None) -> dict[str, list[list[int]]]:
    """Return per class, for each band, how many suggestions are open, present, absent and skipped."""
    only = "" if labels is None else f"WHERE c.name IN ({placeholders(labels)}) "
    rows = db.execute(
        "SELECT c.name, t.band, t.state, t.count FROM tally t JOIN class c ON c.id = t.class "
        f"{only}ORDER BY t.class",
        tuple(labels or ()),
    )
    found: dict[str, list[list[int]]] = {}
    for name, band, state, number in rows:
        found.setdefault(name, [[0] * 4 for _ in BANDS])[band][STATES["any"].index(state)] = number
    return found


def placeholders(values: Collection[Any]) -> str:
    """Return as many question marks as there are values.

    >>> placeholders([7, 8])
    '?, ?'
    """
    return ", ".join("?" * len(values))


def _names(db: sqlite3.Connection, ids: list[int]) -> list[str]:
    return [
        row[0]
        for row in db.execute(f"SELECT name FROM class WHERE id IN ({placeholders(ids)}) ORDER BY id", ids)
    ]
