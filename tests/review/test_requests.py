"""Requests that nobody thought of, on a real socket: schemathesis against the server's own OpenAPI document.

``make fuzz-http`` sends more than 10,000; SATL_HTTP_REQUESTS says how many.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import requests
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from review.contract import ANSWERS, document
from review.serving import Served
from review.synthetic import draw_table, write_folder

REQUESTS = int(os.environ.get("SATL_HTTP_REQUESTS", "400"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
CLASSES = ("boat", "traffic light", "猫, cat")
SILENT = ("/", "/api/start", "/api/agreement")
"""Operations that take nothing."""
FUZZED = [
    (path, method, mode)
    for path, method in sorted(ANSWERS)
    for mode in schemathesis.GenerationMode
    if path not in SILENT and not (path == "/static/{name}" and mode.is_negative)  # any text is a name
]
SENT: Counter[int] = Counter()
"""How many requests were answered with each status."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A review with images, one of which is a link out of the folder."""
    folder = tmp_path_factory.mktemp("review")
    names = [f"{number:03d}.png" for number in range(60)]
    (folder / "images").mkdir()
    Image.new("RGB", (8, 8), (1, 2, 3)).save(folder / "secret.png")
    for name in names[:6]:
        Image.new("RGB", (8, 8)).save(folder / "images" / name)
    (folder / "images" / names[6]).symlink_to(folder / "secret.png")
    running = Served(write_folder(folder / "out", draw_table(names, CLASSES)))
    yield running
    running.stop()
    print(f"\n{SENT.total()} requests; answers by status: {dict(sorted(SENT.items()))}")


@pytest.fixture(scope="module")
def visitors(served: Served) -> dict[str, tuple[requests.Session, dict[str, str]]]:
    """The person at the page, and everybody who must stay outside: sessions and the headers they send."""
    page = {"origin": served.home.rstrip("/"), "x-satl-review": "1", "sec-fetch-site": "same-origin"}
    inside = _session()
    assert inside.get(served.home, params={"token": served.gate.token}).status_code == 200
    wrong = _session()
    wrong.cookies.set(served.gate.cookie, "x" * 43)
    port = served.home.rstrip("/").rpartition(":")[2]
    return {
        "signed in": (inside, page),
        "no cookie": (_session(), page),
        "wrong cookie": (wrong, page),
        "foreign host": (inside, {**page, "host": f"evil.example:{port}"}),
        "foreign host and origin": (
            inside,
            {**page, "host": "evil.example", "origin": "http://evil.example"},
        ),
        "other site": (inside, {**page, "sec-fetch-site": "cross-site"}),
        "foreign origin": (inside, {**page, "origin": "http://evil.example"}),
        "other port": (inside, {**page, "origin": "http://127.0.0.1:1"}),
        "no header": (inside, {**page, "x-satl-review": "0"}),
    }


def _session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # no proxy between the test and its server
    return session


def _is_outside(visitor: str, method: str) -> bool:
    """Whether this visitor must be refused; who only reads needs no origin."""
    return method == "post" or visitor not in ("foreign origin", "other port", "no header")


