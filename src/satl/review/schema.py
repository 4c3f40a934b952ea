"""The tables of ``review.sqlite``.

Two parts. What people decided (``decision``; what stands of it in ``standing`` and ``resolution``) is kept by the names
of image and class, only ever added to, and never dropped. What was loaded from the completed folder (``class``,
``image``, ``suggestion``, ``vote``, ``tally``) can be rebuilt from it at any time, and is, when those files change.

Version 1 knew one annotator without a name and no final decisions; :data:`FROM_VERSION_1` brings such a file here.
"""

from __future__ import annotations

VERSION = 2
OPEN, DISAGREED = 2, 3
"""``suggestion.state`` of a cell that nobody has decided, and of one that annotators disagree about; else the value
that they agree on or that was made final: 1, -1 or 0 (skipped)."""

DECISIONS = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS session (digest TEXT PRIMARY KEY, at TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decision (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    image TEXT NOT NULL,
    label TEXT NOT NULL,
    value INTEGER CHECK (value IN (1, -1, 0)),  -- NULL: the cell is open again
    replaced INTEGER,                           -- the decision that stood before, NULL where none did
    undoes INTEGER UNIQUE,                      -- the decision that this one takes back,
    restores INTEGER,                           -- and the one that stands again, NULL where the cell is open
    tab TEXT NOT NULL,
    request TEXT NOT NULL,                      -- chosen by the page: what was decided at once, and is undone at once
    at TEXT NOT NULL,
    annotator TEXT NOT NULL DEFAULT '',         -- empty: a person without a name
    final INTEGER NOT NULL DEFAULT 0            -- 1: settles a disagreement of annotators
);
CREATE UNIQUE INDEX IF NOT EXISTS decision_request ON decision (request, image, label);
CREATE INDEX IF NOT EXISTS decision_tab ON decision (tab, number);
CREATE TABLE IF NOT EXISTS standing (
    image TEXT NOT NULL,
    label TEXT NOT NULL,
    annotator TEXT NOT NULL,
    number INTEGER NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (image, label, annotator)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS resolution (
    image TEXT NOT NULL,
    label TEXT NOT NULL,
    number INTEGER NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (image, label)
) WITHOUT ROWID;
"""

# Before DECISIONS; the loaded tables are dropped as well and come back with the next loading.
FROM_VERSION_1 = """
ALTER TABLE decision ADD COLUMN annotator TEXT NOT NULL DEFAULT '';
ALTER TABLE decision ADD COLUMN final INTEGER NOT NULL DEFAULT 0;
ALTER TABLE standing RENAME TO standing_1;
CREATE TABLE standing (
    image TEXT NOT NULL,
    label TEXT NOT NULL,
    annotator TEXT NOT NULL,
    number INTEGER NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (image, label, annotator)
) WITHOUT ROWID;
INSERT INTO standing SELECT image, label, '', number, value FROM standing_1;
DROP TABLE standing_1;
DELETE FROM meta WHERE key = 'fingerprint';
"""

DROP_LOADED = """
DROP TABLE IF EXISTS suggestion;
DROP TABLE IF EXISTS vote;
DROP TABLE IF EXISTS tally;
DROP TABLE IF EXISTS class;
DROP TABLE IF EXISTS image;
"""

LOADED = """
CREATE TABLE class (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, report TEXT NOT NULL);
CREATE TABLE image (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, known BLOB NOT NULL);
CREATE TABLE suggestion (
    id INTEGER PRIMARY KEY,
    image INTEGER NOT NULL,
    class INTEGER NOT NULL,
    value INTEGER NOT NULL,
    score REAL NOT NULL,
    threshold REAL,
    bound REAL,
    band INTEGER NOT NULL,
    source TEXT NOT NULL,
    state INTEGER NOT NULL,
    final INTEGER                               -- the decision that settles it, NULL where none does
);
CREATE TABLE vote (
    annotator TEXT NOT NULL,
    suggestion INTEGER NOT NULL,
    class INTEGER NOT NULL,
    band INTEGER NOT NULL,
    state INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (annotator, suggestion)
) WITHOUT ROWID;
CREATE TABLE tally (
    class INTEGER NOT NULL,
    band INTEGER NOT NULL,
    state INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (class, band, state)
) WITHOUT ROWID;
"""

# Made after the rows are in, which is faster. Every question of the page fixes state and band and asks for the
# next ids or images, so each is answered by a few steps in one of these, however many rows there are.
INDEXES = """
CREATE UNIQUE INDEX suggestion_cell ON suggestion (image, class);
CREATE INDEX suggestion_queue ON suggestion (state, band);
CREATE INDEX suggestion_class ON suggestion (class, state, band);
CREATE INDEX suggestion_image ON suggestion (state, band, image);
CREATE INDEX suggestion_score ON suggestion (state, band, score);
CREATE INDEX suggestion_class_score ON suggestion (class, state, band, score);
CREATE INDEX suggestion_source ON suggestion (source, state, band);
CREATE INDEX suggestion_final ON suggestion (class, band, state) WHERE final IS NOT NULL;
CREATE INDEX vote_suggestion ON vote (suggestion, state);
CREATE INDEX vote_tally ON vote (annotator, class, band, state);
"""

# What the annotators say together about the suggestions of ``vote``.
TOGETHER = f"""
CASE WHEN COUNT(*) = 0 THEN {OPEN} WHEN MIN(state) = -1 AND MAX(state) = 1 THEN {DISAGREED}
    WHEN MAX(state) = 1 THEN 1 ELSE MIN(state) END
"""

# How many suggestions are in which state, kept up to date by the database itself.
TALLIES = """
INSERT INTO tally SELECT class, band, state, COUNT(*) FROM suggestion GROUP BY class, band, state;
CREATE TRIGGER suggestion_tally AFTER UPDATE OF state ON suggestion WHEN old.state <> new.state BEGIN
    UPDATE tally SET count = count - 1 WHERE class = old.class AND band = old.band AND state = old.state;
    INSERT INTO tally VALUES (new.class, new.band, new.state, 1)
        ON CONFLICT (class, band, state) DO UPDATE SET count = count + 1;
END;
"""
