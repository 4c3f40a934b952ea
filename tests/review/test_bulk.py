"""Many decisions in one request: all or none, also when the server is killed in the middle; galleries; thumbnails."""

from __future__ import annotations

import http.client
import io
import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from review.conftest import HOME, POST
from review.synthetic import BANDS, Completed, draw_table, write_folder
from satl.errors import ImageError
from satl.images import ArrayImages, pack_images
from satl.review import thumbnails as thumbnails_module
from satl.review.database import Conflict, DecisionRequest, ReviewStore
from satl.review.gallery import GalleryPlace
from satl.review.questions import Filter
from satl.review.served_images import ReviewImageFiles, ReviewImageStore
from satl.review.server import create_app
from satl.review.thumbnails import LONGEST_SIDE, Thumbnails

KILLS = 8
BATCH = 40


class Client:
    """``satl review`` in a process of its own, and the requests of its page, without a browser."""

    def __init__(self, out: Path) -> None:
        command = [sys.executable, "-m", "satl", "review", str(out), "--port", "0", "--annotator", "ann"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        found = re.search(r"http://([^/]+)(/\S+)", self.process.stdout.readline())
        assert found is not None
        self.host = found[1]
        self.connection = http.client.HTTPConnection(self.host, timeout=600)
        self.connection.request("GET", found[2])
        answer = self.connection.getresponse()
        answer.read()
        self.cookie = str(answer.headers["set-cookie"]).partition(";")[0]

    def ask(self, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"cookie": self.cookie, "origin": f"http://{self.host}", "x-satl-review": "1"}
        headers["content-type"] = "application/json"
        self.connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
        answer = self.connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return dict(json.loads(content))

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.connection.close()


def batches_until_killed(client: Client, bodies: list[dict[str, Any]], dice: random.Random) -> list[str]:
    """Send batches until the server dies at a moment drawn by chance; return those that were confirmed."""
    confirmed: list[str] = []
    timer = threading.Timer(dice.uniform(0.0, 0.25), client.process.send_signal, [signal.SIGKILL])
    timer.start()
    try:
        for body in bodies:
            client.ask("/api/decide", body)
            confirmed.append(body["request"])
        client.process.wait()  # it was quicker than the kill
    except (OSError, http.client.HTTPException):
        pass
    timer.join()
    return confirmed


def test_a_batch_is_stored_whole_or_not_at_all_however_the_server_dies(tmp_path: Path) -> None:
    table = draw_table([f"{i}.png" for i in range(2400)], ["boat"], known=0.0)
    rows = [(image, "boat", "1", "0.7", "", "review", "model", "") for image in table.images]
    completed = write_folder(tmp_path / "out", table, rows=rows)
    dice = random.Random(7)
    confirmed: list[str] = []
    for kill in range(KILLS):
        client = Client(completed.out)
        try:
            page = client.ask("/api/gallery?label=boat&limit=200&annotator=ann")
            after, items = page["next"], page["items"]
            while after is not None and len(items) < 2400:
                place = f"&after_key={after['key']}&after={after['id']}"
                page = client.ask(f"/api/gallery?label=boat&limit=200&annotator=ann{place}")
                after, items = page["next"], [*items, *page["items"]]
            bodies = [
                {
                    "tab": "t",
                    "request": f"{kill}-{start}",
                    "annotator": "ann",
                    "cells": [
                        {
                            "image": one["image"],
                            "label": "boat",
                            "value": dice.choice([1, -1]),
                            "based_on": None,
                        }
                        for one in items[start : start + BATCH]
                    ],
                }
                for start in range(0, len(items), BATCH)
            ]
            confirmed += batches_until_killed(client, bodies, dice)
        finally:
            client.close()
        db = sqlite3.connect(completed.out / "review.sqlite")
        sizes = Counter(row[0] for row in db.execute("SELECT request FROM decision"))
        standing = db.execute("SELECT COUNT(*) FROM standing").fetchone()[0]
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.close()
        assert set(sizes.values()) <= {BATCH}
        assert set(confirmed) <= set(sizes)
        assert standing == sum(sizes.values())
        # What was on its way when the server died may be there or not: sent again, it counts once.
        pending = next((body for body in bodies if body["request"] not in confirmed), None)
        if pending is not None:
            cells = [DecisionRequest(**cell) for cell in pending["cells"]]
            with ReviewStore(completed.out) as store:
                for _ in range(2):
                    store.decide("t", pending["request"], cells, "ann")
                assert len(store.votes()) == standing + (0 if pending["request"] in sizes else BATCH)
            confirmed.append(pending["request"])
    # One undo takes one whole batch back, and the one before next.
    with ReviewStore(completed.out) as store:
        before = len(store.votes())
        assert before >= KILLS * BATCH
        assert len(store.undo("t", "u1", "ann").cells) == BATCH
        assert len(store.undo("t", "u2", "ann").cells) == BATCH
        assert len(store.votes()) == before - 2 * BATCH


def test_a_batch_that_meets_another_decision_leaves_nothing_behind(
    completed: Completed, store: ReviewStore
) -> None:
    cells = [DecisionRequest(row[0], row[1], int(row[2]), None) for row in completed.rows[:20]]
    store.decide("other", "x", [cells[-1]])
    with pytest.raises(Conflict):
        store.decide("t", "batch", cells)
    assert len(store.votes()) == 1
    with pytest.raises(KeyError):
        store.decide("t", "batch", [*cells[:-1], DecisionRequest("no such.png", "boat", 1, None)])
    assert len(store.votes()) == 1
    assert store.tallies(None) == ReviewStore(completed.out).tallies(None)


def pages(store: ReviewStore, wanted: Filter, order: Any, limit: int) -> list[dict[str, Any]]:
    """The whole gallery, page after page."""
    found: list[dict[str, Any]] = []
    place = None
    while True:
        page = store.gallery(wanted, order, place, limit)
        found += page["items"]
        if page["next"] is None:
            return found
        place = GalleryPlace(**page["next"])


@pytest.mark.parametrize("order", ["highest", "lowest", "doubtful"])
@pytest.mark.parametrize("limit", [1, 7, 200])
def test_a_gallery_shows_every_suggestion_of_its_class_once_and_in_order(
    tmp_path: Path, order: str, limit: int
) -> None:
    names = [f"{i}.png" for i in range(60)]
    table = draw_table(names, ["boat", "cat"], known=0.0)
    random_ = np.random.default_rng(0)
    rows = []
    for label in table.classes:
        for name in names:
            score = round(float(random_.choice([0.2, 0.35, 0.5, 0.55, 0.8, random_.random()])), 6)
            value, band = ("1", "review") if score >= 0.5 else ("-1", "left")
            rows.append((name, label, value, f"{score:.6f}", "", band, "model", ""))
    with ReviewStore(write_folder(tmp_path / "out", table, rows=rows).out) as store:
        store.refresh()
        boats = [(row[0], float(row[3]), int(row[2])) for row in rows if row[1] == "boat"]
        for i, (image, _, value) in enumerate(boats):
            if i % 5 == 0:
                store.decide("t", str(i), [DecisionRequest(image, "boat", value, None)], ("ann", "")[i % 2])
        for who, decided in (("ann", range(0, 60, 10)), ("", range(5, 60, 10)), ("eve", ())):
            wanted = Filter("boat", BANDS, annotator=who)
            items = pages(store, wanted, order, limit)
            rest = [one for i, one in enumerate(boats) if i not in decided]
            assert {item["image"] for item in items} == {image for image, _, _ in rest}
            assert len(items) == len(rest) == store.gallery(wanted)["count"]
            low = min(score for _, score, value in boats if value == 1)
            high = max(score for _, score, value in boats if value == -1)
            scores = np.array([item["score"] for item in items])
            by_doubt = np.abs(scores - (low + high) / 2)
            keys = {"highest": -scores, "lowest": scores, "doubtful": by_doubt}[order]
            assert np.all(np.diff(keys) >= 0)


def test_a_gallery_goes_on_where_it_was_whatever_is_decided(completed: Completed, store: ReviewStore) -> None:
    wanted = Filter("boat", BANDS)
    everything = [item["image"] for item in pages(store, wanted, "highest", 200)]
    first = store.gallery(wanted, limit=5)
    cells = [DecisionRequest(one["image"], "boat", one["value"], None) for one in first["items"][::2]]
    store.decide("t", "1", cells)
    second = store.gallery(wanted, after=GalleryPlace(**first["next"]), limit=5)
    assert [item["image"] for item in [*first["items"], *second["items"]]] == everything[:10]
    decided = store.gallery(Filter("boat", BANDS, state="decided"))["items"]
    assert [(one["decided"], one["number"]) for one in decided] == [
        (cell.value, number) for number, cell in enumerate(cells, 1)
    ]


def test_requests_for_galleries_that_no_page_sends(client: TestClient) -> None:
    for query in ("", "label=boat&limit=0", "label=boat&limit=201", "label=boat&order=best", "label=boat&after=1",
                  "label=boat&after=1&after_key=nan", "label=boat&band=none", "label=boat&state=wrong",
                  f"label=boat&after_key=1&after={1 << 63}"):  # fmt: skip
        answer = client.get(f"/api/gallery?{query}")
        assert answer.status_code == 422, query
        assert "error" in answer.json()
    assert client.get("/api/gallery?label=no+such+class").json()["items"] == []


def photographs(folder: Path) -> ReviewImageFiles:
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (300, 600, 3)).astype(np.uint8)
    image = Image.fromarray(pixels)
    image.save(folder / "wide.jpg")
    image.save(folder / "wide.png")
    image.convert("CMYK").save(folder / "print.jpg")
    image.convert("RGBA").save(folder / "clear.webp")
    image.save(folder / "wide.tif")
    Image.new("L", (40, 90), 128).save(folder / "small.png")
    turned = image.getexif()
    turned[0x0112] = 6
    image.save(folder / "turned.jpg", exif=turned)
    (folder / "cut.jpg").write_bytes((folder / "wide.jpg").read_bytes()[:900])
    (folder / "none.jpg").write_bytes(b"\xff\xd8\xffnothing")
    return ReviewImageFiles(folder)


