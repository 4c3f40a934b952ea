"""Several annotators in one store: everybody decides alone, disagreements are found and settled, old files are read."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from review.conftest import HOME, POST
from review.synthetic import BANDS, Completed, draw_table, write_folder
from satl.errors import ConfigError, RunError
from satl.labels import LabelTable, read_table, write_table
from satl.review.annotators import annotator_name
from satl.review.database import Conflict, DecisionRequest, ReviewStore
from satl.review.merge import merge_review
from satl.review.questions import Filter
from satl.review.schema import DROP_LOADED
from satl.review.serve import serve
from satl.review.served_images import ReviewImageFiles
from satl.review.server import create_app


def listed(
    store: ReviewStore, annotator: str = "", state: str = "open", by_image: bool = False
) -> set[tuple]:
    wanted = Filter(bands=BANDS, state=state, annotator=annotator)
    items = store.queue(wanted, by_image, limit=500)["items"]
    return {(item["image"], one["label"]) for item in items for one in item["suggestions"]}


def cells_of(completed: Completed, count: int) -> list[tuple[str, str, int]]:
    return [(row[0], row[1], int(row[2])) for row in completed.rows[:count]]


def decide(store: ReviewStore, who: str, cell: tuple, value: int, final: bool = False) -> None:
    """Decide on what stands, whatever it is."""
    item = store.item(cell[0], cell[1], who, final)
    number = item["suggestions"][0]["number"] if item else None
    request = f"{who}-{cell}-{value}-{final}-{store.changes(0)['last']}"
    store.decide(f"tab of {who}", request, [DecisionRequest(*cell[:2], value, number)], who, final)


def test_everybody_decides_alone_and_sees_others_only_afterwards(
    completed: Completed, store: ReviewStore
) -> None:
    first, second, third = cells_of(completed, 3)
    everything = listed(store, "ann")
    decide(store, "ann", first, 1)
    decide(store, "ann", second, 0)
    assert listed(store, "ann") == everything - {first[:2], second[:2]}
    assert listed(store, "bob") == everything
    assert listed(store, "bob", "unseen") == everything - {first[:2], second[:2]}
    item = store.item(*first[:2], "bob")
    assert item is not None
    assert (item["suggestions"][0]["decided"], item["suggestions"][0]["votes"]) == (None, [])
    decide(store, "bob", first, -1)
    item = store.item(*first[:2], "bob")
    assert item is not None
    assert item["suggestions"][0]["votes"] == [{"annotator": "ann", "value": 1}]
    decide(store, "bob", third, 1)
    assert store.annotators() == {"ann": 2, "bob": 2}
    assert listed(store, "ann", "decided") == {first[:2]}
    assert listed(store, "ann", "skipped") == {second[:2]}
    for who in ("ann", "bob", "eve", ""):
        for state in ("open", "unseen", "decided", "skipped", "disagreed", "resolved", "any"):
            page = store.queue(Filter(bands=BANDS, state=state, annotator=who), limit=500)
            assert (page["count"], page["exact"]) == (len(page["items"]), True), (who, state)
            assert listed(store, who, state) == {
                (item["image"], item["suggestions"][0]["label"]) for item in page["items"]
            }
    with pytest.raises(Conflict):
        store.decide("t", "again", [DecisionRequest(*first, None)], "ann")
    # Undo is one's own.
    assert store.undo("tab of ann", "u1", "bob").cells == []
    assert [cell.label for cell in store.undo("tab of ann", "u2", "ann").cells] == [second[1]]
    assert {vote.annotator for vote in store.votes()} == {"ann", "bob"}


def test_a_disagreement_is_found_settled_and_opened_again(completed: Completed, store: ReviewStore) -> None:
    first, second = cells_of(completed, 2)
    for cell in (first, second):
        decide(store, "ann", cell, 1)
        decide(store, "bob", cell, -1 if cell == first else 1)
    assert store.overview("ann")["disagreements"] == 1
    for by_image in (False, True):
        assert listed(store, "eve", "disagreed", by_image) == {first[:2]}
    item = store.item(*first[:2], "eve", final=True)
    assert item is not None
    (one,) = item["suggestions"]
    assert (one["decided"], one["number"]) == (None, None)
    assert one["votes"] == [{"annotator": "ann", "value": 1}, {"annotator": "bob", "value": -1}]
    assert [(d.image, d.value) for d in store.decisions()] == [(second[0], 1)]
    decide(store, "eve", first, -1, final=True)
    assert listed(store, "eve", "disagreed") == set()
    assert listed(store, "eve", "resolved") == {first[:2]}
    assert first[:2] not in listed(store, "eve")  # settled: nobody is asked any more
    assert {(d.image, d.label): d.value for d in store.decisions()} == {first[:2]: -1, second[:2]: 1}
    # A loading again finds the same, and an undo brings the disagreement back.
    before = {who: store.overview(who)["classes"] for who in ("ann", "bob", "eve")}
    (completed.out / "report.json").touch()
    store.refresh()
    assert {who: store.overview(who)["classes"] for who in ("ann", "bob", "eve")} == before
    assert listed(store, "eve", "resolved") == {first[:2]}
    store.undo("tab of eve", "undo", "eve")
    assert listed(store, "bob", "disagreed") == {first[:2]}
    (completed.out / "report.json").touch()
    store.refresh()
    assert listed(store, "bob", "disagreed") == {first[:2]}


def test_tallies_are_counted_for_everybody(completed: Completed, store: ReviewStore) -> None:
    random = np.random.default_rng(1)
    cells = cells_of(completed, 40)
    for who in ("ann", "bob", "eve"):
        for cell in cells:
            if random.random() < 0.6:
                decide(store, who, cell, int(random.choice([1, -1, 0])))
    for cell in cells[:10]:
        decide(store, "eve", cell, int(random.choice([1, -1, 0])), final=True)
    band = {row[:2]: row[5] for row in completed.rows}
    votes = store.votes()
    finals = {(v.image, v.label): v.value for v in votes if v.final}
    for who in ("ann", "bob", "eve", "nobody"):
        mine = {(v.image, v.label): v.value for v in votes if v.annotator == who and not v.final}
        states = {cell: mine.get(cell, finals.get(cell)) for cell in band}
        for name, tally in store.tallies(None, who).items():
            for at, numbers in enumerate(tally):
                here = [states[cell] for cell in band if cell[1] == name and band[cell] == BANDS[at]]
                assert numbers == [here.count(state) for state in (None, 1, -1, 0)]
        assert listed(store, who) == {cell for cell, state in states.items() if state is None}


def test_two_annotators_in_two_processes_lose_nothing(completed: Completed) -> None:
    cells = cells_of(completed, 60)
    failures: list[BaseException] = []

    def work(who: str, value: int) -> None:
        try:
            with ReviewStore(completed.out) as own:
                own.refresh()
                for i, cell in enumerate(cells):
                    own.decide(who, f"{who}{i}", [DecisionRequest(*cell[:2], value, None)], who)
        except BaseException as error:
            failures.append(error)

    with ReviewStore(completed.out) as store:
        store.refresh()
        threads = [threading.Thread(target=work, args=pair) for pair in (("ann", 1), ("bob", -1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert store.annotators() == {"ann": 60, "bob": 60}
        assert store.overview()["disagreements"] == 60


OLD = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE session (digest TEXT PRIMARY KEY, at TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE decision (
    number INTEGER PRIMARY KEY AUTOINCREMENT, image TEXT NOT NULL, label TEXT NOT NULL,
    value INTEGER CHECK (value IN (1, -1, 0)), replaced INTEGER, undoes INTEGER UNIQUE, restores INTEGER,
    tab TEXT NOT NULL, request TEXT NOT NULL, at TEXT NOT NULL
);
CREATE UNIQUE INDEX decision_request ON decision (request, image, label);
CREATE INDEX decision_tab ON decision (tab, number);
CREATE TABLE standing (
    image TEXT NOT NULL, label TEXT NOT NULL, number INTEGER NOT NULL, value INTEGER NOT NULL,
    PRIMARY KEY (image, label)
) WITHOUT ROWID;
CREATE TABLE suggestion (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, number INTEGER);
CREATE TABLE tally (class INTEGER, band INTEGER, state INTEGER, count INTEGER);
CREATE TABLE class (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE image (id INTEGER PRIMARY KEY, name TEXT);
INSERT INTO meta VALUES ('id', '0ld0ld0l'), ('generation', '3'), ('fingerprint', 'x');
PRAGMA user_version = 1;
"""


