"""Docstrings as Markdown: an extension of Griffe, which reads the sources for the reference without running them."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:func|class|meth|mod|data|attr):`~?([^`]+)`")

TOGETHER = re.compile(r"^( +)(\w+(?:, \w+)+)(?=: )", re.MULTILINE)
"""Names that are described together; Griffe takes what follows a blank for a type."""


def as_markdown(text: str) -> str:
    r"""Return a docstring with its examples as blocks of code and its roles as plain code.

    >>> as_markdown("Say :func:`more`.\n\n>>> 1 + 1\n2\n\nEnd.").splitlines()
    ['Say `more`.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'End.']
    >>> as_markdown("Args:\n    low, high: bounds")
    'Args:\n    low,high: bounds'
    """
    text = TOGETHER.sub(lambda names: names[0].replace(", ", ","), text)
    lines: list[str] = []
    margin: str | None = None
    for line in ROLE.sub(r"`\1`", text).splitlines():
        if margin is None and line.lstrip().startswith(">>> "):
            margin = line[: len(line) - len(line.lstrip())]
            lines.append(f"{margin}```pycon")
        elif margin is not None and not line.strip():
            lines.append(f"{margin}```")
            margin = None
        lines.append(line)
    if margin is not None:
        lines.append(f"{margin}```")
    return "\n".join(lines)


class MarkdownDocstrings(Extension):
    """Write every docstring as Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was just read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