@pytest.mark.parametrize(
    ("path", "method", "mode"), FUZZED, ids=lambda part: part if isinstance(part, str) else part.value
)
def test_no_request_breaks_the_server_or_passes_the_gate(
    served: Served,
    visitors: dict[str, tuple[requests.Session, dict[str, str]]],
    path: str,
    method: str,
    mode: schemathesis.GenerationMode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    operation = schemathesis.openapi.from_dict(document(served.gate))[path][method]
    strangers = [name for name in visitors if name != "signed in" and _is_outside(name, method)]
    statuses: Counter[int] = Counter()

    def send(case: schemathesis.Case, visitor: str) -> requests.Response:
        session, headers = visitors[visitor]
        wanted = case.as_transport_kwargs(base_url=served.home.rstrip("/"), headers=dict(headers))
        answer = session.request(**wanted, timeout=600, allow_redirects=False)
        statuses[answer.status_code] += 1
        return answer

    # Each case is sent twice: by the person at the page, and by somebody who must be refused.
    @settings(
        max_examples=REQUESTS // (2 * len(FUZZED)) + 1, deadline=None, database=None,
        derandomize=REQUESTS <= 400, suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode), number=st.none() | st.integers(0, 999))
    def check(case: schemathesis.Case, number: int | None) -> None:
        if mode.is_positive and number is not None:
            use_real_names(case, number)
        answer = send(case, "signed in")
        # A body that is too long, or of no stated length, is refused by the gate: schemathesis knows other statuses.
        checks = [
            one
            for one in CHECKS
            if one is not negative_data_rejection or answer.status_code not in (411, 413)
        ]
        case.validate_response(answer, checks=checks)
        assert "Traceback" not in answer.text
        assert "content-security-policy" in answer.headers
        stranger = strangers[statuses.total() // 2 % len(strangers)]
        before = served.store.changes(0)["last"]
        refused = send(case, stranger)
        assert refused.status_code in (403, 411, 413, 415, 421), (stranger, refused.text)
        assert not any(name in refused.text for name in CLASSES)
        assert served.store.changes(0)["last"] == before

    with caplog.at_level(logging.WARNING):
        check()
    assert _faults(caplog) == []
    SENT.update(statuses)
    if mode.is_positive and path != "/api/undo":
        assert statuses[200], "no request was a good one: the test looks at refusals alone"


def use_real_names(case: schemathesis.Case, number: int) -> None:
    """Put names that exist into a case, which no generator would guess."""
    image, label = f"{number % 6:03d}.png", CLASSES[number % len(CLASSES)]
    real = {"/image": image, "/thumbnail": image, "/api/class": label}.get(case.path)
    wanted = {"name": real} if real else {"image": image} if case.path == "/api/item" else {"label": label}
    if case.path == "/static/{name}":
        case.path_parameters = {"name": "app.js"}
    elif case.path == "/api/decide":
        for place, cell in enumerate(case.body["cells"]):
            cell.update(image=f"{(number + place) % 60:03d}.png", label=label, based_on=None)
        case.body.update(annotator="Ann" if number % 2 else "", final=False)
    elif case.path in ("/image", "/thumbnail", "/api/class", "/api/item", "/api/queue", "/api/gallery"):
        case.query = {**(case.query or {}), **wanted}


def _faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the server logged, but for the notice that a request was not HTTP."""
    found = [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")]
    return [text for text in found if "Invalid HTTP request" not in text]


def test_operations_that_take_nothing(
    served: Served, visitors: dict[str, tuple[requests.Session, dict[str, str]]]
) -> None:
    document_ = schemathesis.openapi.from_dict(document(served.gate))
    for path in SILENT:
        for visitor, (session, headers) in visitors.items():
            answer = session.get(served.home.rstrip("/") + path, headers=headers)
            if visitor == "signed in":
                document_[path]["get"].validate_response(answer)
            assert (answer.status_code == 200) is not _is_outside(visitor, "get") or visitor == "signed in"
            assert answer.status_code in (200, 403, 421)


BODY = b'{"tab": "a", "request": "b"}'
HOSTILE = {
    "no host": b"GET /api/start HTTP/1.1\r\nCOOKIE\r\n\r\n",
    "no host, 1.0": b"GET /api/start HTTP/1.0\r\nCOOKIE\r\n\r\n",
    "version 0.9": b"GET /api/start\r\n\r\n",
    "version 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two hosts": b"GET /api/start HTTP/1.1\r\nHOST\r\nHost: evil.example\r\nCOOKIE\r\n\r\n",
    "a port that is no number": b"GET /api/start HTTP/1.1\r\nHost: 127.0.0.1:\xb2\r\nCOOKIE\r\n\r\n",
    "an address as target": b"GET http://evil.example/api/start HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "a folder above": b"GET /static/../../gate.py HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "a folder above, encoded": b"GET /static/%2e%2e%2fgate.py HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "an absolute path": b"GET /image?name=/etc/passwd HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "a link out of the folder": b"GET /image?name=006.png HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "a null": b"GET /image?name=%00 HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "wrong UTF-8": b"GET /image?name=%ff%ed%a0%80 HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "half of an escape": b"GET /api/class?name=%f HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "every server": b"OPTIONS * HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "a trace": b"TRACE /api/start HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "a long header": b"GET /api/start HTTP/1.1\r\nHOST\r\nCOOKIE\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    "many headers": b"GET /api/start HTTP/1.1\r\nHOST\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    "a long query": b"GET /api/queue?" + b"band=left&" * 50_000 + b" HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n",
    "no length": b"POST /api/undo HTTP/1.1\r\nPAGE\r\n\r\n" + BODY,
    "a negative length": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nContent-Length: -1\r\n\r\n" + BODY,
    "a signed length": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nContent-Length: +28\r\n\r\n" + BODY,
    "a superscript length": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nContent-Length: \xb2\r\n\r\n{}",
    "two lengths": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nContent-Length: 28\r\nContent-Length: 2\r\n\r\n" + BODY,
    "a huge length": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nContent-Length: 99999999999\r\n\r\n",
    "chunks": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nTransfer-Encoding: chunked\r\n\r\n1c\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunks and a length": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nContent-Length: 28\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n1c\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk of no size": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a chunk of any size": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"f" * 16 + b"\r\n" + b"x" * 1000,
    "two requests in one": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nContent-Length: 0\r\n"
    b"Transfer-Encoding: identity\r\n\r\nGET /api/start HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "no JSON": b"POST /api/undo HTTP/1.1\r\nPAGE\r\nContent-Length: 5\r\n\r\n{\xff\x00\x01]",
    "nothing": b"\r\n\r\n",
    "zeros": b"\0" * 1000,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x55" * 200,
}  # fmt: skip


class Raw:
    """Bytes on the socket of a server, with the headers of the person at the page filled in."""

    def __init__(self, served: Served, session: requests.Session) -> None:
        self.address = served.socket.getsockname()
        host = f"Host: 127.0.0.1:{self.address[1]}"
        cookie = f"Cookie: {served.gate.cookie}={session.cookies[served.gate.cookie]}"
        origin = f"Origin: {served.home.rstrip('/')}"
        page = "\r\n".join((host, cookie, origin, "X-Satl-Review: 1", "Content-Type: application/json"))
        self._words = {b"PAGE": page.encode(), b"HOST": host.encode(), b"COOKIE": cookie.encode()}

    def filled(self, request: bytes) -> bytes:
        for word, text in self._words.items():
            request = request.replace(word + b"\r\n", text + b"\r\n")
        return request

    def send(self, request: bytes, ends: bool = False) -> bytes:
        """Send a request and return all that comes back; one that does not end is cut off when another is answered."""
        received = b""
        with socket.create_connection(self.address, timeout=600) as connection:
            try:
                connection.sendall(request)
                if not ends:
                    assert self.is_well()
                    connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65_536):
                    received += part
            except OSError:
                pass  # refused before it was read to its end
        return received

    def is_well(self) -> bool:
        """Whether the server still answers the person at the page."""
        good = b"GET /api/start HTTP/1.1\r\nHOST\r\nCOOKIE\r\nConnection: close\r\n\r\n"
        return self.send(self.filled(good), ends=True).startswith(b"HTTP/1.1 200 ")


@pytest.fixture(scope="module")
def raw(served: Served, visitors: dict[str, tuple[requests.Session, dict[str, str]]]) -> Raw:
    return Raw(served, visitors["signed in"][0])


@pytest.mark.parametrize("request_", HOSTILE.values(), ids=HOSTILE.keys())
def test_bytes_that_are_no_proper_request(
    served: Served, raw: Raw, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    before = served.store.changes(0)["last"]
    answer = raw.send(raw.filled(request_))
    assert answer == b"" or re.match(rb"HTTP/1\.1 4\d\d ", answer), answer[:300]
    assert b"Traceback" not in answer
    assert raw.is_well()
    assert _faults(caplog) == []
    assert served.store.changes(0)["last"] == before
    SENT[int(answer[9:12]) if answer else 0] += 1


def test_a_long_list_of_filters_is_one_question(served: Served) -> None:
    """The same band a thousand times over took a thousand questions to the store."""
    asked: list[str] = []
    with served.store._lock:
        served.store._db.set_trace_callback(asked.append)
    try:
        with TestClient(served.gate._app) as client:
            answer = client.get("/api/queue", params={"band": ["left", "review"] * 500})
    finally:
        with served.store._lock:
            served.store._db.set_trace_callback(None)
    assert answer.status_code == 200
    assert len(asked) < 100


def test_damaged_requests(served: Served, raw: Raw, caplog: pytest.LogCaptureFixture) -> None:
    random = np.random.default_rng(0 if REQUESTS <= 400 else None)
    good = [
        *(raw.filled(text) for name, text in HOSTILE.items() if len(text) < 10_000),
        raw.filled(b"POST /api/undo HTTP/1.1\r\nPAGE\r\nContent-Length: 28\r\n\r\n" + BODY),
        raw.filled(b"GET /api/queue?limit=5&band=review&after=0 HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n"),
        raw.filled(b"GET /image?name=000.png HTTP/1.1\r\nHOST\r\nCOOKIE\r\n\r\n"),
    ]
    for _ in range(max(100, REQUESTS // 8)):
        text = bytearray(good[random.integers(len(good))])
        for _ in range(int(random.integers(1, 6))):
            place = int(random.integers(len(text) + 1))
            match int(random.integers(3)):
                case 0:
                    text[place : place + 1] = random.bytes(1)
                case 1:
                    del text[place : place + int(random.integers(1, 20))]
                case _:
                    other = good[random.integers(len(good))]
                    start = int(random.integers(len(other)))
                    text[place:place] = other[start : start + int(random.integers(1, 60))]
        answer = raw.send(bytes(text))
        assert answer == b"" or re.match(rb"HTTP/1\.1 [1234]\d\d ", answer), (bytes(text), answer[:300])
        assert b"Traceback" not in answer, bytes(text)
        SENT[int(answer[9:12]) if answer else 0] += 1
    assert raw.is_well()
    assert _faults(caplog) == []
