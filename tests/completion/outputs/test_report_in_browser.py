"""The report of a completion in a real browser: long names, and classes in another order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chromium import needs_chromium
from completion.drawn import Drawn
from satl.completion.workflow.complete import complete
from satl.completion.workflow.from_scores import case_from_scores

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = needs_chromium("the report of a completion")

NAMES = ("boat", "y" * 80 + " left", "y" * 80 + " right", "apple")


def test_long_names_are_shown_whole_and_classes_are_sorted(browser: Browser, tmp_path: Path) -> None:
    labels, scores = Drawn(300, NAMES, prevalence=(0.4, 0.3, 0.3, 0.3)).write(tmp_path, scores="s.npz")
    done = complete(case_from_scores(scores, labels), tmp_path / "out")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(done.folder.page.resolve().as_uri())
    names = "[...document.querySelectorAll('#table tbody th')]"
    assert page.evaluate(f"{names}.filter(e => e.scrollWidth > e.clientWidth + 1).length") == 0
    shown = f"{names}.map(e => e.textContent.trim())"
    assert page.evaluate(shown) == list(NAMES)
    head = page.locator("#table th", has_text="class").first
    head.click()
    assert page.evaluate(shown) == sorted(NAMES)
    head.click()
    assert page.evaluate(shown) == sorted(NAMES, reverse=True)
    # Numbers: the largest first.
    page.locator("#table th", has_text="unknown").first.click()
    unknown = page.evaluate(
        "[...document.querySelectorAll('#table tbody tr')].map(e => +e.cells[3].dataset.value)"
    )
    assert unknown == sorted(unknown, reverse=True)
    page.close()
