from __future__ import annotations

import html.parser
from pathlib import Path

import numpy as np
import pytest

from completion.drawn import Drawn
from satl.completion.outputs.report_page import _code, draw_distribution, render_report
from satl.completion.statistics.assessment import CompletionSettings
from satl.completion.workflow.complete import Completion, complete
from satl.completion.workflow.from_scores import case_from_scores
from satl.completion.workflow.report_content import statement

NAMES = ("boat", "<b>bold</b> & co", "猫, cat")


class Reader(html.parser.HTMLParser):
    """Collects tags that are not closed, and everything that a browser would fetch."""

    VOID = frozenset(("meta", "input", "line", "polyline", "polygon", "br", "img"))

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [str(value) for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Completion:
    folder = tmp_path_factory.mktemp("report")
    drawn = Drawn(3000, NAMES, prevalence=(0.4, 0.3, 0.01))
    labels, scores = drawn.write(folder, scores="s.npz")
    return complete(case_from_scores(scores, labels, images="photos"), folder / "out")


def test_the_page_is_whole_and_needs_nothing_else(done: Completion) -> None:
    reader = Reader()
    page = done.folder.page.read_text(encoding="utf-8")
    reader.feed(page)
    assert reader.open == []
    assert reader.fetched == []
    assert "http" not in page.replace("http://www.w3.org", "")
    assert done.report["statement"] in reader.text
    assert done.report["model"] in reader.text
    for name in NAMES:
        assert name in reader.text
    for command in ("satl review", "satl audit", "satl plan", "satl merge"):
        assert command in reader.text
    assert "<b>bold</b>" not in page
    assert page.count('class="spread"') == len(NAMES)
    assert "prefers-color-scheme: dark" in page


def test_reasons_stand_in_the_page(done: Completion) -> None:
    page = done.folder.page.read_text(encoding="utf-8")
    rare = done.report["classes"][2]["present"]
    assert rare["threshold"] is None
    assert "猫, cat&#39; has no threshold for present" in page
    assert done.report["images"] == "photos"


def test_the_statement_fits_what_was_done() -> None:
    totals = {"unknown": 10, "present": 0, "absent": 0, "review": 1, "left": 9}
    assert statement(CompletionSettings(), totals).endswith(
        "No precision could be promised for any class: see the reasons."
    )
    assert "1 is proposed for review and 9 stay unknown" in statement(CompletionSettings(), totals)
    assert statement(CompletionSettings(review_only=True), totals).endswith("so nothing is promised.")
    totals = {"unknown": 10, "present": 3, "absent": 4, "review": 2, "left": 1}
    text = statement(CompletionSettings(0.9, 0.99, "table"), totals)
    assert text.endswith(
        "With 99 % confidence for all classes at once, at least 90 % of the cells accepted for each class and "
        "direction are right."
    )
    assert "2 are proposed for review and 1 stays unknown" in text


def test_a_picture_marks_the_thresholds_in_the_range_of_the_scores(done: Completion) -> None:
    entry = done.report["classes"][0]
    picture = str(draw_distribution(entry))
    place = 168 * entry["present"]["threshold"]
    assert f'<line class="present" x1="{place:.1f}"' in picture
    assert picture.count("<polyline") == 2
    empty = {
        **entry,
        "histogram": {
            "edges": list(np.linspace(0, 1, 65)),
            **dict.fromkeys(("positive", "negative", "unknown"), [0] * 64),
        },
    }
    assert "polygon" not in str(draw_distribution(empty))


def test_many_classes_are_shown_without_pictures(done: Completion) -> None:
    report = {**done.report, "classes": done.report["classes"] * 150}
    page = render_report(report, Path("out"))
    assert 'class="spread"' not in page
    assert page.count('<th scope="row">boat') == 150


def test_code_is_set_as_code_and_escaped() -> None:
    assert str(_code("see `a < b` & c")) == "see <code>a &lt; b</code> &amp; c"


def test_commands_can_be_copied_from_folders_with_spaces(done: Completion) -> None:
    reader = Reader()
    source = {**done.report["source"], "labels": "my labels.csv"}
    reader.feed(render_report({**done.report, "source": source}, Path("my out")))
    assert "satl review 'my out'" in reader.text
    assert "satl merge 'my out' 'my labels.csv' -o" in reader.text
