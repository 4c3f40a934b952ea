"""A scripted person who decides many cells, one by one and in the gallery, with the same eyes and the same hands.

Both ways have the same cells, the same pictures and the same wrong ones among them. The person looks at every picture
when it is on the screen and loaded, and thinks about each for the same constant time. One by one it presses A or R; in
the gallery it clicks the wrong ones and presses Enter. Every key press and every click takes the hand the same constant
time. The clock stops when the server has confirmed everything.
"""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw

from review.synthetic import Completed, write_folder
from satl.labels import LabelTable

if TYPE_CHECKING:
    from playwright.sync_api import Page

LABEL = "boat"
WRONG_IN = 20
"""One suggestion in so many is wrong."""
HAND = 0.2
"""Seconds for a key press or a click."""


def pictured_folder(folder: Path, count: int, side: tuple[int, int] = (640, 480)) -> Completed:
    """A completed folder with ``count`` suggestions of one class for review, each with a JPEG like a photograph."""
    random = np.random.default_rng(0)
    names = [f"{i:04d}.jpg" for i in range(count)]
    (folder / "images").mkdir(parents=True)
    for name in names:
        (folder / "images" / name).write_bytes(_picture(random, side))
    table = LabelTable(tuple(names), (LABEL, "sea"), np.zeros((count, 2), dtype=np.int8), encoding="signed")
    scores = np.sort(np.round(random.uniform(0.4, 0.75, count), 6))[::-1]
    rows = [
        (name, LABEL, "1", f"{score:.6f}", "0.760000", "review", "model", "")
        for name, score in zip(names, scores, strict=True)
    ]
    return write_folder(folder / "out", table, rows=rows, images=str(folder / "images"))


def _picture(random: np.random.Generator, side: tuple[int, int]) -> bytes:
    """A horizon, a sun and a boat, with the noise of a camera."""
    width, height = side
    sky, sea = (tuple(int(c) for c in random.integers(60, 220, 3)) for _ in range(2))
    image = Image.new("RGB", side, sky)
    draw = ImageDraw.Draw(image)
    horizon = int(height * random.uniform(0.45, 0.7))
    draw.rectangle((0, horizon, width, height), fill=sea)
    x, y = int(width * random.uniform(0.1, 0.9)), int(horizon * random.uniform(0.1, 0.6))
    draw.ellipse((x - 30, y - 30, x + 30, y + 30), fill=(250, 220, 120))
    left, size = int(width * random.uniform(0.1, 0.6)), int(width * random.uniform(0.15, 0.35))
    hull = [
        (left, horizon),
        (left + size, horizon),
        (left + size - 20, horizon + 40),
        (left + 20, horizon + 40),
    ]
    draw.polygon(hull, fill=tuple(int(c) for c in random.integers(20, 120, 3)))
    draw.polygon(
        [(left + size // 2, horizon - size), (left + size // 2, horizon - 4), (left + 8, horizon - 4)],
        fill="white",
    )
    noisy = np.asarray(image, dtype=np.int16) + random.integers(-12, 13, (height, width, 3))
    buffer = io.BytesIO()
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(buffer, format="JPEG", quality=88)
    return buffer.getvalue()


def is_wrong(image: str) -> bool:
    """Whether the person finds the suggestion for this image wrong."""
    return int(Path(image).stem) % WRONG_IN == WRONG_IN // 2


def _wait(page: Page, script: str) -> Any:
    """Wait in the page until a script gives something that counts as true, and return it."""
    # A promise of the page's own: its policy forbids Playwright's way of waiting, and asking from here costs more.
    return page.evaluate(
        f"new Promise(done => {{ const look = () => {{ const found = {script}; "
        "if (found) done(found); else setTimeout(look, 8); }; look(); })"
    )


STORED = (
    "Object.keys(sessionStorage).filter(key => key.startsWith('satl-outbox'))"
    ".every(key => sessionStorage[key] === '[]')"
)


def one_by_one(page: Page, count: int, thinking: float = 0.0) -> float:
    """Decide ``count`` cells with A and R on the page that shows them one by one; return the seconds it took."""
    page.wait_for_selector("#card[data-state=ready]")
    start = time.perf_counter()
    cell = ""
    for _ in range(count):
        # The next suggestion, when its picture is there.
        cell = _wait(
            page,
            f"(now => !document.querySelector('#image').hidden && now !== {json.dumps(cell)} && now)"
            "(document.querySelector('#card').dataset.cell)",
        )
        time.sleep(thinking)
        time.sleep(HAND)
        page.keyboard.press("r" if is_wrong(json.loads(cell)[0]) else "a")
    _wait(page, f"{STORED} && document.querySelector('#card').dataset.state === 'end'")
    return time.perf_counter() - start


TILES = """[...document.querySelectorAll('#tiles .tile')].map(tile => {
    const box = tile.getBoundingClientRect();
    return [tile.dataset.image, tile.dataset.visible === 'true', box.x + box.width / 2, box.y + box.height / 2];
})"""
VISIBLE = "#tiles .tile[data-visible=true]"
STATE = "document.querySelector('#gallery').dataset.state"
DECIDES = "document.querySelector('#gallery-confirm').dataset.does === 'decide'"


def in_gallery(page: Page, count: int, thinking: float = 0.0) -> float:
    """Decide ``count`` cells in the gallery: click the wrong ones, Enter for the rest; return the seconds it took."""
    page.wait_for_selector("#card[data-state=ready]")
    start = time.perf_counter()
    time.sleep(HAND)
    page.keyboard.press("g")
    done: set[str] = set()
    last: list[str] = []
    while len(done) < count:
        # A screen, when all its pictures are there and at least one is new.
        shown = _wait(
            page,
            f"{STATE} === 'ready' && !document.querySelector('{VISIBLE}[data-picture=loading]') && "
            f"[...document.querySelectorAll('{VISIBLE}')]"
            f".some(tile => !{json.dumps(last)}.includes(tile.dataset.image)) && {TILES}",
        )
        fresh = [tile for tile in shown if tile[1] and tile[0] not in done]
        time.sleep(thinking * len(fresh))
        for name, _, x, y in fresh:
            if is_wrong(name):
                time.sleep(HAND)
                page.mouse.click(x, y)
        done |= {tile[0] for tile in fresh}
        last = [tile[0] for tile in shown if tile[0] in done]
        if len(last) == len(shown):
            _wait(page, DECIDES)
        time.sleep(HAND)
        page.keyboard.press("Enter")  # for the next screen, or to decide
    _wait(page, f"{STORED} && {STATE} === 'end'")
    return time.perf_counter() - start
