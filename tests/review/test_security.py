"""Everybody who is not the person at the page stays outside: other sites, other names, other files."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from review.conftest import HOME, POST
from review.synthetic import Completed, draw_table, write_folder
from satl.review.database import ReviewStore
from satl.review.gate import Gate
from satl.review.served_images import ReviewImageFiles, media_type
from satl.review.server import create_app

QUESTIONS = ("/", "/static/app.js", "/api/start", "/api/queue", "/api/changes?since=0", "/image?name=a.png")
UNDO = {"tab": "a", "request": "b"}


@pytest.fixture
def gate(store: ReviewStore) -> Gate:
    return create_app(store, ReviewImageFiles(None, "none"))


@pytest.fixture
def stranger(gate: Gate) -> Iterator[TestClient]:
    """A client without a cookie."""
    with TestClient(gate, base_url=HOME) as client:
        yield client


def test_nothing_is_told_without_the_cookie(stranger: TestClient) -> None:
    for path in QUESTIONS:
        answer = stranger.get(path)
        assert answer.status_code == 403, path
        assert "not signed in" in answer.text
        assert "boat" not in answer.text
    assert stranger.post("/api/undo", json=UNDO, headers=POST).status_code == 403


def test_a_wrong_cookie_or_token_is_no_key(stranger: TestClient, gate: Gate) -> None:
    for value in ("", "x", gate.token, "a; b"):
        assert stranger.get("/", headers={"cookie": f"{gate.cookie}={value}"}).status_code == 403
    for token in ("", "wrong", gate.token[:-1], gate.token + "a"):
        assert stranger.get("/", params={"token": token}).status_code == 403
    assert stranger.get("/api/start", params={"token": gate.token}).status_code == 403


def test_the_token_works_once_and_becomes_a_cookie_no_script_can_read(gate: Gate, store: ReviewStore) -> None:
    printed: list[str] = []
    gate = create_app(store, ReviewImageFiles(None, "none"), opened=printed.append)
    token = gate.token
    with TestClient(gate, base_url=HOME) as first, TestClient(gate, base_url=HOME) as second:
        answer = first.get("/", params={"token": token})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{gate.cookie}=")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert token not in cookie
        assert first.get("/api/start").status_code == 200
        assert second.get("/", params={"token": token}).status_code == 403
        # The terminal shows the next one, for another browser.
        assert printed == [gate.token]
        assert gate.token != token
        assert second.get("/", params={"token": gate.token}).status_code == 200
        assert second.get("/api/start").status_code == 200
        # The address bar of the first browser still holds the old token, and leads to the page.
        assert 'url=/"' in first.get("/", params={"token": token}).text


def test_a_restart_knows_its_browsers_but_keeps_no_secret(gate: Gate, store: ReviewStore) -> None:
    with TestClient(gate, base_url=HOME) as client:
        client.get("/", params={"token": gate.token})
        secret = client.cookies[gate.cookie]
    again = create_app(store, ReviewImageFiles(None, "none"))
    with TestClient(again, base_url=HOME, cookies={gate.cookie: secret}) as client:
        assert client.get("/api/start").status_code == 200
    for file in store.folder.path.iterdir():
        assert secret.encode() not in file.read_bytes()


def test_two_reviews_on_one_machine_do_not_share_a_cookie(
    gate: Gate, tmp_path: Path, completed: Completed
) -> None:
    with ReviewStore(write_folder(tmp_path / "other", completed.table).out) as other:
        assert create_app(other, ReviewImageFiles(None, "")).cookie != gate.cookie


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8484", "127.0.0.1.evil.example", "127.0.0.1:8484@evil.example", ""]
)
def test_a_foreign_name_reaches_nothing(client: TestClient, host: str) -> None:
    for path in QUESTIONS:
        answer = client.get(path, headers={"host": host})
        assert answer.status_code == 421, path
        assert "boat" not in answer.text
    headers = {**POST, "host": host, "origin": f"http://{host}"}
    assert client.post("/api/undo", json=UNDO, headers=headers).status_code == 421


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8484", "127.0.0.1", "localhost:9000", "LOCALHOST:80", "[::1]:8484"]
)
def test_names_of_this_machine_are_allowed_on_any_port(client: TestClient, host: str) -> None:
    assert client.get("/api/start", headers={"host": host}).status_code == 200


def test_only_the_given_address_is_added(store: ReviewStore) -> None:
    gate = create_app(store, ReviewImageFiles(None, "none"), host="192.168.1.20")
    with TestClient(gate, base_url="http://192.168.1.20:8484") as client:
        assert client.get("/", params={"token": gate.token}).status_code == 200
        assert client.get("/api/start").status_code == 200
        assert client.get("/api/start", headers={"host": "192.168.1.21:8484"}).status_code == 421


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_pages_cannot_ask(client: TestClient, site: str) -> None:
    for path in QUESTIONS:
        assert client.get(path, headers={"sec-fetch-site": site}).status_code == 403, path
    # A person may follow a link to the page itself.
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/api/start", headers=link).status_code == 403


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "https://127.0.0.1:8484"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": None}, 403),
        ({"x-satl-review": None}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_only_the_page_itself_can_change_something(
    client: TestClient, store: ReviewStore, change: dict[str, str | None], status: int
) -> None:
    image, label = next((item["image"], item["suggestions"][0]["label"]) for item in first_page(store))
    body = {
        "tab": "a",
        "request": "b",
        "cells": [{"image": image, "label": label, "value": 1, "based_on": None}],
    }
    with TestClient(client.app, base_url=HOME, cookies=client.cookies) as rival:
        wanted = {**POST, "content-type": "application/json", **change}
        headers = {name: value for name, value in wanted.items() if value is not None}
        assert rival.post("/api/decide", json=body, headers=headers).status_code == status
        assert store.decisions() == []
        assert rival.post("/api/decide", json=body, headers=POST).status_code == 200


def first_page(store: ReviewStore) -> list[dict]:
    from satl.review.questions import Filter

    return store.queue(Filter())["items"]


def test_other_ways_and_too_much_are_refused(client: TestClient) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        assert client.request(method, "/api/decide").status_code == 405
    assert client.post("/api/decide", content=b"{" + b" " * (1 << 20), headers=JSON).status_code == 413
    assert client.post("/api/decide", content=iter([b"{}"]), headers=JSON).status_code == 411


JSON = {"content-type": "application/json"}


def test_every_answer_carries_the_policy(client: TestClient, stranger: TestClient) -> None:
    for answer in (*(client.get(path) for path in QUESTIONS), stranger.get("/"), stranger.get("/api/start")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert client.get("/api/start").headers["cache-control"] == "no-store"


def raw_status(client: TestClient, path: str) -> int:
    """Ask for a path as it is: clients tidy it up before they send it."""
    gate, statuses = client.app, []
    assert isinstance(gate, Gate)
    cookie = f"{gate.cookie}={client.cookies[gate.cookie]}"
    scope = {
        **{"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "root_path": ""},
        **{"path": unquote(path), "raw_path": path.encode(), "query_string": b""},
        "headers": [(b"host", b"127.0.0.1:8484"), (b"cookie", cookie.encode())],
    }

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    anyio.run(gate, scope, receive, send)
    (status,) = statuses
    return status


def test_no_folder_is_listed_and_no_other_file_is_served(client: TestClient) -> None:
    assert raw_status(client, "/static/app.js") == 200
    for path in (
        *("/static", "/static/", "/static/.", "/static/..", "/static/../gate.py", "/static/%2e%2e/gate.py"),
        *("/static/..%2fgate.py", "/static//etc/passwd", "/static/%2fetc%2fpasswd", "/static/__init__.py"),
        *("/../../etc/passwd", "/docs", "/redoc", "/openapi.json", "/image/a.png", "/review.sqlite"),
    ):
        assert raw_status(client, path) in (307, 404), path


@pytest.fixture
def traps(tmp_path: Path) -> Iterator[tuple[TestClient, Path]]:
    """A table whose image ids try to leave the image folder, and links in the folder that lead out of it."""
    folder, outside = tmp_path / "images", tmp_path / "outside"
    folder.mkdir()
    (outside / "more").mkdir(parents=True)
    secret = outside / "secret.png"
    Image.new("RGB", (8, 8), (1, 2, 3)).save(secret)
    Image.new("RGB", (8, 8), (1, 2, 3)).save(outside / "more" / "deep.png")
    Image.new("RGB", (8, 8), (9, 9, 9)).save(folder / "good.png")
    (folder / "link.png").symlink_to(secret)
    (folder / "inside.png").symlink_to(folder / "good.png")
    (folder / "door").symlink_to(outside / "more")
    (tmp_path / "images-private").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "images-private" / "x.png")
    names = [
        *("good.png", "inside.png", str(folder / "good.png")),
        *("../outside/secret.png", str(secret), "link.png", "door/deep.png", "../images-private/x.png"),
        *("../outside/none.png", "door/none.png"),
    ]
    table = draw_table(names, ["boat"], known=0.0)
    rows = [(name, "boat", "1", "0.6", "", "review", "model", "") for name in names]
    with ReviewStore(write_folder(tmp_path / "out", table, rows=rows).out) as store:
        store.refresh()
        gate = create_app(store, ReviewImageFiles(folder))
        with TestClient(gate, base_url=HOME, headers=POST) as client:
            client.get("/", params={"token": gate.token})
            yield client, folder


def test_images_inside_the_folder_are_served(traps: tuple[TestClient, Path]) -> None:
    client, folder = traps
    for name in ("good.png", "inside.png", str(folder / "good.png")):
        assert client.get("/image", params={"name": name}).status_code == 200, name


def test_nothing_outside_the_folder_is_served_or_told_apart(traps: tuple[TestClient, Path]) -> None:
    client, folder = traps
    secret = str(folder.parent / "outside" / "secret.png")
    leaving = ("../outside/secret.png", secret, "link.png", "door/deep.png", "../images-private/x.png")
    for name in (*leaving, "../outside/none.png", "door/none.png"):
        answer = client.get("/image", params={"name": name})
        assert answer.status_code == 404, name
        assert answer.json()["error"].startswith(f"'{name}' lies outside the image folder"), name


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    from satl.errors import ImageError

    for name in ("a\0.png", "x" * 5000 + ".png"):
        with pytest.raises((ImageError, OSError)):
            ReviewImageFiles(tmp_path).find(name)


def test_only_pictures_that_cannot_run_scripts_keep_their_type() -> None:
    assert media_type(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert media_type(b"RIFF\x10\0\0\0WEBPVP8 ") == "image/webp"
    assert media_type(b"\0\0\0\x20ftypavif\0\0\0\0") == "image/avif"
    for head in (b"", b"<svg xmlns=", b"<html>", b"%PDF-1.7", b"RIFF\x10\0\0\0WAVE", b"PK\x03\x04"):
        assert media_type(head) is None


def send_in_chunks(gate: Gate, cookie: str, chunks: int, *headers: tuple[bytes, bytes]) -> tuple[int, int]:
    """Post chunks of 64 kB under a header that promises two bytes; return the status and how many were taken."""
    taken = 0
    status: list[int] = []

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x" * 65_536, "more_body": taken < chunks}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    given = {**POST, "host": "127.0.0.1:8484", "content-type": "application/json", "content-length": "2"}
    given["cookie"] = cookie
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/decide",
        "query_string": b"",
        "headers": [*((name.encode(), value.encode()) for name, value in given.items()), *headers],
    }
    anyio.run(gate, scope, receive, send)
    return status[0], taken


def test_a_body_that_is_longer_than_it_says_is_not_taken_in(gate: Gate) -> None:
    with TestClient(gate, base_url=HOME) as client:
        client.get("/", params={"token": gate.token})
        cookie = f"{gate.cookie}={client.cookies[gate.cookie]}"
    status, taken = send_in_chunks(gate, cookie, 10_000)
    assert status == 413
    assert taken == 17  # the first chunk beyond a megabyte
    status, taken = send_in_chunks(gate, cookie, 10_000, (b"transfer-encoding", b"chunked"))
    assert (status, taken) == (411, 0)
    huge = (b"content-length", b"9" * 5000)
    assert send_in_chunks(gate, cookie, 10_000, huge) == (413, 0)
