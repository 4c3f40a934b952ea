"""Formulas of the pages, ``$...$`` and ``$$...$$``, as MathML, which needs no script: a hook of MkDocs."""

from __future__ import annotations

import re

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from mkdocs.config.defaults import MkDocsConfig

DISPLAYED = r"\$\$(.+?)\$\$"
IN_A_LINE = r"(?<![\w$\\])\$(?![\s$])([^$]*?[^\s$\\])\$(?![\w$])"


class _Formula(InlineProcessor):
    def __init__(self, pattern: str, md: Markdown, display: str) -> None:
        super().__init__(pattern, md)
        self.display = display

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # noqa: N802
        formula = convert(m[1].replace("\n", " "), display=self.display)
        return self.md.htmlStash.store(formula), m.start(0), m.end(0)


class Formulas(Extension):
    """Turn formulas into MathML.

    >>> page = Markdown(extensions=[Formulas()])
    >>> html = page.convert("Take $a_1 < b$, not `$PATH$` or 5 $ and 6 $.")
    >>> html.startswith("<p>Take <math "), "<msub>" in html, html.count("<math"), "$PATH$" in html
    (True, True, 1, True)
    """

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Look for formulas after code, which may hold dollars, and before all else, which would eat their letters."""
        md.inlinePatterns.register(_Formula(DISPLAYED, md, "block"), "displayed-formula", 186)
        md.inlinePatterns.register(_Formula(IN_A_LINE, md, "inline"), "formula", 185)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give MkDocs the extension."""
    config.markdown_extensions.append(Formulas())
    return config
