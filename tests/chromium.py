"""A real browser for tests of pages.

Needs Chromium (Debian: ``apt-get install chromium``) and Playwright. Where one of them is missing such tests are
not run and a warning says so aloud; with SATL_BROWSER_TESTS=required, as on CI, they fail instead.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = [
    name
    for name, found in (("Chromium", CHROMIUM), ("Playwright", importlib.util.find_spec("playwright")))
    if found is None
]
PATIENCE = 600_000.0
"""Milliseconds; it only guards against hanging."""
REQUIRED = os.environ.get("SATL_BROWSER_TESTS") == "required"


def needs_chromium(tested: str) -> pytest.MarkDecorator:
    """Return the mark of a module whose tests need a browser; ``tested`` says what they look at."""
    reason = (
        f"THE BROWSER TESTS OF {tested.upper()} ARE NOT RUN: {' and '.join(MISSING)} missing "
        "(apt-get install chromium; pip install playwright)"
    )
    if MISSING and not REQUIRED:
        warnings.warn(pytest.PytestWarning(reason), stacklevel=2)
    return pytest.mark.skipif(bool(MISSING) and not REQUIRED, reason=reason)


def _patient(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a maker of contexts or pages that wait as long as a busy machine may need."""

    def made(*args: Any, **options: Any) -> Any:
        opened = make(*args, **options)
        opened.set_default_timeout(PATIENCE)
        return opened

    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert not MISSING, f"{' and '.join(MISSING)} missing"
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=flags, timeout=PATIENCE)
        for name in ("new_context", "new_page"):
            setattr(launched, name, _patient(getattr(launched, name)))
        yield launched
        launched.close()
