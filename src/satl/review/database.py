"""The store of a review: suggestions to look at, and what people decided, in one SQLite file.

A decision is on disk before the call that makes it returns (write-ahead log, ``synchronous = FULL``), so neither
``kill -9`` nor a power cut loses one that was answered. What is decided at once is one transaction, stored as a whole
or not at all. Decisions are only ever added: an undo is one more row. ``standing`` holds the current decision of every
annotator on every cell, ``resolution`` the final one where a disagreement was settled.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from satl.completion.outputs.completed_folder import CompletedFolder
from satl.errors import RunError
from satl.labels.bands import BANDS
from satl.review import questions
from satl.review.agreement import CurrentDecision, DisagreementRule, Vote, settle
from satl.review.gallery import GalleryOrder, GalleryPlace, gallery_page
from satl.review.loading import fingerprint, load_folder, statements
from satl.review.questions import Filter
from satl.review.schema import DECISIONS, DROP_LOADED, FROM_VERSION_1, TOGETHER, VERSION

_PATIENCE = 60
"""Seconds that a decision waits for those of other processes; a busy machine needs more than a few."""


class DecisionRequest(NamedTuple):
    """A decision about one cell: +1 present, -1 absent, 0 skipped.

    Attributes:
        based_on: number of the decision that the person saw on this cell, None where it was open.
    """

    image: str
    label: str
    value: int
    based_on: int | None


class CurrentDecisions(NamedTuple):
    """The current decisions on some cells, as of decision number ``last``."""

    cells: list[CurrentDecision]
    last: int


class Conflict(Exception):
    """Somebody else, say another browser tab, decided a cell meanwhile; nothing was stored."""

    def __init__(self, outcome: CurrentDecisions) -> None:
        super().__init__("decided meanwhile")
        self.outcome = outcome


class ReviewStore:
    """Suggestions and decisions of one completed folder.

    One connection behind one lock: a person makes a few requests a second, each takes a few milliseconds, and
    memory stays where it is. Other processes (``satl merge``, a second server) may use the file meanwhile.

    Args:
        out: the folder that ``satl complete`` wrote; ``review.sqlite`` in it is made where it is missing.

    Raises:
        RunError: the folder lacks a file, or ``review.sqlite`` is damaged or of another version.
    """

    def __init__(self, out: str | Path) -> None:
        self.folder = CompletedFolder.open(out)
        self.path = self.folder.review
        self._lock = threading.RLock()
        try:
            self._db = sqlite3.connect(self.path, _PATIENCE, isolation_level=None, check_same_thread=False)
            self._prepare()
        except sqlite3.Error as error:
            raise RunError(
                f"cannot be used ({error})",
                where=self.path,
                remedy="check its permissions or restore it, or remove it if no decision in it matters",
            ) from None

    def close(self) -> None:
        """Close the file; the write-ahead log is folded into it."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> ReviewStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def refresh(self) -> int:
        """Load the folder if its files have changed since the last time; return the number of suggestions."""
        with self._transaction() as db:
            if self.meta("fingerprint") != fingerprint(self.folder):
                return load_folder(db, self.folder)
            return int(db.execute("SELECT COALESCE(SUM(count), 0) FROM tally").fetchone()[0])

    def meta(self, key: str) -> str | None:
        """Return a stored fact: ``id``, ``generation`` (counts loadings), ``fingerprint`` or ``report``."""
        with self._lock:
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def overview(self, annotator: str = "") -> dict[str, Any]:
        """Return what the page needs once: classes with the tallies of an annotator, sources, the last decision."""
        with self._lock:
            return {
                "id": self.meta("id"),
                "generation": int(self.meta("generation") or 0),
                "last": self._last(),
                "bands": list(BANDS),
                "classes": [{"name": k, "tally": v} for k, v in self.tallies(None, annotator).items()],
                "annotators": self.annotators(),
                "disagreements": questions.disagreements(self._db),
                **json.loads(self.meta("report") or "{}"),
            }

    def annotators(self) -> dict[str, int]:
        """Return how many cells every annotator has decided or skipped, by name."""
        with self._lock:
            return dict(self._db.execute("SELECT annotator, COUNT(*) FROM standing GROUP BY annotator"))

    def tallies(self, labels: Collection[str] | None, annotator: str = "") -> dict[str, list[list[int]]]:
        """Return per class, for each band, how many suggestions are open, present, absent and skipped."""
        with self._lock:
            return questions.tallies(self._db, annotator, labels)

    def class_report(self, label: str) -> dict[str, Any] | None:
        """Return what ``report.json`` says about a class, or None."""
        with self._lock:
            row = self._db.execute("SELECT report FROM class WHERE name = ?", (label,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def has_image(self, name: str) -> bool:
        """Whether some suggestion is about this image."""
        with self._lock:
            return self._db.execute("SELECT 1 FROM image WHERE name = ?", (name,)).fetchone() is not None

    def queue(
        self, wanted: Filter, by_image: bool = False, after: int = 0, limit: int = 20
    ) -> dict[str, Any]:
        """Return the next things to look at: single suggestions, or images with all their suggestions.

        Returns ``items`` (each an image, what is known about it and its suggestions), ``next`` (pass it as
        ``after`` to go on; None at the end), ``count`` of matching suggestions and whether it is ``exact``.
        """
        with self._lock:
            key = "image" if by_image else "id"
            found = questions.next_keys(self._db, key, wanted, after, limit)
            keys = questions.images_that_fit(self._db, found) if by_image else found
            count, exact = questions.count(self._db, wanted) if after == 0 else (None, True)
            return {
                # Of an image, what is decided already is shown as well.
                "items": questions.items(self._db, key, keys, wanted, narrowed=by_image),
                "next": keys[-1] if len(found) == limit or len(keys) < len(found) else None,
                "count": count,
                "exact": exact,
            }

    def gallery(
        self,
        wanted: Filter,
        order: GalleryOrder = "highest",
        after: GalleryPlace | None = None,
        limit: int = 48,
    ) -> dict[str, Any]:
        """Return the next suggestions of one class in an order; see :func:`~satl.review.gallery.gallery_page`."""
        with self._lock:
            return gallery_page(self._db, wanted, order, after, limit)

    def item(
        self, image: str, label: str | None = None, annotator: str = "", final: bool = False
    ) -> dict[str, Any] | None:
        """Return one image with the suggestion for ``label``, or with its suggestions; None if unknown.

        ``final``: with what settles its disagreements instead of what the annotator decided.
        """
        with self._lock:
            row = self._db.execute("SELECT id FROM image WHERE name = ?", (image,)).fetchone()
            asked = Filter(label, BANDS, state="disagreed" if final else "open", annotator=annotator)
            found = questions.items(self._db, "image", row or [], asked)
            return found[0] if found else None

    def changes(self, since: int, annotator: str = "", limit: int = 500) -> dict[str, Any]:
        """Return an annotator's decisions and all final ones after number ``since``, for the other tabs."""
        with self._lock:
            last = self._last()
            rows = self._db.execute(
                "SELECT number, image, label, value, CASE WHEN undoes IS NULL THEN number ELSE restores END, final "
                "FROM decision WHERE number > ? AND number <= ? AND (annotator = ? OR final = 1) "
                "ORDER BY number LIMIT ?",
                (since, last, annotator, limit),
            ).fetchall()
            names = ("sequence", "image", "label", "value", "number", "final")
            more = len(rows) == limit
            return {
                "generation": int(self.meta("generation") or 0),
                "last": rows[-1][0] if more else max(since, last),
                "more": more,
                "decisions": [dict(zip(names, row, strict=True)) for row in rows],
                "tallies": self.tallies({row[2] for row in rows}, annotator),
                "disagreements": questions.disagreements(self._db),
            }

    def decide(
        self,
        tab: str,
        request: str,
        wanted: Sequence[DecisionRequest],
        annotator: str = "",
        final: bool = False,
    ) -> CurrentDecisions:
        """Store decisions, all or none; return the current decisions on their cells.

        Args:
            tab: where they were made; undo works tab by tab, and takes back a whole request.
            request: a text chosen by the caller; the same request sent again changes nothing.
            annotator: who decides.
            final: settle a disagreement, instead of deciding for oneself.

        Raises:
            Conflict: a cell has another decision than the one ``based_on``, or the text was that of other decisions.
            KeyError: there is no suggestion for a cell.
        """
        with self._transaction() as db:
            standing = [self._current(cell.image, cell.label, annotator, final) for cell in wanted]
            again = db.execute(
                "SELECT image, label, value, annotator, final FROM decision WHERE request = ?", (request,)
            ).fetchall()
            if again:
                asked = {(cell.image, cell.label, cell.value, annotator, final) for cell in wanted}
                if {(*row[:4], bool(row[4])) for row in again} != asked:
                    raise Conflict(self._outcome(standing))
                return self._outcome(standing)
            for cell in wanted:
                if self._suggestion(cell.image, cell.label) is None:
                    raise KeyError(
                        f"there is no suggestion for image {cell.image!r} and class {cell.label!r}"
                    )
            if any(now.number != cell.based_on for now, cell in zip(standing, wanted, strict=True)):
                raise Conflict(self._outcome(standing))
            made: list[CurrentDecision] = []
            for cell, now in zip(wanted, standing, strict=True):
                number = db.execute(
                    "INSERT INTO decision (image, label, value, replaced, tab, request, at, annotator, final) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (cell.image, cell.label, cell.value, now.number, tab, request, _now(), annotator, final),
                ).lastrowid
                made.append(CurrentDecision(cell.image, cell.label, cell.value, number))
                self._set_current(made[-1], annotator, final)
            return self._outcome(made)

    def undo(self, tab: str, request: str, annotator: str = "") -> CurrentDecisions:
        """Take back the last request of this tab and annotator that still stands; empty where there is none.

        Raises:
            Conflict: somebody has decided one of its cells again since.
        """
        with self._transaction() as db:
            again = db.execute(
                "SELECT image, label, annotator, final FROM decision WHERE request = ?", (request,)
            ).fetchall()
            if again:
                return self._outcome(self._current(*cell) for cell in again)
            last = db.execute(
                "SELECT request FROM decision d WHERE tab = ? AND annotator = ? AND undoes IS NULL AND NOT EXISTS "
                "(SELECT 1 FROM decision u WHERE u.undoes = d.number) ORDER BY number DESC LIMIT 1",
                (tab, annotator),
            ).fetchone()
            rows = db.execute(
                "SELECT d.image, d.label, d.final, d.number, before.number, before.value FROM decision d "
                "LEFT JOIN decision before ON before.number = d.replaced WHERE d.request = ? ORDER BY d.number",
                last or (None,),
            ).fetchall()
            standing = [self._current(row[0], row[1], annotator, row[2]) for row in rows]
            if any(now.number != row[3] for now, row in zip(standing, rows, strict=True)):
                raise Conflict(self._outcome(standing))
            made: list[CurrentDecision] = []
            for image, label, final, number, before, value in rows:
                db.execute(
                    "INSERT INTO decision (image, label, value, replaced, undoes, restores, tab, request, at, "
                    "annotator, final) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (image, label, value, number, number, before, tab, request, _now(), annotator, final),
                )
                made.append(CurrentDecision(image, label, value, before))
                self._set_current(made[-1], annotator, final)
            return self._outcome(made)

    def votes(self) -> list[Vote]:
        """Return the decision of every annotator that stands, and the final ones, oldest first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT image, label, annotator, value, number, 0 FROM standing UNION ALL "
                "SELECT r.image, r.label, d.annotator, r.value, r.number, 1 FROM resolution r "
                "JOIN decision d ON d.number = r.number ORDER BY 5"
            )
            return [Vote(*row)._replace(final=bool(row[5])) for row in rows]

    def decisions(self, disagreements: DisagreementRule = "leave") -> list[CurrentDecision]:
        """Return what counts on every cell that was decided or skipped, oldest first; see :func:`settle`."""
        return settle(self.votes(), disagreements).decisions

    def add_session(self, digest: str) -> None:
        """Remember a signed-in browser by the digest of its cookie, so that it outlives a restart."""
        with self._transaction() as db:
            db.execute("DELETE FROM session WHERE at < date('now', '-30 days')")
            db.execute("INSERT OR IGNORE INTO session VALUES (?, ?)", (digest, _now()))

    def has_session(self, digest: str) -> bool:
        """Whether a browser with this digest has signed in."""
        with self._lock:
            found = self._db.execute("SELECT 1 FROM session WHERE digest = ?", (digest,)).fetchone()
        return found is not None

    def _prepare(self) -> None:
        self._require_known_version()
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        with self._transaction() as db:
            # Once more inside: another process may have brought the file up to date, or beyond, meanwhile.
            if self._require_known_version() == 1:
                for statement in (*statements(FROM_VERSION_1), *statements(DROP_LOADED)):
                    db.execute(statement)
            for statement in statements(DECISIONS):
                db.execute(statement)
            db.execute("INSERT OR IGNORE INTO meta VALUES ('id', ?)", (secrets.token_hex(4),))
            db.execute(f"PRAGMA user_version = {VERSION}")

    def _require_known_version(self) -> int:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version > VERSION:
            raise RunError(
                "was written by a newer satl", where=self.path, remedy="update satl to continue this review"
            )
        return version

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _last(self) -> int:
        return int(self._db.execute("SELECT COALESCE(MAX(number), 0) FROM decision").fetchone()[0])

    def _outcome(self, cells: Iterable[CurrentDecision]) -> CurrentDecisions:
        return CurrentDecisions(list(cells), self._last())

    def _current(self, image: str, label: str, annotator: str, final: bool) -> CurrentDecision:
        """Return the decision of an annotator that stands, or the final one."""
        table, slot = _slot(image, label, annotator, final)
        row = self._db.execute(f"SELECT value, number FROM {table}", slot).fetchone()
        return CurrentDecision(image, label, *(row or (None, None)))

    def _suggestion(self, image: str, label: str) -> int | None:
        row = self._db.execute(
            "SELECT s.id FROM suggestion s JOIN image i ON i.id = s.image JOIN class c ON c.id = s.class "
            "WHERE i.name = ? AND c.name = ?",
            (image, label),
        ).fetchone()
        return None if row is None else int(row[0])

    def _set_current(self, decision: CurrentDecision, annotator: str, final: bool) -> None:
        """Make a decision the current one of an annotator on its cell, or the final one; None opens it again."""
        image, label, value, number = decision
        table, slot = _slot(image, label, annotator, final)
        self._db.execute(f"DELETE FROM {table}", slot)
        if number is not None and final:
            self._db.execute("INSERT INTO resolution VALUES (?, ?, ?, ?)", (image, label, number, value))
        elif number is not None:
            stands = (image, label, annotator, number, value)
            self._db.execute("INSERT INTO standing VALUES (?, ?, ?, ?, ?)", stands)
        at = self._suggestion(image, label)
        if at is None:
            return  # of an earlier completion
        if not final:
            self._db.execute("DELETE FROM vote WHERE annotator = ? AND suggestion = ?", (annotator, at))
            if number is not None:
                self._db.execute(
                    "INSERT INTO vote SELECT ?, id, class, band, ?, ? FROM suggestion WHERE id = ?",
                    (annotator, value, number, at),
                )
        settled = self._current(image, label, annotator, True)
        self._db.execute(
            f"UPDATE suggestion SET final = ?, state = COALESCE(?, (SELECT {TOGETHER} FROM vote WHERE suggestion = ?)) "
            "WHERE id = ?",
            (settled.number, settled.value, at, at),
        )


def _slot(image: str, label: str, annotator: str, final: bool) -> tuple[str, tuple[str, ...]]:
    """Return the table and the condition that hold a current decision, and the values of the condition."""
    if final:
        return "resolution WHERE image = ? AND label = ?", (image, label)
    return "standing WHERE image = ? AND label = ? AND annotator = ?", (image, label, annotator)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