def test_thumbnails_are_small_upright_jpeg_of_the_same_shape(tmp_path: Path) -> None:
    images, thumbnails = photographs(tmp_path / "images"), Thumbnails()
    for name, shape in (
        *((name, (256, 128)) for name in ("wide.jpg", "wide.png", "print.jpg", "clear.webp", "wide.tif")),
        ("small.png", (40, 90)),
        ("turned.jpg", (128, 256)),
    ):
        found = Image.open(io.BytesIO(thumbnails.make(name, images.image(name))))
        assert (found.format, found.size, found.mode) == ("JPEG", shape, "RGB"), name
    assert LONGEST_SIDE == 256
    for name in ("cut.jpg", "none.jpg"):
        with pytest.raises(ImageError):
            thumbnails.make(name, images.image(name))


@pytest.mark.parametrize(("side", "decoded"), [((640, 480), (320, 240)), ((1024, 768), (256, 192))])
def test_no_more_of_a_photograph_is_decoded_than_its_thumbnail_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: tuple[int, int], decoded: tuple[int, int]
) -> None:
    path = tmp_path / "a.jpg"
    Image.linear_gradient("L").resize(side).convert("RGB").save(path)
    whole = Image.open(path).resize((256, 192), Image.Resampling.BILINEAR)
    sizes = []
    jpeg = thumbnails_module._jpeg
    monkeypatch.setattr(
        thumbnails_module, "_jpeg", lambda image, *shape: sizes.append(image.size) or jpeg(image, *shape)
    )
    found = Image.open(io.BytesIO(Thumbnails().make("a.jpg", ReviewImageFiles(tmp_path).image("a.jpg"))))
    assert (sizes, found.size) == ([decoded], (256, 192))
    difference = np.asarray(found, dtype=int) - np.asarray(whole, dtype=int)
    assert np.abs(difference).mean() < 2


