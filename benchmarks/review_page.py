"""Time the requests of the review page on loopback, and watch the memory of its server.

Run: ``python benchmarks/review_page.py [--suggestions 100000] [--rounds 400]``. A server is started as a user starts
it, on a folder with so many suggestions; then a person is imitated: lists by class and by image, filters by class and
score, images, decisions, undo, and the questions by which other tabs keep up. Budget: 95 % of the requests take
less than 150 ms, and the memory of the server stays where it was after the first tenth of them.

Then, where there is a Chromium, a scripted person decides 200 cells in it: one by one with A and R, and in the gallery
by clicking the wrong ones (one in twenty, the same both ways) and Enter. A key press or a click takes
0.2 s. Printed are decisions a minute for several times of thinking about each picture; the first, none at all, is the
page and the hand alone. Budget: there, the gallery is at least five times as fast.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from chromium import CHROMIUM, MISSING
from review.scripted_user import in_gallery, one_by_one, pictured_folder
from review.synthetic import draw_scores, draw_table, write_folder

CLASSES = 16
BUDGET = 0.150
FASTER = 5


class Person:
    """A client with the cookie of the page that notes how long every request takes."""

    def __init__(self, address: str) -> None:
        found = re.match(r"http://([^/]+)(/.*)", address)
        assert found is not None
        self.host = found[1]
        self.connection = http.client.HTTPConnection(self.host)
        self.connection.request("GET", found[2])
        answer = self.connection.getresponse()
        answer.read()
        self.cookie = str(answer.headers["set-cookie"]).partition(";")[0]
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    def ask(self, what: str, path: str, body: object = None, **query: object) -> bytes:
        """Send a request, note its time under ``what``, and return the answer."""
        headers = {"cookie": self.cookie, "sec-fetch-site": "same-origin"}
        if body is not None:
            headers |= {
                "origin": f"http://{self.host}", "x-satl-review": "1", "content-type": "application/json",
            }  # fmt: skip
        address = f"{path}?{urlencode(query, doseq=True)}"
        start = time.perf_counter()
        self.connection.request(
            "GET" if body is None else "POST", address, None if body is None else json.dumps(body), headers
        )
        answer = self.connection.getresponse()
        content = answer.read()
        self.seconds[what].append(time.perf_counter() - start)
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}: {content[:200]!r}")
        return content


def resident(process: int) -> float:
    """Resident memory in MiB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def work(person: Person, number: int, dice: random.Random, classes: tuple[str, ...]) -> None:
    """What a person and the page do around one decision."""
    label = dice.choice(classes)
    page = json.loads(person.ask("list by class", "/api/queue", label=label, after=dice.randrange(0, 90_000)))
    person.ask("list by image", "/api/queue", mode="image", after=dice.randrange(0, 9_000))
    low = round(dice.random(), 2)
    filters = {"label": label, "low": low, "high": low + 0.05, "band": ["review", "left"], "state": "any"}
    person.ask("filter by class and score", "/api/queue", **filters)
    person.ask("filter by score alone", "/api/queue", low=low, high=low + 0.01, band=["review", "accepted"])
    person.ask("class report", "/api/class", name=label)
    person.ask("news for other tabs", "/api/changes", since=max(0, number - 3))
    person.ask("gallery", "/api/gallery", label=label, order=dice.choice(("highest", "lowest", "doubtful")))
    for item in page["items"][:1]:
        one = item["suggestions"][0]
        person.ask("image", "/image", name=item["image"])
        cell = {
            "image": item["image"],
            "label": one["label"],
            "value": one["value"],
            "based_on": one["number"],
        }
        person.ask("decide", "/api/decide", {"tab": "t", "request": f"d{number}", "cells": [cell]})
        if number % 5 == 0:
            person.ask("undo", "/api/undo", {"tab": "t", "request": f"u{number}"})
    if number % 20 == 0:
        for path in ("/", "/static/app.js", "/static/style.css", "/api/start"):
            person.ask("open the page", path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suggestions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--decisions", type=int, default=200)
    parser.add_argument("--thinking", type=float, nargs="+", default=[0.0, 0.1])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = int(args.suggestions / CLASSES / 0.715) + 1
        table = draw_table(
            [f"{i // 1000:03d}/{i:07d}.jpg" for i in range(images)], [f"class {c}" for c in range(CLASSES)]
        )
        completed = write_folder(folder / "out", table, draw_scores(table), images=str(folder / "images"))
        # The content does not matter to the server: one JPEG of usual size, under all the names.
        picture = folder / "images" / "picture.jpg"
        picture.parent.mkdir()
        picture.write_bytes(b"\xff\xd8\xff\xe0" + np.random.default_rng(0).bytes(80_000))
        for image in table.images:
            path = folder / "images" / image
            path.parent.mkdir(exist_ok=True)
            path.symlink_to(picture)
        with served(completed.out) as (process, address):
            measure(Person(address), process, args.rounds, table.classes)
    if MISSING:
        print(f"no scripted person: {' and '.join(MISSING)} missing")
    else:
        compare_ways(args.decisions, args.thinking)


@contextmanager
def served(out: Path) -> Iterator[tuple[int, str]]:
    """A server as a user starts it: its process and the address to open."""
    command = [sys.executable, "-m", "satl", "review", str(out), "--port", "0"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            print(server.stdout.readline().partition(" in ")[0], end=", ")
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address is not None
            print(f"ready (imported) after {time.perf_counter() - start:.1f} s")
            yield server.pid, address[0]
        finally:
            server.kill()


def compare_ways(decisions: int, thinking: list[float]) -> None:
    """Let the scripted person decide one by one and in the gallery, and print decisions a minute."""
    from playwright.sync_api import sync_playwright

    ratios = []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for seconds in thinking:
            rates = []
            for way in (one_by_one, in_gallery):
                folder = Path(name) / f"{way.__name__}-{seconds}"
                completed = pictured_folder(folder, decisions)
                with served(completed.out) as (_, address):
                    page = browser.new_page(viewport={"width": 1280, "height": 800})
                    page.goto(address)
                    rates.append(60 * decisions / way(page, decisions, seconds))
                    page.close()
            ratios.append(rates[1] / rates[0])
            print(
                f"{decisions} decisions, {seconds:g} s of thinking each: one by one {rates[0]:,.0f} a minute, "
                f"gallery {rates[1]:,.0f} a minute, {ratios[-1]:.1f} times as many"
            )
        browser.close()
    if ratios[0] < FASTER:
        raise SystemExit("over budget")


def measure(person: Person, process: int, rounds: int, classes: tuple[str, ...]) -> None:
    dice = random.Random(0)
    memory = []
    for number in range(rounds):
        work(person, number, dice, classes)
        if number % (rounds // 10) == 0:
            memory.append(resident(process))
    memory.append(resident(process))
    print(f"{'request':<28}{'count':>7}{'p50 ms':>9}{'p95 ms':>9}{'max ms':>9}")
    everything = [s for times in person.seconds.values() for s in times]
    for what, times in [*person.seconds.items(), ("all", everything)]:
        p50, p95 = (1000 * float(np.quantile(times, q)) for q in (0.5, 0.95))
        print(f"{what:<28}{len(times):>7}{p50:>9.1f}{p95:>9.1f}{1000 * max(times):>9.1f}")
    growth = memory[-1] - memory[1]
    print(
        f"memory of the server: {memory[0]:.1f} MiB, after a tenth {memory[1]:.1f}, at the end {memory[-1]:.1f}"
    )
    worst = max(float(np.quantile(times, 0.95)) for times in person.seconds.values())
    print(
        f"slowest kind of request: p95 {1000 * worst:.1f} ms (budget 150); growth {growth:+.1f} MiB (budget 5)"
    )
    if worst > BUDGET or growth > 5:
        raise SystemExit("over budget")


if __name__ == "__main__":
    main()
