"""The store against a plain list of the same suggestions, and against people who kill, undo and disagree."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from review.synthetic import BANDS, Completed, draw_table, small_folder, write_changes, write_folder
from satl.errors import RunError
from satl.review.database import Conflict, CurrentDecision, DecisionRequest, ReviewStore
from satl.review.questions import COUNTED, SHOWN_SUGGESTIONS, Filter


def cells_of(completed: Completed) -> list[tuple[str, str, int]]:
    return [(row[0], row[1], int(row[2])) for row in completed.rows]


def shown(page: dict[str, Any]) -> list[tuple[str, str]]:
    return [(item["image"], one["label"]) for item in page["items"] for one in item["suggestions"]]


def everything(store: ReviewStore, wanted: Filter, by_image: bool, limit: int = 3) -> list[dict[str, Any]]:
    """All pages one after the other."""
    pages, after = [], 0
    while after is not None:
        pages.append(store.queue(wanted, by_image, after, limit))
        after = pages[-1]["next"]
    return [item for page in pages for item in page["items"]]


def matches(row: tuple[str, ...], wanted: Filter, state: int | None) -> bool:
    score = float(row[3])
    return (
        (wanted.label is None or row[1] == wanted.label)
        and row[5] in wanted.bands
        and (wanted.source is None or row[6] == wanted.source)
        and (wanted.value is None or int(row[2]) == wanted.value)
        and (wanted.low is None or score >= wanted.low)
        and (wanted.high is None or score <= wanted.high)
        and {"open": state is None, "decided": state in (1, -1), "skipped": state == 0, "any": True}[
            wanted.state
        ]
    )


FILTERS = st.builds(
    Filter,
    label=st.sampled_from([None, "boat", "猫, cat", "no such class"]),
    bands=st.lists(st.sampled_from(BANDS), min_size=1, max_size=3, unique=True).map(tuple),
    source=st.sampled_from([None, "model", "label-error"]),
    state=st.sampled_from(["open", "decided", "skipped", "any"]),
    value=st.sampled_from([None, 1, -1]),
    low=st.sampled_from([None, 0.2, 0.5]),
    high=st.sampled_from([None, 0.4, 0.9]),
)


@pytest.fixture(scope="module")
def half_reviewed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Completed, ReviewStore, dict]:
    """A store in which every third suggestion is decided; do not change it."""
    completed = small_folder(tmp_path_factory.mktemp("half") / "out")
    store = ReviewStore(completed.out)
    store.refresh()
    states = {}
    for i, (image, label, value) in enumerate(cells_of(completed)[::3]):
        verdict = (value, -value, 0)[i % 3]
        store.decide("tab", f"r{i}", [DecisionRequest(image, label, verdict, None)])
        states[image, label] = verdict
    return completed, store, states


def test_the_import_holds_every_row_once_and_knows_the_image(
    completed: Completed, store: ReviewStore
) -> None:
    rows = {(row[0], row[1]): row for row in completed.rows}
    items = everything(store, Filter(bands=BANDS, state="any"), by_image=False)
    assert [(item["image"], item["suggestions"][0]["label"]) for item in items] == list(rows)
    for item in items:
        (one,) = item["suggestions"]
        row = rows[item["image"], one["label"]]
        assert (one["value"], one["score"], one["threshold"]) == (int(row[2]), float(row[3]), float(row[4]))
        assert (one["band"], one["source"]) == (row[5], row[6])
        assert one["bound"] == (float(row[7]) if row[7] else None)
        cells = completed.table.cells[completed.table.images.index(item["image"])]
        names = np.array(completed.table.classes)
        assert item["known"]["present"] == names[cells == 1].tolist()
        assert item["known"]["absent"] == names[cells == -1].tolist()
        assert item["known"]["absent_count"] == (cells == -1).sum()


@settings(max_examples=60)
@given(wanted=FILTERS, by_image=st.booleans(), limit=st.integers(1, 7))
def test_a_filter_shows_what_a_plain_list_would(
    half_reviewed: tuple[Completed, ReviewStore, dict], wanted: Filter, by_image: bool, limit: int
) -> None:
    completed, store, states = half_reviewed
    expected = [row for row in completed.rows if matches(row, wanted, states.get((row[0], row[1])))]
    items = everything(store, wanted, by_image, limit)
    page = store.queue(wanted, by_image, 0, limit)
    assert (page["count"], page["exact"]) == (len(expected), True)
    if not by_image:
        assert [(item["image"], item["suggestions"][0]["label"]) for item in items] == [
            r[:2] for r in expected
        ]
        return
    order = [image for image in completed.table.images if image in {row[0] for row in expected}]
    assert [item["image"] for item in items] == order
    whatever_state = Filter(**{**vars(wanted), "state": "any"})
    for item in items:
        same = [
            row for row in completed.rows if row[0] == item["image"] and matches(row, whatever_state, None)
        ]
        assert [one["label"] for one in item["suggestions"]] == [row[1] for row in same]


def test_tallies_agree_with_the_decisions(half_reviewed: tuple[Completed, ReviewStore, dict]) -> None:
    completed, store, states = half_reviewed
    counts = Counter((row[1], row[5], states.get((row[0], row[1]))) for row in completed.rows)
    for entry in store.overview()["classes"]:
        for band, numbers in zip(BANDS, entry["tally"], strict=True):
            assert numbers == [counts[entry["name"], band, state] for state in (None, 1, -1, 0)]


def test_a_decision_is_there_for_everybody_at_once(completed: Completed, store: ReviewStore) -> None:
    image, label, value = cells_of(completed)[0]
    outcome = store.decide("one", "r1", [DecisionRequest(image, label, value, None)])
    assert outcome == ([CurrentDecision(image, label, value, 1)], 1)
    with ReviewStore(completed.out) as other:
        assert other.decisions() == [CurrentDecision(image, label, value, 1)]
        item = other.item(image, label)
        assert item is not None
        assert (item["suggestions"][0]["decided"], item["suggestions"][0]["number"]) == (value, 1)


def test_undo_goes_back_step_by_step_and_only_over_its_own_tab(
    completed: Completed, store: ReviewStore
) -> None:
    (image, label, value), (image2, label2, value2) = cells_of(completed)[:2]
    store.decide("a", "1", [DecisionRequest(image, label, value, None)])
    store.decide("a", "2", [DecisionRequest(image, label, -value, 1)])
    store.decide("b", "3", [DecisionRequest(image2, label2, value2, None)])
    assert store.undo("a", "4").cells == [CurrentDecision(image, label, value, 1)]
    assert store.undo("a", "5").cells == [CurrentDecision(image, label, None, None)]
    assert store.undo("a", "6").cells == []
    assert store.decisions() == [CurrentDecision(image2, label2, value2, 3)]
    assert store.undo("b", "7").cells == [CurrentDecision(image2, label2, None, None)]
    assert store.decisions() == []


def test_one_key_for_several_cells_is_undone_as_one(completed: Completed, store: ReviewStore) -> None:
    cells = cells_of(completed)[:4]
    store.decide("a", "1", [DecisionRequest(*cell, None) for cell in cells])
    assert len(store.decisions()) == 4
    assert [cell.value for cell in store.undo("a", "2").cells] == [None] * 4
    assert store.decisions() == []


def test_two_tabs_cannot_overwrite_each_other_unseen(completed: Completed, store: ReviewStore) -> None:
    first, second = cells_of(completed)[:2]
    store.decide("a", "1", [DecisionRequest(*first, None)])
    with pytest.raises(Conflict) as caught:
        store.decide("b", "2", [DecisionRequest(*second, None), DecisionRequest(*first[:2], -first[2], None)])
    assert caught.value.outcome.cells[1] == CurrentDecision(*first, 1)
    assert store.decisions() == [CurrentDecision(*first, 1)]
    store.decide("b", "3", [DecisionRequest(*first[:2], -first[2], 1)])
    with pytest.raises(Conflict):
        store.undo("a", "4")
    assert store.decisions() == [CurrentDecision(*first[:2], -first[2], 2)]


def test_a_request_sent_twice_counts_once(completed: Completed, store: ReviewStore) -> None:
    cell = cells_of(completed)[0]
    once = store.decide("a", "same", [DecisionRequest(*cell, None)])
    assert store.decide("a", "same", [DecisionRequest(*cell, None)]) == once
    # A program that takes one text for two requests is told, instead of being thanked for what is not stored.
    other = cells_of(completed)[1]
    for wanted, who in (([other], ""), ([(*cell[:2], -cell[2])], ""), ([cell, other], ""), ([cell], "ann")):
        with pytest.raises(Conflict):
            store.decide("a", "same", [DecisionRequest(*one, None) for one in wanted], who)
    undone = store.undo("a", "back")
    assert store.undo("a", "back") == undone
    assert store.changes(0)["last"] == 2


def test_a_cell_without_suggestion_is_refused(completed: Completed, store: ReviewStore) -> None:
    with pytest.raises(KeyError, match="no suggestion"):
        store.decide("a", "1", [DecisionRequest("nowhere.png", "boat", 1, None)])
    assert store.decisions() == []


def test_changes_tell_the_other_tabs_in_order(completed: Completed, store: ReviewStore) -> None:
    first, second = cells_of(completed)[:2]
    store.decide("a", "1", [DecisionRequest(*first, None)])
    store.decide("a", "2", [DecisionRequest(*first[:2], 0, 1)])
    store.undo("a", "3")
    store.decide("b", "4", [DecisionRequest(*second, None)])
    news = store.changes(0, limit=3)
    assert [(d["sequence"], d["value"], d["number"]) for d in news["decisions"]] == [
        (1, first[2], 1),
        (2, 0, 2),
        (3, first[2], 1),
    ]
    assert (news["last"], news["more"]) == (3, True)
    rest = store.changes(3)
    assert [d["image"] for d in rest["decisions"]] == [second[0]]
    assert rest["tallies"] == store.tallies({second[1]})
    assert (rest["last"], rest["more"], store.changes(4)["decisions"]) == (4, False, [])


STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5), st.sampled_from([1, -1, 0, "undo"])),
    max_size=25,
)


@settings(max_examples=25)
@given(steps=STEPS)
def test_any_mix_of_decisions_and_undos_is_what_a_list_of_moves_says(
    steps: list[tuple[str, int, Any]],
) -> None:
    table = draw_table(["x.png", "y.png"], ["boat", "cat", "dog"])
    rows = [(i, c, "1", "0.6", "", "review", "model", "") for c in table.classes for i in table.images]
    with tempfile.TemporaryDirectory() as folder:
        completed = write_folder(Path(folder) / "out", table, rows=rows)
        with ReviewStore(completed.out) as store:
            store.refresh()
            stacks: dict[tuple[str, str], list[tuple[str, int]]] = {row[:2]: [] for row in rows}
            moves: dict[str, list[tuple[str, str]]] = {"a": [], "b": []}
            for number, (tab, at, move) in enumerate(steps):
                cell = rows[at][:2]
                if move != "undo":
                    item = store.item(*cell)
                    assert item is not None
                    based_on = item["suggestions"][0]["number"]
                    store.decide(tab, f"r{number}", [DecisionRequest(*cell, move, based_on)])
                    stacks[cell].append((tab, move))
                    moves[tab].append(cell)
                elif moves[tab] and stacks[moves[tab][-1]][-1][0] != tab:
                    with pytest.raises(Conflict):
                        store.undo(tab, f"r{number}")
                else:
                    store.undo(tab, f"r{number}")
                    if moves[tab]:
                        stacks[moves[tab].pop()].pop()
                standing = {(d.image, d.label): d.value for d in store.decisions()}
                assert standing == {cell: stack[-1][1] for cell, stack in stacks.items() if stack}
            for label, bands in store.tallies(set(table.classes)).items():
                states = [standing_of(stacks[image, label]) for image in table.images]
                assert bands[BANDS.index("review")] == [states.count(state) for state in (None, 1, -1, 0)]


def standing_of(stack: list[tuple[str, int]]) -> int | None:
    return stack[-1][1] if stack else None


def test_threads_lose_nothing_and_one_of_two_rivals_wins(completed: Completed, store: ReviewStore) -> None:
    cells = cells_of(completed)
    conflicts = []

    def work(who: int) -> None:
        for i, cell in enumerate(cells):
            if i % 4 == who or i < 8:  # the first eight are wanted by all
                try:
                    store.decide(f"t{who}", f"{who}-{i}", [DecisionRequest(*cell, None)])
                except Conflict:
                    conflicts.append(i)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(d.image, d.label, d.value) for d in store.decisions()} == set(cells)
    assert Counter(conflicts) == dict.fromkeys(range(8), 3)


def test_decisions_survive_a_new_completion(completed: Completed) -> None:
    cells = cells_of(completed)
    with ReviewStore(completed.out) as store:
        assert store.refresh() == len(cells)
        store.decide("a", "1", [DecisionRequest(*cells[0], None)])
        store.decide("a", "2", [DecisionRequest(*cells[5][:2], 0, None)])
        store.decide("a", "3", [DecisionRequest(*cells[7], None)])
        assert store.refresh() == len(cells)
        assert store.meta("generation") == "1"
        # Another completion proposes the opposite for the first cell, and the last one no more.
        rows = [
            (*row[:2], str(-int(row[2])), *row[3:]) for row in completed.rows[::-1] if row[:2] != cells[7][:2]
        ]
        write_changes(completed.out / "changes.csv", rows)
        assert store.refresh() == len(rows)
        assert store.meta("generation") == "2"
        decided = everything(store, Filter(bands=BANDS, state="decided"), False)
        assert [(d["image"], d["suggestions"][0]["decided"]) for d in decided] == [(cells[0][0], cells[0][2])]
        skipped = everything(store, Filter(bands=BANDS, state="skipped"), False)
        assert [(d["image"], d["suggestions"][0]["label"]) for d in skipped] == [cells[5][:2]]
        assert len(store.decisions()) == 3
        assert sum(
            map(sum, (b for t in store.tallies(set(completed.table.classes)).values() for b in t))
        ) == len(rows)
        assert store.undo("a", "4").cells == [CurrentDecision(*cells[7][:2], None, None)]
        assert store.undo("a", "5").cells == [CurrentDecision(*cells[5][:2], None, None)]


def test_an_import_that_fails_leaves_the_store_as_it_was(completed: Completed, store: ReviewStore) -> None:
    before = store.overview()
    (completed.out / "changes.csv").write_text("image,label\n")
    with pytest.raises(RunError, match="header"):
        store.refresh()
    assert store.overview() == before
    store.decide("a", "1", [DecisionRequest(*cells_of(completed)[0], None)])


CHILD = """
import sys
from satl.review.database import ReviewStore, DecisionRequest
from satl.review.questions import Filter
store = ReviewStore(sys.argv[1])
store.refresh()
items = store.queue(Filter(bands=("accepted", "review", "left")), limit=500)["items"]
for number, item in enumerate(items):
    one = item["suggestions"][0]
    store.decide("child", str(number), [DecisionRequest(item["image"], one["label"], one["value"], None)])
    print(number, flush=True)
