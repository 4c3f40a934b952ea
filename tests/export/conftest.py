"""Keep what the tests read out of the cache of the person who runs them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATL_CACHE", "off")
