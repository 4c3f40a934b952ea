"""The pages become a site: links and anchors lead somewhere, and a browser shows every page well, on a phone too."""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from chromium import browser, needs_chromium
from programs import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def pages(site: Path) -> list[str]:
    """Return the addresses of the pages below the start, that of the start first."""
    return sorted(
        "" if path.parent == site else f"{path.parent.relative_to(site).as_posix()}/"
        for path in site.rglob("index.html")
    )


class Links(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def test_every_page_is_in_the_menu(site: Path) -> None:
    menu = Links((site / "index.html").read_text(encoding="utf-8")).links
    assert len(pages(site)) > 50
    assert [page for page in pages(site) if page and page not in menu] == []


def test_every_link_leads_somewhere(site: Path) -> None:
    read = {page: Links((site / page / "index.html").read_text(encoding="utf-8")) for page in pages(site)}
    broken = []
    for page, found in read.items():
        for link in found.links:
            parts = urlsplit(urljoin(f"http://site/{page}", link))
            if parts.netloc != "site" or parts.scheme not in ("http", "https"):
                continue
            path = unquote(parts.path).lstrip("/")
            if path in read:
                if unquote(parts.fragment) not in read[path].anchors:
                    broken.append(f"{page}: {link} has no such heading")
            elif not (site / path).is_file():
                broken.append(f"{page}: {link}")
    assert broken == []


def test_formulas_are_shown_as_formulas(site: Path) -> None:
    assert (site / "certificates" / "index.html").read_text(encoding="utf-8").count("<math") > 20
    left = []
    for page in pages(site):
        text = (site / page / "index.html").read_text(encoding="utf-8")
        text = re.sub(r"<(pre|code|script)\b.*?</\1>", "", text, flags=re.DOTALL)
        left += [f"{page}: {found}" for found in re.findall(r".{,20}\$.{,20}", text)]
    assert left == []


def test_programs_are_no_pages(site: Path) -> None:
    assert list(site.rglob("*.py")) == []


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


LOOK = """() => {
  const article = document.querySelector("article");
  const levels = [...article.querySelectorAll("h1, h2, h3, h4, h5, h6")].map(h => +h.tagName[1]);
  return {
    wide: document.documentElement.scrollWidth - window.innerWidth,
    images: [...document.images].filter(i => !(i.alt || "").trim() || !i.naturalWidth).map(i => i.src),
    titles: levels.filter(level => level === 1).length,
    skipped: levels.filter((level, i) => i > 0 && level > levels[i - 1] + 1).length,
    language: document.documentElement.lang,
  };
}"""


@needs_chromium("the documentation")
def test_every_page_fits_a_phone_and_asks_nobody_else(site: Path, address: str, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    wrong: list[str] = []
    here = ""
    page.on("console", lambda m: wrong.append(f"{here}: {m.text}") if m.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(f"{here}: {error}"))
    page.on(
        "request",
        lambda r: None if r.url.startswith((address, "data:", "blob:")) else wrong.append(f"{here}: {r.url}"),
    )
    for here in pages(site):
        page.goto(address + here, wait_until="load")
        seen = page.evaluate(LOOK)
        wanted = {"wide": 0, "images": [], "titles": 1, "skipped": 0, "language": "en"}
        wrong += [f"{here}: {key} {value}" for key, value in seen.items() if value != wanted[key]]
    context.close()
    assert wrong == []


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = c => {
    const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const poor = [];
  for (const element of document.querySelectorAll("article *, .md-tabs__link, .md-nav__link")) {
    if (!element.offsetParent || element.closest("math, .headerlink, button")) continue;
    const text = [...element.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join("").trim();
    if (!text) continue;
    const ground = behind(element);
    const [a, b] = [light(over(rgba(getComputedStyle(element).color), ground)), light(ground)];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const least = element.closest("pre") ? 3 : 4.5;
    if (ratio < least) poor.push(`${text.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


@needs_chromium("the documentation")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(address: str, browser: Browser, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    poor = {}
    for name in ("", "quickstart/", "labels/", "cli/", "notebooks/complete_a_table/", "api/losses/"):
        page.goto(address + name, wait_until="load")
        if found := page.evaluate(CONTRAST):
            poor[name] = found
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    context.close()
    assert poor == {}
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")


@needs_chromium("the documentation")
def test_search_and_copying(address: str, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address + "labels/", wait_until="load")
    # The button takes code alone: what Material reads while it copies is the visible text.
    copied = page.evaluate("""() => {
      const code = [...document.querySelectorAll("pre code")].find(c => c.innerText.includes(">>> table"));
      code.setAttribute("data-md-copying", "");
      return code.innerText;
    }""")
    assert "table = read_table" in copied
    assert ">>>" not in copied
    assert "LabelTable(4 images" not in copied
    assert page.locator("button[data-clipboard-target], button.md-clipboard, .md-code__button").count() > 5
    page.locator("[data-md-component=search-query]").fill("certificate")
    page.locator(".md-search-result__item").first.wait_for()
    context.close()
