"""Code colours by what a block holds: a hook of MkDocs.

A Python block with prompts is coloured as a session, so that the copy button can leave prompts and output out
(``docs/assets/site.css``).
"""

from __future__ import annotations

import re
from typing import Any

SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    r"""Return the page with sessions named as such.

    >>> on_page_markdown("```python\n>>> 1 + 1\n2\n```")
    '```pycon\n>>> 1 + 1\n2\n```'
    >>> on_page_markdown("```python\nprint(2)\n```")
    '```python\nprint(2)\n```'
    """
    return SESSION.sub("```pycon\n", markdown)