"""


def test_kill_minus_nine_loses_no_answered_decision(completed: Completed) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(completed.out)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        answered = [int(child.stdout.readline()) for _ in range(25)]
        child.send_signal(signal.SIGKILL)
        answered += [int(line) for line in child.stdout]
    with ReviewStore(completed.out) as store:
        assert store.refresh() == len(completed.rows)
        stored = [(d.image, d.label, d.value) for d in store.decisions()]
    assert answered == list(range(len(answered)))
    assert stored[: len(answered)] == cells_of(completed)[: len(answered)]
    assert len(stored) <= len(answered) + 1


def test_questions_run_along_an_index_and_sort_nothing(store: ReviewStore) -> None:
    db = sqlite3.connect(store.path)
    for key, label in (("id", None), ("id", "boat"), ("image", None)):
        clause, values = Filter(label=label).conditions()
        plan = db.execute(
            f"EXPLAIN QUERY PLAN SELECT DISTINCT s.{key} FROM suggestion s WHERE s.state = ? AND s.band = ? "
            f"AND s.{key} > ?{clause} ORDER BY s.{key} LIMIT ?",
            (2, 1, 0, *values, 20),
        ).fetchall()
        text = " ".join(row[-1] for row in plan)
        assert "USING" in text, text
        assert "TEMP B-TREE" not in text, text
        assert "SCAN s" not in text, text
    db.close()


def test_a_filter_by_score_is_counted_up_to_a_limit(tmp_path: Path) -> None:
    count = COUNTED + 5
    table = draw_table([f"{i}.png" for i in range(count)], ["boat"], known=0.0)
    rows = [(image, "boat", "1", "0.7", "", "review", "model", "") for image in table.images]
    with ReviewStore(write_folder(tmp_path / "out", table, rows=rows).out) as store:
        store.refresh()
        page = store.queue(Filter(low=0.5))
        assert (page["count"], page["exact"]) == (COUNTED, False)
        assert store.queue(Filter())["count"] == count


HEADER = "image,label,value,score,threshold,band,source,precision_lower_bound\n"
BAD_CHANGES = [
    ("image,label\n", ("header", "complete()")),
    (HEADER + "scene-00000.png,boat,1,0.5\n", ("row 1", "4 columns", "complete()")),
    (HEADER + "scene-00000.png,boat,2,0.5,,review,model,\n", ("row 1", "'boat'", "'2' is not 1 or -1")),
    (HEADER + "scene-00000.png,boat,1,high,,review,model,\n", ("row 1", "scene-00000.png", "high")),
    (HEADER + "scene-00000.png,boat,1,nan,,review,model,\n", ("row 1", "'nan' is not a number")),
    (HEADER + "scene-00000.png,boat,1,0.5,,maybe,model,\n", ("row 1", "'maybe'", "accepted, review, left")),
    (HEADER + "no.png,boat,1,0.5,,review,model,\n", ("row 1", "labels.npz", "no image 'no.png'")),
    (HEADER + "scene-00000.png,bot,1,0.5,,review,model,\n", ("row 1", "labels.npz", "no class 'bot'")),
    (
        HEADER + 2 * "scene-00000.png,boat,1,0.5,,review,model,\n",
        ("rows 1 and 2", "scene-00000.png", "'boat'"),
    ),
    (HEADER + 'scene-00000.png,"boat,1\n', ("cannot be read as CSV", "complete()")),
]


@pytest.mark.parametrize(("text", "parts"), BAD_CHANGES)
def test_changes_that_cannot_be_read(completed: Completed, text: str, parts: tuple[str, ...]) -> None:
    (completed.out / "changes.csv").write_text(text, encoding="utf-8")
    with ReviewStore(completed.out) as store, pytest.raises(RunError) as caught:
        store.refresh()
    assert "changes.csv" in str(caught.value)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_folders_that_are_no_completion(tmp_path: Path, completed: Completed) -> None:
    with pytest.raises(RunError, match="is not a folder"):
        ReviewStore(tmp_path / "nowhere")
    for name in ("changes.csv", "report.json", "labels.npz"):
        file = completed.out / name
        content = file.read_bytes()
        file.unlink()
        with pytest.raises(RunError, match=f"has no {name}"):
            ReviewStore(completed.out)
        file.write_bytes(content)
    (completed.out / "report.json").write_text('{"format": 1}')
    with ReviewStore(completed.out) as store, pytest.raises(RunError, match="lists no classes"):
        store.refresh()


def test_a_store_that_is_none_or_of_tomorrow(completed: Completed) -> None:
    path = completed.out / "review.sqlite"
    path.write_text("not a database, but long enough to be taken for one" * 40)
    with pytest.raises(RunError, match=r"review\.sqlite: cannot be used .* remove it"):
        ReviewStore(completed.out)
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(RunError, match="newer satl"):
        ReviewStore(completed.out)


def test_not_a_number_in_the_report_becomes_nothing(completed: Completed) -> None:
    path = completed.out / "report.json"
    report = json.loads(path.read_text())
    report["classes"][0]["prevalence_unknown"] = float("nan")
    path.write_text(json.dumps(report))
    with ReviewStore(completed.out) as store:
        store.refresh()
        entry = store.class_report("boat")
        assert entry is not None
        assert entry["prevalence_unknown"] is None
        assert store.class_report("no such class") is None


def test_an_image_with_very_many_suggestions_comes_in_portions(tmp_path: Path) -> None:
    count = 2 * SHOWN_SUGGESTIONS + 30
    table = draw_table(["a.png", "b.png", "c.png"], [f"class {i}" for i in range(count)], known=0.0)
    rows = [
        (image, label, "1", "0.6", "", "review", "model", "")
        for label in table.classes
        for image in table.images
    ]
    with ReviewStore(write_folder(tmp_path / "out", table, rows=rows).out) as store:
        store.refresh()
        first, second, third = store.queue(Filter(), by_image=True)["items"]
        assert [len(item["suggestions"]) for item in (first, second, third)] == [SHOWN_SUGGESTIONS] * 3
        seen: list[str] = []
        while first["more"] or not seen:
            labels = [one["label"] for one in first["suggestions"] if one["decided"] is None]
            store.decide("t", f"{len(seen)}", [DecisionRequest("a.png", label, 1, None) for label in labels])
            seen += labels
            first = store.queue(Filter(), True, first["key"] - 1, 1)["items"][0]
            assert first["image"] == "a.png"
        assert sum(one["decided"] is not None for one in first["suggestions"]) == SHOWN_SUGGESTIONS
        seen += [one["label"] for one in first["suggestions"] if one["decided"] is None]
        assert seen == list(table.classes)


def test_a_page_of_images_ends_where_it_would_grow_too_large(tmp_path: Path) -> None:
    names = [f"{i}.png" for i in range(9)]
    table = draw_table(names, [f"class {i}" for i in range(SHOWN_SUGGESTIONS)], known=0.0)
    rows = [
        (image, label, "1", "0.6", "", "review", "model", "") for label in table.classes for image in names
    ]
    with ReviewStore(write_folder(tmp_path / "out", table, rows=rows).out) as store:
        store.refresh()
        pages = [store.queue(Filter(), True, 0, 20)]
        while pages[-1]["next"] is not None:
            pages.append(store.queue(Filter(), True, pages[-1]["next"], 20))
        assert [len(page["items"]) for page in pages] == [4, 4, 1]
        assert [item["image"] for page in pages for item in page["items"]] == names
