"""What the page asks of the store: plain SQL behind plain functions, all reading, none writing."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from satl.labels.bands import BANDS
from satl.review.schema import DISAGREED, OPEN

STATES = ("open", "unseen", "decided", "skipped", "disagreed", "resolved", "any")
"""The states a filter names: open, decided or skipped for the annotator who asks; unseen by all; disagreed about by
several and not settled; settled by a final decision; any."""
FINAL_STATES = ("disagreed", "resolved")
"""States under which a decision is a final one."""
_TAKEN = (1, -1, 0, DISAGREED)
_MINE = "EXISTS (SELECT 1 FROM vote v WHERE v.annotator = ? AND v.suggestion = s.id"
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
        state: one of :data:`STATES`.
        value: +1 suggested present, -1 suggested absent; None for both.
        low, high: bounds of the score, both included.
        annotator: who asks.
    """

    label: str | None = None
    bands: tuple[str, ...] = ("review",)
    source: str | None = None
    state: str = "open"
    value: int | None = None
    low: float | None = None
    high: float | None = None
    annotator: str = ""

    @property
    def final(self) -> bool:
        """Whether decisions under this filter settle disagreements."""
        return self.state in FINAL_STATES

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


def has_others(db: sqlite3.Connection, annotator: str) -> bool:
    """Whether anybody but this annotator has decided something."""
    question = (
        "SELECT 1 FROM vote WHERE annotator < ? UNION ALL SELECT 1 FROM vote WHERE annotator > ? LIMIT 1"
    )
    return db.execute(question, (annotator, annotator)).fetchone() is not None


def branches(db: sqlite3.Connection, wanted: Filter) -> Iterator[tuple[str, list[Any]]]:
    """Yield the conditions of a filter, one for each stored state and band, which together are the whole.

    Each of them runs along an index and stops early. What is open for one annotator is above all what nobody has
    decided; to that come the cells that only others have, as many as people have decided and no more.
    """
    who = [wanted.annotator]
    chosen: list[tuple[int, str, list[Any]]]
    if wanted.state == "open":
        chosen = [(OPEN, "", [])]
        if has_others(db, wanted.annotator):
            chosen += [(state, f" AND s.final IS NULL AND NOT {_MINE})", who) for state in _TAKEN]
    elif wanted.state in ("decided", "skipped"):
        sign = "<>" if wanted.state == "decided" else "="
        chosen = [(state, f" AND {_MINE} AND v.state {sign} 0)", who) for state in _TAKEN]
    elif wanted.state == "resolved":
        chosen = [(state, " AND s.final IS NOT NULL", []) for state in _TAKEN]
    else:
        states = {"unseen": (OPEN,), "disagreed": (DISAGREED,), "any": (OPEN, *_TAKEN)}[wanted.state]
        chosen = [(state, "", []) for state in states]
    clause, values = wanted.conditions()
    for state, text, given in chosen:
        for band in wanted.bands:
            yield f"s.state = ? AND s.band = ?{text}{clause}", [state, BANDS.index(band), *given, *values]


def next_keys(db: sqlite3.Connection, key: str, wanted: Filter, after: int, limit: int) -> list[int]:
    """Return the next values of ``key`` ("id" or "image") above ``after``, in order, at most ``limit``.

    A narrow range of scores is an exception: going along would pass over nearly everything, so the few that match
    are found by their scores and sorted (a plus keeps SQLite from using the order of an index).
    """
    ranged = wanted.low is not None or wanted.high is not None
    plus = "+" if ranged and count(db, wanted)[1] else ""
    found: set[int] = set()
    for clause, values in branches(db, wanted):
        rows = db.execute(
            f"SELECT DISTINCT s.{key} FROM suggestion s WHERE {clause} AND {plus}s.{key} > ? "
            f"ORDER BY {plus}s.{key} LIMIT ?",
            (*values, after, limit),
        )
        found.update(row[0] for row in rows)
    return sorted(found)[:limit]


