"""The list of methods without torch: what ``satl methods`` and ``satl recipes`` print.

Methods are declared by Python files that import networks and losses, and so torch, which takes seconds. What lists say
of them is kept in ``method_list.json``, together with a digest of those files, written by ``python
tools/write_method_list.py``. It is used as long as the digest is that of the files; where a file has changed
or come, where another package brings methods, and where the methods are loaded anyway, the declarations themselves are
asked. So the kept list saves time and decides nothing.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parent / "method_list.json"
_DECLARATIONS = Path(__file__).parents[1] / "methods"


class ListedMethod(NamedTuple):
    """What lists say of a method; see :class:`satl.methods.Method`."""

    name: str
    summary: str
    reference: str
    rule: str | None
    framework: str


def listed_methods() -> dict[str, ListedMethod]:
    """Return all methods by name, those of other packages included, in the order of registration.

    >>> listed_methods()["sst+satl"].framework
    'sst'
    """
    kept = _kept()
    if kept is None:
        return declared_methods()
    return {entry["name"]: ListedMethod(**entry) for entry in kept["methods"]}


def listed_rules() -> tuple[str, ...]:
    """Return the names of all threshold rules, in the order of registration.

    >>> "semantic" in listed_rules()
    True
    """
    kept = _kept()
    return declared_rules() if kept is None else tuple(kept["rules"])


def _kept() -> dict[str, Any] | None:
    """Return the kept list, or None where the declarations must be asked."""
    # The name of the entry point stands here too: asking satl.methods for it would load torch.
    if "satl.methods" in sys.modules or entry_points(group="satl.methods"):
        return None
    try:
        kept: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept if kept.get("digest") == _digest() else None


def declared_methods() -> dict[str, ListedMethod]:
    """Return the same from the declarations, which loads torch."""
    from satl.methods import METHODS

    return {
        method.name: ListedMethod(
            method.name, method.summary, method.reference, method.rule, method.framework
        )
        for method in METHODS.values()
    }


def declared_rules() -> tuple[str, ...]:
    """Return the names of all threshold rules from the declarations, which loads torch."""
    from satl.methods import METHODS
    from satl.methods.method_parts import RULES

    assert METHODS  # whose files register the rules
    return tuple(RULES)


def method_list() -> dict[str, Any]:
    """Return the content of ``method_list.json``."""
    methods = [method._asdict() for method in declared_methods().values()]
    return {"digest": _digest(), "methods": methods, "rules": list(declared_rules())}


def _digest() -> str:
    """Return a digest of the names and contents of all files that may declare a method."""
    result = hashlib.sha256()
    for path in sorted(_DECLARATIONS.glob("*.py")):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        result.update(f"{path.name}:{len(content)};".encode())
        result.update(content)
    return result.hexdigest()
