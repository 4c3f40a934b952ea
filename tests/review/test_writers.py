"""Fifty people who decide at once: every acknowledged decision is there afterwards, once."""

from __future__ import annotations

import http.client
import json
import sqlite3
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from review.serving import Served
from review.synthetic import draw_table, write_folder
from satl.review.database import ReviewStore

WRITERS, ROUNDS, CONTESTED = 50, 8, 5
LABEL = "boat"


class Sent(NamedTuple):
    """A request, the cells in it, and how it was answered."""

    request: str
    cells: tuple[str, ...]
    status: int
    answer: dict[str, Any]


def test_no_decision_of_fifty_parallel_writers_is_lost_or_doubled(tmp_path: Path) -> None:
    own = [f"own-{writer}-{turn}.png" for writer in range(WRITERS) for turn in range(ROUNDS)]
    contested = [f"contested-{number}.png" for number in range(CONTESTED)]
    images = [*own, *contested]
    rows = [(name, LABEL, "1", "0.6", "", "review", "model", "") for name in images]
    table = draw_table(images, [LABEL], known=0.0)
    served = Served(write_folder(tmp_path / "out", table, rows=rows))
    sent: list[list[Sent]] = [[] for _ in range(WRITERS)]
    faults: list[BaseException] = []
    together = threading.Barrier(WRITERS, timeout=600)
    headers = {
        "Cookie": _cookie(served),
        "Origin": served.home.rstrip("/"),
        "X-Satl-Review": "1",
        "Content-Type": "application/json",
    }

    def write(writer: int) -> None:
        try:
            connection = http.client.HTTPConnection(*served.socket.getsockname(), timeout=600)
            together.wait()
            for turn in range(ROUNDS):
                # A cell of its own and, every second time, one that others want as well: all or nothing.
                cells = [f"own-{writer}-{turn}.png"]
                if turn % 2:
                    cells.append(contested[(writer + turn) % CONTESTED])
                body = {
                    "tab": f"tab-{writer}",
                    "request": f"{writer}-{turn}",
                    "cells": [
                        {"image": name, "label": LABEL, "value": 1 if writer % 2 else -1, "based_on": None}
                        for name in cells
                    ],
                }
                # As after a lost answer, a third of the requests are sent again.
                for _ in range(2 if turn % 3 == 0 else 1):
                    connection.request("POST", "/api/decide", json.dumps(body), headers)
                    answer = connection.getresponse()
                    content = json.loads(answer.read())
                    sent[writer].append(Sent(body["request"], tuple(cells), answer.status, content))
            connection.close()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served.stop()
    assert faults == []

    every = [one for some in sent for one in some]
    assert {one.status for one in every} == {200, 409}
    taken = {one.request: one.cells for one in every if one.status == 200}
    refused = {one.request for one in every if one.status == 409} - set(taken)
    with sqlite3.connect(served.store.path) as db:
        log = db.execute("SELECT request, image, number FROM decision").fetchall()
    # The log holds each cell of each acknowledged request once, and nothing of the refused ones.
    assert Counter((request, image) for request, image, _ in log) == Counter(
        (request, image) for request, cells in taken.items() for image in cells
    )
    assert not refused & {request for request, _, _ in log}
    # Each answer named the number under which its decision stands.
    numbers = {(request, image): number for request, image, number in log}
    for one in every:
        if one.status == 200:
            for cell in one.answer["cells"]:
                assert cell["number"] == numbers[one.request, cell["image"]]
    # Nobody replaced what somebody else had decided: each contested cell has one winner.
    with ReviewStore(served.completed.out) as store:
        standing = [decision.image for decision in store.decisions()]
    assert len(standing) == len(set(standing)) == len(log)
    assert set(contested) <= set(standing)
    assert len(taken) == WRITERS * ROUNDS // 2 + CONTESTED
    assert len(taken) + len(refused) == WRITERS * ROUNDS


def _cookie(served: Served) -> str:
    connection = http.client.HTTPConnection(*served.socket.getsockname(), timeout=600)
    connection.request("GET", f"/?token={served.gate.token}")
    cookie = connection.getresponse().getheader("set-cookie")
    connection.close()
    assert cookie is not None
    return cookie.partition(";")[0]