def test_thumbnails_are_kept_up_to_a_bound_and_made_anew_for_a_new_file(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(8):
        pixels = np.random.default_rng(i).integers(0, 255, (200, 200, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    images = ReviewImageFiles(folder)
    one = len(Thumbnails().make("0.png", images.image("0.png")))
    thumbnails = Thumbnails(kept_bytes=3 * one + one // 2)
    threads = [
        threading.Thread(target=lambda i=i: thumbnails.make(f"{i % 8}.png", images.image(f"{i % 8}.png")))
        for i in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 2 * one < thumbnails.size <= 3 * one + one // 2
    before = thumbnails.make("0.png", images.image("0.png"))
    assert thumbnails.make("0.png", images.image("0.png")) is before  # kept
    time.sleep(0.01)
    Image.new("RGB", (64, 64), "red").save(folder / "0.png")
    assert thumbnails.make("0.png", images.image("0.png")) != before


@pytest.mark.parametrize("kind", ["raw", "jpeg"])
def test_thumbnails_of_a_packed_store(tmp_path: Path, kind: Any) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (3, 300, 300, 3)).astype(np.uint8)
    pack_images(ArrayImages(pixels), ["a", "b", "c"], tmp_path / "store", kind=kind)
    images = ReviewImageStore(tmp_path / "store")
    found = Image.open(io.BytesIO(Thumbnails().make("b", images.image("b"))))
    assert (found.format, found.size) == ("JPEG", (256, 256))


def test_the_server_answers_with_thumbnails_or_with_a_sentence(tmp_path: Path) -> None:
    images = photographs(tmp_path / "images")
    names = ["wide.jpg", "cut.jpg", "../out/labels.npz"]
    table = draw_table(names, ["boat"], known=0.0)
    rows = [(name, "boat", "1", "0.6", "", "review", "model", "") for name in names]
    with ReviewStore(write_folder(tmp_path / "out", table, rows=rows).out) as store:
        store.refresh()
        gate = create_app(store, images)
        with TestClient(gate, base_url=HOME, headers=POST) as client:
            assert client.get("/thumbnail", params={"name": "wide.jpg"}).status_code == 403
            client.get("/", params={"token": gate.token})
            answer = client.get("/thumbnail", params={"name": "wide.jpg"})
            assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
            assert "img-src 'self'" in answer.headers["content-security-policy"]
            for name in (
                *names[1:],
                "wide.png",
                "no.jpg",
            ):  # damaged, outside, under no suggestion, not there
                answer = client.get("/thumbnail", params={"name": name})
                assert answer.status_code == 404, name
                assert answer.json()["error"]
