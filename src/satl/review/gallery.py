"""A gallery of one class: its suggestions sorted by score, one screen after the other."""

from __future__ import annotations

import sqlite3
from typing import Any, Literal, NamedTuple

from satl.labels.bands import BANDS
from satl.review.questions import Filter, add_votes, branches, count, placeholders
from satl.review.schema import OPEN

GalleryOrder = Literal["highest", "lowest", "doubtful"]
"""By score; or the suggestions closest to where those proposed as present and as absent meet."""


class GalleryPlace(NamedTuple):
    """Where a page of a gallery ended: what the last suggestion was sorted by, and its id."""

    key: float
    id: int


def gallery_page(
    db: sqlite3.Connection, wanted: Filter, order: GalleryOrder, after: GalleryPlace | None, limit: int
) -> dict[str, Any]:
    """Return the next suggestions of one class in an order: ``items``, ``next`` (a place or None) and ``count``.

    A page goes on from a place and not from a number of rows, so what is decided meanwhile shifts nothing.
    """
    if order == "doubtful":
        key, direction, sign = "ABS(s.score - ?)", "ASC", 1
        given = [_boundary(db, wanted.label)]
    else:
        key, given = "s.score", []
        direction, sign = ("DESC", -1) if order == "highest" else ("ASC", 1)
    found: list[tuple[float, int]] = []
    for clause, values in branches(db, wanted):
        beyond, place = "", []
        if after is not None:
            beyond, place = f" AND ({key}, s.id) {'>' if sign == 1 else '<'} (?, ?)", [*given, *after]
        found += db.execute(
            f"SELECT {key} AS at, s.id FROM suggestion s WHERE {clause}{beyond} "
            f"ORDER BY at {direction}, s.id {direction} LIMIT ?",
            (*given, *values, *place, limit),
        )
    found.sort(reverse=sign == -1)
    total, exact = count(db, wanted) if after is None else (None, True)
    return {
        "items": _tiles(db, [at for _, at in found[:limit]], wanted),
        "next": GalleryPlace(*found[limit - 1])._asdict() if len(found) >= limit else None,
        "count": total,
        "exact": exact,
    }


def _boundary(db: sqlite3.Connection, label: str | None) -> float:
    """Return the score between what is proposed as present and as absent; label errors are proposed against it."""
    low, high = db.execute(
        "SELECT MIN(CASE WHEN value = 1 THEN score END), MAX(CASE WHEN value = -1 THEN score END) FROM suggestion "
        "WHERE class = (SELECT id FROM class WHERE name = ?) AND source <> 'label-error'",
        (label,),
    ).fetchone()
    known = [score for score in (low, high) if score is not None]
    return sum(known) / len(known) if known else 0.0


def _tiles(db: sqlite3.Connection, ids: list[int], asked: Filter) -> list[dict[str, Any]]:
    """Return what a thumbnail needs, in the order of the ids."""
    rows = db.execute(
        "SELECT s.id, i.name, c.name, s.value, s.score, s.band, s.source, s.state, s.final, v.state, v.number "
        "FROM suggestion s JOIN image i ON i.id = s.image JOIN class c ON c.id = s.class "
        "LEFT JOIN vote v ON v.annotator = ? AND v.suggestion = s.id "
        f"WHERE s.id IN ({placeholders(ids)})",
        (asked.annotator, *ids),
    )
    found: dict[int, dict[str, Any]] = {}
    for at, image, label, value, score, band, source, together, final, own, number in rows:
        settled = OPEN if final is None else together
        seen = settled if asked.final or own is None else own
        found[at] = {
            "image": image,
            "label": label,
            "value": value,
            "score": score,
            "band": BANDS[band],
            "source": source,
            "decided": None if seen == OPEN else seen,
            "number": final if asked.final else number,
            "votes": [],
        }
    add_votes(db, found, asked)
    return [found[at] for at in ids]