def old_file(completed: Completed) -> list[tuple[str, str, int]]:
    """A review.sqlite as satl wrote it before annotators had names: two decisions, one replaced, one undone."""
    first, second, third = cells_of(completed, 3)
    with sqlite3.connect(completed.out / "review.sqlite") as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(OLD)
        rows: list[tuple[Any, ...]] = [
            (1, *first[:2], 1, None, None, None, "t", "r1", "2026-01-01"),
            (2, *second[:2], 0, None, None, None, "t", "r2", "2026-01-01"),
            (3, *first[:2], -1, 1, None, None, "t", "r3", "2026-01-01"),
            (4, *third[:2], 1, None, None, None, "t", "r4", "2026-01-01"),
            (5, *third[:2], None, 4, 4, None, "t", "r5", "2026-01-01"),
        ]
        db.executemany("INSERT INTO decision VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        db.executemany("INSERT INTO standing VALUES (?, ?, ?, ?)", [(*first[:2], 3, -1), (*second[:2], 2, 0)])
    db.close()
    return [first, second, third]


def test_a_file_from_before_names_is_taken_over_in_place(completed: Completed) -> None:
    first, second, third = old_file(completed)
    with ReviewStore(completed.out) as store:
        assert store.refresh() == len(completed.rows)
        assert store.meta("id") == "0ld0ld0l"
        assert store.meta("generation") == "4"
        assert [(d.image, d.label, d.value, d.number) for d in store.decisions()] == [
            (*second[:2], 0, 2),
            (*first[:2], -1, 3),
        ]
        assert store.annotators() == {"": 2}
        # The history goes on: a second annotator, and the undo of the tab that decided before.
        decide(store, "ann", first, 1)
        assert store.overview()["disagreements"] == 1
        assert store.undo("t", "back").cells == [(*first[:2], 1, 1)]
        assert store.overview()["disagreements"] == 0
        decide(store, "", third, 1)
    with sqlite3.connect(completed.out / "review.sqlite") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT COUNT(*) FROM decision WHERE number <= 5").fetchone() == (5,)
    db.close()


def test_an_old_file_is_taken_over_whole_or_not_at_all(
    completed: Completed, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = old_file(completed)
    monkeypatch.setattr("satl.review.database.DROP_LOADED", DROP_LOADED + "DROP TABLE no_such_table;\n")
    with pytest.raises(RunError, match=r"review\.sqlite: cannot be used"):
        ReviewStore(completed.out)
    with sqlite3.connect(completed.out / "review.sqlite") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("SELECT * FROM standing ORDER BY number").fetchall() == [
            (*second[:2], 2, 0),
            (*first[:2], 3, -1),
        ]
        assert "annotator" not in {row[1] for row in db.execute("PRAGMA table_info(decision)")}
    db.close()
    monkeypatch.undo()
    # Two at a time: one of them does it, and both go on.
    opened: list[int] = []

    def open_it() -> None:
        with ReviewStore(completed.out) as store:
            opened.append(len(store.decisions()))

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [2] * 4


def test_merge_leaves_disagreements_out_and_counts_them(tmp_path: Path) -> None:
    images = tuple(f"{i}.png" for i in range(30))
    table = LabelTable(images, ("boat",), np.zeros((30, 1), dtype=np.int8), encoding="signed")
    rows = [(image, "boat", "1", "0.6", "", "review", "model", "") for image in images]
    out = write_folder(tmp_path / "out", table, rows=rows).out
    write_table(table, tmp_path / "t.csv", "signed")
    with ReviewStore(out) as store:
        store.refresh()
        for image in images:
            decide(store, "ann", (image, "boat"), 1 if image < "2" else -1)
            if image != "0.png":
                decide(store, "bob", (image, "boat"), 1)
        decide(store, "eve", ("9.png", "boat"), -1, final=True)
        disputed = store.overview()["disagreements"]
    ann = {image: 1 if image < "2" else -1 for image in images}
    apart = {image for image in images if ann[image] == -1} - {"9.png"}
    assert disputed == len(apart)
    report = merge_review(out, tmp_path / "t.csv", tmp_path / "new.csv", encoding="signed")
    assert report.disagreements == len(apart)
    assert report.first_disagreement is not None
    assert report.first_disagreement[0] in apart
    merged = read_table(tmp_path / "new.csv", "signed")
    expected = {image: 0 if image in apart else ann[image] for image in images}
    assert dict(zip(merged.images, merged.cells[:, 0].tolist(), strict=True)) == expected
    (pair, _) = report.agreement
    assert (pair.first, pair.second, pair.cells, pair.agreed) == ("ann", "bob", 29, 29 - len(apart) - 1)
    latest = merge_review(
        out, tmp_path / "t.csv", tmp_path / "late.csv", encoding="signed", disagreements="latest"
    )
    assert (latest.disagreements, latest.present, latest.absent) == (0, 29, 1)
    tie = merge_review(
        out, tmp_path / "t.csv", tmp_path / "most.csv", encoding="signed", disagreements="majority"
    )
    assert tie.disagreements == len(apart)


def test_only_disagreements_is_said(tmp_path: Path) -> None:
    table = draw_table(["x.png"], ["boat"], known=0.0)
    out = write_folder(
        tmp_path / "out", table, rows=[("x.png", "boat", "1", "0.6", "", "review", "model", "")]
    ).out
    write_table(table, tmp_path / "t.npz")
    with ReviewStore(out) as store:
        store.refresh()
        decide(store, "ann", ("x.png", "boat"), 1)
        decide(store, "bob", ("x.png", "boat"), -1)
    with pytest.raises(RunError, match=r"no decision on which its annotators agree; settle .*'latest'"):
        merge_review(out, tmp_path / "t.npz", tmp_path / "new.npz")


def test_names() -> None:
    assert annotator_name(" Zoe\u0308  B. ") == "Zoë B."
    for name in ("x" * 65, "a\x00b", "a\u202eb"):
        with pytest.raises(ValueError, match=r"longer|cannot be shown"):
            annotator_name(name)
    for name in ("", "  ", "x" * 70):
        with pytest.raises(ConfigError, match="annotator="):
            serve("nowhere", None, "127.0.0.1", 0, print, print, annotator=name)


def signed_in(store: ReviewStore, **options: Any) -> TestClient:
    gate = create_app(store, ReviewImageFiles(None, "none"), **options)
    client = TestClient(gate, base_url=HOME, headers=POST)
    client.get("/", params={"token": gate.token})
    return client


def test_the_page_is_for_whom_the_server_or_the_person_says(completed: Completed, store: ReviewStore) -> None:
    first, second = cells_of(completed, 2)
    body = {
        "tab": "t",
        "request": "1",
        "cells": [{"image": first[0], "label": first[1], "value": 1, "based_on": None}],
    }
    with signed_in(store, ask_name=True) as client:
        assert client.get("/api/start").json()["ask_name"] is True
        assert client.post("/api/decide", json=body).status_code == 422
        assert client.post("/api/decide", json={**body, "annotator": " ann "}).status_code == 200
        assert client.get("/api/start", params={"annotator": "bob"}).json()["annotator"] == "bob"
        for wrong in ("x" * 65, "a\x01"):
            assert client.get("/api/start", params={"annotator": wrong}).status_code == 422
            assert client.post("/api/decide", json={**body, "annotator": wrong}).status_code == 422
        assert client.post("/api/decide", json={**body, "final": "yes"}).status_code == 422
    with signed_in(store, annotator="bob") as client:
        start = client.get("/api/start", params={"annotator": "ann"}).json()
        assert (start["annotator"], start["named_by_server"]) == ("bob", True)
        assert start["annotators"] == {"ann": 1}
        told = client.get("/api/agreement").json()
        assert (told["annotators"], told["pairs"]) == ({"ann": 1}, [])
        # Somebody else's news are not told, final decisions are.
        assert client.get("/api/changes", params={"since": 0, "annotator": "bob"}).json()["decisions"] == []
        final = {**body, "request": "2", "annotator": "eve", "final": True}
        assert client.post("/api/decide", json=final).status_code == 200
        news = client.get("/api/changes", params={"since": 0, "annotator": "bob"}).json()
        assert [(d["sequence"], d["final"]) for d in news["decisions"]] == [(2, 1)]
        assert news["last"] == 2
    assert second[:2] in listed(store, "bob")
