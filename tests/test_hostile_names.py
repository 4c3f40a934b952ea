"""Names that carry scripts, in every page and figure that satl writes, opened in a real browser.

Classes, files, runs and messages come from strangers. They are shown as text: nothing runs, nothing is fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

import satl
from chromium import needs_chromium
from completion.drawn import Drawn
from experiments.grids import FACTS, grid_of, row
from reports.synthetic import write_experiment
from reports.test_page import _comparison, _picture
from review.serving import Served
from review.synthetic import draw_table, write_folder
from satl.completion.workflow.complete import complete
from satl.completion.workflow.from_scores import case_from_scores
from satl.drawing.html import inline_svg
from satl.experiments.experiment_folder import ExperimentFolder
from satl.experiments.results import Results
from satl.reports import figures
from satl.reports.comparison_page import comparison_page
from satl.reports.experiment_report import write_report
from satl.reports.paper_figures.figure_files import draw_each

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SOURCE = Path(satl.__file__).parent
RUN = "window.__hacked=1"
HOSTILE = (
    f"<script>{RUN}</script>",
    f'"><img src=x onerror="{RUN}">',
    f"' onmouseover='{RUN}' autofocus onfocus='{RUN}",
    f"javascript:{RUN}",
    f"</script><script>{RUN}</script>",
    f"</title></style></textarea><svg onload={RUN}>",
    f"--><script>{RUN}</script><!--",
    f"]]><script>{RUN}</script>",
    "{{7*7}}{% raw %}${7*7}#{7*7}",
    'x id="y" xmlns="z" url(#w) #000000 y',
    f"&lt;img src=x onerror={RUN}&gt;",
    f'<a href="javascript:{RUN}">b</a><base href=https://evil.example/>',
    f"<iframe srcdoc='<script>parent.{RUN[7:]}</script>'>",
    "a\u2028b\u2029c\u202e\ufeffd",
    "<meta http-equiv=refresh content='0; url=https://evil.example/'>",
)
FILE = f"x\"'><img src=x onerror={RUN}><script>{RUN}&lt;"
"""What a file name can hold: no slash."""

COVERED = {
    "completion/outputs/templates/report.html.j2": "test_the_report_of_a_completion",
    "reports/templates/comparison.html.j2": "test_the_comparison_of_methods",
    "reports/templates/experiment.html.j2": "test_the_report_of_an_experiment",
    "reports/templates/table.html.j2": "test_the_report_of_an_experiment",
    "reports/templates/banner.html.j2": "test_the_report_of_an_experiment",
    "review/static/index.html": "test_the_page_of_a_review",
    "review/gate.py": "test_pages_of_the_gate_hold_nothing_of_a_request",
    "drawing/html.py": "test_a_figure_inside_a_page_keeps_names_as_they_are",
}
"""Everything that makes a page or a part of one, and its test."""

browser_test = needs_chromium("hostile names")


def test_every_page_has_its_test() -> None:
    """A new template, page or figure in a page needs a test of this file."""
    making = re.compile(r"<html\b|<svg viewBox")
    found = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*")
        if file.suffix in (".html", ".htm")
        or file.name.endswith((".html.j2", ".svg.j2", ".xml.j2"))
        or (file.suffix == ".py" and making.search(file.read_text()))
    }
    assert found == set(COVERED)
    assert set(COVERED.values()) <= set(globals())
    # Style sheets are the only other templates, and no name goes into one.
    others = {file for file in SOURCE.rglob("*.j2") if not file.name.endswith(".html.j2")}
    assert all(file.name.endswith(".css.j2") for file in others)
    for file in others:
        assert set(re.findall(r"{{(.*?)}}", file.read_text())) <= {" light ", " dark "}, file.name


class Watched:
    """A page of the browser that takes down all that a script or a tag could do."""

    def __init__(self, browser: Browser) -> None:
        self.context = browser.new_context()
        self.page: Page = self.context.new_page()
        self.dialogs: list[str] = []
        self.requests: list[str] = []
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _dialog(self, dialog: object) -> None:
        self.dialogs.append(dialog.message)  # type: ignore[attr-defined]
        dialog.dismiss()  # type: ignore[attr-defined]

    def open(self, file: Path) -> Page:
        self.page.goto(file.resolve().as_uri())
        return self.page

    def require_nothing_ran(self, home: str) -> None:
        """Everything is touched, and then: no script ran, no request left, nothing could have."""
        self.page.evaluate(
            "for (const e of document.querySelectorAll('*')) "
            "for (const kind of ['mouseover', 'focus', 'load', 'error']) e.dispatchEvent(new Event(kind))"
        )
        assert self.page.evaluate("typeof window.__hacked") == "undefined"
        assert self.dialogs == []
        attributes = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"
        assert self.page.evaluate(f"{attributes}.filter(a => a.name.startsWith('on')).length") == 0
        wrong = f"{attributes}.filter(a => /^\\s*javascript:/i.test(a.value)).map(a => a.name)"
        assert set(self.page.evaluate(wrong)) <= {
            "aria-label",
            "title",
            "data-cell",
            "value",
            "alt",
            "data-name",
        }
        assert (
            self.page.evaluate("document.querySelectorAll('iframe, object, embed, base, frame').length") == 0
        )
        left = [url for url in self.requests if not url.startswith((home, "data:"))]
        assert left == []
        assert self.page.url.startswith(home)

    def text(self) -> str:
        return self.page.evaluate("document.documentElement.textContent")


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    opened = Watched(browser)
    yield opened
    opened.context.close()


@browser_test
def test_the_hook_works(watched: Watched, tmp_path: Path) -> None:
    """The same names, not escaped, are seen to run: a test that cannot fail proves nothing."""
    for number, name in enumerate((HOSTILE[0], HOSTILE[1], HOSTILE[5])):
        (tmp_path / f"{number}.html").write_text(
            f"<!doctype html><title>x</title><textarea></textarea>{name}"
        )
        watched.open(tmp_path / f"{number}.html").wait_for_timeout(50)
        with pytest.raises(AssertionError):
            watched.require_nothing_ran("file://")


@browser_test
def test_the_report_of_a_completion(watched: Watched, tmp_path: Path) -> None:
    folder = tmp_path / FILE
    folder.mkdir()
    drawn = Drawn(400, HOSTILE, prevalence=(0.4, 0.3, 0.05))
    images = tuple(f"{HOSTILE[i % len(HOSTILE)]}{i}" for i in range(400))
    drawn.table = replace_images(drawn, images)
    # Wrong labels make suspected errors, whose image names stand on the page.
    flipped = drawn.table.cells.copy()
    flipped[:40] = -flipped[:40]
    drawn.table = drawn.table.with_cells(flipped)
    labels, scores = drawn.write(folder, labels=f"{FILE}.npz", scores=f"{FILE} scores.npz")
    done = complete(case_from_scores(scores, labels), folder / "out")
    assert done.report["label_errors"]
    watched.open(done.folder.page)
    watched.require_nothing_ran("file://")
    text = watched.text()
    for name in HOSTILE:
        assert name in text
    assert any(image in text for image in images)
    assert FILE in text
    # Sorting and searching move names about.
    watched.page.locator("#table th", has_text="class").first.click()
    watched.page.fill("#find", "<script>")
    watched.require_nothing_ran("file://")


def replace_images(drawn: Drawn, images: tuple[str, ...]) -> satl.LabelTable:
    return satl.LabelTable(images, drawn.table.classes, drawn.table.cells)


@browser_test
@pytest.mark.parametrize("first", range(0, len(HOSTILE), 5))
def test_the_comparison_of_methods(watched: Watched, tmp_path: Path, first: int) -> None:
    """The page of the demo, which has five classes here."""
    plain = _comparison()
    names = HOSTILE[first : first + 5]
    images = tuple(f"{HOSTILE[i % len(HOSTILE)]}{i}" for i in range(len(plain.images)))
    hostile = replace(plain, classes=names, images=images, beginning=HOSTILE[0])
    file = tmp_path / "report.html"
    file.write_text(comparison_page(hostile, _picture, HOSTILE[1]), encoding="utf-8")
    watched.open(file)
    watched.require_nothing_ran("file://")
    text = watched.text()
    for name in names:
        assert name in text
    assert HOSTILE[0] in text
    assert watched.page.title() == HOSTILE[1]


@browser_test
def test_the_report_of_an_experiment(watched: Watched, tmp_path: Path) -> None:
    grid = grid_of(
        title=HOSTILE[1], sweeps=[{"key": "training.lr", "values": [0.1, 0.2], "methods": ["sst"]}]
    )
    folder = ExperimentFolder(tmp_path / "experiment")
    for path in (folder.runs, folder.tables, folder.figures):
        path.mkdir(parents=True)
    every = grid.runs()
    for grid_run in every:
        folder.run_path(grid_run).mkdir(parents=True, exist_ok=True)
    folder.write_failure(every[0], HOSTILE[0], "\n".join(HOSTILE), {})
    facts = {"device": HOSTILE[1], "python": HOSTILE[0], "system": HOSTILE[2], "threads": 1}
    (folder.run_path(every[1]) / "environment.json").write_text(
        json.dumps({**facts, "packages": {HOSTILE[3]: HOSTILE[5]}})
    )
    (folder.run_path(every[1]) / "result.json").write_text("{}")
    (folder.figures / f"figure-01-{FILE}.svg").write_text(
        f"<svg xmlns='http://www.w3.org/2000/svg'><script>{RUN}</script></svg>"
    )
    rows = [
        {
            **row(one.method, one.proportion, one.seed, 0.4 + 0.01 * one.seed, variant=one.variant),
            "model": model,
        }
        for one in every
        for model in ("best", "last")
    ]
    hostile = [{**one, "dataset": HOSTILE[0], "backbone": HOSTILE[1], "device": HOSTILE[2]} for one in rows]
    results = Results(hostile, (), {**FACTS, "backbone": HOSTILE[1], "dataset": HOSTILE[0]})
    write_report(folder, grid, results)
    pages = [folder.report, *sorted(folder.tables.glob("*.html"))]
    assert len(pages) > 3
    for file in pages:
        watched.open(file)
        watched.require_nothing_ran("file://")
    watched.open(folder.report)
    text = watched.text()
    for name in HOSTILE:
        if "\u2028" not in name:  # a browser ends no line there
            assert name in text
    assert watched.page.title() == HOSTILE[1]


@browser_test
def test_the_page_of_a_review(watched: Watched, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    names = [f"{i}{FILE}.png" for i in range(4)] + list(HOSTILE)
    for name in names[:4]:
        Image.new("RGB", (20, 10)).save(images / name)
    rows = [(image, label, "1", "0.6", "", "review", "model", "") for label in HOSTILE for image in names]
    table = draw_table(names, HOSTILE, known=0.0)
    known = np.zeros_like(table.cells)
    completed = write_folder(tmp_path / FILE, table.with_cells(known, "signed"), rows=rows)
    report = json.loads((completed.out / "report.json").read_text())
    report["statement"] = HOSTILE[0] + HOSTILE[1]
    for entry, name in zip(report["classes"], HOSTILE, strict=True):
        entry["shift"] = {"code": "does_not_fit", "verdict": name, "p_value": 0.01}
        entry["present"]["reason"] = entry["absent"]["reason"] = name
    (completed.out / "report.json").write_text(json.dumps(report))
    served = Served(completed)
    try:
        page = watched.page
        page.goto(f"{served.home}?token={served.gate.token}")
        page.wait_for_selector("#card[data-state=ready]")
        seen = watched.text()
        for key in ("y", "n", "s", "u", "i", "y", "c", "?", "Escape", "z", "Escape"):
            page.keyboard.press(key)
            page.wait_for_timeout(30)
            seen += watched.text()
        page.goto(f"{served.home}#{FILE}")
        page.reload()
        page.wait_for_selector("#card[data-state=ready]")
        watched.require_nothing_ran(served.home)
        options = page.evaluate(
            "[...document.querySelectorAll('option, button, li')].map(e => e.textContent)"
        )
        seen += "\n".join(options)
        for name in HOSTILE:
            assert name in seen
    finally:
        served.stop()


def test_pages_of_the_gate_hold_nothing_of_a_request(tmp_path: Path) -> None:
    from fastapi.testclient import TestClient

    served = Served(write_folder(tmp_path / "out", draw_table(["a.png"], ["boat"])))
    try:
        with TestClient(served.gate, base_url=served.home) as client:
            for name in HOSTILE:
                plain = name.encode("ascii", "ignore").decode()
                for answer in (
                    client.get("/", params={"token": name}),
                    client.get("/", headers={"host": plain}),
                    client.get("/", headers={"cookie": f"{served.gate.cookie}={plain}"}),
                ):
                    assert answer.status_code in (403, 421)
                    assert "__hacked" not in answer.text
                    assert "7*7" not in answer.text
    finally:
        served.stop()


def test_a_figure_inside_a_page_keeps_names_as_they_are() -> None:
    """Only tags are rewritten for the page: a name that looks like an attribute or a colour stays whole."""
    from markupsafe import escape

    for name in HOSTILE:
        if "\u2028" in name:
            continue
        figure = figures.curves({"sst": ([1, 2, 3], [0.1, 0.2, 0.3])}, ylabel=name)
        drawn = inline_svg(figure, "k", name)
        shown = re.findall(r">([^<>]*)</text>", drawn)
        assert any(
            name == text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for text in shown
        )
        assert f'aria-label="{escape(name)}"' in drawn
        assert "<script" not in drawn


@browser_test
def test_figures_of_the_paper(watched: Watched, tmp_path: Path) -> None:
    """SVG files of their own, in which a script would run where they are opened."""
    write_experiment(
        tmp_path / "experiment",
        ("sst", "sst+satl"),
        (0.2,),
        seeds=1,
        sweeps=False,
        classes=HOSTILE,
        images=200,
    )
    drawn = [file for one in draw_each([tmp_path / "experiment"], formats=["svg"]) for file in one.files]
    assert len(drawn) >= 5
    seen = ""
    for file in drawn:
        watched.open(file)
        watched.require_nothing_ran("file://")
        seen += file.read_text(encoding="utf-8")
        assert watched.page.evaluate("document.querySelectorAll('script, foreignObject, a').length") == 0
    assert "&lt;script&gt;window.__hacked" in seen  # letters are shapes; what they say stands in comments
