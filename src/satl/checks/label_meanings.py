"""What the values of labels mean: named encodings, and the words of a refusal to guess between them.

The same three numbers mean opposite things in different projects: ``0`` is "unknown" in one and "absent" in the next,
``-1`` is "absent" here and "unknown" there. So every encoding has a name, which files and arrays share. Files are read
by :mod:`satl.labels.encodings`, arrays by :mod:`satl.checks.array_checks`, tensors by :mod:`satl.checks.tensor_checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from satl.errors import Argument, EncodingError, SatlError, Sentence, nearest

PRESENT = 1
ABSENT = -1
UNKNOWN = 0

AnyError = TypeVar("AnyError", bound=SatlError)

BLANK = ""
PRESENT_WORDS = ("present", "yes", "y", "positive", "pos")
ABSENT_WORDS = ("absent", "no", "n", "negative", "neg")
UNKNOWN_WORDS = ("unknown", "unlabelled", "unlabeled", "?")


@dataclass(frozen=True)
class Encoding:
    """A way of writing present, absent and unknown.

    Attributes:
        name: what the argument ``encoding`` takes.
        summary: the meaning in a few words, for messages and documentation.
        reads: plain value -> +1, -1 or 0.
        writes: +1, -1 or 0 -> value; a state that the encoding cannot express is missing.
    """

    name: str
    summary: str
    reads: Mapping[str, int]
    writes: Mapping[int, str]


ENCODINGS: Mapping[str, Encoding] = {
    encoding.name: encoding
    for encoding in (
        Encoding(
            "complete",
            "1 present, 0 absent, nothing unknown",
            {"1": PRESENT, "0": ABSENT},
            {PRESENT: "1", ABSENT: "0"},
        ),
        Encoding(
            "blank",
            "1 present, 0 absent, blank unknown",
            {"1": PRESENT, "0": ABSENT, BLANK: UNKNOWN},
            {PRESENT: "1", ABSENT: "0", UNKNOWN: ""},
        ),
        Encoding(
            "signed",
            "1 present, -1 absent, 0 or blank unknown",
            {"1": PRESENT, "-1": ABSENT, "0": UNKNOWN, BLANK: UNKNOWN},
            {PRESENT: "1", ABSENT: "-1", UNKNOWN: "0"},
        ),
        Encoding(
            "csl",
            "1 present, 0 absent, -1 unknown",
            {"1": PRESENT, "0": ABSENT, "-1": UNKNOWN},
            {PRESENT: "1", ABSENT: "0", UNKNOWN: "-1"},
        ),
        Encoding(
            "chexpert",
            "1 present, 0 absent, blank unknown, -1 (uncertain) unknown",
            {"1": PRESENT, "0": ABSENT, "-1": UNKNOWN, BLANK: UNKNOWN},
            {PRESENT: "1", ABSENT: "0", UNKNOWN: ""},
        ),
        Encoding(
            "words",
            "present or yes, absent or no, unknown or blank",
            {
                **dict.fromkeys(PRESENT_WORDS, PRESENT),
                **dict.fromkeys(ABSENT_WORDS, ABSENT),
                **dict.fromkeys(UNKNOWN_WORDS, UNKNOWN),
                "1": PRESENT,
                "0": ABSENT,
                BLANK: UNKNOWN,
            },
            {PRESENT: "present", ABSENT: "absent", UNKNOWN: "unknown"},
        ),
    )
}
"""The encodings by name."""


def find_encoding(name: str) -> Encoding:
    """Return the encoding called ``name``, or an error that lists the names.

    >>> find_encoding("csl").summary
    '1 present, 0 absent, -1 unknown'
    >>> find_encoding("cls")
    Traceback (most recent call last):
    satl.errors.EncodingError: encoding='cls': is not an encoding (did you mean 'csl'?); choose one of complete, ...
    """
    try:
        return ENCODINGS[name]
    except KeyError:
        raise EncodingError(
            f"is not an encoding{nearest(name, ENCODINGS)}",
            where=Argument("encoding", name),
            remedy=f"choose one of {', '.join(ENCODINGS)}",
        ) from None


def describe_counts(counts: Mapping[str, int]) -> str:
    """Say how often each value occurs.

    >>> describe_counts({"0": 1200, "": 1})
    '0 in 1,200 cells, blank in 1 cell'
    """
    return ", ".join(
        f"{value or 'blank'} in {count:,} cell{'s' * (count != 1)}" for value, count in counts.items()
    )


def readings(counts: Mapping[str, int]) -> list[tuple[Encoding, dict[str, int]]]:
    """List the encodings that read all values, one per distinct meaning, with the states they would give."""
    found: dict[tuple[tuple[str, int], ...], tuple[Encoding, dict[str, int]]] = {}
    for encoding in ENCODINGS.values():
        if set(counts) <= set(encoding.reads):
            meaning = tuple((value, encoding.reads[value]) for value in sorted(counts))
            totals = dict.fromkeys(("present", "absent", "unknown"), 0)
            for value, state in meaning:
                totals[("unknown", "present", "absent")[state]] += counts[value]
            found.setdefault(meaning, (encoding, totals))
    return list(found.values())


def pass_encoding(choices: Iterable[tuple[Encoding, str]]) -> Sentence:
    """Return the advice to pass one of some encodings, each with a remark or ""."""
    parts = {f"encoding_{number}": encoding for number, encoding in enumerate(choices)}
    text = ", or ".join(f"{{{name}}}{remark}" for name, (_, remark) in parts.items())
    return Sentence(
        f"pass {text}", **{name: Argument("encoding", chosen.name) for name, (chosen, _) in parts.items()}
    )


def refusal(counts: Mapping[str, int], where: str, kind: type[AnyError]) -> AnyError:
    """Return the error about values that can be read in several ways, with the counts seen and the choices."""
    choices = readings(counts)
    seen = describe_counts(counts)
    if not choices:
        known = "; ".join(f"{encoding.name} ({encoding.summary})" for encoding in ENCODINGS.values())
        return kind(
            f"mixes values that no single encoding reads ({seen})",
            where=where,
            remedy=Sentence(
                f"write one of {known}, and pass it as {{encoding}}", encoding=Argument("encoding")
            ),
        )
    ways = f"{len(choices)} ways" if len(choices) > 1 else "no way that is certain"
    return kind(
        f"can be read in {ways} ({seen})",
        where=where,
        remedy=pass_encoding(
            (
                encoding,
                f" ({encoding.summary}: {totals['present']:,} present, {totals['absent']:,} absent, "
                f"{totals['unknown']:,} unknown)",
            )
            for encoding, totals in choices
        ),
    )