def count(db: sqlite3.Connection, wanted: Filter) -> tuple[int, bool]:
    """Return how many suggestions match, and whether that is exact or at least so many."""
    plain = (wanted.source, wanted.value, wanted.low, wanted.high) == (None, None, None, None)
    if plain and wanted.state in ("open", "any"):
        labels = None if wanted.label is None else {wanted.label}
        bands = [BANDS.index(band) for band in wanted.bands]
        counted = [
            by_band[band] for by_band in tallies(db, wanted.annotator, labels).values() for band in bands
        ]
        return sum(numbers[0] if wanted.state == "open" else sum(numbers) for numbers in counted), True
    total = 0
    for clause, values in branches(db, wanted):
        question = f"SELECT COUNT(*) FROM (SELECT 1 FROM suggestion s WHERE {clause} LIMIT ?)"
        total += int(db.execute(question, (*values, COUNTED + 1 - total)).fetchone()[0])
        if total > COUNTED:
            return COUNTED, False
    return total, True


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
    db: sqlite3.Connection, key: str, keys: Sequence[int], asked: Filter, narrowed: bool = True
) -> list[dict[str, Any]]:
    """Return suggestions to review: per id, or per image, the image with its known labels and suggestions.

    ``narrowed`` restricts the suggestions as the filter does, all but by their state. Of an image with very many, the
    first open and the first decided ones are listed, and ``more`` says that others are open. What is open is so for
    the annotator who asks; under a filter for disagreements it is what nobody has settled, and all else is left out.
    """
    bands = asked.bands if narrowed else BANDS
    clause, values = asked.conditions() if narrowed else ("", [])
    settled = f"CASE WHEN s.final IS NULL THEN {OPEN} ELSE s.state END"
    if asked.final:
        mine = f"s.final IS NULL AS open, {settled} AS seen, s.final AS number"
        clause += f" AND (s.state = {DISAGREED} OR s.final IS NOT NULL)"
    else:
        # A cell that was settled is nobody's open one.
        mine = (
            f"v.state IS NULL AND s.final IS NULL AS open, COALESCE(v.state, {settled}) AS seen, "
            "v.number AS number"
        )
    rows = db.execute(
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY at, open ORDER BY id) AS place FROM ("
        f"SELECT s.{key} AS at, s.id AS id, i.name AS image, i.known, c.name AS label, s.value, s.score, "
        f"s.threshold, s.bound, s.band, s.source, {mine} FROM suggestion s "
        "LEFT JOIN vote v ON v.annotator = ? AND v.suggestion = s.id "
        "JOIN image i ON i.id = s.image JOIN class c ON c.id = s.class "
        f"WHERE s.{key} IN ({placeholders(keys)}) AND s.band IN ({placeholders(bands)}){clause})) "
        "WHERE place <= ? ORDER BY at, id",
        (asked.annotator, *keys, *(BANDS.index(band) for band in bands), *values, SHOWN_SUGGESTIONS + 1),
    )
    found: dict[int, dict[str, Any]] = {}
    listed: dict[int, dict[str, Any]] = {}
    for at, one, image, known, label, value, score, threshold, bound, band, source, *rest in rows:
        is_open, seen, stands, place = rest
        if at not in found:
            labels = known_labels(db, known)
            found[at] = {"key": at, "image": image, "known": labels, "more": False, "suggestions": []}
        if place > SHOWN_SUGGESTIONS:
            found[at]["more"] |= bool(is_open)
            continue
        listed[one] = {
            "label": label,
            "value": value,
            "score": score,
            "threshold": threshold,
            "bound": bound,
            "band": BANDS[band],
            "source": source,
            "decided": None if seen == OPEN else seen,
            "number": stands,
            "votes": [],
        }
        found[at]["suggestions"].append(listed[one])
    add_votes(db, listed, asked)
    return list(found.values())


def add_votes(db: sqlite3.Connection, listed: dict[int, dict[str, Any]], asked: Filter) -> None:
    """Add what others decided to suggestions by id: only where the annotator has decided, and to settle it.

    Whoever has not decided yet must not be told what others think, or their agreement would mean nothing.
    """
    if not has_others(db, asked.annotator):
        return
    shown = [at for at, one in listed.items() if asked.final or one["decided"] is not None]
    for first in range(0, len(shown), 500):
        part = shown[first : first + 500]
        rows = db.execute(
            f"SELECT suggestion, annotator, state FROM vote WHERE suggestion IN ({placeholders(part)}) "
            "ORDER BY number",
            part,
        )
        for at, annotator, state in rows:
            if asked.final or annotator != asked.annotator:
                listed[at]["votes"].append({"annotator": annotator, "value": state})


def known_labels(db: sqlite3.Connection, blob: bytes) -> dict[str, Any]:
    """Return the known labels of an image by name, from signed class ids; of the negatives a screenful."""
    signed = np.frombuffer(blob, dtype="<i4")
    absent = -signed[signed < 0]
    return {
        "present": _names(db, signed[signed > 0].tolist()),
        "absent": _names(db, absent[:SHOWN_NEGATIVES].tolist()),
        "absent_count": len(absent),
    }


def tallies(
    db: sqlite3.Connection, annotator: str, labels: Collection[str] | None = None
) -> dict[str, list[list[int]]]:
    """Return per class, for each band, how many suggestions are open, present, absent and skipped for an annotator.

    What was settled without this annotator counts as decided.
    """
    only, names = "", tuple(labels or ())
    if labels is not None:
        only = f" AND class IN (SELECT id FROM class WHERE name IN ({placeholders(names)}))"
    rows = db.execute(
        "SELECT c.name, t.class, t.band, t.total FROM (SELECT class, band, SUM(count) AS total FROM tally "
        f"WHERE 1{only} GROUP BY class, band) t JOIN class c ON c.id = t.class ORDER BY t.class",
        names,
    )
    found: dict[str, list[list[int]]] = {}
    by_id: dict[int, list[list[int]]] = {}
    for name, number, band, total in rows:
        by_id[number] = found.setdefault(name, [[0] * 4 for _ in BANDS])
        by_id[number][band][0] = total
    counted = db.execute(
        f"SELECT class, band, state, COUNT(*) FROM vote WHERE annotator = ?{only} GROUP BY class, band, state "
        f"UNION ALL SELECT class, band, state, COUNT(*) FROM suggestion s WHERE final IS NOT NULL{only} "
        f"AND NOT {_MINE}) GROUP BY class, band, state",
        (annotator, *names, *names, annotator),
    )
    for number, band, state, many in counted:
        by_id[number][band][0] -= many
        by_id[number][band][1 + (1, -1, 0).index(state)] += many
    return found


def disagreements(db: sqlite3.Connection) -> int:
    """Return on how many suggestions annotators disagree, and nobody has settled it."""
    question = "SELECT COALESCE(SUM(count), 0) FROM tally WHERE state = ?"
    return int(db.execute(question, (DISAGREED,)).fetchone()[0])


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
