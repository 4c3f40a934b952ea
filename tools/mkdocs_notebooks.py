"""Notebooks as pages: a hook of MkDocs.

A notebook becomes Markdown before MkDocs reads it, so that its code has the colours, copy buttons and headings of every
other page and no script of a notebook server is needed. The file itself is offered for download.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escapes by which a terminal is told a colour."""


def as_markdown(notebook: dict[str, Any], name: str) -> str:
    r"""Return the cells of a notebook, with what they printed, as one page.

    >>> cells = [
    ...     {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
    ...     {"cell_type": "code", "source": "1 + 1", "outputs": [{"data": {"text/plain": ["2"]}}]},
    ... ]
    >>> print(as_markdown({"cells": cells}, "n.ipynb"))
    # Title
    <BLANKLINE>
    [Download this notebook](n.ipynb){ download="n.ipynb" }
    <BLANKLINE>
    Text.
    <BLANKLINE>
    ```python
    1 + 1
    ```
    <BLANKLINE>
    ```text
    2
    ```
    <BLANKLINE>
    """
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join(_printed(output) for output in cell.get("outputs", ()))
        if printed.strip():
            parts.append(f"```text\n{printed.rstrip()}\n```")
    title, _, rest = parts[0].partition("\n")
    link = f'[Download this notebook]({name}){{ download="{name}" }}'
    return "\n\n".join([title, link, rest.strip(), *parts[1:]]) + "\n"


def _printed(output: dict[str, Any]) -> str:
    text = "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
    return COLOURS.sub("", text) + ("\n" if "data" in output else "")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put a page beside each notebook."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            path = Path(config.docs_dir, file.src_uri)
            notebook = json.loads(path.read_text(encoding="utf-8"))
            page = f"{file.src_uri.removesuffix('.ipynb')}.md"
            files.append(File.generated(config, page, content=as_markdown(notebook, path.name)))
    return files
