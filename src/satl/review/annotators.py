"""Names of annotators: what may be one."""

from __future__ import annotations

import unicodedata

LONGEST_NAME = 64


def annotator_name(text: str) -> str:
    """Return the name of an annotator in the one form in which it is stored; empty for a person without a name.

    Raises:
        ValueError: it is longer than :data:`LONGEST_NAME` or holds a character that cannot be shown.

    >>> annotator_name("  Ann   Lee ")
    'Ann Lee'
    """
    if len(text) > 16 * LONGEST_NAME:
        raise ValueError("is too long for the name of an annotator")
    name = unicodedata.normalize("NFC", " ".join(text.split()))
    if len(name) > LONGEST_NAME:
        raise ValueError(f"is longer than {LONGEST_NAME} characters")
    if not all(character.isprintable() for character in name):
        raise ValueError("holds a character that cannot be shown")
    return name
