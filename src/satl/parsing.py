"""JSON, YAML and XML that somebody else wrote: whatever is wrong with it, a ``ValueError`` says so.

Python's own parsers answer hostile text with a dozen kinds of errors: thousands of brackets with ``RecursionError``,
an encoding that nobody knows with ``LookupError``. A reader that knows only one of them shows a traceback for the
others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree


def parse_json(
    content: str | bytes,
    parse_constant: Callable[[str], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
) -> Any:
    """Return what a JSON text says.

    Args:
        content: the text, or its bytes in UTF-8.
        parse_constant: called with ``NaN``, ``Infinity`` or ``-Infinity``.
        parse_float: called with numbers that are not whole.

    Raises:
        ValueError: it is not JSON or not UTF-8, is nested too deeply, holds a number of thousands of digits, or text
            that no file can hold.

    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    try:
        value = json.loads(text, parse_constant=parse_constant, parse_float=parse_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    require_text(value, text)
    return value


def require_text(value: Any, text: str) -> None:
    """Refuse half of a surrogate pair, which JSON can name and no file can hold.

    Args:
        value: what was parsed.
        text: what it was parsed from, which shows whether there can be any.

    Raises:
        ValueError: there is one.
    """
    if "\\ud" not in text.lower():
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, which is no text") from None


def parse_yaml(text: str, loader: Any = None) -> Any:
    """Return what a YAML text says, as plain data.

    Args:
        text: the text.
        loader: PyYAML's class that reads it, a safe one; None for its ``SafeLoader``.

    Raises:
        ValueError: it is not YAML, or holds an impossible date, a number of thousands of digits, thousands of brackets,
            or text that no file can hold; the message says the line, where it is known, as ``at line 3``.

    >>> parse_yaml("{a: [1, two]}")
    {'a': [1, 'two']}
    """
    import yaml  # here, because what reads no YAML starts sooner without it

    loader = yaml.SafeLoader if loader is None else loader
    try:
        value = yaml.load(text, loader)
        _require_tree(value, set(), set())
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        raise ValueError("" if place is None else f"at line {place.line + 1}") from error
    return value


def _require_tree(value: Any, around: set[int], done: set[int]) -> None:
    """Refuse what contains itself and text that no file can hold; what is named often is looked at once."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, (list, dict)) and id(value) not in done:
        if id(value) in around:
            raise ValueError("it contains itself")
        around.add(id(value))
        for part in value if isinstance(value, list) else (*value, *value.values()):
            _require_tree(part, around, done)
        around.discard(id(value))
        done.add(id(value))


def parse_xml(path: Path | IO[bytes]) -> ElementTree.Element:
    """Return the outermost element of an XML file.

    Raises:
        ValueError: it is not XML, or in an encoding that cannot be read.
        OSError: it cannot be read.
    """
    with _xml_errors():
        return ElementTree.parse(path).getroot()


def xml_events(path: Path) -> Iterator[tuple[str, ElementTree.Element]]:
    """Yield ("start" or "end", element) of an XML file as it is read.

    Raises:
        ValueError: it is not XML, or in an encoding that cannot be read.
        OSError: it cannot be read.
    """
    with _xml_errors():
        events = iter(ElementTree.iterparse(path, events=("start", "end")))
    while True:
        with _xml_errors():
            event = next(events, None)
        if event is None:
            return
        yield event


@contextmanager
def _xml_errors() -> Iterator[None]:
    """Turn what the parser raises into a ``ValueError``; text in a wrong encoding raises one already."""
    try:
        yield
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None
    except LookupError as error:
        raise ValueError(f"its encoding is not known ({error})") from None
