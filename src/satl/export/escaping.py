"""Text of JSON and XML files, put together piece by piece because an export can be large."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any
from xml.sax.saxutils import escape

from satl.errors import TableError

# What XML 1.0 cannot hold in any spelling, of what a name may contain.
_NOT_XML = re.compile("[\ufffe\uffff]")


def json_text(text: str) -> str:
    """Return a JSON string.

    >>> print(json_text('a "b", 猫'))
    "a \\"b\\", 猫"
    """
    return json.dumps(text, ensure_ascii=False)


def json_list(texts: Iterable[str]) -> str:
    """Return a JSON list of pieces that are JSON already.

    >>> json_list(["1", '"a"'])
    '[1, "a"]'
    """
    return f"[{', '.join(texts)}]"


def number(value: float) -> str:
    """Return a score as in ``changes.csv``, six decimals.

    >>> number(0.25)
    '0.250000'
    """
    return f"{value:.6f}"


def attribute(text: str) -> str:
    """Return the value of an XML attribute in its quotes.

    >>> print(attribute('a "b" & <c>'))
    "a &quot;b&quot; &amp; &lt;c&gt;"
    """
    return '"' + escape(text, {'"': "&quot;"}) + '"'


def require_xml(names: Sequence[str], what: str) -> None:
    """Refuse names that no XML file can hold."""
    for name in names:
        if _NOT_XML.search(name):
            raise TableError(f"the {what} {name!r} has a character that XML cannot hold: rename it.")


def open_text(path: Path) -> IO[str]:
    """Open a text file for writing: UTF-8, lines end in a line feed on every system."""
    return path.open("w", encoding="utf-8", newline="\n")


def write_json_lines(stream: IO[str], items: Iterable[str]) -> None:
    """Write pieces of JSON as one list, one to a line, however many there are."""
    stream.write("[")
    mark = "\n"
    for item in items:
        stream.write(mark)
        stream.write(item)
        mark = ",\n"
    stream.write("\n]")


def entries(content: dict[str, Any], key: str, where: str, remedy: str) -> list[Any]:
    """Return the list under ``key`` of a JSON object, empty if it has none; anything else is an error."""
    value = content.get(key)
    if value is not None and not isinstance(value, list):
        raise TableError(f"{where}: its {key!r} is not a list: {remedy}.")
    return value or []


def mapping(value: Any, where: str) -> dict[str, Any]:
    """Return ``value`` if it is a JSON object, else say where it is not."""
    if not isinstance(value, dict):
        raise TableError(f"{where} is not a JSON object: check that it is the file you mean.")
    return value
