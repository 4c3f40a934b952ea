"""The pages become a site: every link leads somewhere, every page is in the menu, formulas are shown as such."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_page_is_in_the_menu(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    pages = [path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "index"]
    assert [name for name in pages if f'href="{name}/"' not in start] == []


def test_formulas_are_shown_as_formulas(site: Path) -> None:
    assert (site / "certificates" / "index.html").read_text(encoding="utf-8").count("<math") > 20
    left = []
    for page in sorted(site.glob("*/index.html")):
        text = re.sub(r"<(pre|code|script)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        left += [f"{page.parent.name}: {found}" for found in re.findall(r".{,20}\$.{,20}", text)]
    assert left == []


def test_programs_are_no_pages(site: Path) -> None:
    assert list(site.rglob("*.py")) == []
