"""Write ``docs/results.md`` and the results of ``README.md`` from the results in ``experiments/*/results/*.csv``.

``python tools/write_results_page.py`` renders ``tools/results_page.md.j2`` and ``tools/readme_results.md.j2``. Every
table and every measured number of the prose is an expression of the template (:mod:`kept_facts`): the tables are those
of ``satl experiment`` (:mod:`satl.experiments.tables`), and what the tests allow to say is said by
:mod:`satl.experiments.tables.claims`. A sentence that rests on numbers is given to ``holds`` with its condition; where
that fails the sentence is left out, and the program says so. Sections of grids that have no results yet do not appear.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from kept_facts import Kept
from kept_files import has

from satl.experiments.tables.claims import ABOVE, BELOW, OPEN, listed, shares

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
TEMPLATES = ROOT / "tools"
WIDTH = 120
MARKS = re.compile(
    r"(<!-- begin results: written by tools/write_results_page\.py -->\n).*?(<!-- end -->)", re.DOTALL
)


def filled(text: str) -> str:
    """Wrap the paragraphs and points of a page; tables, headings, code and images stay as they are."""
    parts = []
    for part in re.split(r"\n{2,}", text.strip("\n")):
        lines = part.split("\n")
        if lines[0].startswith(("|", "#", "    ", "!", "<", "```")):
            parts.append(part)
        elif lines[0].startswith("- "):
            points = re.split(r"\n(?=- )", part)
            parts.append("\n".join(_wrapped(point, "  ") for point in points))
        elif joined := " ".join(filter(None, map(str.strip, lines))):
            parts.append(_wrapped(joined))
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str, indent: str = "") -> str:
    # A number and its sign stay in one line, and so does code.
    joined = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), " ".join(text.split()))
    joined = joined.replace(" %", "\0%")
    wrapped = textwrap.fill(
        joined,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapped.replace("\0", " ")


def holds(condition: bool, sentence: str) -> str:
    """Return a sentence whose condition holds; nothing, and a word on it, where it does not."""
    if condition:
        return sentence
    print(f"left out, since it does not hold: {sentence}", file=sys.stderr)
    return ""


def render(template: str) -> str:
    """Render a template."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    names = {
        **{"kept": Kept, "has": has, "holds": holds, "listed": listed, "shares": shares},
        **{"ABOVE": ABOVE, "BELOW": BELOW, "OPEN": OPEN},
    }
    return filled(environment.get_template(template).render(**names))


def page() -> str:
    """Return the whole page as it should be."""
    return render("results_page.md.j2")


def readme() -> str:
    """Return the whole of README.md as it should be."""
    text = README.read_text(encoding="utf-8")
    if len(MARKS.findall(text)) != 1:
        raise SystemExit(f"{README.name} must have the marks of the results, once.")
    found = render("readme_results.md.j2")
    return MARKS.sub(lambda match: f"{match[1]}\n{found}\n{match[2]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
