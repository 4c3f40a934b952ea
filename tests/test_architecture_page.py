"""CONTRIBUTING and docs/architecture.md describe the tree as it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_house import ORDER

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_contributing_draws_the_import_order() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = text[text.index("    errors, parsing") :].split("\n\n")[0]
    assert tuple(re.findall(r"\w+", drawn)) == ORDER


def test_every_room_has_a_line() -> None:
    rooms = re.findall(r"`(\w+)(?:/|\.py)`", "".join(re.findall(r"^\| `.*?\|", PAGE, re.MULTILINE)))
    assert sorted(rooms) == sorted(set(ORDER) - {"functional"})


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(\w+/[\w/]+\.py)`", PAGE))))
def test_places_exist(path: str) -> None:
    assert (ROOT / "src" / "satl" / path).is_file() or (ROOT / path).is_file()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+)`", PAGE.split("## One idea")[1]))))
def test_names_exist(name: str) -> None:
    """What the tables and the walks name is defined, or is a folder, in the package."""
    source = ROOT / "src" / "satl"
    defined = rf"^\s*(def|class) {name}\b|^{name}\b"
    assert any(source.rglob(name)) or any(
        re.search(defined, file.read_text(encoding="utf-8"), re.MULTILINE) for file in source.rglob("*.py")
    )


@pytest.mark.slow
def test_the_walks_are_as_long_as_the_page_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "walks.py")],
        capture_output=True,
        text=True,
        check=True,
        timeout=3600,  # every call is counted, which takes minutes, and on a busy machine many of them
    )
    counted = re.findall(r"^\w+: (\d+) functions", done.stdout, re.MULTILINE)
    assert counted == re.findall(r"^\*\*A [\w ]+\*\* \((\d+) functions\)", PAGE, re.MULTILINE)
