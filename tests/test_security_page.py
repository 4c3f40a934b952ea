"""SECURITY.md promises nothing without a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_every_promise_names_tests_that_exist() -> None:
    table = TEXT.partition("## What is promised")[2].partition("## What is not")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 8
    for line in rows:
        what, promise, tests = (part.strip() for part in line.strip("|").split(" | "))
        files = re.findall(r"`(tests/[\w/]+\.py)`", tests)
        assert files, what
        assert promise
        for name in files:
            text = (ROOT / name).read_text(encoding="utf-8")
            assert "def test_" in text, name


def test_the_commands_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([\w-]+)", TEXT)) <= targets
