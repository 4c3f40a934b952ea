"""What the page asks and is answered, over HTTP as a browser would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from review.conftest import HOME, POST
from review.synthetic import Completed, draw_table, small_folder, write_folder
from satl.errors import RunError
from satl.review.database import ReviewStore
from satl.review.served_images import ReviewImageFiles, find_images
from satl.review.server import create_app


def first_cells(client: TestClient, count: int) -> list[dict]:
    items = client.get("/api/queue", params={"limit": count}).json()["items"]
    return [{"image": item["image"], **item["suggestions"][0]} for item in items]


def decide(client: TestClient, cell: dict, value: int, request: str, tab: str = "one", based_on=None):
    wanted = {"image": cell["image"], "label": cell["label"], "value": value, "based_on": based_on}
    return client.post("/api/decide", json={"tab": tab, "request": request, "cells": [wanted]})


def test_the_page_and_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    for name, kind in (("app.js", "javascript"), ("style.css", "css"), ("icon.svg", "svg")):
        assert f"/static/{name}" in page.text
        file = client.get(f"/static/{name}")
        assert file.status_code == 200
        assert kind in file.headers["content-type"]
    scripts = [
        client.get(f"/static/{name}.js").text for name in ("app", "api", "view", "queue", "chart", "zoom")
    ]
    style = client.get("/static/style.css").text
    for text in (page.text, style, *scripts):
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text


def test_start_tells_what_there_is(client: TestClient, completed: Completed) -> None:
    start = client.get("/api/start").json()
    assert [entry["name"] for entry in start["classes"]] == list(completed.table.classes)
    assert sum(sum(map(sum, entry["tally"])) for entry in start["classes"]) == len(completed.rows)
    assert start["sources"] == sorted({row[6] for row in completed.rows})
    assert (start["has_images"], start["images_message"]) == (False, "No image folder is known.")
    assert start["statement"].startswith("With confidence")


def test_the_command_that_merges_can_be_copied(tmp_path: Path) -> None:
    completed = small_folder(tmp_path / "my out")
    with ReviewStore(completed.out) as store:
        store.refresh()
        gate = create_app(store, ReviewImageFiles(None))
        with TestClient(gate, base_url=HOME, headers=POST) as client:
            client.get("/", params={"token": gate.token})
            command = client.get("/api/start").json()["merge_command"]
    assert command == f"satl merge '{completed.out}' TABLE -o NEW"


def test_a_class_comes_with_its_distribution(client: TestClient, completed: Completed) -> None:
    report = client.get("/api/class", params={"name": "猫, cat"}).json()
    assert len(report["histogram"]["edges"]) == 65
    column = completed.table.classes.index("猫, cat")
    assert sum(report["histogram"]["unknown"]) == (completed.table.cells[:, column] == 0).sum()
    assert client.get("/api/class", params={"name": "bot"}).status_code == 404


def test_the_queue_takes_every_filter(client: TestClient, completed: Completed) -> None:
    asked = {
        "band": ["review", "left"],
        "label": "boat",
        "value": 1,
        "low": 0.3,
        "high": 0.8,
        "source": "model",
    }
    page = client.get("/api/queue", params=asked).json()
    expected = [
        row[0]
        for row in completed.rows
        if row[1] == "boat"
        and row[5] != "accepted"
        and row[2] == "1"
        and 0.3 <= float(row[3]) <= 0.8
        and row[6] == "model"
    ]
    assert [item["image"] for item in page["items"]] == expected[:20]
    assert page["count"] == len(expected) > 0
    for wrong in ({"band": "maybe"}, {"state": "maybe"}, {"mode": "maybe"}, {"limit": 51}, {"limit": 0}):
        assert client.get("/api/queue", params=wrong).status_code == 422


def test_decide_undo_and_what_another_tab_hears(client: TestClient) -> None:
    first, second = first_cells(client, 2)
    answer = decide(client, first, first["value"], "r1").json()
    assert answer["cells"] == [
        {"image": first["image"], "label": first["label"], "value": first["value"], "number": 1}
    ]
    assert answer["tallies"][first["label"]][1][0] < 40
    assert decide(client, second, 0, "r2", tab="two").json()["last"] == 2
    news = client.get("/api/changes", params={"since": 1}).json()
    assert [(d["image"], d["value"], d["sequence"]) for d in news["decisions"]] == [(second["image"], 0, 2)]
    undone = client.post("/api/undo", json={"tab": "one", "request": "r3"}).json()
    assert undone["cells"][0] == {
        "image": first["image"],
        "label": first["label"],
        "value": None,
        "number": None,
    }
    assert undone["last"] == 3
    assert client.post("/api/undo", json={"tab": "three", "request": "r4"}).json()["cells"] == []
    item = client.get("/api/item", params={"image": second["image"], "label": second["label"]}).json()
    assert (item["suggestions"][0]["decided"], item["suggestions"][0]["number"]) == (0, 2)


def test_a_rival_tab_is_told_and_nothing_is_overwritten(client: TestClient, store: ReviewStore) -> None:
    (cell,) = first_cells(client, 1)
    decide(client, cell, 1, "r1")
    late = decide(client, cell, -1, "r2", tab="two")
    assert late.status_code == 409
    assert late.json()["cells"][0]["value"] == 1
    assert late.json()["tallies"]
    assert [d.value for d in store.decisions()] == [1]
    assert decide(client, cell, -1, "r3", tab="two", based_on=1).status_code == 200
    assert client.post("/api/undo", json={"tab": "one", "request": "r4"}).status_code == 409
    assert [d.value for d in store.decisions()] == [-1]


def test_what_makes_no_sense_is_refused(client: TestClient, store: ReviewStore) -> None:
    (cell,) = first_cells(client, 1)
    assert decide(client, {**cell, "image": "nowhere"}, 1, "r1").status_code == 404
    assert decide(client, cell, 2, "r1").status_code == 422
    assert client.post("/api/decide", json={"tab": "a", "request": "b", "cells": []}).status_code == 422
    assert client.get("/api/item", params={"image": "nowhere"}).status_code == 404
    assert client.get("/api/nothing").status_code == 404
    assert store.decisions() == []


def test_a_full_disk_is_said_and_not_swallowed(
    client: TestClient, store: ReviewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    (cell,) = first_cells(client, 1)

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store, "_set_current", full)
    answer = decide(client, cell, 1, "r1")
    assert answer.status_code == 503
    assert "disk is full" in answer.json()["error"]
    monkeypatch.undo()
    assert decide(client, cell, 1, "r1").status_code == 200


@pytest.fixture
def gallery(tmp_path: Path) -> Iterator[tuple[TestClient, Path]]:
    """A review of a few image files of many kinds."""
    folder = tmp_path / "images"
    (folder / "sub").mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    names = [
        "a.png",
        "sub/b c.jpg",
        "d.tif",
        "plain",
        "e.webp",
        "gone.png",
        "text.png",
        "notes.txt",
        "two",
        "cut.png",
    ]
    picture = Image.fromarray(pixels)
    for name in ("a.png", "sub/b c.jpg", "d.tif", "plain.JPG", "e.webp", "two.png", "two.jpg", "cut.png"):
        picture.save(folder / name)
    (folder / "text.png").write_text("this is no image")
    (folder / "notes.txt").write_text("private")
    (folder / "cut.png").write_bytes((folder / "cut.png").read_bytes()[4:200])
    table = draw_table(names, ["boat"], known=0.0)
    rows = [(name, "boat", "1", "0.6", "", "review", "model", "") for name in names]
    completed = write_folder(tmp_path / "out", table, rows=rows)
    with ReviewStore(completed.out) as store:
        store.refresh()
        gate = create_app(store, ReviewImageFiles(folder))
        with TestClient(gate, base_url=HOME, headers=POST) as client:
            client.get("/", params={"token": gate.token})
            yield client, folder


def test_images_are_served_as_what_they_are(gallery: tuple[TestClient, Path]) -> None:
    client, folder = gallery
    for name, kind in (("a.png", "png"), ("sub/b c.jpg", "jpeg"), ("plain", "jpeg"), ("e.webp", "webp")):
        answer = client.get("/image", params={"name": name})
        assert (answer.status_code, answer.headers["content-type"]) == (200, f"image/{kind}")
        assert answer.headers["cache-control"].startswith("private")
    assert client.get("/image", params={"name": "a.png"}).content == (folder / "a.png").read_bytes()


def test_a_format_that_browsers_lack_is_converted(gallery: tuple[TestClient, Path], tmp_path: Path) -> None:
    client, folder = gallery
    answer = client.get("/image", params={"name": "d.tif"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    (tmp_path / "seen.png").write_bytes(answer.content)
    assert np.array_equal(
        np.asarray(Image.open(tmp_path / "seen.png")), np.asarray(Image.open(folder / "d.tif"))
    )


@pytest.mark.parametrize("extension", [".Jpg", ".jpg", ".JPEG"])
def test_an_extension_may_be_written_in_any_case(gallery: tuple[TestClient, Path], extension: str) -> None:
    client, folder = gallery
    # Found in the list of the folder's files, so that it is one image also where the file system ignores case.
    file = (folder / "plain.JPG").rename(folder / f"plain{extension}")
    answer = client.get("/image", params={"name": "plain"})
    assert (answer.status_code, answer.content) == (200, file.read_bytes())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gone.png", "is not in the image folder"),
        ("text.png", "is not an image"),
        ("notes.txt", "is not an image file"),
        ("two", "matches several files"),
        ("cut.png", "image"),
        ("unheard of.png", "no suggestion is about"),
    ],
)
def test_what_is_no_image_is_not_served(gallery: tuple[TestClient, Path], name: str, says: str) -> None:
    answer = gallery[0].get("/image", params={"name": name})
    assert answer.status_code == 404
    assert says in answer.json()["error"]
    assert "private" not in answer.text


def test_without_a_folder_the_reason_is_given(client: TestClient) -> None:
    (cell,) = first_cells(client, 1)
    answer = client.get("/image", params={"name": cell["image"]})
    assert (answer.status_code, answer.json()["error"]) == (404, "No image folder is known.")


def test_where_the_images_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project" / "images").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    out = tmp_path / "project" / "out"
    monkeypatch.chdir(tmp_path / "project")
    assert find_images(out, "images", None)[0] == Path("images")
    monkeypatch.chdir(tmp_path / "other")
    assert find_images(out, "images", None)[0] == out.parent / "images"
    assert find_images(out, "images", tmp_path / "other") == (tmp_path / "other", "")
    assert "'gone' is not here" in find_images(out, "gone", None)[1]
    assert find_images(out, None, None) == (None, "No image folder is known.")
    with pytest.raises(RunError, match="images='gone': does not exist"):
        find_images(out, None, Path("gone"))


@pytest.mark.parametrize(
    "text",
    [
        '{"tab": "a", "request": "b\\ud800", "cells": [CELL]}',
        '{"tab": "\\udfff", "request": "b", "cells": [CELL]}',
        '{"tab": "a", "request": "b", "cells": [{"image": "\\ud800", "label": "boat", "value": 1, "based_on": null}]}',
        '{"tab": "a", "request": "b", "cells": [{"image": "x", "label": "\\ud800", "value": 1, "based_on": null}]}',
        '{"tab": "a", "request": "b", "cells": [{"image": "x", "label": "y", "value": NaN, "based_on": null}]}',
        '{"tab": "a", "request": "b", "cells": [{"image": "x", "label": "y", "value": 1, "based_on": Infinity}]}',
        '{"tab": "a", "request": "b", "cells": [{"image": "x", "label": "y", "value": 1, "based_on": 1E30}]}',
        '{"tab": "a", "request": "b", "cells": [{"image": "x", "label": "y", "value": 1, "based_on": HUGE}]}',
        '{"tab": NaN, "request": "b", "cells": [CELL]}',
        '{"\\ud800": 1}',
        "[" * 100_000,
        "1" * 5000,
        "NaN",
        "",
        "\udcff",
    ],
)
def test_a_request_that_no_page_sends_is_refused(text: str, client: TestClient) -> None:
    cell = '{"image": "a.jpg", "label": "boat", "value": 1, "based_on": null}'
    body = text.replace("CELL", cell).replace("HUGE", str(1 << 63)).encode("utf-8", "surrogateescape")
    answer = client.post("/api/decide", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()
    undo = client.post("/api/undo", content=body, headers={"content-type": "application/json"})
    assert undo.status_code in (200, 400, 422)  # it asks for no cells


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 10**30])
def test_numbers_that_the_file_cannot_hold_are_refused(number: int, client: TestClient) -> None:
    for path in (f"/api/queue?after={number}", f"/api/queue?value={number}", f"/api/changes?since={number}"):
        answer = client.get(path)
        assert answer.status_code == 422
        assert "error" in answer.json()
    assert client.get("/api/queue?low=nan&high=inf").status_code == 200


def test_a_request_decides_each_cell_once(client: TestClient) -> None:
    cell = first_cells(client, 1)[0]
    wanted = {"image": cell["image"], "label": cell["label"], "value": 1, "based_on": None}
    body = {"tab": "one", "request": "twice", "cells": [wanted, {**wanted, "value": -1}]}
    answer = client.post("/api/decide", json=body)
    assert (answer.status_code, answer.json()) == (422, {"error": "a request may decide each cell once."})
    assert client.get("/api/changes?since=0").json()["decisions"] == []
