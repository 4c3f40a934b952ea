"""What the values in a file mean: named encodings, and a refusal to guess between them.

The same three numbers mean opposite things in different projects: ``0`` is "unknown" in one and
"absent" in the next, ``-1`` is "absent" here and "unknown" there. So every encoding has a name, and a
file is read without one only where its values leave a single reading (:func:`detect_encoding`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from satl.errors import Argument, EncodingError, Sentence, TableError, nearest
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, Cells

BLANK = ""
_BLANK_WORDS = frozenset({"", "nan", "-nan", "na", "n/a", "#n/a", "<na>", "null"})
_PRESENT_WORDS = ("present", "yes", "y", "positive", "pos")
_ABSENT_WORDS = ("absent", "no", "n", "negative", "neg")
_UNKNOWN_WORDS = ("unknown", "unlabelled", "unlabeled", "?")
# A boolean says as little about "unknown" as 1 and 0 do, so it is treated as them.
_BOOLEANS = {"true": "1", "false": "0"}

VALUES: tuple[str, ...] = (BLANK, "1", "0", "-1", *_PRESENT_WORDS, *_ABSENT_WORDS, *_UNKNOWN_WORDS)
"""Every value that some encoding reads, in its plain form; readers code cells as positions in it."""

_CODES = {value: code for code, value in enumerate(VALUES)}
NOT_A_LABEL = 255
"""The code of a value that no encoding reads."""


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
                **dict.fromkeys(_PRESENT_WORDS, PRESENT),
                **dict.fromkeys(_ABSENT_WORDS, ABSENT),
                **dict.fromkeys(_UNKNOWN_WORDS, UNKNOWN),
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


def refuse_encoding(encoding: str | None, why: str, where: str | os.PathLike[str] | None = None) -> None:
    """Raise where an encoding is given for a format that needs none.

    Args:
        encoding: its name, or None.
        why: what the format does instead, such as "lists annotations".
        where: the file.
    """
    if encoding is not None:
        raise EncodingError(
            f"{why}, so encoding '{encoding}' does not apply",
            where=where,
            remedy=Sentence("leave out {encoding}", encoding=Argument("encoding")),
        )


@lru_cache(maxsize=4096)
def value_code(value: str) -> int:
    """Return the code (position in ``VALUES``) of a value as written in a file, or ``NOT_A_LABEL``.

    Case, surrounding white space and the ways to write a number or a gap do not matter.

    >>> [VALUES[value_code(v)] for v in ("1.0", " -1", "Yes", "NaN", "False")]
    ['1', '-1', 'yes', '', '0']
    >>> value_code("2") == NOT_A_LABEL
    True
    """
    plain = value.strip().lower()
    if plain in _BLANK_WORDS:
        return _CODES[BLANK]
    plain = _BOOLEANS.get(plain, plain)
    if plain not in _CODES:
        try:
            number = float(plain)
        except ValueError:
            return NOT_A_LABEL
        plain = str(int(number)) if number in (-1, 0, 1) else plain
    return _CODES.get(plain, NOT_A_LABEL)


def only_values(texts: Iterable[str]) -> bool:
    """Whether all texts are values that some encoding reads, so that none is certainly a name."""
    return all(value_code(text) != NOT_A_LABEL for text in texts)


def array_codes(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Return the code of every entry of a number, bool or text array; same shape, uint8."""
    if values.dtype.kind == "U":
        words, inverse = np.unique(values, return_inverse=True)
        codes = np.array([value_code(str(word)) for word in words.tolist()], dtype=np.uint8)
        return codes[inverse].reshape(values.shape)
    out = np.full(values.shape, NOT_A_LABEL, dtype=np.uint8)
    for value in ("1", "0", "-1"):
        if value != "-1" or values.dtype.kind in "if":
            out[values == int(value)] = _CODES[value]
    if values.dtype.kind == "f":
        out[np.isnan(values)] = _CODES[BLANK]
    return out


def value_counts(codes: npt.NDArray[np.uint8]) -> dict[str, int]:
    """Count the values of a coded array, most frequent first; a blank is counted under ``""``."""
    counts = np.zeros(256, dtype=np.int64)
    # Row by row: bincount would widen the whole table to 8 bytes a cell.
    for part in np.array_split(codes.ravel(), max(1, codes.size // 4_000_000)):
        counts += np.bincount(part, minlength=256)
    seen = [(VALUES[i], int(counts[i])) for i in range(len(VALUES)) if counts[i]]
    return dict(sorted(seen, key=lambda item: -item[1]))


def detect_encoding(counts: Mapping[str, int], where: str = "the table") -> Encoding:
    """Return the one encoding that the values seen allow, or refuse with the choices.

    Args:
        counts: plain value -> number of cells, as from :func:`value_counts`.

    Decided: words, and 1 / 0 / blank. A ``0`` counts as absent only beside blanks (or the word
    "unknown"), which show that "unknown" is written in another way. Refused: ``0`` without them, and
    every table with a ``-1``.

    >>> detect_encoding({"1": 3, "0": 9, "": 30}).name
    'blank'
    >>> detect_encoding({"yes": 3, "no": 9}).name
    'words'
    >>> detect_encoding({"1": 3, "0": 9}, "pets.csv")
    Traceback (most recent call last):
    satl.errors.EncodingError: pets.csv: can be read in 2 ways (1 in 3 cells, 0 in 9 cells); pass encoding=...
    """
    seen = set(counts)
    unknown_marked = BLANK in seen or not seen.isdisjoint(_UNKNOWN_WORDS)
    if "-1" not in seen and ("0" not in seen or unknown_marked):
        return ENCODINGS["blank" if seen <= set(ENCODINGS["blank"].reads) else "words"]
    raise _refusal(counts, where)


def decode(codes: npt.NDArray[np.uint8], reads: Mapping[str, int]) -> Cells:
    """Turn codes into int8 states of the same shape; 2 marks what is not in ``reads`` (plain value -> state)."""
    lookup = np.full(256, 2, dtype=np.int8)
    for value, state in reads.items():
        lookup[_CODES[value]] = state
    return lookup[codes]


def default_encoding(cells: Cells) -> Encoding:
    """Return the encoding in which a text file of these cells reads back without an option.

    That is ``blank``, except where nothing is unknown: 1 and 0 alone are ambiguous, so ``words``.
    """
    return ENCODINGS["blank" if bool((cells == UNKNOWN).any()) else "words"]


def require_writable(cells: Cells, encoding: Encoding) -> None:
    """Raise where ``encoding`` cannot express some cell."""
    if UNKNOWN not in encoding.writes:
        unknown = int((cells == UNKNOWN).sum())
        if unknown:
            raise TableError(
                f"the table does not fit encoding '{encoding.name}' ({encoding.summary}) because "
                f"{unknown:,} cells are unknown",
                remedy="choose encoding 'blank'",
            )


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


def _refusal(counts: Mapping[str, int], where: str) -> EncodingError:
    choices = readings(counts)
    seen = describe_counts(counts)
    if not choices:
        known = "; ".join(f"{encoding.name} ({encoding.summary})" for encoding in ENCODINGS.values())
        return EncodingError(
            f"mixes values that no single encoding reads ({seen})",
            where=where,
            remedy=Sentence(
                f"write one of {known}, and pass it as {{encoding}}", encoding=Argument("encoding")
            ),
        )
    ways = f"{len(choices)} ways" if len(choices) > 1 else "no way that is certain"
    return EncodingError(
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
